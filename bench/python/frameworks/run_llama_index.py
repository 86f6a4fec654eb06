"""LlamaIndex' `FunctionAgent`, chat completions."""

import asyncio
import json
from contextlib import suppress
from typing import Any

import harness
from llama_index.core.agent.workflow import AgentWorkflow, FunctionAgent
from llama_index.core.tools import FunctionTool
from llama_index.core.workflow import Context, HumanResponseEvent, InputRequiredEvent
from llama_index.llms.openai_like import OpenAILike
from pydantic import BaseModel
from workflows.context.serializers import PickleSerializer

from endstop import Outcome
from endstop.adapters.llama_index import Endstop, EndstopStopped, Guarded, tapped


class GuardedAgent(Guarded, FunctionAgent):
    pass


async def echo(text: str) -> str:
    """Echo."""
    harness.RAN.append(text)
    return text


async def run(model: str, stream: bool, guarded: bool) -> dict[str, Any]:
    chat = OpenAILike(
        model=model,
        api_base=harness.BASE,
        api_key="x",
        is_chat_model=True,
        is_function_calling_model=True,
        max_retries=0,
    )
    if not guarded:
        result = await FunctionAgent(tools=[echo], llm=chat, streaming=stream).run(user_msg="go")
        return {"ending": "returned", "evidence": str(result.response.content)[:40]}
    agent = GuardedAgent(tools=[echo], llm=tapped(chat), streaming=stream)
    stop = Endstop(**harness.LIMITS)
    try:
        async with stop:
            await agent.run(user_msg="go", max_iterations=1000)
    except Exception:
        if stop.outcome.is_success:
            raise
    return harness.ended(stop.outcome)


class Team(Guarded, AgentWorkflow):
    pass


class City(BaseModel):
    name: str


def llm(model: str, tap: bool = True) -> OpenAILike:
    chat = OpenAILike(
        model=model,
        api_base=harness.BASE,
        api_key="x",
        is_chat_model=True,
        is_function_calling_model=True,
        max_retries=0,
    )
    return tapped(chat) if tap else chat


def agent(model: str, **options: Any) -> GuardedAgent:
    return GuardedAgent(**{"tools": [echo], "llm": llm(model), "streaming": False} | options)


async def one(agent: Any, **given: Any) -> Outcome:
    try:
        async with Endstop(**harness.LIMITS) as stop:
            await agent.run(user_msg="go", **given)
    except EndstopStopped as stopped:
        assert stopped.outcome == stop.outcome
    except Exception:
        if stop.outcome.is_success:
            raise
    return stop.outcome


@harness.case("stop")
async def cached() -> Outcome:
    """Without the tap, so that the object of the provider has the usage."""
    return await one(agent("m-cached", llm=llm("m-cached", tap=False)))


@harness.case("submitted")
async def structured() -> Outcome:
    """LlamaIndex asks for the object in a request of its own."""
    return await one(agent("m-do.A.echo.stop.City.json", output_cls=City))


@harness.case("error_output_truncated")
async def structured_cut() -> Outcome:
    return await one(agent("m-do.A.halt", output_cls=City))


@harness.case("submitted")
async def return_direct() -> Outcome:
    tool = FunctionTool.from_defaults(async_fn=echo, name="echo", return_direct=True)
    return await one(agent("m-do.A.echo.stop", tools=[tool]))


async def careful(ctx: Context, text: str) -> str:
    """A tool that asks a person."""
    asked = InputRequiredEvent(prefix=text)  # type: ignore[call-arg]
    await ctx.wait_for_event(HumanResponseEvent, waiter_id=text, waiter_event=asked)
    harness.RAN.append(text)
    return text


def asking(workflow: bool) -> Any:
    one = agent("m-do.A.careful.stop", tools=[careful])
    return Team(agents=[one]) if workflow else one


async def ask(workflow: bool) -> Any:
    """Runs until a person is asked. Returns the context and the parked run."""
    harness.LIMITS.update(harness.CASE_LIMITS)
    async with Endstop(**harness.LIMITS) as stop:
        handler = asking(workflow).run(user_msg="go")
        async for event in handler.stream_events():
            if isinstance(event, InputRequiredEvent):
                break
        stored = handler.ctx.to_dict(serializer=PickleSerializer())
        await handler.cancel_run()
    assert stop.run.outcome is None and not harness.RAN
    return [stored, stop.parked]


async def answer(given: Any, workflow: bool) -> Outcome:
    stored, parked = given
    async with Endstop(**harness.LIMITS, parked=parked) as stop:
        asked = asking(workflow)
        handler = asked.run(ctx=Context.from_dict(asked, stored, serializer=PickleSerializer()))
        handler.ctx.send_event(HumanResponseEvent(response="yes"))  # type: ignore[call-arg]
        await handler
    return stop.outcome


@harness.elsewhere
async def ask_elsewhere(given: str) -> str:
    return json.dumps(await ask(json.loads(given)))


@harness.case("stop")
async def approval() -> Outcome:
    return await answer(await ask(False), False)


@harness.case("stop")
async def approval_workflow() -> Outcome:
    return await answer(await ask(True), True)


@harness.case("stop")
async def approval_process() -> Outcome:
    return await answer(json.loads(ask_elsewhere(json.dumps(False))), False)


@harness.case("stop")
async def approval_in_scope() -> Outcome:
    async with Endstop(**harness.LIMITS) as stop:
        handler = asking(False).run(user_msg="go")
        async for event in handler.stream_events():
            if isinstance(event, InputRequiredEvent):
                handler.ctx.send_event(HumanResponseEvent(response="yes"))  # type: ignore[call-arg]
        await handler
    return stop.outcome


@harness.case("stop")
async def llm_in_tool() -> Outcome:
    inner = llm("m-do.B.stop")

    async def think(text: str) -> str:
        """Thinks."""
        for _ in range(10):
            await inner.acomplete(text)
        return text

    return await one(agent("m-do.A.think.stop", tools=[think]))


@harness.case("error_max_budget_usd")
async def llm_in_tool_budget() -> Outcome:
    inner = llm("m-do.B.stop")

    async def think(text: str) -> str:
        """Thinks without end."""
        for _ in range(100):
            await inner.acomplete(text)
        return text

    harness.LIMITS["max_budget_usd"] = 1.0
    return await one(agent("m-do.A.think.stop", tools=[think]))


@harness.case("stop")
async def subagent() -> Outcome:
    """It is asked twice."""
    inner = agent("m-do.B.echo.stop.echo.stop", name="helper")

    async def helper(text: str) -> str:
        """Helps."""
        return str(await inner.run(user_msg=text))

    return await one(agent("m-do.A.helper.helper.stop", tools=[helper]))


@harness.case("stop")
async def handoff() -> Outcome:
    # The server's name of the next agent is `x`.
    first = agent("m-do.A.handoff.stop", name="a", description="a", can_handoff_to=["x"])
    second = agent("m-do.B.echo.stop", name="x", description="x")
    return await one(AgentWorkflow(agents=[first, second], root_agent="a"))


@harness.case("stop")
async def parallel_agents() -> Outcome:
    async with Endstop(**harness.LIMITS) as stop:
        agents = [agent(f"m-do.{name}.echo.stop", name=name) for name in "abcd"]
        await asyncio.gather(*(one.run(user_msg="go") for one in agents))
    return stop.outcome


@harness.case("cancelled")
async def cancel() -> Outcome:
    stop = Endstop(**harness.LIMITS)

    async def go() -> None:
        async with stop:
            await agent("m-do.A.echo.slow").run(user_msg="go")

    await harness.cancelled(asyncio.create_task(go()), "m-do.A.echo.slow", 2)
    return stop.outcome


@harness.case("cancelled")
async def timeout() -> Outcome:
    stop = Endstop(**harness.LIMITS)
    try:
        async with asyncio.timeout(1), stop:
            await agent("m-do.A.slow").run(user_msg="go")
    except TimeoutError:
        pass
    return stop.outcome


@harness.case("error_timeout")
async def deadline() -> Outcome:
    async with Endstop(**harness.LIMITS, timeout="1s") as stop:
        await agent("m-do.A.slow").run(user_msg="go")
    return stop.outcome


@harness.case("cancelled")
async def left() -> Outcome:
    async with Endstop(**harness.LIMITS) as stop:
        handler = agent("m-do.A.drip", streaming=True).run(user_msg="go")
        async for event in handler.stream_events():
            if getattr(event, "delta", ""):
                break
        await handler.cancel_run()
    return stop.outcome


@harness.case("cancelled")
async def own_cancel() -> Outcome:
    async def go(stop: Endstop) -> None:
        async with stop:
            handler = agent("m-do.A.slow").run(user_msg="go")
            await harness.begun("m-do.A.slow")
            await handler.cancel_run()
            await handler

    stop = Endstop(**harness.LIMITS)
    try:
        await go(stop)
    except Exception:
        pass
    return stop.outcome


@harness.case("error_max_turns")
async def own_limit() -> Outcome:
    return await one(agent("m-budget"), max_iterations=2)


@harness.case("error_max_turns")
async def own_limit_generate() -> Outcome:
    given = {"max_iterations": 2, "early_stopping_method": "generate"}
    return await one(agent("m-do.A.echo.echo.stop"), **given)


@harness.case("error_during_execution")
async def forgotten() -> Outcome:
    plain = FunctionAgent(tools=[echo], llm=llm("m-stop"), streaming=False)
    return await one(plain)


@harness.case("error_max_budget_usd")
async def run_inside_of_a_run() -> Outcome:
    """The agent in the tool is in a block of its own, whose run the outer one pays for."""
    ended: list[Outcome] = []
    settings = {**harness.LIMITS, "on_end": ended.append}

    async def helper(text: str) -> str:
        """Help."""
        with suppress(EndstopStopped):
            async with Endstop(**settings):
                await agent("m-budget").run(user_msg="go")
        return "stopped"

    harness.LIMITS["max_budget_usd"] = 0.5
    outcome = await one(agent("m-ten", tools=[helper]))
    assert [(one.termination, one.model_calls) for one in ended] == [("cancelled", 2)], ended
    return outcome


harness.main("llama-index", run)
