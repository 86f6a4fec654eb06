"""Inspect: an agent around an agent, and the model that it uses.

```python
from inspect_ai.agent import react
from endstop.adapters.inspect import checked, guarded, outcome_in

agent = react(tools=[…], model=checked())
log = eval(Task(dataset=…, solver=guarded(agent, max_turns=25)), model="openai/gpt-4o")[0]
outcome_in(log.samples[0].store)               # one ending for each sample
```

The outcome is in the store of the sample, and so in the log. If a run must not continue, the sample
ends by a limit of type `custom` whose message has the ending, and is scored with its work so far. A
submission is the answer of the run.

Blind spots without the adapter, which it covers: a truncated, filtered or cut answer is the output of
a sample with status `success`; a stream without a finish is `unknown`; a loop ends only at a limit of
the task. (`Hooks` could not stop a run: Inspect swallows their exceptions.) The tap is put into clients
of `openai` and `anthropic` inside the model; other models are described by Inspect's `stop_reason`, in
which an unknown value and a missing one are alike, and both end the run. Blind spots that remain: model
calls outside of `checked()`, such as those of scorers and of a compaction, and Inspect's own retries,
which the tap counts as failed attempts; without `limits` they have no end.
"""

from __future__ import annotations

from endstop.adapters._versions import require

require("inspect")

import json
from collections.abc import Mapping
from contextvars import ContextVar
from typing import Any

from inspect_ai.agent import Agent, AgentState, agent
from inspect_ai.model import ChatMessageTool, Model, ModelOutput, get_model
from inspect_ai.tool import Tool
from inspect_ai.util import LimitExceededError, sample_limits, store

import endstop
from endstop import Detection, Outcome, tap
from endstop._types import ResultStatus, RunEnding
from endstop.adapters._base import arguments, why
from endstop.adapters._scope import Ended, Scope, Stopped

__all__ = ["checked", "guarded", "outcome_in"]

# Inspect's names of the finish values.
_FINISH = {
    "stop": "stop",
    "max_tokens": "length",
    "model_length": "length",
    "tool_calls": "tool_calls",
    "content_filter": "content_filter",
}

_CURRENT: ContextVar[_Run | None] = ContextVar("endstop_inspect", default=None)


# Inspect's own limits, and the endings that say the same.
_LIMITS: dict[str, RunEnding] = {
    "token": "error_max_tokens",
    "cost": "error_max_budget_usd",
    "turn": "error_max_turns",
}


class _Run(Scope):
    """The run of one sample."""

    unseen = "use the guarded model: react(model=checked())"

    def __init__(self, **settings: Any) -> None:
        super().__init__(**settings)
        self.answer: str | None = None
        """The answer of the agent, once it has returned."""
        # The calls of the agent itself that wait for their results, and the agents in its tools.
        self._open: set[str] = set()
        self._nested: dict[int, tuple[AgentState, str]] = {}

    def conversation(self, state: AgentState, answered: set[str]) -> str:
        """Returns the conversation of the agent with this state, which has these results."""
        if not self._open or answered & self._open:
            self._nested.clear()
            return ""
        return self._nested.setdefault(id(state), (state, f"agent#{len(self._nested) + 1}"))[1]

    def called(self, of: str, output: ModelOutput) -> None:
        """Takes the calls of a response."""
        if of == "":
            self._open = {call.id for call in output.message.tool_calls or []}

    def failed_call(self, problem: BaseException, *, of: str = "") -> None:
        asked = self._live.open(of)
        if asked is not None and asked.recording.detections and isinstance(problem, Exception):
            # Inspect wraps the failure; the response has its class.
            self._detach(asked)
            asked.failed(None)
        else:
            super().failed_call(problem, of=of)

    def left_call(self) -> None:
        """Reports that nothing more will come of the open model calls."""
        self._live.leave()

    def ended_by(self, problem: BaseException) -> Ended | None:
        if isinstance(problem, LimitExceededError):
            named = _LIMITS.get(problem.type, "error_halted")
            return named, f"Inspect's limit `{problem.type}`: {problem.message}"
        return None

    def returned(self) -> None:
        if self.run.ending is None and self.answer is not None:
            # Inspect's agents return with calls only after a submission.
            self.submitted(self.answer)
        else:
            self._live.close()

    def store(self) -> Outcome:
        """Stores the outcome in the sample."""
        store().set("endstop", {**self.outcome.to_dict(), "messages": []})
        return self.outcome


def outcome_in(stored: Mapping[str, Any]) -> Outcome:
    """Returns the outcome in the store of a sample."""
    return Outcome.from_json(json.dumps(stored["endstop"]))


@agent
def guarded(inner: Agent, **settings: Any) -> Agent:
    """Puts each run of an agent under the kernel. The keywords are limits, `policy`, `model`, `price`
    and `task`."""
    # An invalid limit is an error here, and not in each sample.
    _Run(**settings)

    async def execute(state: AgentState) -> AgentState:
        run = _Run(**settings)
        token = _CURRENT.set(run)
        try:
            async with run:
                state = await inner(state)
                run.answer = state.output.completion
        except Stopped:
            outcome = run.outcome
            if not outcome.is_success:
                turns, message = outcome.turns, why(outcome)
                raise LimitExceededError(
                    "custom", value=turns, limit=turns, message=message
                ) from None
        finally:
            run.store()
            _CURRENT.reset(token)
        return state

    return execute


@agent
def checked(model: str | Model | None = None) -> Agent:
    """The model of a guarded agent: `react(model=checked())`. None is the model of the task."""

    async def execute(state: AgentState, tools: list[Tool]) -> AgentState:
        run = _CURRENT.get()
        if run is None:
            raise endstop.ConfigError("put the agent into `guarded(agent, …)`")
        # The results of the turn before stand together at the end of the history.
        results = _results(state)
        of = run.conversation(state, {message.tool_call_id or "" for message in results})
        for message in results:
            status: ResultStatus = "error" if message.error is not None else "ok"
            run.after_tool(message.tool_call_id or "", message.text, status=status)
        used = get_model(model)
        try:
            tap.wrap(getattr(used.api, "client", None))
        except endstop.ConfigError:
            # A model without httpx inside: Inspect's own outputs are used.
            pass
        if not _is_full(state):
            await run.wait_async()
            run.before_call(of=of)
        try:
            output = await used.generate(state.messages, tools)
        except Exception as problem:
            if isinstance(problem, LimitExceededError):
                # The model has not failed, and may not have been asked.
                run.left_call()
            else:
                run.failed_call(problem, of=of)
            raise
        run.after_call(lambda: _described(output), of=of)
        run.called(of, output)
        state.output = output
        state.messages.append(output.message)
        return state

    return execute


def _is_full(state: AgentState) -> bool:
    """Returns True if Inspect refuses the next request, before it asks the model."""
    limit = sample_limits().message.limit
    return limit is not None and len(state.messages) >= limit


def _results(state: AgentState) -> list[ChatMessageTool]:
    results: list[ChatMessageTool] = []
    for message in reversed(state.messages):
        if not isinstance(message, ChatMessageTool):
            break
        results.insert(0, message)
    return results


def _described(output: ModelOutput) -> Detection:
    """Describes an output of Inspect."""
    calls = output.message.tool_calls or []
    # A call whose arguments could not be parsed is evidence that it was cut.
    texts = ["{" if call.parse_error else arguments(call.arguments) for call in calls]
    return endstop.response(
        output.completion,
        finish=_FINISH.get(output.stop_reason),
        calls=[(call.id, call.function, text) for call, text in zip(calls, texts, strict=True)],
        model=output.model,
        **_tokens(output.usage),
    )


def _tokens(usage: Any) -> dict[str, Any]:
    """Returns the counts of an output, as `endstop.response` takes them. Inspect takes what is cached off the input."""
    if usage is None:
        return {}
    read, written = usage.input_tokens_cache_read, usage.input_tokens_cache_write
    return {
        "input_tokens": usage.input_tokens + (read or 0) + (written or 0),
        "output_tokens": usage.output_tokens,
        "cached_input_tokens": read,
        "cache_write_tokens": written,
        "reasoning_tokens": usage.reasoning_tokens,
    }
