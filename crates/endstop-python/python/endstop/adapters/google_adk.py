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
`error_message`, the text so far, and no function calls. `on_end=` is called with each outcome. Set
`RunConfig(max_llm_calls=…)` above `max_turns`, or ADK raises first.

Blind spots without the adapter, which it covers: an answer without a finish value is a final response
like any other, and without SSE a truncated or filtered one too; a loop ends after 500 calls. ADK
gives a call its id only after this plugin, so the plugin gives it. Blind spots that remain: the plugin
sees what ADK made of the response, so that **a model behind LiteLLM, which makes up the finish value
`stop`, looks complete** (point it at `endstop guard`); live (bidirectional) runs, whose model has no
finish value, and `AgentTool`s without `include_plugins` are not covered; if the caller of one of ADK's older
agents (`SequentialAgent`, `LoopAgent`) is cancelled without the end of its task, as by `asyncio.timeout`, `on_end`
is called when that task has ended or `outcome_of` is asked.
"""

from __future__ import annotations

from endstop.adapters._versions import require

require("google_adk")

import asyncio
import sys
import uuid
import weakref
from collections import OrderedDict
from collections.abc import Callable
from contextvars import ContextVar
from typing import Any

from google.adk.agents.invocation_context import LlmCallsLimitExceededError
from google.adk.events import Event, EventActions
from google.adk.models.llm_response import LlmResponse
from google.adk.plugins.base_plugin import BasePlugin
from google.genai import types

import endstop
from endstop import ConfigError, Detection, Outcome, Run
from endstop.adapters._base import AROUND, Live, Settings, arguments, plain, why
from endstop.adapters._scope import Conversations

__all__ = ["EndstopPlugin"]

# Runs that a plugin stores at most, the newest ones.
_MOST_STORED = 1000
# The key of the parked runs in the state of a session, by invocation.
_PARKED = "endstop_parked"

_TOOLS: ContextVar[tuple[tuple[EndstopPlugin, _Live, str], ...]] = ContextVar(
    "endstop_google_adk", default=()
)
"""The tools that run in this context, the innermost last: their plugin, its run, and the call. A run of the same
plugin in it is one of its agents; that of another one is a run of its own."""


def _around() -> Live | None:
    """Returns the run of the tool that runs in this context."""
    return next((live for _, live, _ in reversed(_TOOLS.get())), None)


AROUND.append(_around)


class _Live(Live):
    """The run of an invocation, with those of the agents that its tools are."""

    def __init__(self, run: Run, on_end: Callable[[Outcome], None] | None) -> None:
        super().__init__(run, on_end)
        self.conversations = Conversations()
        self.waits: set[str] = set()
        """The calls that a person, or another program, must answer."""
        self.requests: dict[str, int] = {}
        """The model calls of each invocation, as ADK counts them against `max_llm_calls`."""
        self.answered_by: tuple[object] | None = None
        """The answer, if it was in a call, or if a tool ended the loop."""
        self.caller: asyncio.Task[Any] | None = None
        self.context: Callable[[], Any] = lambda: None
        """Returns the context of the invocation that runs."""

    def begin(self, context: Any) -> None:
        """Takes the context of an invocation, and its caller."""
        self.context = weakref.ref(context)
        # ADK calls no callback if the caller is cancelled.
        weakref.finalize(context, self.left).atexit = False
        self.caller = asyncio.current_task()
        if self.caller is not None:
            self.caller.add_done_callback(lambda task: self.left() if task.cancelled() else None)

    def watch(self) -> None:
        """Watches the task of a model call. ADK cancels tasks, too, as those of the rest of a loop: only
        the caller's cancellation is one of the run."""
        task = asyncio.current_task()
        if task is not None and task is not self.caller:
            task.add_done_callback(
                lambda task: self.left() if task.cancelled() and self._is_cancelled else None
            )

    @property
    def _is_cancelled(self) -> bool:
        return self.caller is None or self.caller.done() or self.caller.cancelling() > 0

    def left(self) -> None:
        """Ends the run of a caller who has left. One who has the answer has not."""
        if not self.run.running or self.run.parked:
            return
        if self.run.ending not in ("stop", "submitted"):
            self.leave()
            self.run.cancel()
        self.close()


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
        # With the conversation of an agent that is a tool; that of others is blank.
        self._runs: OrderedDict[str, tuple[_Live, str]] = OrderedDict()

    def outcome_of(self, event: Any) -> Outcome:
        """Returns the outcome of the run that this event, or this invocation id, belongs to. A run
        whose events the caller has left is cancelled."""
        invocation = event if isinstance(event, str) else event.invocation_id
        if invocation not in self._runs:
            raise ConfigError(
                f"no run of the invocation {invocation}: the plugin stores the newest {_MOST_STORED}, "
                "those of its runner"
            )
        live, _ = self._runs[invocation]
        live.left()
        return live.run.finished()

    async def before_run_callback(self, *, invocation_context: Any) -> None:
        invocation = str(invocation_context.invocation_id)
        for plugin, live, call in _TOOLS.get():
            if plugin is self and live.run.running:
                self._runs[invocation] = live, call
                return
        content = invocation_context.user_content
        parts = (content.parts or []) if content is not None else []
        parked = (invocation_context.session.state.get(_PARKED) or {}).get(invocation)
        known, _ = self._runs.get(invocation, (None, ""))
        if known is not None and known.waits and known.run.running and not known.run.parked:
            # The caller has left the events at the question, and ADK has not noticed yet.
            live = known
        elif parked is not None:
            live = _Live(self._settings.resume(parked), self._on_end)
            await _store(invocation_context, None)
        else:
            live = _Live(self._settings.run(_text(parts)), self._on_end)
        live.waits.clear()
        for response in (part.function_response for part in parts):
            # The confirmation of a call is not its result.
            if response is not None and not (response.name or "").startswith("adk_request_"):
                live.run.result(response.id or "", arguments(response.response))
        live.begin(invocation_context)
        self._runs[invocation] = live, ""
        while len(self._runs) > _MOST_STORED:
            self._runs.popitem(last=False)

    async def after_run_callback(self, *, invocation_context: Any) -> None:
        live, nested = self._run(invocation_context)
        if nested or live.context() is not invocation_context:
            return
        # ADK calls this also while the caller leaves the events.
        leaving = isinstance(sys.exc_info()[1], GeneratorExit | asyncio.CancelledError)
        left = leaving or invocation_context.is_aborted
        if live.waits and live.run.running:
            await _store(invocation_context, live.park())
        elif left:
            live.left()
        elif live.answered_by is not None:
            live.close(ended="submitted", deliverable=live.answered_by[0])
        else:
            live.close()

    async def on_run_error_callback(
        self, *, invocation_context: Any, error: Exception, **_: Any
    ) -> None:
        live, nested = self._run(invocation_context)
        if nested:
            return
        live.leave(None if _is_limit(error) else error)
        if _is_limit(error):
            live.close(ended="error_max_turns", detail=f"{type(error).__name__}: {error}")
        else:
            live.close(False, f"{type(error).__name__}: {error}")

    async def on_event_callback(self, *, invocation_context: Any, event: Event) -> None:
        live, nested = self._run(invocation_context)
        if not nested:
            live.waits |= event.long_running_tool_ids or set()
            live.waits -= {response.id for response in event.get_function_responses()}

    async def before_model_callback(
        self, *, callback_context: Any, llm_request: Any
    ) -> LlmResponse | None:
        live, of = self._conversation(callback_context)
        live.answered_by = None
        live.watch()
        invocation = callback_context.invocation_id
        made, settings = live.requests.get(invocation, 0), callback_context.run_config
        if settings is not None and 0 < settings.max_llm_calls <= made:
            # ADK counts after this, and raises: the model is not asked.
            return None
        live.requests[invocation] = made + 1
        await live.wait_async()
        return None if live.ask(of) is not None else _last(live.run.finished(), LlmResponse())

    async def after_model_callback(
        self, *, callback_context: Any, llm_response: LlmResponse
    ) -> LlmResponse | None:
        live, of = self._conversation(callback_context)
        asked = live.open(of)
        # A fragment of a stream, or the response that `before_model_callback` made.
        if llm_response.partial or asked is None:
            return None
        parts = (llm_response.content.parts or []) if llm_response.content else []
        for part in parts:
            if part.function_call and not part.function_call.id:
                # ADK keeps ids with this prefix from the model, as it does with its own.
                part.function_call.id = f"adk-{uuid.uuid4()}"
        seen = _described(llm_response, parts)
        stopped = asked.feed([seen]).stopped
        if stopped is None or (stopped.is_success and not seen.calls):
            return None
        return _last(stopped, llm_response)

    async def on_model_error_callback(
        self, *, callback_context: Any, llm_request: Any, error: Exception
    ) -> None:
        live, of = self._conversation(callback_context)
        asked = live.open(of)
        if asked is not None and not _is_limit(error):
            asked.failed(error)

    async def before_tool_callback(self, *, tool: Any, tool_args: Any, tool_context: Any) -> None:
        live, nested = self._run(tool_context)
        call = str(tool_context.function_call_id)
        _TOOLS.set((*self._tools_of_others(), (self, live, f"{nested}{tool.name} {call}")))

    async def after_tool_callback(
        self, *, tool: Any, tool_args: Any, tool_context: Any, result: Any
    ) -> None:
        _TOOLS.set(self._tools_of_others())
        live, nested = self._run(tool_context)
        actions, call = tool_context.actions, tool_context.function_call_id
        if call in actions.requested_tool_confirmations or call in actions.requested_auth_configs:
            return
        if getattr(tool, "is_long_running", False) and not result:
            return
        live.run.result(call, arguments(result))
        if not nested and actions.set_model_response is not None:
            live.answered_by = (plain(actions.set_model_response),)
        elif not nested and actions.skip_summarization:
            live.answered_by = (plain(result),)

    async def on_tool_error_callback(
        self, *, tool: Any, tool_args: Any, tool_context: Any, error: BaseException
    ) -> None:
        _TOOLS.set(self._tools_of_others())
        live, _ = self._run(tool_context)
        if isinstance(error, Exception) and live.run.running:
            live.run.result(tool_context.function_call_id, error)

    def _tools_of_others(self) -> tuple[tuple[EndstopPlugin, _Live, str], ...]:
        return tuple(one for one in _TOOLS.get() if one[0] is not self)

    def _run(self, context: Any) -> tuple[_Live, str]:
        return self._runs[context.invocation_id]

    def _conversation(self, context: Any) -> tuple[_Live, str]:
        """Returns the run, and the name of the agent's conversation in it. The agents of a history
        continue each other; a branch has its own."""
        live, nested = self._run(context)
        branch = context.branch
        if branch is None or live.conversations.knows(branch):
            return live, nested + (live.conversations.of(branch) if branch else "")
        return live, nested + live.conversations.start(branch, branch)


def _is_limit(error: Exception) -> bool:
    """Returns True for the end of ADK's own `max_llm_calls`, which it counts after the callback."""
    return isinstance(error, LlmCallsLimitExceededError)


async def _store(context: Any, parked: str | None) -> None:
    """Stores the parked run of an invocation in the state of its session; None removes it."""
    runs = dict(context.session.state.get(_PARKED) or {})
    runs.pop(context.invocation_id, None)
    if parked is not None:
        runs[context.invocation_id] = parked
    event = Event(
        invocation_id=context.invocation_id,
        # A workflow has no agent at its root.
        author=getattr(context.agent, "name", None) or "endstop",
        actions=EventActions(state_delta={_PARKED: runs}),
    )
    await context.session_service.append_event(session=context.session, event=event)


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
    finish: Any = response.finish_reason or response.error_code
    finish = getattr(finish, "value", finish)
    if calls and finish == "STOP":
        # Gemini has no finish value of its own for calls.
        finish = "tool_calls"
    return endstop.response(
        _text(parts),
        finish=finish,
        calls=[(call.id or "", call.name or "", arguments(call.args or {})) for call in calls],
        model=response.model_version,
        **_tokens(response.usage_metadata),
    )


def _tokens(usage: Any) -> dict[str, Any]:
    """Returns the counts of a response, as `endstop.response` takes them. Only the total says if the candidates have the
    thoughts in them: those of LiteLLM have, and those of Gemini have not."""
    if usage is None:
        return {}
    given = usage.prompt_token_count
    return {
        "input_tokens": None if given is None else given + (usage.tool_use_prompt_token_count or 0),
        "output_tokens": usage.candidates_token_count,
        "cached_input_tokens": usage.cached_content_token_count,
        # No field of the class: ADK adds it for models that are not Gemini.
        "cache_write_tokens": getattr(usage, "cache_creation_input_tokens", None),
        "reasoning_tokens": usage.thoughts_token_count,
        "total_tokens": usage.total_token_count,
    }
