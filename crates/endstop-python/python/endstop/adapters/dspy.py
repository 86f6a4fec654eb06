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

If the run must not continue, the next model call raises: `EndstopStopped` is the cause of the error that
leaves DSPy. The server's key and address are settings of the engine: `stop.engines(RouterConfig(…))`.

A program of DSPy calls the model several times, and each response is a text, also the one that asks for a
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
from dataclasses import replace
from types import TracebackType
from typing import Any
from urllib.parse import urlsplit

from dspy._vendor.lm15.transports import StdlibAsyncTransport, StdlibTransport
from dspy.clients.engines.lm15_engine import AsyncLM15Engine, LM15Engine
from dspy.lm15 import RouterConfig
from dspy.utils.callback import BaseCallback

import endstop
from endstop import Detection
from endstop._endstop import api_of
from endstop.adapters._base import arguments, feed
from endstop.adapters._scope import Scope, Stopped
from endstop.tap import Observer

__all__ = ["Endstop", "EndstopStopped"]


class EndstopStopped(Stopped):
    """The run has ended; `outcome` says how. DSPy raises its own error from it."""


class Endstop(Scope, BaseCallback):
    """One run of a program."""

    stopped = EndstopStopped

    def __init__(self, **settings: Any) -> None:
        super().__init__(**settings)
        self._held: Detection | None = None
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

    def asked(self, *, streaming: bool = False) -> None:
        """Asks for a model call, which makes the text before it a step of the program."""
        if self._held is not None:
            # The text is the argument, so that a program which repeats itself is seen.
            call = (self._next_id(), "next_step", json.dumps({"text": self._held.text}))
            self._fed([call])
            self.run.result(call[0], "")
        self.before_call(streaming=streaming)

    def observe(self, request: Any, response: Any) -> Observer | None:
        """Returns the decoder of a response's bytes; None if it is not that of a model call."""
        api = api_of(request.method, urlsplit(request.url).path)
        if api is None:
            return None
        headers = {name.lower(): value for name, value in response.headers}
        return Observer(self._entered(), api, response.status, headers, request.body)

    def answered(self, described: Callable[[], Detection]) -> None:
        """Takes the response that the transport saw, or else as DSPy describes it. Raises if the
        program must not use it."""
        passed = self._entered().take()
        seen = passed[-1] if passed else described()
        whole = seen.reason in ("natural_completion", "stop_sequence")
        # A body without a finish value has a low confidence.
        if whole and seen.signal.confidence != "low" and seen.text.strip():
            self._held = seen
        else:
            self.after_call(lambda: seen)

    def on_tool_start(self, call_id: str, instance: Any, inputs: dict[str, Any]) -> None:
        given = inputs.get("kwargs", inputs)
        call = (call_id, str(instance.name), arguments(given))
        if self._held is not None:
            self._fed([call])

    def on_tool_end(
        self, call_id: str, outputs: Any | None, exception: Exception | None = None
    ) -> None:
        if self.run.running:
            self.run.result(call_id, exception if exception is not None else outputs)

    def __exit__(
        self,
        kind: type[BaseException] | None,
        problem: BaseException | None,
        traceback: TracebackType | None,
    ) -> bool:
        if self._held is not None and kind is None:
            held, self._held = self._held, None
            feed(self.run, [held])
        return super().__exit__(kind, problem, traceback)

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        problem: BaseException | None,
        traceback: TracebackType | None,
    ) -> bool:
        if self._held is not None and kind is None:
            held, self._held = self._held, None
            feed(self.run, [held])
        return await super().__aexit__(kind, problem, traceback)

    def _fed(self, calls: list[tuple[str, str, str]]) -> None:
        """Feeds the text that was held, with the calls that followed it."""
        held, self._held = self._held, None
        if held is None or not self.run.running:
            return
        usage = held.usage
        turn = endstop.response(
            held.text,
            finish="tool_calls",
            calls=calls,
            input_tokens=usage.input_tokens,
            output_tokens=usage.output_tokens,
            cached_input_tokens=usage.cached_input_tokens,
            model=held.model,
        )
        feed(self.run, [turn])

    def _next_id(self) -> str:
        self._calls += 1
        return f"step_{self._calls}"


class _Engine:
    """DSPy's engine, whose calls are checked."""

    def __init__(self, stop: Endstop, inner: LM15Engine, own: _Transport | None) -> None:
        self._stop, self._inner, self._own = stop, inner, own

    def complete(self, request: Any) -> Any:
        self._stop.asked()
        try:
            response = self._inner.complete(request)
        except Exception as problem:
            self._stop.failed_call(problem)
            raise
        self._stop.answered(lambda: _described(response))
        return response

    def stream(self, request: Any) -> Iterator[Any]:
        self._stop.asked(streaming=True)
        seen = _Stream()
        try:
            for event in self._inner.stream(request):
                # The end comes last: an exception takes its place if the response is not whole.
                if seen.push(event):
                    self._stop.answered(seen.described)
                yield event
        except Exception as problem:
            self._stop.failed_call(problem)
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
        self._stop.asked()
        try:
            response = await self._inner.complete(request)
        except Exception as problem:
            self._stop.failed_call(problem)
            raise
        self._stop.answered(lambda: _described(response))
        return response

    async def stream(self, request: Any) -> AsyncIterator[Any]:
        self._stop.asked(streaming=True)
        seen = _Stream()
        try:
            async for event in self._inner.stream(request):
                if seen.push(event):
                    self._stop.answered(seen.described)
                yield event
        except Exception as problem:
            self._stop.failed_call(problem)
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
        usage = end.usage
        return endstop.response(
            self._text,
            finish="tool_calls" if finish == "tool_call" else finish,
            input_tokens=usage.input_tokens if usage else None,
            output_tokens=usage.output_tokens if usage else None,
        )
