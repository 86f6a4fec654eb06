"""Google ADK: a plugin for a runner.

```python
from google.adk.apps import App
from google.adk.runners import InMemoryRunner
from endstop.adapters.google_adk import EndstopPlugin

guard = EndstopPlugin(max_turns=25, max_budget_usd=2.0)
runner = InMemoryRunner(app=App(name="app", root_agent=agent, plugins=[guard]))
async for event in runner.run_async(…):
    ...
guard.outcome_of(event)                        # one ending
```

The plugin may be shared by any number of runs, also at the same time: a run is an invocation, with all
of its agents. If it must not continue, its last event has the ending as `error_code`, the evidence as
`error_message`, the text so far, and no function calls. Set `RunConfig(max_llm_calls=…)` above
`max_turns`, or ADK raises first.

Blind spots without the adapter, which it covers: an answer without a finish value is a final response
like any other, and without SSE a truncated or filtered one too; a loop ends after 500 calls. ADK
gives a call its id only after this plugin, so the plugin gives it. Blind spots that remain: the plugin
sees what ADK made of the response, so that **a model behind LiteLLM, which makes up the finish value
`stop`, looks complete** (point it at `endstop guard`); live (bidirectional) runs, whose model has no
finish value, and `AgentTool`s without `include_plugins` are not covered; a caller who leaves the
events in the middle gets the outcome from `outcome_of`, and `on_end` is not called.
"""

from __future__ import annotations

from endstop.adapters._versions import require

require("google_adk")

import uuid
from collections import OrderedDict
from collections.abc import Callable
from typing import Any

from google.adk.models.llm_response import LlmResponse
from google.adk.plugins.base_plugin import BasePlugin
from google.genai import types

import endstop
from endstop import Detection, Outcome, Run
from endstop.adapters._base import Settings, arguments, feed, why

__all__ = ["EndstopPlugin"]

# Runs that a plugin stores at most, the newest ones.
_MOST_STORED = 1000


class EndstopPlugin(BasePlugin):
    """Puts every run of a runner under the kernel. `on_end` is called with each outcome."""

    def __init__(
        self,
        *,
        policy: Any = None,
        model: str | None = None,
        price: Any = None,
        on_end: Callable[[Outcome], None] | None = None,
        **limits: Any,
    ) -> None:
        super().__init__(name="endstop")
        self._settings = Settings(policy, model, price, limits=limits)
        self._on_end = on_end
        self._runs: OrderedDict[str, Run] = OrderedDict()

    def outcome_of(self, event: Any) -> Outcome:
        """Returns the outcome of the run that this event, or this invocation id, belongs to."""
        run = self._runs[event if isinstance(event, str) else event.invocation_id]
        return run.close(False, "the caller left the events")

    async def before_run_callback(self, *, invocation_context: Any) -> None:
        content = invocation_context.user_content
        task = _text(content.parts or []) if content is not None else ""
        self._runs[invocation_context.invocation_id] = self._settings.run(task)
        while len(self._runs) > _MOST_STORED:
            self._runs.popitem(last=False)

    async def after_run_callback(self, *, invocation_context: Any) -> None:
        self._end(invocation_context)

    async def on_run_error_callback(
        self, *, invocation_context: Any, error: Exception, **_: Any
    ) -> None:
        self._end(invocation_context, f"{type(error).__name__}: {error}")

    async def before_model_callback(
        self, *, callback_context: Any, llm_request: Any
    ) -> LlmResponse | None:
        run = self._run(callback_context)
        return None if run.ask() else _last(run.finished(), LlmResponse())

    async def after_model_callback(
        self, *, callback_context: Any, llm_response: LlmResponse
    ) -> LlmResponse | None:
        run = self._run(callback_context)
        # A fragment of a stream, or the response that `before_model_callback` made.
        if llm_response.partial or not run.running:
            return None
        parts = (llm_response.content.parts or []) if llm_response.content else []
        for part in parts:
            if part.function_call and not part.function_call.id:
                # ADK keeps ids with this prefix from the model, as it does with its own.
                part.function_call.id = f"adk-{uuid.uuid4()}"
        seen = _described(llm_response, parts)
        stopped = feed(run, [seen]).stopped
        if stopped is None or (stopped.is_success and not seen.calls):
            return None
        return _last(stopped, llm_response)

    async def on_model_error_callback(
        self, *, callback_context: Any, llm_request: Any, error: Exception
    ) -> None:
        self._run(callback_context).failed(error)

    async def after_tool_callback(
        self, *, tool: Any, tool_args: Any, tool_context: Any, result: Any
    ) -> None:
        self._run(tool_context).result(tool_context.function_call_id, arguments(result))

    async def on_tool_error_callback(
        self, *, tool: Any, tool_args: Any, tool_context: Any, error: Exception
    ) -> None:
        self._run(tool_context).result(tool_context.function_call_id, error)

    def _run(self, context: Any) -> Run:
        return self._runs[context.invocation_id]

    def _end(self, context: Any, problem: str = "") -> None:
        outcome = self._run(context).close(not problem, problem)
        if self._on_end is not None:
            self._on_end(outcome)


def _text(parts: list[types.Part]) -> str:
    return "".join(part.text or "" for part in parts if not part.thought)


def _last(outcome: Outcome, response: LlmResponse) -> LlmResponse:
    """Returns the last response of a run: the text so far, without calls."""
    parts = (response.content.parts or []) if response.content else []
    kept = [part for part in parts if part.text]
    failed = not outcome.is_success
    return LlmResponse(
        content=types.Content(role="model", parts=kept) if kept else None,
        finish_reason=response.finish_reason,
        error_code=str(outcome.termination) if failed else None,
        error_message=why(outcome) if failed else None,
        usage_metadata=response.usage_metadata,
        turn_complete=True,
    )


def _described(response: LlmResponse, parts: list[types.Part]) -> Detection:
    """Describes a response of ADK, whose finish values are those of Gemini."""
    calls = [part.function_call for part in parts if part.function_call]
    usage = response.usage_metadata
    finish: Any = response.finish_reason or response.error_code
    finish = getattr(finish, "value", finish)
    if calls and finish == "STOP":
        # Gemini has no finish value of its own for calls.
        finish = "tool_calls"
    return endstop.response(
        _text(parts),
        finish=finish,
        calls=[(call.id or "", call.name or "", arguments(call.args or {})) for call in calls],
        input_tokens=usage.prompt_token_count if usage else None,
        output_tokens=usage.candidates_token_count if usage else None,
        model=response.model_version,
    )
