"""Strands Agents, chat completions. Strands streams always: both modes are the same."""

import asyncio
import json
import tempfile
from typing import Any

import harness
from openai import AsyncOpenAI
from pydantic import BaseModel
from strands import Agent, ToolContext, tool
from strands.models.openai import OpenAIModel
from strands.multiagent import GraphBuilder, Swarm
from strands.session.file_session_manager import FileSessionManager

import endstop
from endstop import Outcome
from endstop.adapters.strands import EndstopHooks, EndstopStopped


@tool
def echo(text: str) -> str:
    """Echo."""
    harness.RAN.append(text)
    return text


async def run(model: str, stream: bool, guarded: bool) -> dict[str, Any]:
    client = AsyncOpenAI(base_url=harness.BASE, api_key="x", max_retries=0)
    chat = OpenAIModel(client=client, model_id=model)
    options: dict[str, Any] = {"model": chat, "tools": [echo], "callback_handler": None}
    if not guarded:
        result = await Agent(**options).invoke_async("go")
        return {"ending": "returned", "evidence": f"{result.stop_reason} {result}"[:40]}
    endstop.tap.wrap(client)
    hooks = EndstopHooks(**harness.LIMITS)
    try:
        async with hooks:
            await Agent(hooks=[hooks], **options).invoke_async("go")
    except Exception:
        if hooks.outcome.is_success:
            raise
    return harness.ended(hooks.outcome)


class City(BaseModel):
    name: str
    people: int


@tool(context=True)
def careful(text: str, tool_context: ToolContext) -> str:
    """A tool that asks a person.

    Args:
        text: the text
    """
    tool_context.interrupt("careful", reason=text)
    harness.RAN.append(text)
    return text


def agent(model: str, *hooks: Any, tapped: bool = True, **options: Any) -> Agent:
    client = AsyncOpenAI(base_url=harness.BASE, api_key="x", max_retries=0)
    if tapped:
        endstop.tap.wrap(client)
    chat = OpenAIModel(client=client, model_id=model)
    options = {"tools": [echo], "callback_handler": None} | options
    return Agent(model=chat, hooks=[*hooks], **options)


async def one(model: str, prompt: Any = "go", *, given: Any = None, **options: Any) -> Outcome:
    """Runs one agent. `given` are options of its call."""
    async with EndstopHooks(**harness.LIMITS) as hooks:
        await agent(model, hooks, **options).invoke_async(prompt, **(given or {}))
    return hooks.outcome


async def stopped(model: str, **given: Any) -> Outcome:
    try:
        return await one(model, **given)
    except EndstopStopped as stopped:
        return stopped.outcome


@harness.case("stop")
async def cached() -> Outcome:
    """Without the tap, so that the message of Strands has the usage."""
    return await one("m-cached", tapped=False)


@harness.case("submitted")
async def structured() -> Outcome:
    return await one("m-do.A.echo.City", given={"structured_output_model": City})


@harness.case("error_output_truncated")
async def structured_cut() -> Outcome:
    return await stopped("m-do.A.halt", given={"structured_output_model": City})


@harness.case("submitted")
async def structured_forced() -> Outcome:
    return await one("m-do.A.stop.City", given={"structured_output_model": City})


@harness.case("error_no_progress")
async def loop_raises() -> Outcome:
    return await stopped("m-loop")


async def ask(where: str) -> str | None:
    """Runs until a person is asked. Returns the parked run."""
    harness.LIMITS.update(harness.CASE_LIMITS)
    async with EndstopHooks(**harness.LIMITS) as hooks:
        sessions = FileSessionManager(session_id="s", storage_dir=where)
        asked = agent("m-do.A.careful.stop", hooks, tools=[careful], session_manager=sessions)
        result = await asked.invoke_async("go")
        assert result.stop_reason == "interrupt"
    assert hooks.run.outcome is None and not harness.RAN
    return hooks.parked


async def answer(where: str, parked: str | None) -> Outcome:
    sessions = FileSessionManager(session_id="s", storage_dir=where)
    async with EndstopHooks(**harness.LIMITS, parked=parked) as hooks:
        asked = agent("m-do.A.careful.stop", hooks, tools=[careful], session_manager=sessions)
        interrupts = asked._interrupt_state.interrupts
        yes = [{"interruptResponse": {"interruptId": one, "response": "yes"}} for one in interrupts]
        await asked.invoke_async(yes)
    return hooks.outcome


@harness.elsewhere
async def ask_elsewhere(given: str) -> str:
    return json.dumps(await ask(json.loads(given)))


@harness.case("stop")
async def approval() -> Outcome:
    where = tempfile.mkdtemp()
    return await answer(where, await ask(where))


@harness.case("stop")
async def approval_process() -> Outcome:
    where = tempfile.mkdtemp()
    return await answer(where, json.loads(ask_elsewhere(json.dumps(where))))


@harness.case("stop")
async def approval_in_scope() -> Outcome:
    async with EndstopHooks(**harness.LIMITS) as hooks:
        asked = agent("m-do.A.careful.stop", hooks, tools=[careful])
        result = await asked.invoke_async("go")
        interrupts = list(result.interrupts or [])
        yes = [
            {"interruptResponse": {"interruptId": one.id, "response": "y"}} for one in interrupts
        ]
        await asked.invoke_async(yes)
    return hooks.outcome


@harness.case("stop")
async def subagent() -> Outcome:
    """It is asked twice."""
    async with EndstopHooks(**harness.LIMITS) as hooks:
        helper = agent("m-do.B.echo.stop.echo.stop", hooks, name="helper", description="helps")
        await agent("m-do.A.helper.helper.stop", hooks, tools=[helper.as_tool()]).invoke_async("go")
    return hooks.outcome


@harness.case("stop")
async def subagent_plain() -> Outcome:
    """The helper has no hooks: the tap sees it."""
    async with EndstopHooks(**harness.LIMITS) as hooks:
        helper = agent("m-do.B.echo.stop", name="helper", description="helps")
        await agent("m-do.A.helper.stop", hooks, tools=[helper.as_tool()]).invoke_async("go")
    return hooks.outcome


@harness.case("error_max_budget_usd")
async def subagent_budget() -> Outcome:
    """The helper has no end of its own."""
    harness.LIMITS["max_budget_usd"] = 1.0
    try:
        async with EndstopHooks(**harness.LIMITS) as hooks:
            helper = agent("m-budget", name="helper", description="helps")
            await agent("m-do.A.helper.stop", hooks, tools=[helper.as_tool()]).invoke_async("go")
    except EndstopStopped:
        pass
    return hooks.outcome


@harness.case("stop")
async def handoff() -> Outcome:
    async with EndstopHooks(**harness.LIMITS) as hooks:
        first = agent("m-do.A.handoff.stop", hooks, name="x")
        second = agent("m-do.B.echo.stop", hooks, name="b")
        # The server's arguments are `x` for the name of the next agent.
        swarm = Swarm(
            [agent("m-do.C.handoff.stop", hooks, name="a"), first, second], max_handoffs=5
        )
        del second
        await swarm.invoke_async("go")
    return hooks.outcome


@harness.case("stop")
async def parallel_agents() -> Outcome:
    async with EndstopHooks(**harness.LIMITS) as hooks:
        builder = GraphBuilder()
        for name in "abcd":
            builder.add_node(agent(f"m-do.{name}.echo.stop", hooks, name=name), name)
        await builder.build().invoke_async("go")
    return hooks.outcome


@harness.case("cancelled")
async def cancel() -> Outcome:
    hooks = EndstopHooks(**harness.LIMITS)

    async def go() -> None:
        async with hooks:
            await agent("m-do.A.echo.slow", hooks).invoke_async("go")

    await harness.cancelled(asyncio.create_task(go()), "m-do.A.echo.slow", 2)
    return hooks.outcome


@harness.case("cancelled")
async def timeout() -> Outcome:
    hooks = EndstopHooks(**harness.LIMITS)
    try:
        async with asyncio.timeout(1), hooks:
            await agent("m-do.A.slow", hooks).invoke_async("go")
    except TimeoutError:
        pass
    return hooks.outcome


@harness.case("error_timeout")
async def deadline() -> Outcome:
    async with EndstopHooks(**harness.LIMITS, timeout="1s") as hooks:
        await agent("m-do.A.slow", hooks).invoke_async("go")
    return hooks.outcome


@harness.case("cancelled")
async def left() -> Outcome:
    async with EndstopHooks(**harness.LIMITS) as hooks:
        async for event in agent("m-do.A.drip", hooks).stream_async("go"):
            if "data" in event:
                break
    return hooks.outcome


@harness.case("error_max_turns")
async def own_limit() -> Outcome:
    return await one("m-budget", given={"limits": {"turns": 2}})


@harness.case("cancelled")
async def own_cancel() -> Outcome:
    async with EndstopHooks(**harness.LIMITS) as hooks:
        asked = agent("m-do.A.drip", hooks)
        async for event in asked.stream_async("go"):
            if "data" in event:
                asked.cancel()
    return hooks.outcome


@harness.case("error_during_execution")
async def forgotten() -> Outcome:
    async with EndstopHooks(**harness.LIMITS) as hooks:
        await agent("m-stop").invoke_async("go")
    return hooks.outcome


@harness.case("error_max_budget_usd")
async def run_inside_of_a_run() -> Outcome:
    """The agent in the tool has hooks of its own, whose run the outer one pays for."""
    ended: list[Outcome] = []
    settings = {**harness.LIMITS, "on_end": ended.append}

    @tool
    async def helper(text: str) -> str:
        """Help.

        Args:
            text: the text
        """
        async with EndstopHooks(**settings) as hooks:
            return str(await agent("m-budget", hooks).invoke_async("go"))

    harness.LIMITS["max_budget_usd"] = 0.5
    outcome = await stopped("m-ten", tools=[helper])
    assert [(one.termination, one.model_calls) for one in ended] == [("cancelled", 2)]
    return outcome


harness.main("strands", run)
