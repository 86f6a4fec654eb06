"""DSPy: a ReAct program over chat completions, with DSPy's own engine. The server's answers name the
fields of DSPy's prompt."""

import asyncio
from contextlib import suppress
from typing import Any

import dspy
import harness
from dspy.lm15 import RouterConfig

from endstop import Outcome
from endstop.adapters.dspy import Endstop, EndstopStopped

dspy.configure_cache(enable_disk_cache=False, enable_memory_cache=False)


def echo(text: str) -> str:
    """Echo."""
    harness.RAN.append(text)
    return text


async def run(model: str, stream: bool, guarded: bool) -> dict[str, Any]:
    options: dict[str, Any] = {"cache": False, "num_retries": 0}
    program = dspy.ReAct("question -> answer", tools=[echo], max_iters=20)

    async def answer() -> str:
        if not stream:
            return str((await program.acall(question="go")).answer)
        last: Any = None
        async for last in dspy.streamify(program, is_async_program=True)(question="go"):
            pass
        return str(getattr(last, "answer", ""))

    if not guarded:
        lm = dspy.LM("openai/" + model, api_base=harness.BASE, api_key="x", **options)
        with dspy.context(lm=lm):
            return {"ending": "returned", "evidence": (await answer())[:40]}
    stop = Endstop(**harness.LIMITS)
    try:
        with stop:
            server = RouterConfig(
                base_urls={"openai-chat": harness.BASE}, api_keys={"openai-chat": "x"}
            )
            lm = dspy.LM("openai/" + model, **stop.engines(server), **options)
            with dspy.context(lm=lm, callbacks=[stop]):
                await answer()
    except Exception:
        if stop.outcome.is_success:
            raise
    return harness.ended(stop.outcome)


def lm(stop: Endstop | None, script: str) -> dspy.LM:
    options: dict[str, Any] = {"cache": False, "num_retries": 0}
    if stop is None:
        return dspy.LM("openai/" + script, api_base=harness.BASE, api_key="x", **options)
    server = RouterConfig(base_urls={"openai-chat": harness.BASE}, api_keys={"openai-chat": "x"})
    return dspy.LM("openai/" + script, **stop.engines(server), **options)


async def one(script: str, program: Any) -> Outcome:
    try:
        async with Endstop(**harness.LIMITS) as stop:
            with dspy.context(lm=lm(stop, script), callbacks=[stop]):
                await program.acall(question="go")
    except EndstopStopped as stopped:
        assert stopped.outcome == stop.outcome
    return stop.outcome


@harness.case("stop")
async def cached() -> Outcome:
    return await one("m-cached", dspy.Predict("question -> reasoning, answer"))


@harness.case("stop")
async def whole() -> Outcome:
    """A tool, the end of the tools, and the answer."""
    return await one("m-do.A.loop.stop", dspy.ReAct("question -> answer", tools=[echo]))


@harness.case("stop")
async def structured() -> Outcome:
    """The fields of a signature are the answer's text."""
    return await one("m-stop", dspy.Predict("question -> reasoning, answer"))


@harness.case("error_output_truncated")
async def cut() -> Outcome:
    return await one("m-length", dspy.Predict("question -> reasoning, answer"))


@harness.case("stop")
async def llm_in_tool() -> Outcome:
    """A program in a tool has a conversation of its own."""
    inner = dspy.Predict("question -> reasoning, answer")

    async def echo(text: str) -> str:
        """Thinks."""
        for _ in range(3):
            await inner.acall(question=text)
        return text

    return await one("m-do.A.loop.stop", dspy.ReAct("question -> answer", tools=[echo]))


@harness.case("cancelled")
async def cancel() -> Outcome:
    stop = Endstop(**harness.LIMITS)

    async def go() -> None:
        async with stop:
            with dspy.context(lm=lm(stop, "m-do.A.slow"), callbacks=[stop]):
                await dspy.Predict("question -> answer").acall(question="go")

    await harness.cancelled(asyncio.create_task(go()), "m-do.A.slow")
    return stop.outcome


@harness.case("cancelled")
async def timeout() -> Outcome:
    stop = Endstop(**harness.LIMITS)
    try:
        async with asyncio.timeout(1), stop:
            with dspy.context(lm=lm(stop, "m-do.A.slow"), callbacks=[stop]):
                await dspy.Predict("question -> answer").acall(question="go")
    except TimeoutError:
        pass
    return stop.outcome


@harness.case("error_timeout")
async def deadline() -> Outcome:
    async with Endstop(**harness.LIMITS, timeout="1s") as stop:
        with dspy.context(lm=lm(stop, "m-do.A.slow"), callbacks=[stop]):
            await dspy.Predict("question -> answer").acall(question="go")
    return stop.outcome


@harness.case("cancelled")
async def left() -> Outcome:
    async with Endstop(**harness.LIMITS) as stop:
        with dspy.context(lm=lm(stop, "m-do.A.drip"), callbacks=[stop]):
            program = dspy.streamify(
                dspy.Predict("question -> answer"),
                stream_listeners=[dspy.streaming.StreamListener("answer")],
                is_async_program=False,
            )
            stream = program(question="go")
            async for _ in stream:
                break
            await stream.aclose()
    return stop.outcome


@harness.case("error_no_progress")
async def raised() -> Outcome:
    """What DSPy wraps leaves the block."""
    return await one("m-loop", dspy.ReAct("question -> answer", tools=[echo]))


@harness.case("error_during_execution")
async def forgotten() -> Outcome:
    async with Endstop(**harness.LIMITS) as stop:
        with dspy.context(lm=lm(None, "m-stop")):
            await dspy.Predict("question -> reasoning, answer").acall(question="go")
    # The adapter sees nothing of these calls.
    harness.get("/reset")
    return stop.outcome


@harness.case("error_max_budget_usd")
async def run_inside_of_a_run() -> Outcome:
    """The program in the tool is in a block of its own, whose run the outer one pays for."""
    ended: list[Outcome] = []
    settings = {**harness.LIMITS, "on_end": ended.append}

    async def echo(text: str) -> str:
        """Thinks."""
        with suppress(EndstopStopped):
            async with Endstop(**settings) as inner:
                with dspy.context(lm=lm(inner, "m-stop"), callbacks=[inner]):
                    for _ in range(9):
                        await dspy.Predict("question -> reasoning, answer").acall(question=text)
        return "stopped"

    harness.LIMITS["max_budget_usd"] = 0.5
    outcome = await one("m-do.A.loop.stop", dspy.ReAct("question -> answer", tools=[echo]))
    assert [(one.termination, one.model_calls) for one in ended] == [("cancelled", 2)], ended
    return outcome


harness.main("dspy", run)
