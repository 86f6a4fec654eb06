"""Strands Agents, chat completions. Strands streams always: both modes are the same."""

from typing import Any

import harness
from openai import AsyncOpenAI
from strands import Agent, tool
from strands.models.openai import OpenAIModel

import endstop
from endstop.adapters.strands import EndstopHooks


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


harness.main("strands", run)
