"""DSPy: engines whose calls are checked, and a callback for tools.

```python
import dspy
from endstop.adapters.dspy import Endstop

with Endstop(max_turns=25, max_budget_usd=2.0) as stop:
    lm = dspy.LM("openai/gpt-4o", cache=False, **stop.engines())
    with dspy.context(lm=lm, callbacks=[stop]):
        answer = dspy.ReAct("question -> answer", tools=[…])(question="Go.")
stop.outcome                                       # one ending
```

If the run must not continue, the model call raises, and `EndstopStopped` leaves the block; code in the block
sees the error into which DSPy wraps it. `on_end=` is called once with the outcome. The server's key and address are settings of the engine: `stop.engines(RouterConfig(…))`.

A program of DSPy calls the model several times, and each response is a string, also the one that asks for a
tool. So a complete text is held until DSPy shows what follows: a tool makes it a turn with that call,
another model call makes it a step of the program, and the end of the block makes it the answer.

Streams (`dspy.streamify`) are read below DSPy, in the transport of its engine. There the finish value is the
server's own, and the usage of a stream is booked: DSPy's engine asks for it, and its last event has either the
usage or the finish value. A response of an unknown path is described by DSPy's events, whose finish reason is
`stop` for unknown values.

Blind spots without the adapter, which it covers: an answer that the token limit cut is a line in the log;
**`ReAct` repairs the JSON of a response that was cut, and its tool gets half of the arguments**; a missing
finish value, and an unknown one, are `stop` for LiteLLM and for DSPy's own engine; exceptions of callbacks
are swallowed, so that a callback cannot stop a program. Blind spots that remain:
a cached response is not a model call; a program that runs in several threads (`dspy.Parallel`, evaluations)
has one order of responses for all of them, so give each its own `Endstop`; and `ReAct` catches the
errors of its tools, which reach the run as failed results.
"""

from __future__ import annotations

from endstop.adapters._versions import require

require("dspy")

import json
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager
from contextvars import ContextVar
from dataclasses import replace
from types import TracebackType
from typing import Any
from urllib.parse import urlsplit

from dspy._vendor.lm15.transports import StdlibAsyncTransport, StdlibTransport
from dspy.clients.engines.lm15_engine import AsyncLM15Engine, LM15Engine
from dspy.lm15 import RouterConfig
from dspy.utils.callback import BaseCallback

import endstop
from endstop import Detection, tap
from endstop._endstop import api_of
from endstop.adapters._base import Asked, arguments, tokens_of
from endstop.adapters._scope import Scope, Stopped
from endstop.tap import Observer

__all__ = ["Endstop", "EndstopStopped"]


_OF: ContextVar[str] = ContextVar("endstop_dspy", default="")
"""The conversation of the program that runs in this context: the main one, or that of a tool."""


class EndstopStopped(Stopped):
    """The run has ended; `outcome` says how. DSPy raises its own error from it, and it leaves the block of
    the run."""


class Endstop(Scope, BaseCallback):
    """One run of a program."""

    stopped = EndstopStopped
    unseen = "give the engines to the model: dspy.LM(model, **stop.engines())"

    def __init__(self, **settings: Any) -> None:
        super().__init__(**settings)
        # The texts that are held, by conversation.
        self._held: dict[str, Detection] = {}
        # The conversation around the tool of a call.
        self._around: dict[str, str] = {}
        self._calls = 0

    def engines(self, config: RouterConfig | None = None) -> dict[str, Any]:
        """Makes the engines for `dspy.LM(model, **stop.engines())`, over DSPy's own ones."""
        given = config or RouterConfig()
        settings = given.transport_kwargs()
        # A transport of the user's serves both, as in DSPy, and stays open.
        sync = _Transport(self, given.transport or StdlibTransport(**settings))
        other = _AsyncTransport(self, given.transport or StdlibAsyncTransport(**settings))

        def with_transport(transport: Any) -> RouterConfig:
            # The transport has the settings, which may not be given twice.
            return replace(given, transport=transport, timeouts=None, max_connections=None)

        own = given.transport is None
        return {
            "engine": _Engine(self, LM15Engine(with_transport(sync)), sync if own else None),
            "async_engine": _AsyncEngine(
                self, AsyncLM15Engine(with_transport(other)), other if own else None
            ),
        }

    def asked(self, *, streaming: bool = False) -> str:
        """Asks for a model call, which makes the text before it a step of the program. Returns the
        conversation."""
        of = _OF.get()
        held = self._held.get(of)
        if held is not None:
            # The text is the argument, so that a program which repeats itself is seen.
            call = (self._next_id(), "next_step", json.dumps({"text": held.text}))
            self._feed_held(of, [call])
            self.run.result(call[0], "")
        self.before_call(streaming=streaming, of=of)
        return of

    def observe(self, request: Any, response: Any) -> Observer | None:
        """Returns the decoder of a response's bytes; None if it is not that of a model call."""
        api = api_of(request.method, urlsplit(request.url).path)
        if api is None:
            return None
        headers = {name.lower(): value for name, value in response.headers}
        return Observer(
            tap._current() or self._live.rest, api, response.status, headers, request.body
        )

    def answered(self, described: Callable[[], Detection], of: str) -> None:
        """Takes the response that the transport saw, or else as DSPy describes it. Raises if the
        program must not use it."""
        asked = self._live.open(of) or Asked(self._live, of)
        self._detach(asked)
        seen = [*asked.take()] or [described()]
        last = seen[-1]
        whole = last.reason in ("natural_completion", "stop_sequence")
        # A body without a finish value has a low confidence.
        if whole and last.signal.confidence != "low" and last.text.strip():
            asked.recording.detections = seen[:-1]
            self._held[of] = last
        else:
            asked.recording.detections = seen
            self.after_call(of=of)

    def failed_call(self, problem: BaseException, *, of: str = "") -> None:
        asked = self._live.open(of)
        if asked is not None and asked.recording.detections and isinstance(problem, Exception):
            # DSPy wraps the failure; the response has its class.
            self._detach(asked)
            asked.failed(None)
        else:
            super().failed_call(problem, of=of)

    def on_tool_start(self, call_id: str, instance: Any, inputs: dict[str, Any]) -> None:
        of = self._around[call_id] = _OF.get()
        name = str(instance.name)
        if of in self._held:
            self._feed_held(of, [(call_id, name, arguments(inputs.get("kwargs", inputs)))])
        _OF.set(f"{name} {call_id}")

    def on_tool_end(
        self, call_id: str, outputs: Any | None, exception: Exception | None = None
    ) -> None:
        self._feed_held(_OF.get())
        _OF.set(self._around.pop(call_id, ""))
        if self.run.running:
            self.run.result(call_id, exception if exception is not None else outputs)

    def _settle(self, problem: BaseException | None) -> None:
        for of in [*self._held]:
            self._feed_held(of)
        if problem is None and self._live.asked and self.run.running:
            # The caller has left a stream, which DSPy reads in a task of its own.
            self._live.leave()
            self.run.cancel()
        super()._settle(problem)

    def __exit__(
        self,
        kind: type[BaseException] | None,
        problem: BaseException | None,
        traceback: TracebackType | None,
    ) -> bool:
        left = super().__exit__(kind, problem, traceback)
        _raise_stopped(problem)
        return left

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        problem: BaseException | None,
        traceback: TracebackType | None,
    ) -> bool:
        left = await super().__aexit__(kind, problem, traceback)
        _raise_stopped(problem)
        return left

    def _feed_held(self, of: str, calls: list[tuple[str, str, str]] | None = None) -> None:
        """Feeds the text that a conversation holds, with the calls that followed it. Without any it is an
        answer."""
        held = self._held.pop(of, None)
        asked = self._live.open(of)
        if held is None or asked is None or not self.run.running:
            return
        turn = held
        if calls:
            turn = endstop.response(
                held.text,
                finish="tool_calls",
                calls=calls,
                model=held.model,
                **tokens_of(held.usage),
            )
        asked.feed([*asked.recording.take(), turn])

    def _next_id(self) -> str:
        self._calls += 1
        return f"step_{self._calls}"


def _raise_stopped(problem: BaseException | None) -> None:
    """Raises what DSPy has wrapped into an error of its own."""
    cause = problem.__cause__ if problem is not None else None
    while cause is not None:
        if isinstance(cause, EndstopStopped):
            raise cause from None
        cause = cause.__cause__


class _Engine:
    """DSPy's engine, whose calls are checked."""

    def __init__(self, stop: Endstop, inner: LM15Engine, own: _Transport | None) -> None:
        self._stop, self._inner, self._own = stop, inner, own

    def complete(self, request: Any) -> Any:
        self._stop.wait()
        of = self._stop.asked()
        try:
            response = self._inner.complete(request)
        except Exception as problem:
            self._stop.failed_call(problem, of=of)
            raise
        self._stop.answered(lambda: _described(response), of)
        return response

    def stream(self, request: Any) -> Iterator[Any]:
        self._stop.wait()
        of = self._stop.asked(streaming=True)
        seen = _Stream()
        try:
            for event in self._inner.stream(request):
                # The end comes last: an exception takes its place if the response is not whole.
                if seen.push(event):
                    self._stop.answered(seen.described, of)
                yield event
        except Exception as problem:
            self._stop.failed_call(problem, of=of)
            raise

    def close(self) -> None:
        self._inner.close()
        if self._own is not None:
            self._own.close()


class _AsyncEngine:
    """The same for asyncio."""

    def __init__(self, stop: Endstop, inner: AsyncLM15Engine, own: _AsyncTransport | None) -> None:
        self._stop, self._inner, self._own = stop, inner, own

    async def complete(self, request: Any) -> Any:
        await self._stop.wait_async()
        of = self._stop.asked()
        try:
            response = await self._inner.complete(request)
        except Exception as problem:
            self._stop.failed_call(problem, of=of)
            raise
        self._stop.answered(lambda: _described(response), of)
        return response

    async def stream(self, request: Any) -> AsyncIterator[Any]:
        await self._stop.wait_async()
        of = self._stop.asked(streaming=True)
        seen = _Stream()
        try:
            async for event in self._inner.stream(request):
                if seen.push(event):
                    self._stop.answered(seen.described, of)
                yield event
        except Exception as problem:
            self._stop.failed_call(problem, of=of)
            raise

    async def aclose(self) -> None:
        await self._inner.aclose()
        if self._own is not None:
            await self._own.aclose()


class _Transport:
    """A transport of DSPy's engine that decodes the bytes which pass."""

    def __init__(self, stop: Endstop, inner: Any) -> None:
        self._stop, self._inner = stop, inner

    def stream(self, request: Any) -> Any:
        response = self._inner.stream(request)
        observer = self._stop.observe(request, response)
        if observer is None:
            return response

        def chunks() -> Iterator[bytes]:
            try:
                for chunk in response:
                    observer.push(chunk)
                    yield chunk
            except Exception:
                observer.end(reset=True)
                raise
            observer.end(reset=False)

        def release(body_consumed: bool) -> None:
            # A program may leave a stream before its end.
            observer.end(reset=not body_consumed)
            response.close()

        return _copy(response, chunks(), release)

    def close(self) -> None:
        self._inner.close()


class _AsyncTransport:
    """The same for asyncio."""

    def __init__(self, stop: Endstop, inner: Any) -> None:
        self._stop, self._inner = stop, inner

    @asynccontextmanager
    async def stream(self, request: Any) -> AsyncIterator[Any]:
        async with self._inner.stream(request) as response:
            observer = self._stop.observe(request, response)
            if observer is None:
                yield response
                return

            async def chunks() -> AsyncIterator[bytes]:
                try:
                    async for chunk in response:
                        observer.push(chunk)
                        yield chunk
                except Exception:
                    observer.end(reset=True)
                    raise
                observer.end(reset=False)

            async def release(body_consumed: bool) -> None:
                observer.end(reset=not body_consumed)
                await response.aclose()

            copy = _copy(response, chunks(), release)
            try:
                yield copy
            finally:
                await copy.aclose()

    async def aclose(self) -> None:
        await self._inner.aclose()


def _copy(response: Any, chunks: Any, release: Any) -> Any:
    """Returns a response of DSPy's transport with another body."""
    return type(response)(
        status=response.status,
        reason=response.reason,
        headers=response.headers,
        http_version=response.http_version,
        chunks=chunks,
        release=release,
    )


def _described(response: Any) -> Detection:
    """Reads the body that DSPy's response keeps. Its own finish reason is made up if there is none."""
    body = {name: value for name, value in response.provider_data.items() if name[0] != "_"}
    return endstop.detect(body)


class _Stream:
    """The events of a stream, until its end."""

    def __init__(self) -> None:
        self._text = ""
        self._end: Any = None

    def push(self, event: Any) -> bool:
        """Takes an event; returns True for the end of a response."""
        delta = getattr(event, "delta", None)
        if delta is not None and delta.type == "text":
            self._text += delta.text
        self._end = event if event.type == "end" else None
        return self._end is not None

    def described(self) -> Detection:
        end = self._end
        # The last event has the server's chunk with the usage, or else the one with the finish value.
        choices = (end.provider_data or {}).get("choices")
        finish = choices[0].get("finish_reason") if choices else end.finish_reason
        return endstop.response(
            self._text,
            finish="tool_calls" if finish == "tool_call" else finish,
            **_tokens(end.usage),
        )


def _tokens(usage: Any) -> dict[str, Any]:
    """Returns the counts of a response, as `endstop.response` takes them: DSPy has them as the provider sent them."""
    if usage is None:
        return {}
    return {
        "input_tokens": usage.input_tokens,
        "output_tokens": usage.output_tokens,
        "cached_input_tokens": usage.cache_read_tokens,
        "cache_write_tokens": usage.cache_write_tokens,
        "reasoning_tokens": usage.reasoning_tokens,
        "total_tokens": usage.total_tokens,
    }
