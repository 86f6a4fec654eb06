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
whole call of `submit` is the answer of the run.

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
from inspect_ai.util import LimitExceededError, store

import endstop
from endstop import Detection, Outcome, tap
from endstop.adapters._base import arguments, why
from endstop.adapters._scope import Scope, Stopped

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


class _Run(Scope):
    """The run of one sample."""

    def translated(self, response: Detection) -> Detection:
        names = [call.name for call in response.calls]
        if names != ["submit"] or response.cut_calls or response.reason != "tool_use":
            return response
        return endstop.response(
            str(response.calls[0].args.get("answer", "")),
            finish="stop",
            input_tokens=response.usage.input_tokens,
            output_tokens=response.usage.output_tokens,
            model=response.model,
        )

    def ended(self) -> Outcome:
        """Ends the run, and stores its outcome in the sample."""
        outcome = self.run.close()
        store().set("endstop", {**outcome.to_dict(), "messages": []})
        return outcome


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
                run.ended()
        except Stopped:
            outcome = run.ended()
            if not outcome.is_success:
                turns = outcome.turns
                message = why(outcome)
                raise LimitExceededError(
                    "custom", value=turns, limit=turns, message=message
                ) from None
        except Exception:
            run.ended()
            raise
        finally:
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
        for message in _results(state):
            status = (
                endstop.ToolStatus.ERROR if message.error is not None else endstop.ToolStatus.OK
            )
            run.after_tool(message.tool_call_id or "", message.text, status=status)
        used = get_model(model)
        try:
            tap.wrap(getattr(used.api, "client", None))
        except endstop.ConfigError:
            # A model without httpx inside: Inspect's own outputs are used.
            pass
        run.before_call()
        try:
            output = await used.generate(state.messages, tools)
        except Exception as problem:
            run.failed_call(problem)
            raise
        run.after_call(lambda: _described(output))
        state.output = output
        state.messages.append(output.message)
        return state

    return execute


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
    usage = output.usage
    return endstop.response(
        output.completion,
        finish=_FINISH.get(output.stop_reason),
        calls=[(call.id, call.function, text) for call, text in zip(calls, texts, strict=True)],
        input_tokens=usage.input_tokens if usage else None,
        output_tokens=usage.output_tokens if usage else None,
        model=output.model,
    )
