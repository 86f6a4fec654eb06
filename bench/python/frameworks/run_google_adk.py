"""Google ADK, Gemini's own format."""

import functools
from typing import Any

import harness
from google import genai
from google.adk.agents import LlmAgent
from google.adk.agents.run_config import RunConfig, StreamingMode
from google.adk.apps import App
from google.adk.models.google_llm import Gemini
from google.adk.runners import InMemoryRunner
from google.genai import types

import endstop
from endstop.adapters.google_adk import EndstopPlugin


class Scripted(Gemini):
    """The model of the scripted server."""

    @functools.cached_property
    def api_client(self) -> genai.Client:
        retries = types.HttpRetryOptions(attempts=1)
        options = types.HttpOptions(base_url=harness.ROOT, retry_options=retries)
        return genai.Client(api_key="x", vertexai=False, http_options=options)


def echo(text: str) -> str:
    """Echo."""
    harness.RAN.append(text)
    return text


async def run(model: str, stream: bool, guarded: bool) -> dict[str, Any]:
    agent = LlmAgent(name="a", model=Scripted(model=model), instruction="x", tools=[echo])
    outcomes: list[endstop.Outcome] = []
    guard = EndstopPlugin(**harness.LIMITS, on_end=outcomes.append)
    plugins = [guard] if guarded else []
    runner = InMemoryRunner(app=App(name="t", root_agent=agent, plugins=plugins))
    session = await runner.session_service.create_session(app_name="t", user_id="u")
    mode = StreamingMode.SSE if stream else StreamingMode.NONE
    last: Any = None
    try:
        async for event in runner.run_async(
            user_id="u",
            session_id=session.id,
            new_message=types.Content(role="user", parts=[types.Part(text="go")]),
            run_config=RunConfig(streaming_mode=mode, max_llm_calls=500),
        ):
            last = event
    except Exception:
        if not guarded or outcomes[0].is_success:
            raise
    if not guarded:
        code = last.error_code if last is not None else None
        return {"ending": f"error code {code}" if code else "returned"}
    assert len(outcomes) == 1, "one ending"
    assert last is None or guard.outcome_of(last) == outcomes[0]
    return harness.ended(outcomes[0])


# Gemini's format marks no refusal.
harness.main("google-adk", run, absent=("refusal",))
