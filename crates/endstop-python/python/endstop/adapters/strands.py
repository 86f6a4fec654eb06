"""Strands Agents: a hook provider.

```python
from strands import Agent
from endstop.adapters.strands import EndstopHooks

client = endstop.tap.wrap(AsyncOpenAI())                   # for OpenAIModel(client=client, …)
async with EndstopHooks(max_turns=25, max_budget_usd=2.0) as hooks:
    agent = Agent(model=model, tools=[…], hooks=[hooks])
    result = await agent.invoke_async("Go.")               # or EndstopStopped, with .outcome
hooks.outcome                                              # one ending
```

If the run must not continue, `EndstopStopped` leaves the agent. It is an `EventLoopException`, which Strands does not wrap.
(A cancelled model call would end as `end_turn`, like an answer.) `on_end=` is called once with the outcome.

Blind spots without the adapter, which it covers: **a stream that was cut, an unknown finish value and
a refusal are `end_turn`**, and their text may be lost; nothing ends a loop. Strands' own stop reason is
used if the client is not tapped, and these three look like answers then: wrap the client. Bedrock's
client is not one of httpx, so that it has this blind spot; put it behind `endstop guard`. Calls of
`structured_output` fire no model event. `ModelThrottledException`s are retried by Strands, and each
attempt is counted.
"""

from __future__ import annotations

from endstop._types import RunEnding
from endstop.adapters._versions import require

require("strands")

from typing import Any

from strands.agent import AgentResult
from strands.hooks import (
    AfterInvocationEvent,
    AfterModelCallEvent,
    AfterToolCallEvent,
    BeforeInvocationEvent,
    BeforeModelCallEvent,
    BeforeToolCallEvent,
    HookProvider,
    HookRegistry,
)
from strands.types.exceptions import EventLoopException, StructuredOutputException

import endstop
from endstop import Detection, Outcome
from endstop.adapters._base import arguments
from endstop.adapters._scope import Conversations, Ended, Scope, Stopped

__all__ = ["EndstopHooks", "EndstopStopped"]

# Strands' names of the finish values.
_FINISH = {
    "end_turn": "stop",
    "tool_use": "tool_calls",
    "max_tokens": "length",
    "content_filtered": "content_filter",
    "guardrail_intervened": "content_filter",
    "stop_sequence": "stop_sequence",
}
# Strands' own limits, and the endings that say the same.
_LIMITS: dict[str, RunEnding] = {
    "limit_turns": "error_max_turns",
    "limit_total_tokens": "error_max_tokens",
    "limit_output_tokens": "error_max_tokens",
}


class EndstopStopped(Stopped, EventLoopException):
    """The run has ended; `outcome` says how."""

    def __init__(self, outcome: Outcome) -> None:
        super().__init__(outcome)
        # Strands wraps what is not an exception of its own, and has its field.
        self.original_exception = self


class EndstopHooks(Scope, HookProvider):
    """Hooks of one run, which may be given to several agents that count together."""

    stopped = EndstopStopped
    unseen = "give the hooks to the agent: Agent(hooks=[hooks])"

    def __init__(self, **settings: Any) -> None:
        super().__init__(**settings)
        self._conversations = Conversations()
        self._result: AgentResult | None = None
        self._output = ""
        # Agents that wait for a person, or for the next part of their loop.
        self._paused: set[int] = set()

    def register_hooks(self, registry: HookRegistry, **_: Any) -> None:
        registry.add_callback(BeforeInvocationEvent, self._before_agent)
        registry.add_callback(AfterInvocationEvent, self._after_agent)
        registry.add_callback(BeforeModelCallEvent, self._before_model)
        registry.add_callback(AfterModelCallEvent, self._after_model)
        registry.add_callback(BeforeToolCallEvent, self._before_tool)
        registry.add_callback(AfterToolCallEvent, self._after_tool)

    def _before_agent(self, event: BeforeInvocationEvent) -> None:
        self._paused.discard(id(event.agent))
        self._conversations.start(id(event.agent), event.agent.name)

    def _after_agent(self, event: AfterInvocationEvent) -> None:
        main = self._conversations.end(id(event.agent)) == ""
        if event.result is not None and event.result.stop_reason in ("interrupt", "checkpoint"):
            self._paused.add(id(event.agent))
        if main:
            self._result = event.result

    async def _before_model(self, event: BeforeModelCallEvent) -> None:
        await self.wait_async()
        self.before_call(streaming=True, of=self._of(event))

    def _after_model(self, event: AfterModelCallEvent) -> None:
        # An exception that leaves this hook comes back to it.
        if event.exception is not None:
            self.failed_call(event.exception, of=self._of(event))
        elif event.stop_response is not None and event.stop_response.stop_reason == "cancelled":
            # Of `agent.cancel()`, which leaves the stream.
            self._live.leave()
            self.run.cancel()
        elif event.stop_response is not None:
            response = event.stop_response
            self.after_call(lambda: _described(response), of=self._of(event))

    def _before_tool(self, event: BeforeToolCallEvent) -> None:
        if not self.run.running:
            event.cancel_tool = f"Not run: the run has ended ({self.outcome.termination})."

    def _after_tool(self, event: AfterToolCallEvent) -> None:
        status = (
            endstop.ToolStatus.ERROR if event.result["status"] == "error" else endstop.ToolStatus.OK
        )
        content = arguments(event.result["content"])
        self._output = "".join(block.get("text", "") for block in event.result["content"])
        self.run.result(event.tool_use["toolUseId"], content, status=status)

    def _of(self, event: BeforeModelCallEvent | AfterModelCallEvent) -> str:
        return self._conversations.of(id(event.agent))

    def ended_by(self, problem: BaseException) -> Ended | None:
        if isinstance(problem, StructuredOutputException):
            return "error_halted", f"{type(problem).__name__}: {problem}"
        return None

    def returned(self) -> None:
        result = self._result
        if self._paused:
            self.park()
        elif result is None or result.stop_reason == "cancelled":
            # The caller has left the stream, or has called `agent.cancel()`.
            self.run.cancel()
        elif result.structured_output is not None:
            self.submitted(result.structured_output)
        elif result.stop_reason in _LIMITS:
            self._live.close(
                ended=_LIMITS[result.stop_reason], detail=f"Strands: {result.stop_reason}"
            )
        elif self.run.ending is None:
            # A tool or a hook ended the loop, and gave the answer.
            self.submitted(str(result).strip() or self._output)
        else:
            self._live.close()


def _described(response: AfterModelCallEvent.ModelStopResponse) -> Detection:
    """Describes a message of Strands."""
    content: list[Any] = list(response.message["content"])
    calls = [block["toolUse"] for block in content if "toolUse" in block]
    usage: Any = (response.message.get("metadata") or {}).get("usage") or {}
    return endstop.response(
        "".join(block.get("text", "") for block in content),
        finish=_FINISH.get(response.stop_reason, response.stop_reason),
        calls=[(call["toolUseId"], call["name"], arguments(call["input"])) for call in calls],
        input_tokens=usage.get("inputTokens"),
        output_tokens=usage.get("outputTokens"),
        # Next to the input for some providers, and in it for others; the total tells them apart.
        cached_input_tokens=usage.get("cacheReadInputTokens"),
        cache_write_tokens=usage.get("cacheWriteInputTokens"),
        total_tokens=usage.get("totalTokens"),
    )
