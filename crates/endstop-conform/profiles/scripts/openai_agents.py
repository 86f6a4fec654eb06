"""The OpenAI Agents SDK."""

import script
from agents import Agent, Runner, function_tool

options = script.options("openai-agents")
output = {"output_type": script.Answer} if options.structured else {}
cap = {"max_turns": options.turns} if options.turns else {}
agent = Agent(name="worker", tools=[function_tool(script.shell)], model=script.MODEL, **output)
script.end(Runner.run_sync(agent, options.task, **cap).final_output)
