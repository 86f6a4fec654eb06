"""Google ADK, Gemini's own format."""

import asyncio
import contextlib
import functools
import json
from typing import Any

import harness
from google import genai
from google.adk.agents import LlmAgent, LoopAgent, ParallelAgent, SequentialAgent
from google.adk.agents.run_config import RunConfig, StreamingMode
from google.adk.apps import App
from google.adk.events import Event
from google.adk.models.google_llm import Gemini
from google.adk.runners import InMemoryRunner
from google.adk.sessions import Session
from google.adk.tools import AgentTool, FunctionTool, LongRunningFunctionTool, exit_loop
from google.genai import types
from pydantic import BaseModel

import endstop
from endstop import Outcome
from endstop.adapters.google_adk import EndstopPlugin


class Scripted(Gemini):
    """The model of the scripted server."""

    @functools.cached_property
    def api_client(self) -> genai.Client:
        retries = types.HttpRetryOptions(attempts=1)
        options = types.HttpOptions(base_url=harness.ROOT, retry_options=retries)
        return genai.Client(api_key="x", vertexai=False, http_options=options)


def echo(text: str) -> str:
    """Echo."""
    harness.RAN.append(text)
    return text


async def run(model: str, stream: bool, guarded: bool) -> dict[str, Any]:
    agent = LlmAgent(name="a", model=Scripted(model=model), instruction="x", tools=[echo])
    outcomes: list[endstop.Outcome] = []
    guard = EndstopPlugin(**harness.LIMITS, on_end=outcomes.append)
    plugins = [guard] if guarded else []
    runner = InMemoryRunner(app=App(name="t", root_agent=agent, plugins=plugins))
    session = await runner.session_service.create_session(app_name="t", user_id="u")
    mode = StreamingMode.SSE if stream else StreamingMode.NONE
    last: Any = None
    try:
        async for event in runner.run_async(
            user_id="u",
            session_id=session.id,
            new_message=types.Content(role="user", parts=[types.Part(text="go")]),
            run_config=RunConfig(streaming_mode=mode, max_llm_calls=500),
        ):
            last = event
    except Exception:
        if not guarded or not outcomes or outcomes[0].is_success:
            raise
    if not guarded:
        code = last.error_code if last is not None else None
        return {"ending": f"error code {code}" if code else "returned"}
    assert len(outcomes) == 1, "one ending"
    assert last is None or guard.outcome_of(last) == outcomes[0]
    return harness.ended(outcomes[0])


class City(BaseModel):
    name: str


class Program:
    """A runner with one session, and the outcomes of its runs."""

    def __init__(self, agent: Any, *, calls: int = 500, **limits: Any) -> None:
        self.outcomes: list[endstop.Outcome] = []
        self.guard = EndstopPlugin(**harness.LIMITS, **limits, on_end=self.outcomes.append)
        self.runner = InMemoryRunner(app=App(name="t", root_agent=agent, plugins=[self.guard]))
        self.settings = RunConfig(max_llm_calls=calls)
        self.events: list[Event] = []

    async def go(self, *parts: types.Part, session: Session | None = None) -> "Program":
        async for event in self.stream(*parts, session=session):
            self.events.append(event)
        return self

    async def stream(self, *parts: types.Part, session: Session | None = None) -> Any:
        service = self.runner.session_service
        self.session = session or await service.create_session(app_name="t", user_id="u")
        message = types.Content(role="user", parts=[*parts] or [types.Part(text="go")])
        events = self.runner.run_async(
            user_id="u", session_id=self.session.id, new_message=message, run_config=self.settings
        )
        async with contextlib.aclosing(events):
            async for event in events:
                yield event

    @property
    def outcome(self) -> Outcome:
        (outcome,) = self.outcomes
        return outcome


def agent(model: str, name: str = "a", **options: Any) -> LlmAgent:
    return LlmAgent(name=name, model=Scripted(model=model), **{"tools": [echo]} | options)


def careful(text: str) -> str:
    """A tool that asks a person."""
    harness.RAN.append(text)
    return text


def later(text: str) -> None:
    """A tool whose result comes later."""


@harness.case("stop")
async def cached() -> Outcome:
    return (await Program(agent("m-cached")).go()).outcome


@harness.case("submitted")
async def structured() -> Outcome:
    """An object by a tool, because the agent has tools."""
    return (await Program(agent("m-do.A.echo.set_model", output_schema=City)).go()).outcome


@harness.case("error_output_truncated")
async def structured_cut() -> Outcome:
    return (await Program(agent("m-do.A.halt", output_schema=City)).go()).outcome


def asking() -> LlmAgent:
    return agent("m-do.A.careful.stop", tools=[FunctionTool(careful, require_confirmation=True)])


async def ask(_: Any) -> Any:
    """Runs until a person is asked. Returns the events and the state of the session."""
    harness.LIMITS.update(harness.CASE_LIMITS)
    program = await Program(asking()).go()
    assert not program.outcomes and not harness.RAN
    service = program.runner.session_service
    known = await service.get_session(app_name="t", user_id="u", session_id=program.session.id)
    assert known is not None
    return known.model_dump(mode="json")


async def answer(stored: Any, yes: bool = True) -> Outcome:
    known = Session.model_validate(stored)
    program = Program(asking())
    service = program.runner.session_service
    session = await service.create_session(app_name="t", user_id="u", state=known.state)
    for event in known.events:
        await service.append_event(session, event)
    (request,) = (
        call
        for event in known.events
        for call in event.get_function_calls()
        if call.name == "adk_request_confirmation"
    )
    response = types.FunctionResponse(id=request.id, name=request.name, response={"confirmed": yes})
    await program.go(types.Part(function_response=response), session=session)
    return program.outcome


@harness.elsewhere
async def ask_elsewhere(given: str) -> str:
    return json.dumps(await ask(json.loads(given)))


@harness.case("stop")
async def approval() -> Outcome:
    return await answer(await ask(None))


@harness.case("stop")
async def approval_refused() -> Outcome:
    return await answer(await ask(None), False)


@harness.case("stop")
async def approval_process() -> Outcome:
    return await answer(json.loads(ask_elsewhere(json.dumps(None))))


@harness.case("stop")
async def approval_in_scope() -> Outcome:
    """The same plugin and session, and the caller leaves the events at the question."""
    program = Program(asking())
    events = program.stream()
    async for event in events:
        for call in event.get_function_calls():
            if call.name == "adk_request_confirmation":
                request = call
                break
        else:
            continue
        break
    await events.aclose()
    assert not program.outcomes
    response = types.FunctionResponse(
        id=request.id, name=request.name, response={"confirmed": True}
    )
    await program.go(types.Part(function_response=response), session=program.session)
    return program.outcome


@harness.case("stop")
async def long_running() -> Outcome:
    """A result that comes in another invocation."""
    program = Program(agent("m-do.A.later.stop", tools=[LongRunningFunctionTool(later)]))
    await program.go()
    assert not program.outcomes
    calls = [call for event in program.events for call in event.get_function_calls()]
    response = types.FunctionResponse(id=calls[0].id, name="later", response={"done": True})
    await program.go(types.Part(function_response=response), session=program.session)
    return program.outcome


@harness.case("stop")
async def subagent() -> Outcome:
    """It is asked twice."""
    helper = agent("m-do.B.echo.stop.echo.stop", "helper", description="helps")
    return (
        await Program(agent("m-do.A.helper.helper.stop", tools=[AgentTool(helper)])).go()
    ).outcome


@harness.case("error_max_budget_usd")
async def subagent_budget() -> Outcome:
    """The helper has no end of its own."""
    helper = agent("m-budget", "helper", description="helps")
    tools = [AgentTool(helper)]
    return (
        await Program(agent("m-do.A.helper.stop", tools=tools), max_budget_usd=1.0).go()
    ).outcome


@harness.case("stop")
async def handoff() -> Outcome:
    # The server's name of the next agent is `x`.
    second = agent("m-do.B.echo.stop", "x", description="helps")
    return (
        await Program(agent("m-do.A.transfer.stop", tools=[], sub_agents=[second])).go()
    ).outcome


@harness.case("stop")
async def sequential() -> Outcome:
    agents: list[Any] = [agent(f"m-do.{name}.echo.stop", name) for name in "ab"]
    return (await Program(SequentialAgent(name="s", sub_agents=agents)).go()).outcome


@harness.case("submitted")
async def loop_agent() -> Outcome:
    inner = agent("m-do.A.echo.stop.exit", "inner", tools=[echo, exit_loop])
    return (await Program(LoopAgent(name="l", sub_agents=[inner])).go()).outcome


@harness.case("stop")
async def parallel_agents() -> Outcome:
    agents: list[Any] = [agent(f"m-do.{name}.echo.stop", name) for name in "abcd"]
    return (await Program(ParallelAgent(name="p", sub_agents=agents)).go()).outcome


@harness.case("error_output_truncated")
async def parallel_cut() -> Outcome:
    agents: list[Any] = [agent(f"m-do.{name}.echo.stop", name) for name in "abc"]
    agents.append(agent("m-do.d.echo.length", "d"))
    return (await Program(ParallelAgent(name="p", sub_agents=agents)).go()).outcome


@harness.case("cancelled")
async def cancel() -> Outcome:
    program = Program(agent("m-do.A.echo.slow"))
    await harness.cancelled(asyncio.create_task(program.go()), "m-do.A.echo.slow", 2)
    return program.outcome


@harness.case("cancelled")
async def cancel_sequential() -> Outcome:
    program = Program(SequentialAgent(name="s", sub_agents=[agent("m-do.A.echo.slow")]))
    await harness.cancelled(asyncio.create_task(program.go()), "m-do.A.echo.slow", 2)
    return program.outcome


@harness.case("cancelled")
async def timeout() -> Outcome:
    program = Program(agent("m-do.A.slow"))
    try:
        async with asyncio.timeout(1):
            await program.go()
    except TimeoutError:
        pass
    return program.outcome


@harness.case("cancelled")
async def left() -> Outcome:
    program = Program(agent("m-do.A.echo.stop"))
    events = program.stream()
    async for _ in events:
        break
    await events.aclose()
    return program.outcome


@harness.case("stop")
async def left_at_the_answer() -> Outcome:
    """A caller who has the answer has not left."""
    program = Program(agent("m-do.A.echo.stop"))
    events = program.stream()
    async for event in events:
        if event.is_final_response():
            break
    await events.aclose()
    return program.outcome


@harness.case("error_max_turns")
async def own_limit() -> Outcome:
    program = Program(agent("m-budget"), calls=2)
    try:
        await program.go()
    except Exception:
        pass
    return program.outcome


# Gemini's format marks no refusal.
@harness.case("error_max_budget_usd")
async def run_inside_of_a_run() -> Outcome:
    """The runner in the tool has a plugin of its own, whose run the outer one pays for."""
    inner = Program(agent("m-budget"))

    async def helper(text: str) -> str:
        """Help."""
        await inner.go()
        return "Helped."

    outer = await Program(agent("m-do.A.helper", tools=[helper]), max_budget_usd=0.5).go()
    assert (inner.outcome.termination, inner.outcome.model_calls) == ("cancelled", 2), inner.outcome
    return outer.outcome


@harness.case("stop")
async def run_inside_of_a_run_at_its_limit() -> Outcome:
    """The limits of the plugin in the tool are those of its run."""
    inner = Program(agent("m-budget"), max_budget_usd=0.3)

    async def helper(text: str) -> str:
        """Help."""
        return str((await inner.go()).outcome.termination)

    outer = await Program(agent("m-do.A.helper.stop", tools=[helper])).go()
    assert (inner.outcome.termination, inner.outcome.model_calls) == ("error_max_budget_usd", 2)
    return outer.outcome


harness.main("google-adk", run, absent=("refusal",))
