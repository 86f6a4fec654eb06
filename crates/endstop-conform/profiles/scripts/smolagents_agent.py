"""The agent of smolagents that calls tools."""

import script
from smolagents import OpenAIModel, ToolCallingAgent, tool


@tool
def shell(command: str) -> str:
    """Runs a shell command and returns its output.

    Args:
        command: The command.
    """
    return script.shell(command)


options = script.options("smolagents")
cap = {"max_steps": options.turns} if options.turns else {}
agent = ToolCallingAgent(tools=[shell], model=OpenAIModel(model_id=script.MODEL, api_base=script.base()))
script.end(agent.run(options.task, **cap))
