"""CrewAI: a crew of one agent, chat completions."""

import asyncio
import os
import tempfile
from typing import Any

os.environ.update(
    CREWAI_STORAGE_DIR=tempfile.mkdtemp(),
    CREWAI_DISABLE_TELEMETRY="true",
    CREWAI_TRACING_ENABLED="false",
    OTEL_SDK_DISABLED="true",
)

import harness  # noqa: E402
from crewai import LLM, Agent, Crew, Task  # noqa: E402
from crewai.tools import tool  # noqa: E402

from endstop.adapters.crewai import Endstop, EndstopStopped, tapped  # noqa: E402


@tool("echo")
def echo(text: str) -> str:
    """Echo."""
    harness.RAN.append(text)
    return text


async def run(model: str, stream: bool, guarded: bool) -> dict[str, Any]:
    llm = LLM(
        model="openai/" + model, base_url=harness.BASE, api_key="x", stream=stream, max_retries=0
    )

    def crew() -> Crew:
        agent = Agent(
            role="r", goal="g", backstory="b", llm=llm, tools=[echo], allow_delegation=False
        )
        task = Task(description="go", expected_output="text", agent=agent)
        return Crew(agents=[agent], tasks=[task], tracing=False)

    if not guarded:
        result = await asyncio.to_thread(lambda: crew().kickoff())
        return {"ending": "returned", "evidence": result.raw[:40]}
    tapped(llm)

    def go() -> Endstop:
        stop = Endstop(**harness.LIMITS)
        try:
            with stop:
                crew().kickoff()
        except EndstopStopped as stopped:
            assert stopped.outcome == stop.outcome
        except Exception:
            if stop.outcome.is_success:
                raise
        return stop

    # In a thread, so that runs are concurrent.
    stop = await asyncio.to_thread(go)
    return harness.ended(stop.outcome)


harness.main("crewai", run)
