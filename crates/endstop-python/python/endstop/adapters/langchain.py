"""LangChain and LangGraph: a middleware for `create_agent`.

```python
from langchain.agents import create_agent
from endstop.adapters.langchain import EndstopMiddleware

agent = create_agent(model, tools, middleware=[EndstopMiddleware(max_turns=25)])
state = agent.invoke({"messages": [("user", "Go.")]})
state["endstop"]["termination"]            # one ending, in the state and in checkpoints
```

An exception leaves the graph as before; `outcome_of(exception)` has its ending. A run that must not
continue jumps to the end of the graph, with an answer for each open call, so that the provider accepts
the history. A graph that waits for a person has not ended: a checkpointer stores its run with the
model's message, and it is resumed in any process, with one budget.

The middleware may be shared by any number of runs.

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

import hashlib
import json
import uuid
from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import replace
from typing import Any, NotRequired

from langchain.agents.middleware import AgentMiddleware, AgentState, hook_config
from langchain.agents.middleware.types import ModelResponse
from langchain_core.callbacks import BaseCallbackHandler
from langchain_core.messages import AIMessage, RemoveMessage, ToolMessage
from langchain_core.runnables.config import var_child_runnable_config
from langchain_core.tracers.context import register_configure_hook
from langgraph.errors import GraphInterrupt, ParentCommand
from langgraph.types import Command

import endstop
from endstop import Detection, Outcome, Run, tap
from endstop._types import RunEnding
from endstop.adapters._base import Ended, Fed, Live, Settings, arguments, plain, why

__all__ = ["EndstopMiddleware", "EndstopState", "first_failure", "outcome_of"]

_KEY = "endstop"
"""The key of a run in the metadata of the model's message, which LangChain does not send."""
_MOST_PARKED = 10_000
"""Runs that were parked in this process, and whose newest state is kept: the newest ones."""
_LIMITS: dict[str, RunEnding] = {
    "GraphRecursionError": "error_max_turns",
    "ModelCallLimitExceededError": "error_max_turns",
    "ToolCallLimitExceededError": "error_halted",
    "PIIDetectionError": "error_halted",
}
"""The endings for exceptions of LangChain that are limits or rules of its own, by their class."""


class EndstopState(AgentState[Any]):
    """The state that the middleware adds."""

    endstop: NotRequired[dict[str, Any] | None]  # type: ignore[valid-type]
    """The outcome, as `Outcome.to_dict()` without the conversation; None while the run continues."""


def first_failure(old: dict[str, Any] | None, new: dict[str, Any] | None) -> dict[str, Any] | None:
    """Keeps the first outcome that is not a success. The reducer for the state of a graph that has agents
    as nodes: `endstop: Annotated[dict[str, Any] | None, first_failure]`."""
    failed = old is not None and old["category"] != "success"
    return old if failed or new is None else new


def outcome_of(ended: dict[str, Any] | BaseException) -> Outcome:
    """Returns the outcome in the state that a graph returned, or of the run whose exception left the
    graph."""
    if isinstance(ended, BaseException):
        live = getattr(ended, "endstop_run", None)
        if not isinstance(live, _Live):
            raise endstop.ConfigError(
                "the exception is not that of an agent with EndstopMiddleware in this process"
            )
        return live.ended_by(ended)
    stored = ended.get("endstop")
    if stored is None:
        raise endstop.ConfigError("the state has no outcome: the run is paused, or was not guarded")
    return Outcome.from_json(json.dumps(stored))


# Without type arguments, because their number differs between the supported versions.
class EndstopMiddleware(AgentMiddleware):
    """Puts every run of an agent under the kernel. `on_end` is called once with each outcome, also if
    an exception leaves the graph, and not while the run is paused. `allow` names the limits that may
    be looser when a paused run is resumed."""

    state_schema = EndstopState

    def __init__(
        self,
        *,
        policy: Any = None,
        model: str | None = None,
        price: Any = None,
        on_end: Callable[[Outcome], None] | None = None,
        allow: Iterable[str] = (),
        **limits: Any,
    ) -> None:
        super().__init__()
        self._on_end = on_end
        self._allow = tuple(allow)
        self._settings = Settings(policy, model, price, limits=limits)

    def before_agent(self, state: Any, runtime: Any) -> dict[str, Any]:
        last = state["messages"][-1] if state["messages"] else None
        task = last.text if last is not None else ""
        for message in state["messages"]:
            _take_stored(message)
        self._begin(self._settings.run(str(task)))
        return {"endstop": None}

    async def abefore_agent(self, state: Any, runtime: Any) -> dict[str, Any]:
        return self.before_agent(state, runtime)

    @hook_config(can_jump_to=["end"])
    def before_model(self, state: Any, runtime: Any) -> dict[str, Any] | None:
        live = self._live(state)
        if isinstance(live, dict):
            return live
        live.results(state["messages"])
        return None if live.run.running and live.run.tick() else _end(live.run.finished())

    @hook_config(can_jump_to=["end"])
    async def abefore_model(self, state: Any, runtime: Any) -> dict[str, Any] | None:
        return self.before_model(state, runtime)

    def wrap_model_call(self, request: Any, handler: Any) -> Any:
        self._run_of(request).wait()
        with self._asking(request) as call:
            if call.refused is None:
                call.response = handler(request)
        return call.answer()

    async def awrap_model_call(self, request: Any, handler: Any) -> Any:
        await self._run_of(request).wait_async()
        with self._asking(request) as call:
            if call.refused is None:
                call.response = await handler(request)
        return call.answer()

    @hook_config(can_jump_to=["end"])
    def after_model(self, state: Any, runtime: Any) -> dict[str, Any] | None:
        live = self._live(state)
        if isinstance(live, dict):
            return live
        if live.stopped is None:
            return None
        update = _end(live.stopped)
        if live.refusal is not None:
            update["messages"] = [RemoveMessage(live.refusal)]
        return update

    @hook_config(can_jump_to=["end"])
    async def aafter_model(self, state: Any, runtime: Any) -> dict[str, Any] | None:
        return self.after_model(state, runtime)

    def wrap_tool_call(self, request: Any, handler: Any) -> Any:
        live = self._live(request.state)
        if isinstance(live, dict):
            return handler(request)
        live.tool(request)
        with tap.use(live.rest):
            return live.handed_over(request, handler(request))

    async def awrap_tool_call(self, request: Any, handler: Any) -> Any:
        live = self._live(request.state)
        if isinstance(live, dict):
            return await handler(request)
        live.tool(request)
        with tap.use(live.rest):
            return live.handed_over(request, await handler(request))

    def after_agent(self, state: Any, runtime: Any) -> dict[str, Any]:
        live = self._live(state)
        for message in state["messages"]:
            _take_stored(message)
        if isinstance(live, dict):
            return {"endstop": live["endstop"]}
        return {"endstop": _stored(live.finish(state["messages"]))}

    async def aafter_agent(self, state: Any, runtime: Any) -> dict[str, Any]:
        return self.after_agent(state, runtime)

    def _begin(self, run: Run) -> _Live:
        graph, stores = _context()
        live, others = _Live(run, self._on_end), _GRAPHS.lives.setdefault(graph, {})
        live.stores = stores
        if live.outer in others.values():
            # Another middleware of the same agent, which has all of its calls, too.
            live.outer = None
        others[id(self)] = live
        return live

    def _live(self, state: Any) -> _Live | dict[str, Any]:
        """Returns the run of this graph; the update that ends the graph if the run has ended before it
        was resumed."""
        live = _GRAPHS.lives.get(_context()[0], {}).get(id(self))
        if live is not None:
            return live
        # The graph was resumed, maybe in another process.
        last = next((m for m in reversed(state["messages"]) if isinstance(m, AIMessage)), None)
        stored = last.response_metadata.get(_KEY) if last is not None else None
        if stored is None:
            raise endstop.ConfigError(
                "the history has no parked run: an agent that paused without EndstopMiddleware, or "
                "without a checkpointer, cannot be resumed with it; start it again with its messages"
            )
        newest = _GRAPHS.later(stored)
        if "outcome" in newest:
            return {"endstop": newest["outcome"], "jump_to": "end"}
        parked = newest["parked"]
        run = self._settings.resume(parked, self._allow)
        live = self._begin(run)
        live.saw_call, live.key, live.last = True, _digest(stored), last.id if last else None
        return live

    def _run_of(self, request: Any) -> _Live:
        live = self._live(request.state)
        assert not isinstance(live, dict), "the hook before has ended the graph"
        return live

    @contextmanager
    def _asking(self, request: Any) -> Iterator[_Call]:
        live = self._run_of(request)
        asked = live.ask()
        call = _Call(live, asked)
        if asked is None:
            yield call
            return
        try:
            with asked.recorded():
                yield call
        except Exception as problem:
            asked.failed(problem)
            raise
        for message in request.state["messages"]:
            _take_stored(message)


class _Live(Live):
    """A run of a graph."""

    def __init__(self, *given: Any) -> None:
        super().__init__(*given)
        self.stores = False
        """True if the graph has a checkpointer."""
        self._direct: set[str] = set()
        self.stopped: Outcome | None = None
        """The outcome, if the graph must end."""
        self.refusal: str | None = None
        """The id of the message that stands for a call that was not made."""
        self.structured: object = None
        """The object that LangChain made of the last response."""
        self.last: str | None = None
        """The id of the model's last message."""
        self.key: str | None = None
        """The state of this run in the newest checkpoint."""

    def results(self, messages: list[Any]) -> None:
        """Feeds the results of the turn before, which stand together at the end of the history."""
        results = []
        for message in reversed(messages):
            if not isinstance(message, ToolMessage):
                break
            results.append(message)
        self.book()
        for message in reversed(results):
            status = (
                endstop.ToolStatus.ERROR if message.status == "error" else endstop.ToolStatus.OK
            )
            self.run.result(message.tool_call_id, str(message.text), status=status)

    def tool(self, request: Any) -> None:
        """Takes note of a tool whose result is the answer."""
        if getattr(request.tool, "return_direct", False):
            self._direct.add(request.tool_call["id"])

    def handed_over(self, request: Any, result: Any) -> Any:
        """Ends the run if a tool hands the conversation over to another node of the parent graph."""
        if not (isinstance(result, Command) and result.graph == Command.PARENT):
            return result
        self.run.result(request.tool_call["id"], f"handed over to {result.goto}")
        outcome = self.close(ended="submitted", deliverable={"goto": plain(result.goto)})
        # The parent's state has the outcome if it has the key.
        update = result.update
        merged = {**update, "endstop": _stored(outcome)} if isinstance(update, dict) else update
        return replace(result, update=merged)

    def store(self, message: AIMessage) -> AIMessage:
        """Returns the message with what another process needs to continue the run."""
        if self.stopped is not None:
            stored: dict[str, Any] = {"outcome": _stored(self.stopped)}
        elif self.stores:
            stored = {"parked": self.run.park(keep=True)}
        else:
            return message
        self.key = _digest(stored)
        metadata = {**message.response_metadata, _KEY: stored}
        return message.model_copy(update={"response_metadata": metadata})

    def finish(self, messages: list[Any]) -> Outcome:
        """Decides how a graph that has reached its end has ended."""
        if self.run.running:
            self.results(messages)
        if not self.run.running:
            return self.end()
        self.leave()
        last = messages[-1] if messages else None
        if self.structured is not None:
            return self.close(ended="submitted", deliverable=self.structured)
        if isinstance(last, ToolMessage) and last.tool_call_id in self._direct:
            return self.close(ended="submitted", deliverable=last.text)
        if isinstance(last, AIMessage) and last.id == self.last:
            if self.run.ending is not None:
                return self.close()
            if last.invalid_tool_calls and not last.tool_calls:
                # LangChain ends with such a message as with an answer.
                names = ", ".join(str(call["name"]) for call in last.invalid_tool_calls)
                return self.close(False, f"the arguments of a tool call are not JSON: {names}")
        text = str(last.text) if isinstance(last, AIMessage) and last.id != self.last else ""
        if text.startswith("Model call limit"):
            return self.close(ended="error_max_turns", detail=f"ModelCallLimitMiddleware: {text}")
        if "all limit" in text[:80]:
            return self.close(ended="error_halted", detail=f"ToolCallLimitMiddleware: {text}")
        said = f": {text}" if text else ""
        return self.close(ended="error_halted", detail=f"a middleware ended the loop{said}")

    def ended_by(self, problem: BaseException) -> Outcome:
        """Ends the run by an exception that left the graph."""
        if self.run.running and isinstance(problem, ParentCommand):
            # A node handed the conversation over to the parent graph, which is not a failure.
            self.leave()
            self.close(ended="submitted", deliverable={"goto": plain(problem.args[0].goto)})
        if self.run.running:
            ended = _ended_by(problem)
            self.leave(problem if ended is None else None)
            if ended is not None and self.run.running:
                self.run.close(ended=ended[0], detail=ended[1])
            self.run.__exit__(type(problem), problem, None)
        return self.end()


class _Call:
    """A model call in its middleware: what LangChain made of the response, and what it gets back."""

    def __init__(self, live: _Live, asked: Any) -> None:
        self.live, self._asked = live, asked
        self.refused = live.run.finished() if asked is None else None
        self.response: Any = None

    def answer(self) -> Any:
        live = self.live
        if self.refused is not None:
            # Hooks of other middleware expect a message; `after_model` removes it again.
            live.stopped, live.refusal = self.refused, f"endstop-{uuid.uuid4()}"
            return ModelResponse(result=[AIMessage(why(self.refused), id=live.refusal)])
        response = self.response
        given = response.result if isinstance(response, ModelResponse) else [response]
        message, *rest = given
        if message.id is None:
            message = message.model_copy(update={"id": str(uuid.uuid4())})
        live.last = message.id
        fed: Fed = self._asked.feed(self._asked.take() or [_described(message)])
        live.stopped = fed.stopped
        answered = {one.tool_call_id for one in rest if isinstance(one, ToolMessage)}
        open_calls = [call for call in message.tool_calls if call["id"] not in answered]
        if fed.stopped is not None:
            rest += [_not_run(call, why(fed.stopped)) for call in open_calls]
        else:
            # LangChain repairs the JSON of a cut call and would run it; it runs no call with an answer.
            cut = {call.id for call in fed.held_back}
            rest += [_not_run(c, "the arguments are cut") for c in open_calls if c["id"] in cut]
        structured = getattr(response, "structured_response", None)
        live.structured = None if fed.stopped is not None else structured
        return ModelResponse(
            result=[live.store(message), *rest], structured_response=live.structured
        )


class _Graphs(BaseCallbackHandler):
    """Follows the runs of LangChain in this process: a middleware has no hook around its graph."""

    run_inline = True
    ignore_llm = ignore_retriever = ignore_chat_model = ignore_custom_event = True  # type: ignore[assignment]

    def __init__(self) -> None:
        self.lives: dict[uuid.UUID | None, dict[int, _Live]] = {}
        """The runs by the graph that they belong to, and their middleware."""
        self.parents: dict[uuid.UUID, tuple[uuid.UUID | None, str]] = {}
        """The parent of each run of LangChain, and the name of its place in a graph."""
        self._later: OrderedDict[str, dict[str, Any]] = OrderedDict()

    def on_chain_start(self, serialized: Any, inputs: Any, **facts: Any) -> None:
        place = (facts.get("metadata") or {}).get("langgraph_checkpoint_ns", "")
        self.parents[facts["run_id"]] = facts.get("parent_run_id"), place

    def on_tool_start(self, serialized: Any, input_str: str, **facts: Any) -> None:
        facts.pop("inputs", None)
        self.on_chain_start(serialized, input_str, **facts)

    def on_chain_end(self, outputs: Any, *, run_id: uuid.UUID, **facts: Any) -> None:
        for live in self._ended(run_id):
            if live.run.running:
                # The graph has returned, and has not reached its end: it waits for a person.
                parked = live.park()
                if live.key is not None:
                    self._keep(live.key, {"parked": parked})

    def on_chain_error(self, error: BaseException, *, run_id: uuid.UUID, **facts: Any) -> None:
        if isinstance(error, GraphInterrupt):
            self.on_chain_end(None, run_id=run_id)
            return
        for live in self._ended(run_id):
            error.endstop_run = live  # type: ignore[attr-defined]
            outcome = live.ended_by(error)
            if live.key is not None:
                self._keep(live.key, {"outcome": _stored(outcome)})

    def on_tool_end(self, output: Any, *, run_id: uuid.UUID, **facts: Any) -> None:
        self._ended(run_id)

    def on_tool_error(self, error: BaseException, *, run_id: uuid.UUID, **facts: Any) -> None:
        self._ended(run_id)

    def later(self, stored: dict[str, Any]) -> dict[str, Any]:
        """Returns the newest state of a run, of which a checkpoint has an earlier one."""
        return self._later.get(_digest(stored), stored)

    def _ended(self, run_id: uuid.UUID) -> Iterable[_Live]:
        self.parents.pop(run_id, None)
        return self.lives.pop(run_id, {}).values()

    def _keep(self, key: str, stored: dict[str, Any]) -> None:
        self._later[key] = stored
        while len(self._later) > _MOST_PARKED:
            self._later.popitem(last=False)


_GRAPHS = _Graphs()
_HANDLER: ContextVar[Any] = ContextVar("endstop_graphs", default=_GRAPHS)
register_configure_hook(_HANDLER, inheritable=True)


def _runs() -> Iterator[tuple[uuid.UUID, str]]:
    """The runs of LangChain around this context, from the inside, with their places in graphs."""
    config = var_child_runnable_config.get() or {}
    run = getattr(config.get("callbacks"), "parent_run_id", None)
    while run is not None:
        parent, place = _GRAPHS.parents.get(run, (None, ""))
        yield run, place
        run = parent


def _context() -> tuple[uuid.UUID | None, bool]:
    """Returns the graph that this context is a node of, and True if it has a checkpointer."""
    config = var_child_runnable_config.get() or {}
    here = (config.get("metadata") or {}).get("langgraph_checkpoint_ns", "")
    graph = next((run for run, place in _runs() if place != here), None)
    settings = config.get("configurable") or {}
    return graph, settings.get("__pregel_checkpointer") not in (None, False)


def _recording() -> tap.Recording | None:
    """Finds the run of a model call of another middleware or node."""
    for run, _ in _runs():
        for live in _GRAPHS.lives.get(run, {}).values():
            return live.rest
    return None


tap._FINDERS.append(_recording)


def _ended_by(problem: BaseException) -> Ended | None:
    name = type(problem).__name__
    return (_LIMITS[name], f"{name}: {problem}") if name in _LIMITS else None


def _digest(stored: dict[str, Any]) -> str:
    return hashlib.sha256(json.dumps(stored, sort_keys=True).encode()).hexdigest()


def _take_stored(message: Any) -> None:
    """Removes the state of a run from a message: the next one has it, or the run has ended."""
    if isinstance(message, AIMessage):
        message.response_metadata.pop(_KEY, None)


def _not_run(call: Any, reason: str) -> ToolMessage:
    return ToolMessage(f"Not run: {reason}.", tool_call_id=call["id"] or "", status="error")


def _stored(outcome: Outcome) -> dict[str, Any]:
    """Returns the outcome for the state, which has the conversation already."""
    return {**outcome.to_dict(), "messages": []}


def _end(outcome: Outcome) -> dict[str, Any]:
    """Jumps to the end."""
    return {"endstop": _stored(outcome), "jump_to": "end"}


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
    return endstop.response(
        str(message.text),
        finish=finish,
        calls=calls,
        refusal=message.additional_kwargs.get("refusal"),
        model=facts.get("model_name") or facts.get("model"),
        **_tokens(message.usage_metadata or {}),
    )


def _tokens(usage: Any) -> dict[str, Any]:
    """Returns the counts of a message, as `endstop.response` takes them."""

    def part(side: str, name: str) -> int:
        # A service tier stands before the name: `flex_cache_read`.
        details = (usage.get(f"{side}_token_details") or {}).items()
        return sum(n or 0 for key, n in details if key == name or key.endswith(f"_{name}"))

    # Of Anthropic these two replace the sum, or stand next to it.
    hour = part("input", "ephemeral_1h_input_tokens")
    written = hour + part("input", "ephemeral_5m_input_tokens")
    return {
        "input_tokens": usage.get("input_tokens"),
        "output_tokens": usage.get("output_tokens"),
        "cached_input_tokens": part("input", "cache_read"),
        "cache_write_tokens": written or part("input", "cache_creation"),
        "cache_write_1h_tokens": hour,
        "reasoning_tokens": part("output", "reasoning"),
        "total_tokens": usage.get("total_tokens"),
    }
