"""LlamaIndex' `FunctionAgent`, chat completions."""

from typing import Any

import harness
from llama_index.core.agent.workflow import FunctionAgent
from llama_index.llms.openai_like import OpenAILike

from endstop.adapters.llama_index import Endstop, Guarded, tapped


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


harness.main("llama-index", run)
