"""A CrewAI crew of one agent."""

import script
from crewai import LLM, Agent, Crew, Task
from crewai.tools import tool

options = script.options("crewai")
output = {"output_pydantic": script.Answer} if options.structured else {}
cap = {"max_iter": options.turns} if options.turns else {}
llm = LLM(model=f"openai/{script.MODEL}", base_url=script.base())
worker = Agent(role="worker", goal="work", backstory="none", tools=[tool("shell")(script.shell)], llm=llm, **cap)
task = Task(description=options.task, expected_output="a report", agent=worker, **output)
script.end(Crew(agents=[worker], tasks=[task]).kickoff())
