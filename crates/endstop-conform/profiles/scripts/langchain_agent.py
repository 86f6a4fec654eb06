"""LangChain's agent, which is a graph of LangGraph."""

import script
from langchain.agents import create_agent
from langchain.agents.middleware import ModelCallLimitMiddleware

options = script.options("langchain")
output = {"response_format": script.Answer} if options.structured else {}
cap = [ModelCallLimitMiddleware(run_limit=options.turns)] if options.turns else []
agent = create_agent(f"openai:{script.MODEL}", tools=[script.shell], middleware=cap, **output)
result = agent.invoke({"messages": [("user", options.task)]})
script.end(result["structured_response"] if options.structured else result["messages"][-1].content)
