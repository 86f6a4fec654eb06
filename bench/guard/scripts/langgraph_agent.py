"""A LangGraph agent."""
import os

from langchain.agents import create_agent
from langchain_core.tools import tool as as_tool
from langchain_openai import ChatOpenAI

import tool


@as_tool
def bash(command: str) -> str:
    "run a command"
    return tool.run(command)


# With a base URL of its own the library asks for no usage, unless it is configured to.
graph = create_agent(ChatOpenAI(model="gpt-4o", streaming=True, stream_usage=True), [bash])
result = graph.invoke({"messages": [("user", os.environ["TASK"])]}, {"recursion_limit": 200})
print("final:", result["messages"][-1].content)
