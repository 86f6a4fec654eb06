"""Google ADK."""

import asyncio

import script
from google.adk.agents import LlmAgent
from google.adk.agents.run_config import RunConfig
from google.adk.runners import InMemoryRunner
from google.genai import types

options = script.options("google-adk")
output = {"output_schema": script.Answer} if options.structured else {}
cap = {"run_config": RunConfig(max_llm_calls=options.turns)} if options.turns else {}
agent = LlmAgent(name="worker", model="gemini-2.5-pro", tools=[script.shell], **output)


async def main():
    runner = InMemoryRunner(agent=agent, app_name="app")
    session = await runner.session_service.create_session(app_name="app", user_id="user")
    message = types.Content(role="user", parts=[types.Part(text=options.task)])
    async for event in runner.run_async(user_id="user", session_id=session.id, new_message=message, **cap):
        for part in (event.content and event.content.parts) or []:
            if part.text:
                script.end(part.text)


asyncio.run(main())
