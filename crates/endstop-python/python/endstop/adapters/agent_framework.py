"""Microsoft Agent Framework: a chat and a function middleware.

```python
from agent_framework import Agent
from agent_framework.openai import OpenAIChatCompletionClient
from endstop.adapters.agent_framework import Endstop

client = endstop.tap.wrap(AsyncOpenAI())
chat = OpenAIChatCompletionClient(model="gpt-4o", async_client=client)
async with Endstop(max_turns=25, max_budget_usd=2.0) as stop:
    agent = Agent(client=chat, tools=[…], middleware=stop.middleware)
    response = await agent.run("Go.")          # or EndstopStopped, with .outcome
stop.outcome                                   # one ending
```

If the run must not continue, `EndstopStopped` leaves the agent, a `MiddlewareFailure`, which no part of
the framework turns into a result for the model. `on_end=` is called once with the outcome.

Blind spots without the adapter, which it covers: a truncated, filtered or cut answer is a response
whose `finish_reason` few programs read; a tool call that was cut is answered with a sentence, or
**is a `stop` when streamed**; a loop ends after 41 calls with the answer
"Function invocation limit reached". The adapter reads the tap; without it, a response is described by the framework's finish reason,
and a refusal looks like an answer. Blind spots that remain: hosted tools run at
the provider, and agents in other processes (A2A, durable workflows) have runs of their own.
"""

from __future__ import annotations

from endstop.adapters._versions import require

require("agent_framework")

from collections.abc import Awaitable, Callable, Iterator
from contextvars import ContextVar
from typing import Any

from agent_framework import (
    AgentMiddleware,
    ChatMiddleware,
    ChatResponse,
    FunctionMiddleware,
    MiddlewareFailure,
)
from agent_framework.exceptions import AgentFrameworkException

import endstop
from endstop import Detection
from endstop._types import ResultStatus
from endstop.adapters._base import arguments
from endstop.adapters._scope import Conversations, Scope, Stopped

__all__ = ["Endstop", "EndstopStopped"]

_Next = Callable[[], Awaitable[None]]

_OF: ContextVar[str] = ContextVar("endstop_agent_framework", default="")
"""The conversation of the agent that runs in this context."""


class EndstopStopped(Stopped, MiddlewareFailure):
    """The run has ended; `outcome` says how."""


class Endstop(Scope):
    """One run of an agent, or of several that count together."""

    stopped = EndstopStopped
    unseen = "give the middleware to the agent: Agent(middleware=stop.middleware)"

    def __init__(self, **settings: Any) -> None:
        super().__init__(**settings)
        self._conversations = Conversations()
        self._answer: Any = None
        self._output: object = None
        self._asks = False
        # The calls that are not answered yet, and those that are.
        self._open: set[str] = set()
        self._answered: set[str] = set()
        self._left = False

    @property
    def middleware(self) -> list[Any]:
        """The middleware for an agent. The framework requires an object for each kind."""
        return [_Agent(self), _Chat(self), _Function(self)]

    def translated(self, response: Detection) -> Detection:
        self._open |= {call.id for call in response.calls}
        return response

    def tool(self, call: str, output: object, *, status: ResultStatus = "ok") -> None:
        """Feeds the result of a tool call, which may be the answer."""
        self._open.discard(call)
        self._answered.add(call)
        self._output = output
        self.after_tool(call, output, status=status)

    def _settle(self, problem: BaseException | None) -> None:
        # An exception of a stream passes no middleware.
        super()._settle(_cause(problem) if isinstance(problem, Exception) else problem)

    def returned(self) -> None:
        if self._left:
            # The caller has left the stream of updates.
            self.run.cancel()
        elif self._asks:
            self.park()
        elif self._answer is not None:
            self.submitted(self._answer)
        elif self._open:
            # Its last request forbids calls; those that the model makes all the same are dropped.
            self._live.close(ended="error_max_turns", detail="Agent Framework: max_iterations")
        elif self.run.ending is None and self._output is not None:
            # A middleware ended the loop after a tool.
            self.submitted(self._output)
        else:
            self._live.close()


class _Agent(AgentMiddleware):
    """Sees where an agent begins, and what it returns."""

    def __init__(self, stop: Endstop) -> None:
        self._stop = stop

    async def process(self, context: Any, call_next: _Next) -> None:
        stop, run = self._stop, object()
        of = stop._conversations.start(run, str(context.agent.name or "agent"))
        outer = _OF.get()
        _OF.set(of)
        if of == "":
            stop._asks, stop._answer, stop._left = False, None, context.stream

        def seen(part: Any) -> Any:
            # Only a person can answer these; a sub-agent's are refused by the framework.
            if of == "" and (part.user_input_requests or _asked(part)):
                stop._asks = True
            return part

        def ended(response: Any) -> Any:
            seen(response)
            if of == "":
                stop._answer = response.value
            return response

        def over() -> None:
            stop._conversations.end(run)
            _OF.set(outer)
            if of == "":
                stop._left = False

        if context.stream:
            context.stream_transform_hooks.append(seen)
            context.stream_result_hooks.append(ended)
            context.stream_cleanup_hooks.append(over)
            await call_next()
            return
        try:
            await call_next()
            ended(context.result)
        finally:
            over()


class _Chat(ChatMiddleware):
    """Checks each model call."""

    def __init__(self, stop: Endstop) -> None:
        self._stop = stop

    async def process(self, context: Any, call_next: _Next) -> None:
        of = _OF.get()
        for call, result in _results(context.messages):
            # No middleware sees a call that a person has rejected.
            if call not in self._stop._answered:
                self._stop.tool(call, result)
        await self._stop.wait_async()
        self._stop.before_call(streaming=context.stream, of=of)

        def ended(response: ChatResponse[Any]) -> ChatResponse[Any]:
            self._stop.after_call(lambda: _described(response), of=of)
            return response

        if context.stream:
            # The loop takes the final response of the stream, and runs its calls after that.
            context.stream_result_hooks.append(ended)
        try:
            await call_next()
        except Exception as problem:
            self._stop.failed_call(_cause(problem), of=of)
            raise
        if not context.stream:
            ended(context.result)


class _Function(FunctionMiddleware):
    """Feeds the result of each tool call."""

    def __init__(self, stop: Endstop) -> None:
        self._stop = stop

    async def process(self, context: Any, call_next: _Next) -> None:
        call = str(context.metadata["call_id"])
        try:
            await call_next()
        except Exception as problem:
            if not isinstance(problem, MiddlewareFailure):
                self._stop.tool(call, problem, status="error")
            raise
        self._stop.tool(call, _text(context.result))


def _cause(problem: Exception) -> Exception:
    """Returns what a client of the framework has wrapped: the class of the failure is in it."""
    while isinstance(problem, AgentFrameworkException) and isinstance(problem.__cause__, Exception):
        problem = problem.__cause__
    return problem


def _asked(response: Any) -> bool:
    """Returns True for a call that the caller must answer, whose tool has no code."""
    return any(
        getattr(one, "user_input_request", False) for one in getattr(response, "contents", ())
    )


def _results(messages: Any) -> Iterator[tuple[str, str]]:
    """Returns the results that stand at the end of a history."""
    tail: list[Any] = []
    for message in reversed(list(messages)):
        if str(message.role) == "assistant":
            break
        tail.insert(0, message)
    for message in tail:
        for content in message.contents:
            if content.type == "function_result":
                yield str(content.call_id), _text(content.result)


def _text(result: Any) -> str:
    """Returns the result of a tool, which is a list of contents."""
    if not isinstance(result, list):
        return str(result)
    return "".join(str(getattr(content, "text", None) or content) for content in result)


def _described(response: ChatResponse[Any]) -> Detection:
    """Describes a response of the framework."""
    contents = [content for message in response.messages for content in message.contents]
    calls = [content for content in contents if content.type == "function_call"]
    return endstop.response(
        response.text,
        finish=str(response.finish_reason) if response.finish_reason else None,
        calls=[(call.call_id or "", call.name or "", arguments(call.arguments)) for call in calls],
        model=response.model,
        **_tokens(response.usage_details or {}),
    )


def _tokens(usage: Any) -> dict[str, Any]:
    """Returns the counts of a response, as `endstop.response` takes them."""
    # The counts of Anthropic's client have names of its own, and the input has no cached tokens in it.
    read, written = (
        usage.get(f"anthropic.cache_{one}_input_tokens") for one in ("read", "creation")
    )
    given, output = usage.get("input_token_count"), usage.get("output_token_count")
    total = usage.get("total_token_count")
    if read is not None or written is not None:
        total = (given or 0) + (output or 0) + (read or 0) + (written or 0)
    return {
        "input_tokens": given,
        "output_tokens": output,
        "cached_input_tokens": usage.get("cache_read_input_token_count", read),
        "cache_write_tokens": usage.get("cache_creation_input_token_count", written),
        "reasoning_tokens": usage.get("reasoning_output_token_count"),
        "total_tokens": total,
    }
