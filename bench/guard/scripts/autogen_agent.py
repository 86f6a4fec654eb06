"""An AutoGen assistant."""
import asyncio
import os

from autogen_agentchat.agents import AssistantAgent
from autogen_ext.models.openai import OpenAIChatCompletionClient

import tool


async def bash(command: str) -> str:
    "run a command"
    return await asyncio.to_thread(tool.run, command)


async def main():
    client = OpenAIChatCompletionClient(model="gpt-4o")
    agent = AssistantAgent("worker", model_client=client, tools=[bash], max_tool_iterations=100)
    result = await agent.run(task=os.environ["TASK"])
    print("final:", result.messages[-1].content)


asyncio.run(main())
