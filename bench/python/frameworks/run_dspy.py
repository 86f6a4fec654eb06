"""DSPy: a ReAct program over chat completions, with DSPy's own engine. The server's answers name the
fields of DSPy's prompt."""

from typing import Any

import dspy
import harness
from dspy.lm15 import RouterConfig

from endstop.adapters.dspy import Endstop

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


harness.main("dspy", run)
