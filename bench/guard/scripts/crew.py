"""A CrewAI crew of one agent."""
import os

from crewai import LLM, Agent, Crew, Task
from crewai.tools import tool as as_tool

import tool


@as_tool("bash")
def bash(command: str) -> str:
    "run a command"
    return tool.run(command)


# The argument names the base URL, because the library reads another variable.
llm = LLM(model="openai/gpt-4o", base_url=os.environ["OPENAI_BASE_URL"], api_key=os.environ["OPENAI_API_KEY"])
worker = Agent(role="worker", goal="work", backstory="none", tools=[bash], llm=llm, max_iter=100)
task = Task(description=os.environ["TASK"], expected_output="a report", agent=worker)
print("final:", Crew(agents=[worker], tasks=[task]).kickoff())
