"""Pydantic AI."""

import script
from pydantic_ai import Agent, UsageLimits

options = script.options("pydantic-ai-slim")
output = {"output_type": script.Answer} if options.structured else {}
cap = {"usage_limits": UsageLimits(request_limit=options.turns)} if options.turns else {}
agent = Agent(f"openai-chat:{script.MODEL}", tools=[script.shell], **output)
script.end(agent.run_sync(options.task, **cap).output)
