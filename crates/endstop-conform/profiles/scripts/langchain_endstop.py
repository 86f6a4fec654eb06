"""LangChain's agent with the adapter of Endstop."""

import script
from endstop.adapters.langchain import EndstopMiddleware, outcome_of
from langchain.agents import create_agent

options = script.options("langchain")
output = {"response_format": script.Answer} if options.structured else {}
watched = [EndstopMiddleware(**script.settings(options))]
agent = create_agent(f"openai:{script.MODEL}", tools=[script.shell], middleware=watched, **output)
try:
    ended = agent.invoke({"messages": [("user", options.task)]})
except BaseException as problem:
    ended = problem
script.end_as(outcome_of(ended))
