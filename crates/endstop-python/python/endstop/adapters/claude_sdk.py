"""Claude Agent SDK: hooks for tools, and the stream of messages.

```python
from claude_agent_sdk import ClaudeAgentOptions, ClaudeSDKClient
from endstop.adapters.claude_sdk import Endstop

async with Endstop(max_turns=25, max_budget_usd=2.0, model="anthropic/claude-sonnet-4-5") as stop:
    async with ClaudeSDKClient(stop.options(ClaudeAgentOptions(tools=[…]))) as client:
        await client.query("Go.")
        async for message in stop.messages(client):     # as client.receive_response()
            print(message)
stop.outcome                                            # one ending
```

If the run must not continue, the adapter stops the agent after the last result of its tools, or interrupts it. The
messages then end with its `ResultMessage`, whose subtype is `success` or `error_during_execution`: only the outcome
has the ending. No exception leaves the loop. `on_end=` is called once with the outcome.

`options` adds its hooks to yours, wraps `can_use_tool` if you have one, and asks for partial messages:
these are the events of the API, and the only place where the SDK shows the finish value.

Blind spots without the adapter, which it covers: **a tool call that the token limit cut is repeated
without end** (468 calls within ten seconds); an answer that is cut is a `success` after one retry; nothing caps
turns or a loop. Blind spots that remain: the agent starts some tools before its response has ended, so
that a call in a response which is cut later may have run; a hook cannot tell the model's own
compaction and its small helper calls, which have no messages; a call that the agent has started before it is stopped, as
after a cut answer, or one that does not fit the rest of a budget, is not in the outcome; and the agent retries
errors of the API by itself, so that `max_retries` and their cost are not seen. None of its calls can be held back, so
that `max_rate` is refused. `endstop guard` sees these too, and holds calls back.
"""

from __future__ import annotations

from endstop._types import RunEnding
from endstop.adapters._versions import require

require("claude_sdk")

import dataclasses
import json
from collections.abc import AsyncIterator
from typing import Any

from claude_agent_sdk import (
    ClaudeAgentOptions,
    ClaudeSDKClient,
    HookMatcher,
    PermissionResultDeny,
    ResultMessage,
    StreamEvent,
    TextBlock,
    UserMessage,
)

from endstop import Detection, StreamDecoder, ToolStatus
from endstop.adapters._base import Asked, arguments, why
from endstop.adapters._scope import Scope, Stopped

__all__ = ["Endstop"]

_API = "anthropic-messages"
# The agent's own limits, and the endings that say the same.
_LIMITS: dict[str, RunEnding] = {
    "error_max_turns": "error_max_turns",
    "error_max_budget_usd": "error_max_budget_usd",
}
# What the agent puts into the history of a turn that was interrupted.
_INTERRUPTED = "[Request interrupted by user"


class Endstop(Scope):
    """One run of an agent, with its subagents."""

    stopped = Stopped
    # The agent is a program of its own, whose events say that a call has started.
    waits = False
    unseen = "read the messages with stop.messages(client), and give the client stop.options(…)"

    def __init__(self, **settings: Any) -> None:
        super().__init__(**settings)
        # A subagent streams between the events of its parent; the key is the call that started it.
        self._open: dict[str | None, tuple[Asked | None, StreamDecoder]] = {}
        self._result: ResultMessage | None = None
        self._known: set[str] = set()
        # The calls without a result, and their conversation.
        self._waiting: dict[str, str | None] = {}
        self._early: dict[str, tuple[str, ToolStatus]] = {}
        self._must_stop = False

    def options(self, given: ClaudeAgentOptions | None = None) -> ClaudeAgentOptions:
        """Returns options with the hooks of this run."""
        given = given or ClaudeAgentOptions()
        hooks = {event: list(matchers) for event, matchers in (given.hooks or {}).items()}
        for event, hook in (
            ("PreToolUse", self._before_tool),
            ("PostToolUse", self._after_tool),
            ("PostToolUseFailure", self._after_tool),
        ):
            hooks.setdefault(event, []).append(HookMatcher(hooks=[hook]))  # type: ignore[index, call-overload]
        changes: dict[str, Any] = {"include_partial_messages": True, "hooks": hooks}
        if given.can_use_tool is not None:
            ask = given.can_use_tool

            async def can_use_tool(name: str, inputs: dict[str, Any], context: Any) -> Any:
                if not self.run.running:
                    return PermissionResultDeny(message=self._refusal(), interrupt=True)
                return await ask(name, inputs, context)

            changes["can_use_tool"] = can_use_tool
        return dataclasses.replace(given, **changes)

    async def messages(self, client: ClaudeSDKClient) -> AsyncIterator[Any]:
        """Returns the messages of `client.receive_response()`, and interrupts the agent if the run
        must not continue."""
        interrupted = False
        async for message in client.receive_response():
            if isinstance(message, StreamEvent):
                self._event(message)
            elif isinstance(message, ResultMessage):
                self._ended(message)
            elif isinstance(message, UserMessage) and _is_interruption(message):
                # The agent closes the open response then, as if it were whole.
                self._interrupted()
            if self._must_stop and not interrupted and not isinstance(message, ResultMessage):
                interrupted = True
                await client.interrupt()
            yield message

    def _event(self, message: StreamEvent) -> None:
        event, parent = message.event, message.parent_tool_use_id
        kind = event.get("type", "")
        if kind == "message_start":
            # An earlier response that never ended was cut, and the agent calls again.
            self._cut(parent)
            # A call that was denied has no result.
            self._waiting = {call: of for call, of in self._waiting.items() if of != parent}
            asked = self._live.ask(parent or "", streaming=True) if self.run.running else None
            self._must_stop |= asked is None
            self._open[parent] = asked, StreamDecoder(_API)
        if parent not in self._open:
            return
        asked, decoder = self._open[parent]
        # A subagent's text would be taken for that of its parent.
        if kind == "content_block_delta" and parent is None and asked is not None:
            delta = event["delta"]
            if delta.get("type") == "text_delta" and self.run.running:
                self._must_stop |= not asked.call.delta(delta["text"])
        decoder.push(f"event: {kind}\ndata: {json.dumps(event)}\n\n".encode())
        if kind == "message_stop":
            del self._open[parent]
            self._turn(asked, decoder.finish(), parent)

    def _cut(self, parent: str | None) -> None:
        if parent in self._open:
            asked, decoder = self._open.pop(parent)
            self._turn(asked, decoder.finish(), parent)

    def _turn(self, asked: Asked | None, response: Detection, parent: str | None) -> None:
        if not self.run.running or asked is None:
            return
        fed = asked.feed([response])
        stopped = fed.stopped
        if stopped is None and fed.held_back:
            names = ", ".join(call.name for call in fed.held_back)
            stopped = self._live.close(False, f"the arguments of a tool call are cut: {names}")
        if stopped is not None:
            self._must_stop |= not stopped.is_success
            return
        self._known |= {call.id for call in response.calls}
        self._waiting |= {call.id: parent for call in response.calls}
        for call in response.calls:
            # The agent may have run the tool before its response had ended.
            if call.id in self._early:
                self._answer(call.id, *self._early.pop(call.id))

    def _answer(self, call: str, output: str, status: ToolStatus) -> bool:
        """Feeds the result of a call. False: the agent must not call the model again, which it does once all
        calls of the conversation have results."""
        parent = self._waiting.pop(call, call)
        continues = self.run.result(call, output, status=status)
        if continues and parent != call and parent not in self._waiting.values():
            continues = self._live.may()
        self._must_stop |= not continues
        return continues

    def _ended(self, message: ResultMessage) -> None:
        self._result = message
        for parent in [*self._open]:
            self._cut(parent)
        # The agent's own limits have endings of their own, at the end of the block.
        if message.is_error and self.run.running and message.subtype not in _LIMITS:
            text, status = str(message.result or message.subtype), message.api_error_status
            if status is None:
                self.run.failed(RuntimeError(text))
            else:
                body = json.dumps({"type": "error", "error": {"message": text}})
                self.run.turn(body.encode(), api=_API, status=status)

    def returned(self) -> None:
        result = self._result
        if result is None or result.subtype == "error_during_execution":
            # The caller has left the messages, or has interrupted the agent.
            self._leave()
        elif result.subtype in _LIMITS:
            self._live.close(ended=_LIMITS[result.subtype], detail=f"Claude: {result.subtype}")
        elif getattr(result, "deferred_tool_use", None) is not None:
            # A hook has left the call to a person.
            self.park()
        elif result.structured_output is not None:
            self.submitted(result.structured_output)
        else:
            self._live.close()

    def _interrupted(self) -> None:
        """Takes the program's own `client.interrupt()`."""
        if not self._must_stop:
            self._leave()

    def _settle(self, problem: BaseException | None) -> None:
        self._stream_ended()
        super()._settle(problem)

    def _stream_ended(self) -> None:
        """Takes what was streamed until now, which was paid for."""
        for parent in [*self._open]:
            asked, decoder = self._open.pop(parent)
            if asked is not None:
                asked.recording.detections.append(decoder.finish(reset=True))

    def _leave(self) -> None:
        if not self.run.running:
            return
        if self.run.ending in ("stop", "submitted"):
            self._live.close()
        else:
            self._stream_ended()
            self._live.leave()
            self.run.cancel()

    async def _before_tool(self, given: Any, call: str | None, context: Any) -> Any:
        if self.run.running:
            return {}
        decision = {
            "hookEventName": "PreToolUse",
            "permissionDecision": "deny",
            "permissionDecisionReason": self._refusal(),
        }
        return {"hookSpecificOutput": decision}

    async def _after_tool(self, given: Any, call: str | None, context: Any) -> Any:
        id = str(given.get("tool_use_id") or call or "")
        failed = given["hook_event_name"] == "PostToolUseFailure"
        output = given.get("error") if failed else given.get("tool_response")
        result = (arguments(output), ToolStatus.ERROR if failed else ToolStatus.OK)
        if not self.run.running:
            return self._halt()
        if id not in self._known:
            self._early[id] = result
            return {}
        return {} if self._answer(id, *result) else self._halt()

    def _halt(self) -> dict[str, Any]:
        if self.outcome.is_success:
            return {}
        return {"continue_": False, "stopReason": why(self.outcome)}

    def _refusal(self) -> str:
        return f"Not run: the run has ended ({self.outcome.termination})."


def _is_interruption(message: UserMessage) -> bool:
    blocks = message.content if isinstance(message.content, list) else []
    return any(isinstance(one, TextBlock) and one.text.startswith(_INTERRUPTED) for one in blocks)
