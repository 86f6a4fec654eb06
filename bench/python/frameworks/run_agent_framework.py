"""Microsoft Agent Framework, chat completions."""

import asyncio
import json
from contextlib import suppress
from typing import Any

import harness
from agent_framework import Agent, AgentSession, Content, Message, tool
from agent_framework.openai import OpenAIChatCompletionClient
from openai import AsyncOpenAI
from pydantic import BaseModel

import endstop
from endstop import Outcome
from endstop.adapters.agent_framework import Endstop, EndstopStopped


def echo(text: str) -> str:
    """Echo."""
    harness.RAN.append(text)
    return text


async def run(model: str, stream: bool, guarded: bool) -> dict[str, Any]:
    client = AsyncOpenAI(base_url=harness.BASE, api_key="x", max_retries=0)
    chat = OpenAIChatCompletionClient(model=model, async_client=client)

    async def go(**options: Any) -> Any:
        agent = Agent(client=chat, instructions="x", tools=[echo], **options)
        if not stream:
            return await agent.run("go")
        response = agent.run("go", stream=True)
        async for _ in response:
            pass
        return await response.get_final_response()

    if not guarded:
        result = await go()
        return {"ending": "returned", "evidence": f"{result.finish_reason} {result.text}"[:40]}
    endstop.tap.wrap(client)
    stop = Endstop(**harness.LIMITS)
    try:
        async with stop:
            await go(middleware=stop.middleware)
    except Exception:
        if stop.outcome.is_success:
            raise
    return harness.ended(stop.outcome)


class City(BaseModel):
    name: str


@tool(approval_mode="always_require")
def careful(text: str) -> str:
    """A tool that asks a person."""
    harness.RAN.append(text)
    return text


def agent(model: str, stop: Endstop | None, tapped: bool = True, **options: Any) -> Agent:
    client = AsyncOpenAI(base_url=harness.BASE, api_key="x", max_retries=0)
    if tapped:
        endstop.tap.wrap(client)
    chat = OpenAIChatCompletionClient(model=model, async_client=client)
    if stop is not None:
        options["middleware"] = stop.middleware
    return Agent(client=chat, **{"instructions": "x", "tools": [echo]} | options)


async def one(model: str, prompt: Any = "go", **options: Any) -> Outcome:
    async with Endstop(**harness.LIMITS) as stop:
        await agent(model, stop).run(prompt, **options)
    return stop.outcome


@harness.case("stop")
async def cached() -> Outcome:
    """Without the tap, so that the response of the framework has the usage."""
    async with Endstop(**harness.LIMITS) as stop:
        await agent("m-cached", stop, tapped=False).run("go")
    return stop.outcome


@harness.case("submitted")
async def structured() -> Outcome:
    return await one("m-do.A.echo.json", options={"response_format": City})


@harness.case("error_output_truncated")
async def structured_cut() -> Outcome:
    try:
        return await one("m-length", options={"response_format": City})
    except EndstopStopped as stopped:
        return stopped.outcome


async def ask(_: Any) -> Any:
    """Runs until a person is asked. Returns the session and the parked run."""
    harness.LIMITS.update(harness.CASE_LIMITS)
    async with Endstop(**harness.LIMITS) as stop:
        asked = agent("m-do.A.careful.stop", stop, tools=[careful])
        session = asked.create_session()
        response = await asked.run("go", session=session)
        (request,) = response.user_input_requests
    assert stop.run.outcome is None and not harness.RAN
    return [session.to_dict(), request.to_dict(), stop.parked]


async def answer(given: Any, yes: bool = True, stream: bool = False) -> Outcome:
    session, request, parked = given
    async with Endstop(**harness.LIMITS, parked=parked) as stop:
        asked = agent("m-do.A.careful.stop", stop, tools=[careful])
        response = Content.from_dict(request).to_function_approval_response(yes)
        message = Message(role="user", contents=[response])
        known = AgentSession.from_dict(session)
        if stream:
            async for _ in asked.run([message], session=known, stream=True):
                pass
        else:
            await asked.run([message], session=known)
    return stop.outcome


@harness.elsewhere
async def ask_elsewhere(given: str) -> str:
    return json.dumps(await ask(json.loads(given)))


@harness.case("stop")
async def approval() -> Outcome:
    return await answer(await ask(None))


@harness.case("stop")
async def approval_stream() -> Outcome:
    return await answer(await ask(None), stream=True)


@harness.case("stop")
async def approval_refused() -> Outcome:
    return await answer(await ask(None), False)


@harness.case("stop")
async def approval_process() -> Outcome:
    return await answer(json.loads(ask_elsewhere(json.dumps(None))))


@harness.case("stop")
async def approval_in_scope() -> Outcome:
    async with Endstop(**harness.LIMITS) as stop:
        asked = agent("m-do.A.careful.stop", stop, tools=[careful])
        session = asked.create_session()
        response = await asked.run("go", session=session)
        (request,) = response.user_input_requests
        yes = request.to_function_approval_response(True)
        await asked.run([Message(role="user", contents=[yes])], session=session)
    return stop.outcome


@harness.case("stop")
async def subagent() -> Outcome:
    """It is asked twice."""
    async with Endstop(**harness.LIMITS) as stop:
        helper = agent("m-do.B.echo.stop.echo.stop", stop, name="helper", description="helps")
        await agent("m-do.A.helper.helper.stop", stop, tools=[helper.as_tool()]).run("go")
    return stop.outcome


@harness.case("stop")
async def subagent_plain() -> Outcome:
    """The helper has no middleware: the tap sees it."""
    async with Endstop(**harness.LIMITS) as stop:
        helper = agent("m-do.B.echo.stop", None, name="helper", description="helps")
        await agent("m-do.A.helper.stop", stop, tools=[helper.as_tool()]).run("go")
    return stop.outcome


@harness.case("error_max_budget_usd")
async def subagent_budget() -> Outcome:
    """The helper has no end of its own."""
    harness.LIMITS["max_budget_usd"] = 1.0
    try:
        async with Endstop(**harness.LIMITS) as stop:
            helper = agent("m-budget", None, name="helper", description="helps")
            await agent("m-do.A.helper.stop", stop, tools=[helper.as_tool()]).run("go")
    except EndstopStopped:
        pass
    return stop.outcome


@harness.case("stop")
async def parallel_agents() -> Outcome:
    async with Endstop(**harness.LIMITS) as stop:
        agents = [agent(f"m-do.{name}.echo.stop", stop, name=name) for name in "abcd"]
        await asyncio.gather(*(one.run("go") for one in agents))
    return stop.outcome


@harness.case("cancelled")
async def cancel() -> Outcome:
    stop = Endstop(**harness.LIMITS)

    async def go() -> None:
        async with stop:
            await agent("m-do.A.echo.slow", stop).run("go")

    await harness.cancelled(asyncio.create_task(go()), "m-do.A.echo.slow", 2)
    return stop.outcome


@harness.case("cancelled")
async def timeout() -> Outcome:
    stop = Endstop(**harness.LIMITS)
    try:
        async with asyncio.timeout(1), stop:
            await agent("m-do.A.slow", stop).run("go")
    except TimeoutError:
        pass
    return stop.outcome


@harness.case("error_timeout")
async def deadline() -> Outcome:
    async with Endstop(**harness.LIMITS, timeout="1s") as stop:
        await agent("m-do.A.slow", stop).run("go")
    return stop.outcome


@harness.case("cancelled")
async def left() -> Outcome:
    async with Endstop(**harness.LIMITS) as stop:
        async for update in agent("m-do.A.drip", stop).run("go", stream=True):
            if update.text:
                break
    return stop.outcome


@harness.case("error_max_turns")
async def own_limit() -> Outcome:
    async with Endstop(**harness.LIMITS) as stop:
        asked = agent("m-budget", stop)
        asked.client.function_invocation_configuration["max_iterations"] = 2
        await asked.run("go")
    return stop.outcome


@harness.case("error_during_execution")
async def forgotten() -> Outcome:
    async with Endstop(**harness.LIMITS) as stop:
        await agent("m-stop", None).run("go")
    return stop.outcome


@harness.case("error_max_budget_usd")
async def run_inside_of_a_run() -> Outcome:
    """The agent in the tool is in a block of its own, whose run the outer one pays for."""
    ended: list[Outcome] = []
    settings = {**harness.LIMITS, "on_end": ended.append}

    async def helper(text: str) -> str:
        """Help."""
        with suppress(EndstopStopped):
            async with Endstop(**settings) as inner:
                await agent("m-budget", inner).run("go")
        return "stopped"

    with suppress(EndstopStopped):
        async with Endstop(**harness.LIMITS, max_budget_usd=0.5) as stop:
            await agent("m-ten", stop, tools=[helper]).run("go")
    assert [(one.termination, one.model_calls) for one in ended] == [("cancelled", 2)], ended
    return stop.outcome


harness.main("agent-framework", run)
