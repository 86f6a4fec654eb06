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
otherwise `CreateResult` is used, whose finish reason hides the token limit behind tool calls, and whose counts
have no cached tokens, so that the cost is an upper bound.
"""

from __future__ import annotations

from endstop.adapters._versions import require

require("autogen")

import asyncio
import inspect
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterable, Sequence
from contextlib import ExitStack, aclosing
from contextvars import ContextVar
from functools import wraps
from types import TracebackType
from typing import Any, Self, TypeVar

from autogen_agentchat.agents import AssistantAgent
from autogen_agentchat.base import Response, TerminatedException, TerminationCondition
from autogen_agentchat.messages import (
    HandoffMessage,
    StopMessage,
    StructuredMessage,
    ToolCallExecutionEvent,
    ToolCallSummaryMessage,
)
from autogen_core import CancellationToken
from autogen_core.models import ChatCompletionClient, CreateResult, RequestUsage

import endstop
from endstop import ConfigError, Detection, Outcome, Run, tap
from endstop._types import ResultStatus
from endstop.adapters._base import Asked, Live, Settings, why
from endstop.adapters._scope import Conversations

__all__ = ["EndstopClient", "EndstopTermination"]

Part = TypeVar("Part")

_OF: ContextVar[str] = ContextVar("endstop_autogen", default="")
"""The conversation of the agent that runs in this context."""


class EndstopTermination(TerminationCondition):
    """Ends a team when the kernel does. `on_end` is called with the outcome of each run; `parked` is the
    text of a parked run, which the first one continues."""

    def __init__(
        self,
        *,
        policy: Any = None,
        model: str | None = None,
        price: Any = None,
        task: str = "",
        stop_on_answer: bool = False,
        on_end: Callable[[Outcome], None] | None = None,
        parked: str | None = None,
        allow: Iterable[str] = (),
        **limits: Any,
    ) -> None:
        self._settings = Settings(policy, model, price, task, limits)
        self._stop_on_answer, self._on_end = stop_on_answer, on_end
        self._last: Outcome | None = None
        self._parked: str | None = None
        self._task: asyncio.Task[Any] | None = None
        self._exits = ExitStack()
        self._begin(None if parked is None else self._settings.resume(parked, allow))

    def _begin(self, run: Run | None = None) -> None:
        """Starts a run."""
        before = getattr(self, "_live", None)
        self._live = Live(run or self._settings.run(), self._on_end)
        # The context of a team's next run is that of its first.
        if before is not None:
            self._live.outer = before.outer
        self._conversations = Conversations()
        self._fired = False
        # True while a team runs, which asks the condition.
        self._in_team = False
        self._answer: tuple[object] | None = None
        self._handed_off = False
        self._token: CancellationToken | None = None

    def client(self, inner: ChatCompletionClient, *, stream_usage: bool = True) -> EndstopClient:
        """Wraps the client of an agent. `stream_usage` asks the server for the usage of streams."""
        return EndstopClient(inner, self, stream_usage=stream_usage)

    @property
    def run(self) -> Run:
        """The run under the kernel."""
        return self._live.run

    @property
    def outcome(self) -> Outcome:
        """The outcome of the run, also after the team has reset the condition."""
        return self.run.finished() if self._last is None else self._last

    @property
    def parked(self) -> str | None:
        """The parked run as text, if an agent has handed off to a person; otherwise None. Store it with
        the state of the team, and give it to the next condition as `parked=`."""
        return self._parked

    def park(self) -> str:
        """Parks the run, and returns it as text: it has not ended, and takes nothing more."""
        if self._parked is None:
            self._parked = self._live.park()
        return self._parked

    @property
    def terminated(self) -> bool:
        return self._fired

    async def hold(self, token: CancellationToken | None) -> None:
        """Waits as long as the next model call must, or until the caller's token is cancelled."""
        waits = asyncio.ensure_future(self.wait_async())
        if token is not None:
            token.link_future(waits)
        try:
            await waits
        except asyncio.CancelledError:
            self.cancelled()
            raise

    def ask(self, *, streaming: bool, token: CancellationToken | None) -> Asked | None:
        """Asks for a model call. None: the run has ended."""
        of = _OF.get()
        self._token = token
        if of == "":
            self._answer, self._handed_off = None, False
        if self._is_left:
            self.cancelled()
        return self._live.ask(of, streaming=streaming)

    def seen(self, message: Any, of: str) -> None:
        """Takes what an assistant gives: the results of its tools, and its answer."""
        if isinstance(message, ToolCallExecutionEvent):
            self._results(message)
        if not isinstance(message, Response) or of != "":
            return
        last = message.chat_message
        if isinstance(last, ToolCallSummaryMessage | StructuredMessage):
            self._answer = (last.content,)
        self._handed_off = isinstance(last, HandoffMessage)

    def cancelled(self) -> None:
        """Reports that the caller has left."""
        if self.run.running and not self.run.parked:
            self._live.leave()
            self.run.cancel()

    @property
    def _is_left(self) -> bool:
        """True if the caller's token or task was cancelled: a team runs on until it is idle."""
        if self._token is not None and self._token.is_cancelled():
            return True
        return self._task is not None and self._task.cancelling() > 0

    async def __call__(self, messages: Sequence[Any]) -> StopMessage | None:
        if self._fired:
            raise TerminatedException("Termination condition has already been reached.")
        self._in_team = True
        for message in messages:
            if isinstance(message, ToolCallExecutionEvent):
                self._results(message)
        if self._is_left:
            self.cancelled()
        answered = self._stop_on_answer and self.run.ending in ("stop", "submitted")
        outcome = self.run.close() if answered else self.run.outcome
        if outcome is None:
            return None
        self._fired, self._last = True, self._live.end(outcome)
        facts = {"endstop": str(outcome.termination), "category": str(outcome.category)}
        return StopMessage(content=why(outcome), source="endstop", metadata=facts)

    async def reset(self) -> None:
        """Starts a new run. AgentChat calls this before it returns; `outcome` stays. After a handoff to a
        person the run continues."""
        self._in_team = False
        if self._handed_off and self.run.running:
            return
        if not self._fired and not self._live.saw_call:
            return
        self._last = self._returned()
        self._begin()

    async def __aenter__(self) -> Self:
        if self.run.parked:
            raise ConfigError("the run is parked: make a new EndstopTermination(…, parked=…)")
        if not self.run.running:
            self._begin()
        self._last, self._task = None, asyncio.current_task()
        self._live.enter()
        self._exits.enter_context(tap.use(tap.Recording(self._unowned, self._permit, self)))
        return self

    @property
    def live(self) -> Live:
        """The run of now."""
        return self._live

    def _unowned(self, detection: Detection) -> None:
        self._live.rest._add(detection)

    def _permit(self) -> None:
        self._live._permit()

    def wait(self) -> None:
        """Waits as long as the next model call must."""
        self._live.wait()

    async def wait_async(self) -> None:
        """Waits as long as the next model call must, while other tasks run."""
        await self._live.wait_async()

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        problem: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._exits.close()
        # The team has reset the condition, and nothing came after that.
        is_over = self._last is not None and not self._live.saw_call
        if self.run.parked or is_over:
            return
        if not self.run.running:
            # An agent alone asks no condition.
            self._last = self._live.end()
            return
        self._live.leave(problem)
        if problem is not None:
            # A run that an exception ended, ends here.
            self.run.__exit__(kind, problem, traceback)
            self._last = self._live.end()
        elif self._handed_off:
            self.park()
        else:
            self._last = self._returned()

    def _returned(self) -> Outcome:
        """Ends the run after the team or the agent has returned, or was left."""
        unfinished = self._in_team or self._conversations.running
        if self._is_left or (unfinished and self.run.ending not in ("stop", "submitted")):
            self.cancelled()
        if not self._live.saw_call:
            hint = "give the agents stop.client(…)"
            return self._live.close(False, f"no model call was seen: {hint}")
        if self._answer is not None:
            return self._live.close(ended="submitted", deliverable=self._answer[0])
        return self._live.close()

    def _results(self, message: ToolCallExecutionEvent) -> None:
        for result in message.content:
            status: ResultStatus = "error" if result.is_error else "ok"
            self.run.result(result.call_id, result.content, status=status)

    def _to_config(self) -> Any:
        raise NotImplementedError("an Endstop condition has a live run, and cannot be stored")


def _watched(given: Callable[..., AsyncGenerator[Any, None]]) -> Callable[..., Any]:
    """Shows a condition what an assistant gives. No client and no condition sees the results of the tools
    that an assistant runs alone, which it returns as its answer."""

    @wraps(given)
    async def on_messages_stream(
        agent: AssistantAgent, messages: Any, cancellation_token: CancellationToken
    ) -> AsyncGenerator[Any, None]:
        client = agent._model_client
        if not isinstance(client, EndstopClient):
            async for message in given(agent, messages, cancellation_token):
                yield message
            return
        condition, key = client.condition, object()
        of = condition._conversations.start(key, agent.name)
        try:
            async with aclosing(given(agent, messages, cancellation_token)) as stream:
                while True:
                    # A generator has the context of its caller, which must not keep this.
                    token = _OF.set(of)
                    try:
                        message = await anext(stream)
                    except StopAsyncIteration:
                        break
                    finally:
                        _OF.reset(token)
                    condition.seen(message, of)
                    if isinstance(message, Response):
                        condition._conversations.end(key)
                    yield message
        except BaseException:
            condition._conversations.end(key)
            raise

    return on_messages_stream


AssistantAgent.on_messages_stream = _watched(AssistantAgent.on_messages_stream)  # type: ignore[method-assign]


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
        self._inner, self.condition = inner, condition
        self._stream_usage = stream_usage and _has_stream_usage(inner)
        try:
            tap.wrap(getattr(inner, "_client", None))
        except endstop.ConfigError:
            # A client without httpx inside: its own results are used.
            pass

    async def create(self, messages: Any, **options: Any) -> CreateResult:
        run = self.condition.run
        token = options.get("cancellation_token")
        await self.condition.hold(token)
        asked = self.condition.ask(streaming=False, token=token)
        if asked is None:
            return _final(run.finished())
        try:
            with asked.recorded():
                result = await self._until_due(self._inner.create(messages, **options))
        except BaseException as problem:
            return self._failed(asked, problem)
        return self._checked(result, asked)

    async def create_stream(
        self, messages: Any, **options: Any
    ) -> AsyncGenerator[str | CreateResult, None]:
        run = self.condition.run
        token = options.get("cancellation_token")
        await self.condition.hold(token)
        asked = self.condition.ask(streaming=True, token=token)
        if asked is None:
            yield _final(run.finished())
            return
        # A setting of the caller's has precedence: AutoGen refuses two different ones.
        if self._stream_usage and "stream_options" not in options.get("extra_create_args", {}):
            options.setdefault("include_usage", True)
        try:
            async with aclosing(self._inner.create_stream(messages, **options)) as stream:
                while True:
                    with asked.recorded():
                        try:
                            piece = await self._until_due(anext(stream))
                        except StopAsyncIteration:
                            break
                    if isinstance(piece, CreateResult):
                        yield self._checked(piece, asked)
                        continue
                    # A policy may have seen enough: the rest of the stream is not read.
                    if not asked.call.delta(piece):
                        yield _final(run.finished())
                        return
                    yield piece
        except GeneratorExit:
            raise
        except BaseException as problem:
            yield self._failed(asked, problem)

    async def _until_due(self, part: Awaitable[Part]) -> Part:
        """Waits until the run's deadline at most."""
        due = self.condition.run.wake_in
        # The clock of the loop may be ahead of the run's.
        return await asyncio.wait_for(part, None if due is None else due + 0.01)

    def _failed(self, asked: Asked, problem: BaseException) -> CreateResult:
        """Feeds the exception of a model call, and raises it, unless it is the run's own deadline."""
        if isinstance(problem, TimeoutError) and not asked.live.run.tick():
            return _final(asked.live.run.finished())
        if isinstance(problem, asyncio.CancelledError):
            self.condition.cancelled()
        elif isinstance(problem, Exception):
            asked.failed(problem)
        raise problem

    def _checked(self, result: CreateResult, asked: Asked) -> CreateResult:
        stopped = asked.feed(asked.take() or [_described(result)]).stopped
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
