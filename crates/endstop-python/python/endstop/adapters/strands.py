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

If the run must not continue, `EndstopStopped` leaves the agent. (A cancelled model call would end as
`end_turn`, like an answer.).

Blind spots without the adapter, which it covers: **a stream that was cut, an unknown finish value and
a refusal are `end_turn`**, and their text may be lost; nothing ends a loop. Strands' own stop reason is
used if the client is not tapped, and these three look like answers then: wrap the client. Bedrock's
client is not one of httpx, so that it has this blind spot; put it behind `endstop guard`. Calls of
`structured_output` fire no model event. `ModelThrottledException`s are retried by Strands, and each
attempt is counted.
"""

from __future__ import annotations

from endstop.adapters._versions import require

require("strands")

from typing import Any

from strands.hooks import (
    AfterModelCallEvent,
    AfterToolCallEvent,
    BeforeModelCallEvent,
    BeforeToolCallEvent,
    HookProvider,
    HookRegistry,
)

import endstop
from endstop import Detection
from endstop.adapters._base import arguments
from endstop.adapters._scope import Scope, Stopped

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


class EndstopStopped(Stopped):
    """The run has ended; `outcome` says how."""


class EndstopHooks(Scope, HookProvider):
    """Hooks of one run, which may be given to several agents that count together."""

    stopped = EndstopStopped

    def register_hooks(self, registry: HookRegistry, **_: Any) -> None:
        registry.add_callback(BeforeModelCallEvent, self._before_model)
        registry.add_callback(AfterModelCallEvent, self._after_model)
        registry.add_callback(BeforeToolCallEvent, self._before_tool)
        registry.add_callback(AfterToolCallEvent, self._after_tool)

    def _before_model(self, event: BeforeModelCallEvent) -> None:
        self.before_call(streaming=True)

    def _after_model(self, event: AfterModelCallEvent) -> None:
        # An exception that leaves this hook comes back to it.
        if event.exception is not None:
            self.failed_call(event.exception)
        elif event.stop_response is not None:
            response = event.stop_response
            self.after_call(lambda: _described(response))

    def _before_tool(self, event: BeforeToolCallEvent) -> None:
        if not self.run.running:
            event.cancel_tool = f"Not run: the run has ended ({self.outcome.termination})."

    def _after_tool(self, event: AfterToolCallEvent) -> None:
        status = (
            endstop.ToolStatus.ERROR if event.result["status"] == "error" else endstop.ToolStatus.OK
        )
        content = arguments(event.result["content"])
        self.run.result(event.tool_use["toolUseId"], content, status=status)


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
    )
