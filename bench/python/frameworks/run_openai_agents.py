"""OpenAI Agents SDK, chat completions."""

from typing import Any

import harness
from agents import Agent, OpenAIChatCompletionsModel, Runner, function_tool, set_tracing_disabled
from openai import AsyncOpenAI

import endstop
from endstop.adapters.openai_agents import EndstopHooks, EndstopStopped

set_tracing_disabled(True)


@function_tool
def echo(text: str) -> str:
    """Echo."""
    harness.RAN.append(text)
    return text


async def run(model: str, stream: bool, guarded: bool) -> dict[str, Any]:
    client = AsyncOpenAI(base_url=harness.BASE, api_key="x", max_retries=0)
    chat = OpenAIChatCompletionsModel(model=model, openai_client=client)
    agent = Agent(name="a", instructions="x", model=chat, tools=[echo])

    async def go(**options: Any) -> Any:
        if not stream:
            return await Runner.run(agent, "go", **options)
        result = Runner.run_streamed(agent, "go", **options)
        async for _ in result.stream_events():
            pass
        return result

    if not guarded:
        result = await go()
        return {"ending": "returned", "evidence": str(result.final_output)[:40]}
    endstop.tap.wrap(client)
    hooks = EndstopHooks(**harness.LIMITS)
    try:
        async with hooks:
            # The server is not OpenAI's, so that its streams have usage only on request.
            await go(hooks=hooks, run_config=hooks.run_config(), max_turns=1000)
    except EndstopStopped as stopped:
        assert stopped.run_data is not None, "the work so far is lost"
    except Exception:
        if hooks.outcome.is_success:
            raise
    return harness.ended(hooks.outcome)


harness.main("openai-agents", run)
