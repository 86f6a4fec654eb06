"""smolagents' `ToolCallingAgent`, chat completions."""

import asyncio
from typing import Any

import harness
from smolagents import OpenAIModel, ToolCallingAgent, tool

from endstop.adapters.smolagents import Endstop


@tool
def echo(text: str) -> str:
    """Echo.

    Args:
        text: the text
    """
    # A framework may pass broken JSON on as the argument.
    harness.RAN.append("hel" if text.startswith('{"text": "hel') else text)
    return text


async def run(model: str, stream: bool, guarded: bool) -> dict[str, Any]:
    chat = OpenAIModel(
        model_id=model, api_base=harness.BASE, api_key="x", client_kwargs={"max_retries": 0}
    )
    options: dict[str, Any] = {"tools": [echo], "stream_outputs": stream, "verbosity_level": 0}
    if not guarded:
        result = ToolCallingAgent(model=chat, **options).run("go", return_full_result=True)
        return {"ending": "returned", "evidence": f"{result.state} {result.output}"[:40]}

    def go() -> Endstop:
        stop = Endstop(**harness.LIMITS, stop_on_answer=True)
        try:
            with stop:
                agent = ToolCallingAgent(
                    model=stop.model(chat), step_callbacks=[stop.on_step], **options
                )
                agent.run("go", max_steps=1000)
        except Exception:
            # An answer in text ends the run by an exception as well.
            pass
        return stop

    # In a thread, so that runs are concurrent.
    stop = await asyncio.to_thread(go)
    return harness.ended(stop.outcome)


harness.main("smolagents", run)
