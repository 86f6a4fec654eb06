"""An AutoGen assistant. It calls tools once unless it gets a number of iterations."""

import asyncio

import script
from autogen_agentchat.agents import AssistantAgent
from autogen_ext.models.openai import OpenAIChatCompletionClient

options = script.options("autogen-agentchat")
output = {"output_content_type": script.Answer} if options.structured else {}
agent = AssistantAgent(
    "worker",
    OpenAIChatCompletionClient(model=script.MODEL),
    tools=[script.shell],
    max_tool_iterations=options.turns or 25,
    **output,
)
script.end(asyncio.run(agent.run(task=options.task)).messages[-1].content)
