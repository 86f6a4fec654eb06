"""Strands Agents."""

import script
from strands import Agent, tool
from strands.models.openai import OpenAIModel

options = script.options("strands-agents")
output = {"structured_output_model": script.Answer} if options.structured else {}
cap = {"limits": {"turns": options.turns}} if options.turns else {}
agent = Agent(model=OpenAIModel(model_id=script.MODEL), tools=[tool(script.shell)], callback_handler=None)
script.end(agent(options.task, **output, **cap))
