"""LangChain and LangGraph: a middleware for `create_agent`.

```python
from langchain.agents import create_agent
from endstop.adapters.langchain import EndstopMiddleware

agent = create_agent(model, tools, middleware=[EndstopMiddleware(max_turns=25)])
state = agent.invoke({"messages": [("user", "Go.")]})
state["endstop"]["termination"]            # one ending, in the state and in checkpoints
```

An exception of a model call leaves the graph as before; `outcome_of(exception)` has its ending.

The middleware may be shared by any number of runs: the live run is in the graph's state, where no
checkpoint stores it. A run that must not continue jumps to the end of the graph, with an answer for
each open call, so that the provider accepts the history.

Blind spots without the adapter, all of which it covers: a truncated or filtered answer and a cut
stream are ordinary messages; a streamed tool call that was cut is repaired to valid JSON, and **the
tool runs with half of its arguments**; a loop ends with `GraphRecursionError` after 10,007 calls.
A refusal of a streamed response, a half of a call that LangChain repaired, and the usage of a stream
without `stream_usage=True` are seen only if the tap is in the model's clients:
`endstop.tap.wrap(model.root_client)`, `endstop.tap.wrap(model.root_async_client)`. `timeout` is
checked before and after each model call.
"""

from __future__ import annotations

from endstop.adapters._versions import require

require("langchain")

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Annotated, Any, NotRequired

from langchain.agents.middleware import AgentMiddleware, AgentState, hook_config
from langchain.agents.middleware.types import PrivateStateAttr
from langchain_core.messages import AIMessage, ToolMessage
from langgraph.channels.untracked_value import UntrackedValue

import endstop
from endstop import Detection, Outcome, Run, tap
from endstop.adapters._base import Settings, arguments, feed, feed_failure, why

__all__ = ["EndstopMiddleware", "EndstopState", "outcome_of"]


class EndstopState(AgentState[Any]):
    """The state that the middleware adds."""

    endstop: NotRequired[dict[str, Any] | None]  # type: ignore[valid-type]
    """The outcome, as `Outcome.to_dict()` without the conversation; None while the run continues."""
    endstop_run: NotRequired[  # type: ignore[valid-type]
        Annotated[Any, UntrackedValue, PrivateStateAttr]
    ]
    """The live run: never in a checkpoint, an input or an output."""


def outcome_of(ended: dict[str, Any] | BaseException) -> Outcome:
    """Returns the outcome in the state that a graph returned, or of the model call whose exception
    left the graph."""
    if isinstance(ended, BaseException):
        live = getattr(ended, "endstop_run", None)
        if not isinstance(live, _Live):
            raise endstop.ConfigError("the exception is not that of a model call")
        return live.end(False, f"{type(ended).__name__}: {ended}")
    return Outcome.from_json(json.dumps(ended["endstop"]))


# Without type arguments, because their number differs between the supported versions.
class EndstopMiddleware(AgentMiddleware):
    """Puts every run of an agent under the kernel. `on_end` is called once with each outcome, also if
    an exception leaves the graph."""

    state_schema = EndstopState

    def __init__(
        self,
        *,
        policy: Any = None,
        model: str | None = None,
        price: Any = None,
        on_end: Callable[[Outcome], None] | None = None,
        **limits: Any,
    ) -> None:
        super().__init__()
        self._on_end = on_end
        self._settings = Settings(policy, model, price, limits=limits)

    def before_agent(self, state: Any, runtime: Any) -> dict[str, Any]:
        last = state["messages"][-1] if state["messages"] else None
        task = last.text if last is not None else ""
        live = _Live(self._settings.run(str(task)), self._on_end)
        return {"endstop_run": live, "endstop": None}

    async def abefore_agent(self, state: Any, runtime: Any) -> dict[str, Any]:
        return self.before_agent(state, runtime)

    @hook_config(can_jump_to=["end"])
    def before_model(self, state: Any, runtime: Any) -> dict[str, Any] | None:
        run = self._live(state).run
        # The results of the turn before stand together at the end of the history.
        results = []
        for message in reversed(state["messages"]):
            if not isinstance(message, ToolMessage):
                break
            results.append(message)
        for message in reversed(results):
            status = (
                endstop.ToolStatus.ERROR if message.status == "error" else endstop.ToolStatus.OK
            )
            run.result(message.tool_call_id, str(message.text), status=status)
        return None if run.ask() else _end(run.finished(), None)

    @hook_config(can_jump_to=["end"])
    async def abefore_model(self, state: Any, runtime: Any) -> dict[str, Any] | None:
        return self.before_model(state, runtime)

    def wrap_model_call(self, request: Any, handler: Any) -> Any:
        with self._live(request.state).call():
            return handler(request)

    async def awrap_model_call(self, request: Any, handler: Any) -> Any:
        with self._live(request.state).call():
            return await handler(request)

    @hook_config(can_jump_to=["end"])
    def after_model(self, state: Any, runtime: Any) -> dict[str, Any] | None:
        message = state["messages"][-1]
        if not isinstance(message, AIMessage):
            return None
        live = self._live(state)
        fed = feed(live.run, live.recording.take() or [_described(message)])
        if fed.stopped is not None:
            return _end(fed.stopped, message)
        # LangChain repairs the JSON of a cut call and would run it; it runs no call with an answer.
        cut = {call.id for call in fed.held_back}
        calls = [call for call in message.tool_calls if call["id"] in cut]
        return {"messages": [_not_run(call, "the arguments are cut") for call in calls]}

    @hook_config(can_jump_to=["end"])
    async def aafter_model(self, state: Any, runtime: Any) -> dict[str, Any] | None:
        return self.after_model(state, runtime)

    def after_agent(self, state: Any, runtime: Any) -> dict[str, Any]:
        return {"endstop": _stored(self._live(state).end())}

    async def aafter_agent(self, state: Any, runtime: Any) -> dict[str, Any]:
        return self.after_agent(state, runtime)

    def _live(self, state: Any) -> _Live:
        live = state.get("endstop_run")
        if not isinstance(live, _Live):
            # A graph that was resumed from a checkpoint in another process.
            raise endstop.ConfigError(
                "the run is not in the state: an agent cannot be resumed in the middle of a run "
                "under Endstop; start it again with its messages"
            )
        return live


class _Live:
    """A run in the state of its graph, and the responses that the tap saw."""

    def __init__(self, run: Run, on_end: Callable[[Outcome], None] | None) -> None:
        self.run, self._on_end = run, on_end
        self.recording = tap.Recording()

    @contextmanager
    def call(self) -> Iterator[None]:
        """Records a model call, and feeds its failure."""
        try:
            with tap.record() as self.recording:
                yield
        except Exception as problem:
            feed_failure(self.run, problem, self.recording.take())
            problem.endstop_run = self  # type: ignore[attr-defined]
            raise

    def end(self, ok: bool = True, detail: str = "") -> Outcome:
        outcome = self.run.close(ok, detail)
        on_end, self._on_end = self._on_end, None
        if on_end is not None:
            on_end(outcome)
        return outcome

    def __del__(self) -> None:
        # An exception left the graph, which then calls no hook.
        self.end(False, "an exception left the graph")


def _not_run(call: Any, reason: str) -> ToolMessage:
    return ToolMessage(f"Not run: {reason}.", tool_call_id=call["id"] or "", status="error")


def _stored(outcome: Outcome) -> dict[str, Any]:
    """Returns the outcome for the state, which has the conversation already."""
    return {**outcome.to_dict(), "messages": []}


def _end(outcome: Outcome, message: AIMessage | None) -> dict[str, Any]:
    """Jumps to the end, and answers the calls of the last message."""
    update: dict[str, Any] = {"endstop": _stored(outcome), "jump_to": "end"}
    if message is not None and message.tool_calls:
        update["messages"] = [_not_run(call, why(outcome)) for call in message.tool_calls]
    return update


def _described(message: AIMessage) -> Detection:
    """Describes a message of the model."""
    facts = message.response_metadata
    finish = facts.get("finish_reason") or facts.get("stop_reason") or facts.get("finishReason")
    if finish is None and facts.get("status") in ("completed", "incomplete"):
        # OpenAI's Responses have a status, and the details of an incomplete one.
        details = facts.get("incomplete_details") or {}
        finish = "stop" if facts["status"] == "completed" else details.get("reason", "length")
    calls = [(c["id"] or "", c["name"], arguments(c["args"])) for c in message.tool_calls]
    # Arguments that LangChain could not read are evidence that the call was cut.
    calls += [(c["id"] or "", c["name"] or "", c["args"] or "") for c in message.invalid_tool_calls]
    usage = message.usage_metadata
    return endstop.response(
        str(message.text),
        finish=finish,
        calls=calls,
        refusal=message.additional_kwargs.get("refusal"),
        input_tokens=usage["input_tokens"] if usage else None,
        output_tokens=usage["output_tokens"] if usage else None,
        model=facts.get("model_name") or facts.get("model"),
    )
