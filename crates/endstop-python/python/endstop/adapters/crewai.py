"""CrewAI: hooks of one execution.

```python
from crewai import LLM, Agent, Crew
from endstop.adapters.crewai import Endstop, EndstopStopped, tapped

llm = tapped(LLM("openai/gpt-4o"))
crew = Crew(agents=[Agent(llm=llm, …)], tasks=[…])
with Endstop(max_turns=25, max_budget_usd=2.0) as stop:
    output = crew.kickoff()                    # or EndstopStopped, with .outcome
stop.outcome                                   # one ending
```

The hooks are scoped: they see the crew that is started in the `with`, with all of its agents and tasks,
and no other. If the run must not continue, `EndstopStopped` leaves the crew, a `HookAborted`; a tool
whose call is cut is blocked before.

Blind spots without the adapter, which it covers: a truncated, filtered or cut answer is the output of
its task; a tool call that was cut by the token limit is repeated 9 times; a blank answer or a refusal is
a `ValueError` after 3 calls. (CrewAI itself ends a loop after 5 equal calls.) CrewAI swallows what a hook
raises, but for `HookAborted`, and shows the finish value only to handlers in other threads, so the
adapter reads the tap, and a response that the tap did not see ends the run as a failure. Blind spots that
remain: `tapped` knows CrewAI's own `openai` and `anthropic` providers; put others, and models behind
LiteLLM, which makes up the finish value `stop`, behind `endstop guard`. A tool that runs in
parallel when the run ends finishes first.
"""

from __future__ import annotations

from endstop.adapters._versions import require

require("crewai")

import json
import threading
from types import TracebackType
from typing import Any, Self, TypeVar

from crewai.hooks import HookAborted, InterceptionPoint
from crewai.hooks.dispatch import scoped_hooks

import endstop
from endstop import Call, Outcome, tap
from endstop.adapters._base import why
from endstop.adapters._scope import Scope

__all__ = ["Endstop", "EndstopStopped", "tapped"]

Model = TypeVar("Model")


class EndstopStopped(HookAborted):
    """The run has ended; `outcome` says how."""

    def __init__(self, outcome: Outcome) -> None:
        super().__init__(why(outcome), source="endstop")
        self.outcome = outcome


def tapped(llm: Model) -> Model:
    """Puts the tap into the clients of an `LLM`."""
    found = False
    for make in ("_get_sync_client", "_get_async_client"):
        if hasattr(llm, make):
            tap.wrap(getattr(llm, make)())
            found = True
    if not found:
        raise endstop.ConfigError(
            f"invalid LLM `{type(llm).__name__}`: expected CrewAI's `openai/…` or `anthropic/…`; "
            "or point the LLM's base_url at `endstop guard`"
        )
    return llm


class Endstop(Scope):
    """One run of a crew, a flow or an agent."""

    stopped = EndstopStopped

    def __init__(self, **settings: Any) -> None:
        super().__init__(**settings)
        # Tools may run in several threads, and a run may be used by one at a time.
        self._lock = threading.Lock()
        self._open: list[Call] = []

    def __enter__(self) -> Self:
        super().__enter__()
        hooks: dict[InterceptionPoint, Any] = {
            InterceptionPoint.PRE_MODEL_CALL: [self._before_model],
            InterceptionPoint.POST_MODEL_CALL: [self._after_model],
            InterceptionPoint.PRE_TOOL_CALL: [self._before_tool],
            InterceptionPoint.POST_TOOL_CALL: [self._after_tool],
        }
        self._exits.enter_context(scoped_hooks(hooks))
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        problem: BaseException | None,
        traceback: TracebackType | None,
    ) -> bool:
        self._last()
        return super().__exit__(kind, problem, traceback)

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        problem: BaseException | None,
        traceback: TracebackType | None,
    ) -> bool:
        self._last()
        return await super().__aexit__(kind, problem, traceback)

    def _before_model(self, context: Any) -> None:
        with self._lock:
            # CrewAI calls no hook after a response with calls.
            self._catch_up()
            self.before_call()

    def _after_model(self, context: Any) -> None:
        with self._lock:
            if not self._catch_up() and self.run.running:
                reason = "the tap saw no response: wrap the LLM with endstop.adapters.crewai.tapped"
                raise self.stopped(self.run.close(False, reason))

    def _before_tool(self, context: Any) -> None:
        # What this raises blocks the tool; the hook after it ends the crew.
        with self._lock:
            self._catch_up()
            if not self.run.running:
                raise self.stopped(self.outcome)

    def _after_tool(self, context: Any) -> None:
        with self._lock:
            if not self.run.running:
                raise self.stopped(self.outcome)
            call = self._call_of(context)
            if call is not None:
                self.after_tool(call.id, str(context.tool_result))

    def _catch_up(self) -> bool:
        """Feeds the responses that no hook has seen. False: there are none."""
        seen = self._entered().detections
        if not seen:
            return False
        self._open = list(seen[-1].calls)
        self.after_call()
        return True

    def _call_of(self, context: Any) -> Call | None:
        """Returns the call that this tool answers: a hook has its name and arguments, not its id."""
        for call in self._open:
            if call.name == context.tool_name and _same(call, context.tool_input):
                self._open.remove(call)
                return call
        return None

    def _last(self) -> None:
        """Feeds the last responses, if the run has ended the crew before a hook could see them."""
        try:
            self._catch_up()
        except EndstopStopped:
            # The outcome has it.
            pass


def _same(call: Call, given: Any) -> bool:
    try:
        return bool(call.args == given)
    except json.JSONDecodeError:
        return False
