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
and no other. `on_end=` is called once with the outcome. If the run must not continue, `EndstopStopped` leaves the crew, a `HookAborted`; a tool
whose call is cut is blocked before.

Blind spots without the adapter, which it covers: a truncated, filtered or cut answer is the output of
its task; a tool call that was cut by the token limit is repeated 9 times; a blank answer or a refusal is
a `ValueError` after 3 calls. (CrewAI itself ends a loop after 5 equal calls.) CrewAI swallows what a hook
raises, but for `HookAborted`, and shows the finish value only to handlers in other threads, so the
adapter reads the tap, and a response that the tap did not see ends the run as a failure. Blind spots that
remain: `tapped` knows CrewAI's own `openai` and `anthropic` providers; put others, and models behind
LiteLLM, which makes up the finish value `stop`, behind `endstop guard`. A tool that runs in
parallel when the run ends finishes first. Hooks are not asynchronous: while a call waits for `max_rate`, the event loop
of a crew of `akickoff` stands still.
"""

from __future__ import annotations

from endstop.adapters._versions import require

require("crewai")

import json
import threading
from typing import Any, Self, TypeVar

from crewai.hooks import HookAborted, InterceptionPoint
from crewai.hooks.dispatch import scoped_hooks
from crewai.utilities.i18n import I18N_DEFAULT

import endstop
from endstop import Call, Outcome, tap
from endstop.adapters._base import Asked, why
from endstop.adapters._scope import Conversations, Ended, Scope, Stopped

__all__ = ["Endstop", "EndstopStopped", "tapped"]

Model = TypeVar("Model")


class EndstopStopped(Stopped, HookAborted):
    """The run has ended; `outcome` says how."""

    def __init__(self, outcome: Outcome) -> None:
        HookAborted.__init__(self, why(outcome), source="endstop")
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
    unseen = "start the crew in the block, and tap its LLM: endstop.adapters.crewai.tapped(llm)"

    def __init__(self, **settings: Any) -> None:
        super().__init__(**settings)
        # Tools and tasks may run in several threads, and a run may be used by one at a time.
        self._lock = threading.RLock()
        self._open: list[Call] = []
        self._conversations = Conversations()
        # The agent that calls, and its task.
        self._askers: dict[str, object] = {}
        self._forced = False
        self._result: Any = None
        self._output: object = None

    def __enter__(self) -> Self:
        super().__enter__()
        hooks: dict[InterceptionPoint, Any] = {
            InterceptionPoint.PRE_MODEL_CALL: [self._before_model],
            InterceptionPoint.POST_MODEL_CALL: [self._after_model],
            InterceptionPoint.PRE_TOOL_CALL: [self._before_tool],
            InterceptionPoint.POST_TOOL_CALL: [self._after_tool],
            InterceptionPoint.OUTPUT: [self._ended],
        }
        self._exits.enter_context(scoped_hooks(hooks))
        return self

    def _settle(self, problem: BaseException | None) -> None:
        try:
            with self._lock:
                # If the run has ended the crew before a hook could see them.
                self._catch_up()
        except EndstopStopped:
            # The outcome has it.
            pass
        super()._settle(problem)

    def ended_by(self, problem: BaseException) -> Ended | None:
        text = str(problem)
        if isinstance(problem, TimeoutError) and "max_execution_time" in text:
            return "error_halted", f"max_execution_time: {text}"
        if text.startswith("Task failed") and "guardrail" in text:
            return "error_halted", f"guardrail: {text}"
        return None

    def returned(self) -> None:
        result = self._result
        structured = getattr(result, "pydantic", None) or getattr(result, "json_dict", None)
        if self._forced:
            self._live.close(ended="error_max_turns", detail="CrewAI: max_iter")
        elif structured is not None:
            self.submitted(structured)
        elif self.run.ending is None and self._output is not None:
            # A tool with `result_as_answer`.
            self.submitted(self._output)
        else:
            self._live.close()

    def _before_model(self, context: Any) -> None:
        with self._lock:
            self._check()
            # CrewAI calls no hook after a response with calls.
            self._catch_up()
        self.wait()
        with self._lock:
            self._check()
            asker = (id(context.agent), id(context.task))
            of = self._conversations.of(asker)
            if not self._conversations.knows(asker):
                of = self._conversations.start(asker, str(getattr(context.agent, "role", "llm")))
            self._askers[of] = asker
            known = self._live.open(of)
            if known is not None:
                # It had no response, and no hook after it.
                known.close()
            self._forced = _is_forced(context.messages)
            self.before_call(of=of)

    def _after_model(self, context: Any) -> None:
        with self._lock:
            self._check()
            of = self._conversations.of((id(context.agent), id(context.task)))
            if not self._catch_up() and self._live.open(of) is not None:
                reason = "the tap saw no response: wrap the LLM with endstop.adapters.crewai.tapped"
                raise self.stopped(self._live.close(False, reason))

    def _before_tool(self, context: Any) -> None:
        # What this raises blocks the tool; the hook after it ends the crew.
        with self._lock:
            self._catch_up()
            self._check()

    def _after_tool(self, context: Any) -> None:
        with self._lock:
            self._check()
            self._output = str(context.tool_result)
            call = self._call_of(context)
            if call is not None:
                self.after_tool(call.id, self._output)

    def _ended(self, context: Any) -> None:
        self._result = context.output

    def _check(self) -> None:
        """Ends a crew whose run has ended: its thread continues if the caller is cancelled."""
        if self.run.parked:
            raise HookAborted("Endstop: the run is parked", source="endstop")
        if not self.run.running:
            raise self.stopped(self._live.end())

    def _catch_up(self) -> bool:
        """Feeds the responses that no hook has seen. False: there are none."""
        found = False
        for asked in [*self._live.asked.values()]:
            seen = asked.recording.detections or self._live.rest.detections
            if seen:
                found = True
                self._feed(asked, list(seen[-1].calls))
        return found

    def _feed(self, asked: Asked, calls: list[Call]) -> None:
        self._open += calls
        if not calls:
            # A text is the answer of a task.
            self._conversations.end(self._askers.get(asked.named))
        self.after_call(of=asked.of)

    def _call_of(self, context: Any) -> Call | None:
        """Returns the call that this tool answers: a hook has its name and arguments, not its id."""
        for call in self._open:
            if call.name == context.tool_name and _same(call, context.tool_input):
                self._open.remove(call)
                return call
        return None


def _is_forced(messages: Any) -> bool:
    """Returns True for the last request of an agent that has reached `max_iter`."""
    last = messages[-1] if messages else {}
    return bool(str(last.get("content") or "").endswith(I18N_DEFAULT.errors("force_final_answer")))


def _same(call: Call, given: Any) -> bool:
    try:
        return bool(call.args == given)
    except json.JSONDecodeError:
        return False
