"""AutoGen: a team of one assistant."""

import asyncio
import json
from typing import Any

import harness
from autogen_agentchat.agents import AssistantAgent
from autogen_agentchat.conditions import HandoffTermination, TextMessageTermination
from autogen_agentchat.messages import HandoffMessage
from autogen_agentchat.teams import DiGraphBuilder, GraphFlow, RoundRobinGroupChat, Swarm
from autogen_agentchat.tools import AgentTool
from autogen_core import CancellationToken
from autogen_ext.models.openai import OpenAIChatCompletionClient
from pydantic import BaseModel

import endstop
from endstop import Outcome
from endstop.adapters.autogen import EndstopTermination

INFO = {
    "vision": False,
    "function_calling": True,
    "json_output": False,
    "family": "unknown",
    "structured_output": False,
}


async def echo(text: str) -> str:
    """Echo."""
    harness.RAN.append(text)
    return text


async def run(model: str, stream: bool, guarded: bool) -> dict[str, Any]:
    client = OpenAIChatCompletionClient(
        model=model, base_url=harness.BASE, api_key="x", model_info=INFO, max_retries=0
    )
    if not guarded:
        agent = AssistantAgent("a", client, tools=[echo], model_client_stream=stream)
        team = RoundRobinGroupChat([agent], termination_condition=TextMessageTermination("a"))
        result = await team.run(task="go")
        return {"ending": "returned", "evidence": str(result.messages[-1].content)[:40]}
    stop = EndstopTermination(**harness.LIMITS, stop_on_answer=True)
    try:
        async with stop:
            agent = AssistantAgent(
                "a", stop.client(client), tools=[echo], model_client_stream=stream
            )
            team = RoundRobinGroupChat([agent], termination_condition=stop)
            result = await team.run(task="go")
            assert "Endstop" in (result.stop_reason or "")
    except Exception:
        if stop.outcome.is_success:
            raise
    return harness.ended(stop.outcome)


class City(BaseModel):
    name: str


def model(name: str, **info: Any) -> OpenAIChatCompletionClient:
    return OpenAIChatCompletionClient(
        model=name,
        base_url=harness.BASE,
        api_key="x",
        model_info={**INFO, **info},  # type: ignore[typeddict-item]
        max_retries=0,
    )


def agent(stop: EndstopTermination, script: str, name: str = "a", **options: Any) -> AssistantAgent:
    client = stop.client(model(script, structured_output=True, json_output=True))
    return AssistantAgent(name, client, **{"tools": [echo]} | options)


@harness.case("stop")
async def cached() -> Outcome:
    async with EndstopTermination(**harness.LIMITS) as stop:
        await agent(stop, "m-cached").run(task="go")
    return stop.outcome


@harness.case("submitted")
async def alone() -> Outcome:
    """An agent alone returns the summary of its tools by default."""
    async with EndstopTermination(**harness.LIMITS) as stop:
        await agent(stop, "m-do.A.echo.stop").run(task="go")
    return stop.outcome


@harness.case("submitted")
async def alone_stream() -> Outcome:
    async with EndstopTermination(**harness.LIMITS) as stop:
        async for _ in agent(stop, "m-do.A.echo.stop").run_stream(task="go"):
            pass
    return stop.outcome


@harness.case("stop")
async def alone_iterates() -> Outcome:
    async with EndstopTermination(**harness.LIMITS) as stop:
        await agent(stop, "m-do.A.echo.echo.stop", max_tool_iterations=5).run(task="go")
    return stop.outcome


@harness.case("submitted")
async def structured() -> Outcome:
    async with EndstopTermination(**harness.LIMITS) as stop:
        await agent(stop, "m-do.A.json", tools=None, output_content_type=City).run(task="go")
    return stop.outcome


@harness.case("error_output_truncated")
async def structured_cut() -> Outcome:
    stop = EndstopTermination(**harness.LIMITS)
    try:
        async with stop:
            await agent(stop, "m-length", tools=None, output_content_type=City).run(task="go")
    except Exception:
        pass
    return stop.outcome


def asking(stop: EndstopTermination) -> RoundRobinGroupChat:
    # The server's name of the person is `x`.
    asked = agent(stop, "m-do.A.transfer.stop", handoffs=["x"], tools=None)
    return RoundRobinGroupChat([asked], termination_condition=HandoffTermination("x") | stop)


async def ask(_: Any) -> Any:
    """Runs until a person is asked. Returns the state of the team and the parked run."""
    harness.LIMITS.update(harness.CASE_LIMITS)
    async with EndstopTermination(**harness.LIMITS, stop_on_answer=True) as stop:
        team = asking(stop)
        await team.run(task="go")
    assert stop.run.outcome is None
    return [dict(await team.save_state()), stop.parked]


async def answer(given: Any) -> Outcome:
    state, parked = given
    async with EndstopTermination(**harness.LIMITS, stop_on_answer=True, parked=parked) as stop:
        team = asking(stop)
        await team.load_state(state)
        await team.run(task=HandoffMessage(source="x", target="a", content="yes"))
    return stop.outcome


@harness.elsewhere
async def ask_elsewhere(given: str) -> str:
    return json.dumps(await ask(json.loads(given)))


@harness.case("stop")
async def approval() -> Outcome:
    return await answer(await ask(None))


@harness.case("stop")
async def approval_process() -> Outcome:
    return await answer(json.loads(ask_elsewhere(json.dumps(None))))


@harness.case("stop")
async def approval_in_scope() -> Outcome:
    async with EndstopTermination(**harness.LIMITS, stop_on_answer=True) as stop:
        team = asking(stop)
        await team.run(task="go")
        await team.run(task=HandoffMessage(source="x", target="a", content="yes"))
    return stop.outcome


@harness.case("stop")
async def subagent() -> Outcome:
    """It is asked twice."""
    async with EndstopTermination(**harness.LIMITS) as stop:
        helper = agent(
            stop, "m-do.B.echo.stop.echo.stop", "helper", description="h", max_tool_iterations=5
        )
        outer = agent(
            stop, "m-do.A.helper.helper.stop", tools=[AgentTool(helper)], max_tool_iterations=5
        )
        await outer.run(task="go")
    return stop.outcome


@harness.case("stop")
async def handoff() -> Outcome:
    async with EndstopTermination(**harness.LIMITS, stop_on_answer=True) as stop:
        first = agent(stop, "m-do.A.transfer.stop", "a", handoffs=["x"], tools=None)
        second = agent(stop, "m-do.B.echo.stop", "x", reflect_on_tool_use=True)
        await Swarm([first, second], termination_condition=stop).run(task="go")
    return stop.outcome


@harness.case("stop")
async def parallel_agents() -> Outcome:
    async with EndstopTermination(**harness.LIMITS) as stop:
        builder = DiGraphBuilder()
        start = agent(stop, "m-do.S.stop", "s")
        builder.add_node(start)
        for name in "abcd":
            node = agent(stop, f"m-do.{name}.echo.stop", name, reflect_on_tool_use=True)
            builder.add_node(node).add_edge(start, node)
        team = GraphFlow(
            builder.get_participants(), graph=builder.build(), termination_condition=stop
        )
        await team.run(task="go")
    return stop.outcome


@harness.case("cancelled")
async def cancel() -> Outcome:
    stop = EndstopTermination(**harness.LIMITS)

    async def go() -> None:
        async with stop:
            asked = agent(stop, "m-do.A.echo.slow", reflect_on_tool_use=True)
            await asked.run(task="go")

    await harness.cancelled(asyncio.create_task(go()), "m-do.A.echo.slow", 2)
    return stop.outcome


@harness.case("cancelled")
async def cancel_team() -> Outcome:
    """A team whose caller is cancelled runs until it is idle."""
    stop = EndstopTermination(**harness.LIMITS | {"max_turns": 1000})

    async def go() -> None:
        async with stop:
            team = RoundRobinGroupChat([agent(stop, "m-budget")], termination_condition=stop)
            await team.run(task="go")

    await harness.cancelled(asyncio.create_task(go()), "m-budget", 3)
    return stop.outcome


@harness.case("cancelled")
async def cancel_token() -> Outcome:
    token = CancellationToken()
    async with EndstopTermination(**harness.LIMITS) as stop:
        team = RoundRobinGroupChat([agent(stop, "m-do.A.echo.slow")], termination_condition=stop)
        task = asyncio.create_task(team.run(task="go", cancellation_token=token))
        await harness.begun("m-do.A.echo.slow", 2)
        token.cancel()
        try:
            await task
        except BaseException:
            pass
    return stop.outcome


@harness.case("cancelled")
async def timeout() -> Outcome:
    stop = EndstopTermination(**harness.LIMITS)
    try:
        async with asyncio.timeout(1), stop:
            await agent(stop, "m-do.A.slow").run(task="go")
    except TimeoutError:
        pass
    return stop.outcome


@harness.case("error_timeout")
async def deadline() -> Outcome:
    async with EndstopTermination(**harness.LIMITS, timeout="1s") as stop:
        team = RoundRobinGroupChat([agent(stop, "m-do.A.slow")], termination_condition=stop)
        await team.run(task="go")
    return stop.outcome


@harness.case("cancelled")
async def left() -> Outcome:
    async with EndstopTermination(**harness.LIMITS) as stop:
        asked = agent(stop, "m-do.A.drip", model_client_stream=True)
        async for message in asked.run_stream(task="go"):
            if message.source == "a":  # type: ignore[union-attr]
                break
    return stop.outcome


@harness.case("stop")
async def second_use() -> Outcome:
    """A condition that has ended a team serves the next one."""
    stop = EndstopTermination(**harness.LIMITS, stop_on_answer=True)
    for script, ending in (("m-length", "error_output_truncated"), ("m-stop", "stop")):
        harness.get("/reset")
        async with stop:
            team = RoundRobinGroupChat([agent(stop, script)], termination_condition=stop)
            await team.run(task="go")
        assert stop.outcome.termination == ending
    return stop.outcome


@harness.case("error_during_execution")
async def forgotten() -> Outcome:
    async with EndstopTermination(**harness.LIMITS) as stop:
        client = model("m-stop")
        endstop.tap.wrap(client._client)
        await AssistantAgent("a", client).run(task="go")
    return stop.outcome


@harness.case("error_max_budget_usd")
async def run_inside_of_a_run() -> Outcome:
    """The agent in the tool has a condition of its own, whose run the outer one pays for."""
    ended: list[Outcome] = []
    settings = {**harness.LIMITS, "on_end": ended.append}

    async def helper(text: str) -> str:
        """Help."""
        async with EndstopTermination(**settings) as inner:
            await agent(inner, "m-budget", max_tool_iterations=9).run(task="go")
        return "helped"

    async with EndstopTermination(**harness.LIMITS, max_budget_usd=0.5) as stop:
        await agent(stop, "m-ten", tools=[helper], max_tool_iterations=9).run(task="go")
    assert [(one.termination, one.model_calls) for one in ended] == [("cancelled", 2)], ended
    return stop.outcome


harness.main("autogen", run)
