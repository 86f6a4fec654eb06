"""OpenAI Agents SDK: hooks that end the run.

```python
from agents import Runner
from endstop.adapters.openai_agents import EndstopHooks

client = endstop.tap.wrap(AsyncOpenAI())                   # once
async with EndstopHooks(max_turns=25, max_budget_usd=2.0) as hooks:
    result = await Runner.run(agent, "Go.", hooks=hooks)
hooks.outcome                                              # one ending
```

The SDK asks only OpenAI's own servers for the usage of streamed chat completions. With another server, use
`Runner.run_streamed(…, hooks=hooks, run_config=hooks.run_config())`; otherwise the tokens of its streams
are estimated, and the outcome marks them. Plain responses and the Responses API have their usage.

If the run must not continue, `EndstopStopped` leaves `Runner.run`. It is an `AgentsException`, so
its `run_data` has the work so far. If the SDK waits for an approval, the run is parked: `hooks.parked`
has its text, with which `EndstopHooks(parked=text)` continues it, with one budget.

Blind spots without the adapter, all of which it covers: a truncated or filtered answer, and a stream
that was cut, are final outputs; a tool call that was cut by the token limit is repeated until
`max_turns`. A response of the SDK has no finish value, so the adapter reads the tap. It does not see
calls of a client that is not wrapped (`set_default_openai_client` takes a wrapped one), realtime
sessions and the retries of a voice pipeline.
"""

from __future__ import annotations

from endstop.adapters._versions import require

require("openai_agents")

import asyncio
from collections.abc import Callable, Coroutine
from contextvars import ContextVar
from dataclasses import replace
from typing import Any

from agents import ModelSettings, RunConfig, RunHooks
from agents.exceptions import (
    AgentsException,
    InputGuardrailTripwireTriggered,
    MaxTurnsExceeded,
    OutputGuardrailTripwireTriggered,
    ToolInputGuardrailTripwireTriggered,
    ToolOutputGuardrailTripwireTriggered,
)

from endstop import Outcome, tap
from endstop.adapters._base import why
from endstop.adapters._scope import Ended, Scope

__all__ = ["EndstopHooks", "EndstopStopped"]

_NOTHING = object()
_TOOLS: ContextVar[tuple[str, ...]] = ContextVar("endstop_tools", default=())
"""The tool calls inside of which this context runs: an agent may be a tool of another one."""


class EndstopStopped(AgentsException):
    """The run has ended; `outcome` says how."""

    def __init__(self, outcome: Outcome) -> None:
        super().__init__(why(outcome))
        self.outcome = outcome


class EndstopHooks(Scope, RunHooks[Any]):
    """Hooks of one run. Enter them around `Runner.run`, or with a plain `with` around
    `Runner.run_sync`; leaving them ends the run. If the SDK waits for an approval, the run does not
    end: `parked` has its text, and `EndstopHooks(parked=text)` continues it."""

    stopped = EndstopStopped
    unseen = "pass the hooks to the runner: Runner.run(agent, …, hooks=hooks)"

    _final: object = _NOTHING
    # Tool calls without a result; None for those of a parked run, which are not known here.
    _waiting: set[str] | None = None
    _task: asyncio.Task[Any] | None = None

    @staticmethod
    def run_config(given: RunConfig | None = None) -> RunConfig:
        """Returns the configuration of a run that asks each server for the usage of streams, as
        `ModelSettings(include_usage=True)` does. `given` may decide otherwise."""
        config = given or RunConfig()
        settings = ModelSettings(include_usage=True).resolve(config.model_settings)
        return replace(config, model_settings=settings)

    # The SDK calls a hook in the context of the model call or the tool, and awaits what it returns in
    # a task with a copy of that context. So what belongs to the context is done in the call.

    def on_llm_start(
        self, context: Any, agent: Any, system_prompt: Any, input_items: Any
    ) -> Coroutine[Any, Any, None]:
        if not _TOOLS.get():
            self._final, self._waiting = _NOTHING, set()
            self._task = asyncio.current_task()
        recording, of = tap.Recording(), _conversation()
        tap.attach(recording)

        async def ask() -> None:
            await self.wait_async()
            self.before_call(of=of, recording=recording)

        return ask()

    def on_llm_end(self, context: Any, agent: Any, response: Any) -> Coroutine[Any, Any, None]:
        def feed() -> None:
            if not _TOOLS.get():
                self._waiting = {id for item in response.output if (id := _waits(item))}
            self.after_call(of=_conversation())

        return _now(feed)

    def on_tool_start(self, context: Any, agent: Any, tool: Any) -> Coroutine[Any, Any, None]:
        id = getattr(context, "tool_call_id", "")
        _TOOLS.set((*_TOOLS.get(), id))
        tap.attach(self._live.rest)
        return _now(self._live.book)

    def on_tool_end(
        self, context: Any, agent: Any, tool: Any, result: Any
    ) -> Coroutine[Any, Any, None]:
        id = getattr(context, "tool_call_id", "")

        def feed() -> None:
            if _TOOLS.get()[-1:] == (id,):
                _TOOLS.set(_TOOLS.get()[:-1])
            if not _TOOLS.get() and self._waiting is not None:
                self._waiting.discard(id)
            self.after_tool(id, result)

        return _now(feed)

    def on_agent_end(self, context: Any, agent: Any, output: Any) -> Coroutine[Any, Any, None]:
        def note() -> None:
            if not _TOOLS.get():
                self._final = output

        return _now(note)

    def ended_by(self, problem: BaseException) -> Ended | None:
        match problem:
            case MaxTurnsExceeded():
                return "error_max_turns", f"MaxTurnsExceeded: {problem}"
            case InputGuardrailTripwireTriggered() | OutputGuardrailTripwireTriggered():
                return "error_halted", f"{problem.guardrail_result.guardrail.get_name()}: {problem}"
            case ToolInputGuardrailTripwireTriggered() | ToolOutputGuardrailTripwireTriggered():
                return "error_halted", f"{problem.guardrail.get_name()}: {problem}"
        return None

    def returned(self) -> None:
        if self._final is not _NOTHING:
            if isinstance(self._final, str) and self.run.ending == "stop":
                self._live.close()
            else:
                self.submitted(self._final)
        elif not self._left() and self._waiting != set():
            # Without a final output and with open calls, the SDK waits for a person.
            self.park()
        else:
            self.run.cancel()

    def _left(self) -> bool:
        """Returns True if the program left a stream while the SDK was still at work."""
        task = self._task
        try:
            here = asyncio.current_task()
        except RuntimeError:
            here = None
        return task is not None and task is not here and (not task.done() or task.cancelled())


def _conversation() -> str:
    return "/".join(_TOOLS.get())


def _waits(item: Any) -> str | None:
    """Returns the id of an item of the output that waits for a tool or for a person."""
    kind = str(getattr(item, "type", ""))
    if kind == "mcp_approval_request":
        return str(item.id)
    return str(item.call_id) if kind.endswith("_call") and getattr(item, "call_id", None) else None


def _now(step: Callable[[], None]) -> Coroutine[Any, Any, None]:
    """Performs a step in this context. Its exception comes when the result is awaited."""
    problem: Exception | None = None
    try:
        step()
    except Exception as raised:
        problem = raised

    async def done() -> None:
        if problem is not None:
            raise problem

    return done()
