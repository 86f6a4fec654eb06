"""An AutoGen assistant. It calls tools once unless it gets a number of iterations."""

import asyncio

import script
from autogen_agentchat.agents import AssistantAgent
from autogen_core.tools import FunctionTool
from autogen_ext.models.openai import OpenAIChatCompletionClient

options = script.options("autogen-agentchat")
output = {"output_content_type": script.Answer} if options.structured else {}
agent = AssistantAgent(
    "worker",
    OpenAIChatCompletionClient(model=script.MODEL),
    # A structured answer needs tools that are strict.
    tools=[FunctionTool(script.shell, "Run a shell command.", strict=True)],
    max_tool_iterations=options.turns or 25,
    **output,
)
script.end(asyncio.run(agent.run(task=options.task)).messages[-1].content)
