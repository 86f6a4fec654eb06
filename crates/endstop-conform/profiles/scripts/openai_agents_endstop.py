"""The OpenAI Agents SDK with the adapter of Endstop."""

import endstop
import script
from agents import Agent, Runner, function_tool, set_default_openai_client
from endstop.adapters.openai_agents import EndstopHooks
from openai import AsyncOpenAI

options = script.options("openai-agents")
output = {"output_type": script.Answer} if options.structured else {}
set_default_openai_client(endstop.tap.wrap(AsyncOpenAI()))
agent = Agent(name="worker", tools=[function_tool(script.shell)], model=script.MODEL, **output)
hooks = EndstopHooks(**script.settings(options))
try:
    with hooks:
        Runner.run_sync(agent, options.task, hooks=hooks)
except BaseException as problem:
    print(problem)
script.end_as(hooks.outcome)
