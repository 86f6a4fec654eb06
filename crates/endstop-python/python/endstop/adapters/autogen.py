"""AutoGen: a termination condition, and a client around the model's.

```python
from endstop.adapters.autogen import EndstopTermination

async with EndstopTermination(max_turns=25, max_budget_usd=2.0) as stop:
    agent = AssistantAgent("a", stop.client(OpenAIChatCompletionClient(model="gpt-4o")), tools=[…])
    team = RoundRobinGroupChat([agent], termination_condition=stop)
    result = await team.run(task="Go.")
stop.outcome                               # one ending; result.stop_reason names it
```

All clients of a team are wrapped by the same condition, which counts them together. It combines with
other conditions (`stop | TextMentionTermination("DONE")`). With `stop_on_answer`, an answer in text
ends the team; without it, the other conditions decide about that.

The client asks for the usage of streams (`include_usage`), which AutoGen does not by itself, so that its
own `TokenUsageTermination` counts them too. `stop.client(…, stream_usage=False)` is for a server that
rejects `stream_options`: the tokens of its streams are then estimated, and the outcome marks them.

Blind spots without the adapter: a truncated, filtered or cut answer is a message like any other;
a call that the token limit cut is answered with a JSON error and repeated; the usage of streams is
0, so that `TokenUsageTermination` never fires; nothing ends a loop. The condition alone could not
stop a tool, because AgentChat runs tools before it asks: the client gives the agent a final text
instead. The bytes are read by the tap if the client has an `openai` or `anthropic` client inside;
otherwise the finish reason of `CreateResult` is used, which hides the token limit behind tool calls.
"""

from __future__ import annotations

from endstop.adapters._versions import require

require("autogen")

import inspect
from collections.abc import AsyncGenerator, Sequence
from types import TracebackType
from typing import Any, Self

from autogen_agentchat.base import TerminatedException, TerminationCondition
from autogen_agentchat.messages import StopMessage, ToolCallExecutionEvent
from autogen_core.models import ChatCompletionClient, CreateResult, RequestUsage

import endstop
from endstop import Detection, Outcome, Run, tap
from endstop.adapters._base import Settings, feed, feed_failure, why

__all__ = ["EndstopClient", "EndstopTermination"]


class EndstopTermination(TerminationCondition):
    """Ends a team when the kernel does."""

    def __init__(
        self,
        *,
        policy: Any = None,
        model: str | None = None,
        price: Any = None,
        task: str = "",
        stop_on_answer: bool = False,
        **limits: Any,
    ) -> None:
        self._settings = Settings(policy, model, price, task, limits)
        self._stop_on_answer = stop_on_answer
        self._fired = False
        self._last: Outcome | None = None
        self.run: Run = self._settings.run()

    def client(self, inner: ChatCompletionClient, *, stream_usage: bool = True) -> EndstopClient:
        """Wraps the client of an agent. `stream_usage` asks the server for the usage of streams."""
        return EndstopClient(inner, self, stream_usage=stream_usage)

    @property
    def outcome(self) -> Outcome:
        """The outcome of the run, also after the team has reset the condition."""
        return self.run.finished() if self._last is None else self._last

    @property
    def terminated(self) -> bool:
        return self._fired

    async def __call__(self, messages: Sequence[Any]) -> StopMessage | None:
        if self._fired:
            raise TerminatedException("Termination condition has already been reached.")
        for message in messages:
            if isinstance(message, ToolCallExecutionEvent):
                for result in message.content:
                    status = endstop.ToolStatus.ERROR if result.is_error else endstop.ToolStatus.OK
                    self.run.result(result.call_id, result.content, status=status)
        answered = self._stop_on_answer and self.run.ending in ("stop", "submitted")
        outcome = self.run.close() if answered else self.run.outcome
        if outcome is None:
            return None
        self._fired, self._last = True, outcome
        facts = {"endstop": str(outcome.termination), "category": str(outcome.category)}
        return StopMessage(content=why(outcome), source="endstop", metadata=facts)

    async def reset(self) -> None:
        """Starts a new run. AgentChat calls this before it returns; `outcome` stays."""
        if not self._fired and self.run.turns == 0:
            return
        self._last = self.run.close()
        self._fired, self.run = False, self._settings.run()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        problem: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        # A run that the team ended, by another condition or an exception, ends here.
        self.run.__exit__(kind, problem, traceback)

    def _to_config(self) -> Any:
        raise NotImplementedError("an Endstop condition has a live run, and cannot be stored")


class EndstopClient(ChatCompletionClient):
    """A model's client whose calls are counted, and stopped, by a condition."""

    component_type = "model"

    def __init__(
        self,
        inner: ChatCompletionClient,
        condition: EndstopTermination,
        *,
        stream_usage: bool = True,
    ) -> None:
        self._inner, self._condition = inner, condition
        self._stream_usage = stream_usage and _has_stream_usage(inner)
        try:
            tap.wrap(getattr(inner, "_client", None))
        except endstop.ConfigError:
            # A client without httpx inside: its own results are used.
            pass

    async def create(self, messages: Any, **options: Any) -> CreateResult:
        run = self._condition.run
        if not run.ask():
            return _final(run.finished())
        with tap.record() as recording:
            try:
                result = await self._inner.create(messages, **options)
            except Exception as problem:
                feed_failure(run, problem, recording.take())
                raise
        return self._checked(result, recording)

    async def create_stream(
        self, messages: Any, **options: Any
    ) -> AsyncGenerator[str | CreateResult, None]:
        run = self._condition.run
        if not run.ask(streaming=True):
            yield _final(run.finished())
            return
        # A setting of the caller's has precedence: AutoGen refuses two different ones.
        if self._stream_usage and "stream_options" not in options.get("extra_create_args", {}):
            options.setdefault("include_usage", True)
        with tap.record() as recording:
            try:
                async for piece in self._inner.create_stream(messages, **options):
                    if isinstance(piece, CreateResult):
                        yield self._checked(piece, recording)
                        continue
                    # A policy may have seen enough: the rest of the stream is not read.
                    if not run.delta(piece):
                        yield _final(run.finished())
                        return
                    yield piece
            except Exception as problem:
                feed_failure(run, problem, recording.take())
                raise

    def _checked(self, result: CreateResult, recording: tap.Recording) -> CreateResult:
        seen = recording.take() or [_described(result)]
        stopped = feed(self._condition.run, seen).stopped
        return result if stopped is None else _final(stopped, result)

    async def close(self) -> None:
        await self._inner.close()

    def actual_usage(self) -> RequestUsage:
        return self._inner.actual_usage()

    def total_usage(self) -> RequestUsage:
        return self._inner.total_usage()

    def count_tokens(self, messages: Any, **options: Any) -> int:
        return self._inner.count_tokens(messages, **options)

    def remaining_tokens(self, messages: Any, **options: Any) -> int:
        return self._inner.remaining_tokens(messages, **options)

    @property
    def capabilities(self) -> Any:
        return self._inner.capabilities

    @property
    def model_info(self) -> Any:
        return self._inner.model_info


def _has_stream_usage(inner: ChatCompletionClient) -> bool:
    """Returns True for a client that can ask for the usage of streams, and is not set up to."""
    if "stream_options" in getattr(inner, "_create_args", {}):
        return False
    return "include_usage" in inspect.signature(inner.create_stream).parameters


def _final(outcome: Outcome, result: CreateResult | None = None) -> CreateResult:
    """Returns a final text without calls, so that no tool runs."""
    partial = result.content if result is not None and isinstance(result.content, str) else ""
    if outcome.is_success and partial:
        text = partial
    else:
        text = "\n\n".join(part for part in (partial, why(outcome)) if part)
    usage = result.usage if result is not None else RequestUsage(0, 0)
    return CreateResult(content=text, finish_reason="stop", usage=usage, cached=False)


def _described(result: CreateResult) -> Detection:
    """Describes a result of AutoGen, which has `unknown` for a missing finish value."""
    finish = {"function_calls": "tool_calls", "unknown": None}.get(
        result.finish_reason, result.finish_reason
    )
    calls = [] if isinstance(result.content, str) else result.content
    return endstop.response(
        result.content if isinstance(result.content, str) else "",
        finish=finish,
        calls=[(call.id, call.name, call.arguments) for call in calls],
        input_tokens=result.usage.prompt_tokens or None,
        output_tokens=result.usage.completion_tokens or None,
    )
