"""Microsoft Agent Framework, chat completions."""

from typing import Any

import harness
from agent_framework import Agent
from agent_framework.openai import OpenAIChatCompletionClient
from openai import AsyncOpenAI

import endstop
from endstop.adapters.agent_framework import Endstop


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


harness.main("agent-framework", run)
