import asyncio, sys
from pydantic_ai import Agent, UsageLimits

agent = Agent(f"openai-chat:{sys.argv[1]}", system_prompt="Be brief.")

@agent.tool_plain
def weather(city: str) -> str:
    """The weather in a city.

    Args:
        city: The city's name.
    """
    return f"It rains in {city}."

async def main():
    limits = UsageLimits(request_limit=10)
    async with agent.run_stream("What is the weather in Paris?", usage_limits=limits) as run:
        async for text in run.stream_text(delta=True):
            print(text, end="", flush=True)
        print(f"\n[{run.response.finish_reason}, {run.usage.total_tokens} tokens]")

asyncio.run(main())
