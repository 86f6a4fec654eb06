"""CrewAI: a crew of one agent, chat completions."""

import asyncio
import os
import tempfile
from contextlib import suppress
from typing import Any

os.environ.update(
    CREWAI_STORAGE_DIR=tempfile.mkdtemp(),
    CREWAI_DISABLE_TELEMETRY="true",
    CREWAI_TRACING_ENABLED="false",
    OTEL_SDK_DISABLED="true",
)

import harness  # noqa: E402
from crewai import LLM, Agent, Crew, Process, Task  # noqa: E402
from crewai.flow import Flow, HumanFeedbackPending, human_feedback, start  # noqa: E402
from crewai.tools import BaseTool, tool  # noqa: E402
from pydantic import BaseModel  # noqa: E402

from endstop import Outcome  # noqa: E402
from endstop.adapters.crewai import Endstop, EndstopStopped, tapped  # noqa: E402


@tool("echo")
def echo(text: str) -> str:
    """Echo."""
    harness.RAN.append(text)
    return text


async def run(model: str, stream: bool, guarded: bool) -> dict[str, Any]:
    llm = LLM(
        model="openai/" + model, base_url=harness.BASE, api_key="x", stream=stream, max_retries=0
    )

    def crew() -> Crew:
        agent = Agent(
            role="r", goal="g", backstory="b", llm=llm, tools=[echo], allow_delegation=False
        )
        task = Task(description="go", expected_output="text", agent=agent)
        return Crew(agents=[agent], tasks=[task], tracing=False)

    if not guarded:
        result = await asyncio.to_thread(lambda: crew().kickoff())
        return {"ending": "returned", "evidence": result.raw[:40]}
    tapped(llm)

    def go() -> Endstop:
        stop = Endstop(**harness.LIMITS)
        try:
            with stop:
                crew().kickoff()
        except EndstopStopped as stopped:
            assert stopped.outcome == stop.outcome
        except Exception:
            if stop.outcome.is_success:
                raise
        return stop

    # In a thread, so that runs are concurrent.
    stop = await asyncio.to_thread(go)
    return harness.ended(stop.outcome)


class City(BaseModel):
    name: str


class Echo(BaseTool):
    """The same tool, whose result is the answer."""

    name: str = "echo"
    description: str = "Echo."
    result_as_answer: bool = True

    def _run(self, text: str) -> str:
        harness.RAN.append(text)
        return text


def llm(script: str) -> LLM:
    return tapped(LLM(model="openai/" + script, base_url=harness.BASE, api_key="x", max_retries=0))


def task(script: str, *, tools: Any = None, agent: Any = None, **options: Any) -> Task:
    known = {"role": "r", "goal": "g", "backstory": "b", "allow_delegation": False}
    tools = [echo] if tools is None else tools
    agent = Agent(llm=llm(script), tools=tools, **known | (agent or {}))
    return Task(**{"description": "go", "expected_output": "text", "agent": agent} | options)


def crew(*tasks: Task, **options: Any) -> Crew:
    return Crew(agents=[one.agent for one in tasks], tasks=[*tasks], tracing=False, **options)


async def one(given: Crew) -> Outcome:
    def go() -> Endstop:
        stop = Endstop(**harness.LIMITS)
        try:
            with stop:
                given.kickoff()
        except EndstopStopped as stopped:
            assert stopped.outcome == stop.outcome
        except Exception:
            if stop.outcome.is_success:
                raise
        return stop

    return (await asyncio.to_thread(go)).outcome


@harness.case("stop")
async def cached() -> Outcome:
    return await one(crew(task("m-cached")))


@harness.case("submitted")
async def structured() -> Outcome:
    return await one(crew(task("m-do.A.echo.json.json", output_pydantic=City)))


@harness.case("error_output_truncated")
async def structured_cut() -> Outcome:
    return await one(crew(task("m-do.A.length", output_pydantic=City)))


@harness.case("submitted")
async def result_as_answer() -> Outcome:
    return await one(crew(task("m-do.A.echo.stop", tools=[Echo()])))


@harness.case("stop")
async def approval() -> Outcome:
    """A flow that waits for a person's feedback, and continues in another scope."""

    class Pauses:
        def request_feedback(self, context: Any, flow: Any) -> str:
            raise HumanFeedbackPending(context=context)

    class Asks(Flow[dict[str, Any]]):
        @start()
        @human_feedback(message="good?", provider=Pauses())
        def go(self) -> str:
            return str(crew(task("m-do.A.echo.stop")).kickoff().raw)

    def pause() -> tuple[str, str]:
        with Endstop(**harness.LIMITS) as stop:
            flow = Asks()
            result = flow.kickoff()
            assert isinstance(result, HumanFeedbackPending)
            return flow.flow_id, stop.park()

    def go_on(parked: str) -> Endstop:
        with Endstop(**harness.LIMITS, parked=parked) as stop:
            crew(task("m-do.B.echo.stop")).kickoff()
        return stop

    _, parked = await asyncio.to_thread(pause)
    return (await asyncio.to_thread(go_on, parked)).outcome


@harness.case("stop")
async def subagent() -> Outcome:
    """A delegation to another agent."""
    boss = task("m-do.A.delegate.stop", tools=[], agent={"allow_delegation": True})
    helper = task("m-do.B.echo.stop", agent={"role": "x"})
    given = Crew(agents=[boss.agent, helper.agent], tasks=[boss], tracing=False)
    return await one(given)


@harness.case("stop")
async def hierarchical() -> Outcome:
    worker = task("m-do.B.echo.stop", agent={"role": "x"})
    manager = llm("m-do.M.delegate.stop")
    worker.agent = None
    agents = [task("m-do.B.echo.stop", agent={"role": "x"}).agent]
    given = Crew(
        agents=agents,
        tasks=[worker],
        process=Process.hierarchical,
        manager_llm=manager,
        tracing=False,
    )
    return await one(given)


@harness.case("stop")
async def sequential() -> Outcome:
    return await one(crew(task("m-do.A.echo.stop"), task("m-do.B.echo.stop")))


@harness.case("stop")
async def parallel_agents() -> Outcome:
    tasks = [task(f"m-do.{name}.echo.stop", async_execution=True) for name in "abc"]
    return await one(crew(*tasks, task("m-do.d.echo.stop")))


@harness.case("cancelled")
async def cancel() -> Outcome:
    """The crew's thread continues, and makes no other call."""
    stop = Endstop(**harness.LIMITS | {"max_turns": 1000})

    async def go() -> None:
        async with stop:
            await crew(task("m-budget", agent={"max_iter": 1000})).kickoff_async()

    await harness.cancelled(asyncio.create_task(go()), "m-budget", 2)
    before = sum(harness.get("/stats").values())
    await asyncio.sleep(1)
    assert sum(harness.get("/stats").values()) <= before + 1
    return stop.outcome


@harness.case("cancelled")
async def timeout() -> Outcome:
    stop = Endstop(**harness.LIMITS)
    try:
        async with asyncio.timeout(1), stop:
            await crew(task("m-do.A.slow")).akickoff()
    except TimeoutError:
        pass
    return stop.outcome


@harness.case("error_halted")
async def guardrail() -> Outcome:
    def check(output: Any) -> tuple[bool, Any]:
        return False, "not good"

    return await one(crew(task("m-stop", guardrail=check, guardrail_max_retries=1)))


@harness.case("error_max_turns")
async def own_limit() -> Outcome:
    return await one(crew(task("m-do.A.echo.echo.stop", agent={"max_iter": 2})))


@harness.case("error_during_execution")
async def forgotten() -> Outcome:
    given = crew(task("m-stop"))

    def go() -> Endstop:
        with Endstop(**harness.LIMITS) as stop:
            pass
        given.kickoff()
        return stop

    stopped = await asyncio.to_thread(go)
    # The adapter sees nothing of these calls.
    harness.get("/reset")
    return stopped.outcome


@harness.case("error_max_budget_usd")
async def run_inside_of_a_run() -> Outcome:
    """The crew in the tool is in a block of its own, whose run the outer one pays for."""
    ended: list[Outcome] = []
    settings = {**harness.LIMITS, "on_end": ended.append}

    @tool("helper")
    def helper(text: str) -> str:
        """Help."""
        with suppress(EndstopStopped), Endstop(**settings):
            crew(task("m-budget")).kickoff()
        return "stopped"

    harness.LIMITS["max_budget_usd"] = 0.5
    outcome = await one(crew(task("m-ten", tools=[helper])))
    assert [(one.termination, one.model_calls) for one in ended] == [("cancelled", 2)], ended
    return outcome


harness.main("crewai", run)
