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
the framework turns into a result for the model.

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

from collections.abc import Awaitable, Callable
from typing import Any

from agent_framework import (
    ChatMiddleware,
    ChatResponse,
    FunctionMiddleware,
    MiddlewareFailure,
)

import endstop
from endstop import Detection, Outcome
from endstop.adapters._base import arguments, why
from endstop.adapters._scope import Scope

__all__ = ["Endstop", "EndstopStopped"]

_Next = Callable[[], Awaitable[None]]


class EndstopStopped(MiddlewareFailure):
    """The run has ended; `outcome` says how."""

    def __init__(self, outcome: Outcome) -> None:
        super().__init__(why(outcome))
        self.outcome = outcome


class Endstop(Scope):
    """One run of an agent, or of several that count together."""

    stopped = EndstopStopped

    @property
    def middleware(self) -> list[Any]:
        """The middleware for an agent. The framework requires an object for each kind."""
        return [_Chat(self), _Function(self)]


class _Chat(ChatMiddleware):
    """Checks each model call."""

    def __init__(self, stop: Endstop) -> None:
        self._stop = stop

    async def process(self, context: Any, call_next: _Next) -> None:
        self._stop.before_call(streaming=context.stream)
        if context.stream:
            # The loop takes the final response of the stream, and runs its calls after that.
            context.stream_result_hooks.append(self._ended)
        try:
            await call_next()
        except Exception as problem:
            self._stop.failed_call(problem)
            raise
        if not context.stream:
            self._ended(context.result)

    def _ended(self, response: ChatResponse[Any]) -> ChatResponse[Any]:
        self._stop.after_call(lambda: _described(response))
        return response


class _Function(FunctionMiddleware):
    """Feeds the result of each tool call."""

    def __init__(self, stop: Endstop) -> None:
        self._stop = stop

    async def process(self, context: Any, call_next: _Next) -> None:
        call = str(context.metadata["call_id"])
        try:
            await call_next()
        except Exception as problem:
            self._stop.run.result(call, problem)
            raise
        self._stop.after_tool(call, _text(context.result))


def _text(result: Any) -> str:
    """Returns the result of a tool, which is a list of contents."""
    if not isinstance(result, list):
        return str(result)
    return "".join(str(getattr(content, "text", None) or content) for content in result)


def _described(response: ChatResponse[Any]) -> Detection:
    """Describes a response of the framework."""
    contents = [content for message in response.messages for content in message.contents]
    calls = [content for content in contents if content.type == "function_call"]
    usage: Any = response.usage_details or {}
    return endstop.response(
        response.text,
        finish=str(response.finish_reason) if response.finish_reason else None,
        calls=[(call.call_id or "", call.name or "", arguments(call.arguments)) for call in calls],
        input_tokens=usage.get("input_token_count"),
        output_tokens=usage.get("output_token_count"),
        model=response.model,
    )
