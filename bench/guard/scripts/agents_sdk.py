"""The OpenAI Agents SDK; with STRUCTURED=1 the answer must be an object."""
import os

from agents import Agent, Runner, function_tool
from pydantic import BaseModel

import tool


class Answer(BaseModel):
    answer: str


@function_tool
def bash(command: str) -> str:
    return tool.run(command)


output = {"output_type": Answer} if os.environ.get("STRUCTURED") == "1" else {}
agent = Agent(name="worker", instructions="work", tools=[bash], model="gpt-5.1", **output)
print("final:", Runner.run_sync(agent, os.environ["TASK"], max_turns=100).final_output)
