"""Microsoft Agent Framework."""

import asyncio

import script
from agent_framework import Agent
from agent_framework.openai import OpenAIChatCompletionClient

options = script.options("agent-framework-core")
output = {"options": {"response_format": script.Answer}} if options.structured else {}
client = OpenAIChatCompletionClient(model=script.MODEL)
if options.turns:
    client.function_invocation_configuration["max_iterations"] = options.turns
agent = Agent(client=client, tools=[script.shell])
script.end(asyncio.run(agent.run(options.task, **output)).text)
