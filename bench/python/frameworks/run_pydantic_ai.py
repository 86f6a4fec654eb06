"""Pydantic AI, chat completions."""

from typing import Any

import harness
from openai import AsyncOpenAI
from pydantic_ai import Agent, UsageLimits
from pydantic_ai.models.openai import OpenAIChatModel
from pydantic_ai.providers.openai import OpenAIProvider

import endstop
from endstop.adapters.pydantic_ai import Endstop, EndstopStopped


async def run(model: str, stream: bool, guarded: bool) -> dict[str, Any]:
    client = AsyncOpenAI(base_url=harness.BASE, api_key="x", max_retries=0)
    outcomes: list[endstop.Outcome] = []
    guard = Endstop(**harness.LIMITS, on_end=outcomes.append)
    if guarded:
        endstop.tap.wrap(client)
    chat = OpenAIChatModel(model, provider=OpenAIProvider(openai_client=client))
    agent = Agent(chat, capabilities=[guard] if guarded else [])

    @agent.tool_plain
    def echo(text: str) -> str:
        """Echo."""
        harness.RAN.append(text)
        return text

    async def drain(ctx: Any, events: Any) -> None:
        async for _ in events:
            pass

    options: dict[str, Any] = {"event_stream_handler": drain if stream else None}
    if not guarded:
        result = await agent.run("go", **options)
        return {"ending": "returned", "evidence": str(result.output)[:40]}
    try:
        result = await agent.run("go", usage_limits=UsageLimits(request_limit=None), **options)
        assert guard.outcome_of(result) == outcomes[0]
    except EndstopStopped:
        pass
    except Exception:
        if outcomes[0].is_success:
            raise
    return harness.ended(outcomes[0])


harness.main("pydantic-ai", run)
