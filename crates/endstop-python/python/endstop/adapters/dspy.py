"""DSPy: an engine whose calls are checked, and a callback for tools.

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
from collections.abc import AsyncIterator, Iterator
from types import TracebackType
from typing import Any

from dspy.clients.engines.lm15_engine import AsyncLM15Engine, LM15Engine
from dspy.lm15 import RouterConfig
from dspy.utils.callback import BaseCallback

import endstop
from endstop import Detection
from endstop.adapters._base import arguments, feed
from endstop.adapters._scope import Scope, Stopped

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
        return {
            "engine": _Engine(self, LM15Engine(config)),
            "async_engine": _AsyncEngine(self, AsyncLM15Engine(config)),
        }

    def asked(self, *, streaming: bool = False) -> None:
        """Asks for a model call, which makes the text before it a step of the program."""
        if self._held is not None:
            # The text is the argument, so that a program which repeats itself is seen.
            call = (self._next_id(), "next_step", json.dumps({"text": self._held.text}))
            self._fed([call])
            self.run.result(call[0], "")
        self.before_call(streaming=streaming)

    def answered(self, seen: Detection) -> None:
        """Takes a response. Raises if the program must not use it."""
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

    def __init__(self, stop: Endstop, inner: LM15Engine) -> None:
        self._stop, self._inner = stop, inner

    def complete(self, request: Any) -> Any:
        self._stop.asked()
        try:
            response = self._inner.complete(request)
        except Exception as problem:
            self._stop.failed_call(problem)
            raise
        self._stop.answered(_described(response))
        return response

    def stream(self, request: Any) -> Iterator[Any]:
        self._stop.asked(streaming=True)
        seen = _Stream()
        try:
            for event in self._inner.stream(request):
                # The end comes last: an exception takes its place if the response is not whole.
                if seen.push(event):
                    self._stop.answered(seen.described())
                yield event
        except Exception as problem:
            self._stop.failed_call(problem)
            raise

    def close(self) -> None:
        self._inner.close()


class _AsyncEngine:
    """The same for asyncio."""

    def __init__(self, stop: Endstop, inner: AsyncLM15Engine) -> None:
        self._stop, self._inner = stop, inner

    async def complete(self, request: Any) -> Any:
        self._stop.asked()
        try:
            response = await self._inner.complete(request)
        except Exception as problem:
            self._stop.failed_call(problem)
            raise
        self._stop.answered(_described(response))
        return response

    async def stream(self, request: Any) -> AsyncIterator[Any]:
        self._stop.asked(streaming=True)
        seen = _Stream()
        try:
            async for event in self._inner.stream(request):
                if seen.push(event):
                    self._stop.answered(seen.described())
                yield event
        except Exception as problem:
            self._stop.failed_call(problem)
            raise

    async def aclose(self) -> None:
        await self._inner.aclose()


def _described(response: Any) -> Detection:
    """Reads the body that DSPy's response keeps. Its own finish reason is made up if there is none."""
    body = {name: value for name, value in response.provider_data.items() if name[0] != "_"}
    return endstop.detect(body)


class _Stream:
    """The events of a stream, until its end."""

    def __init__(self) -> None:
        self._text = ""

    def push(self, event: Any) -> bool:
        """Takes an event; returns True for the end of a response."""
        delta = getattr(event, "delta", None)
        if delta is not None and delta.type == "text":
            self._text += delta.text
        self._end = event if event.type == "end" else None
        return self._end is not None

    def described(self) -> Detection:
        end: Any = self._end
        last = end.provider_data or {}
        choices = last.get("choices") or [{}]
        usage = end.usage
        return endstop.response(
            self._text,
            finish=choices[0].get("finish_reason"),
            input_tokens=usage.input_tokens if usage else None,
            output_tokens=usage.output_tokens if usage else None,
        )
