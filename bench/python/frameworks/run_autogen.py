"""AutoGen: a team of one assistant."""

from typing import Any

import harness
from autogen_agentchat.agents import AssistantAgent
from autogen_agentchat.conditions import TextMessageTermination
from autogen_agentchat.teams import RoundRobinGroupChat
from autogen_ext.models.openai import OpenAIChatCompletionClient

from endstop.adapters.autogen import EndstopTermination

INFO = {
    "vision": False,
    "function_calling": True,
    "json_output": False,
    "family": "unknown",
    "structured_output": False,
}


async def echo(text: str) -> str:
    """Echo."""
    harness.RAN.append(text)
    return text


async def run(model: str, stream: bool, guarded: bool) -> dict[str, Any]:
    client = OpenAIChatCompletionClient(
        model=model, base_url=harness.BASE, api_key="x", model_info=INFO, max_retries=0
    )
    if not guarded:
        agent = AssistantAgent("a", client, tools=[echo], model_client_stream=stream)
        team = RoundRobinGroupChat([agent], termination_condition=TextMessageTermination("a"))
        result = await team.run(task="go")
        return {"ending": "returned", "evidence": str(result.messages[-1].content)[:40]}
    stop = EndstopTermination(**harness.LIMITS, stop_on_answer=True)
    try:
        async with stop:
            agent = AssistantAgent(
                "a", stop.client(client), tools=[echo], model_client_stream=stream
            )
            team = RoundRobinGroupChat([agent], termination_condition=stop)
            result = await team.run(task="go")
            assert "Endstop" in (result.stop_reason or "")
    except Exception:
        if stop.outcome.is_success:
            raise
    return harness.ended(stop.outcome)


harness.main("autogen", run)
