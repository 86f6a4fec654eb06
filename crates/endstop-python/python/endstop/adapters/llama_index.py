"""LlamaIndex: agents whose steps are checked.

```python
from llama_index.core.agent.workflow import FunctionAgent
from endstop.adapters.llama_index import Endstop, Guarded

class Agent(Guarded, FunctionAgent):               # or ReActAgent, CodeActAgent
    pass

agent = Agent(tools=[…], llm=endstop.adapters.llama_index.tapped(OpenAI("gpt-4o")))
async with Endstop(max_turns=25, max_budget_usd=2.0) as stop:
    result = await agent.run("Go.", max_iterations=1000)    # or EndstopStopped, with .outcome
stop.outcome                                                # one ending
```

Agents of an `AgentWorkflow` are guarded in the same way, and count together. One agent may be in any
number of runs at the same time: a run belongs to the context (`contextvars`) in which `run` is called.

Blind spots without the adapter, which it covers: **a truncated, filtered or cut answer is the
response**; a tool call that was cut is repeated, and a loop ends, with `WorkflowRuntimeError` after 20
iterations. The stream of events shows a response while its tools start,
and only to a caller who iterates; the adapter is in the step before. A response is described by its
`raw` object if the client of the model is not tapped: the finish value is there, a connection that
broke is not. `on_end=` is called once with the outcome. `tapped` also asks OpenAI's chat completions for the usage of streams (`stream_options`), unless
`additional_kwargs` of the model has an option of its own. Without the tap a stream with usage is a
`ConfigError`, because its last chunk has no finish value. Model calls outside of the agents' steps
(tools, query engines, `output_cls`, `early_stopping_method="generate"`) are seen by the tap, and booked as spending. Blind
spot that remains: those of a model that is not tapped.
"""

from __future__ import annotations

from endstop.adapters._versions import require

require("llama_index")

from contextvars import ContextVar, Token
from types import TracebackType
from typing import Any, Self, TypeVar

from llama_index.core.agent.workflow import AgentOutput
from llama_index.core.workflow.errors import (
    WorkflowCancelledByUser,
    WorkflowRuntimeError,
    WorkflowTimeoutError,
)

import endstop
from endstop import Detection, tap
from endstop.adapters._base import arguments, tokens_of
from endstop.adapters._scope import Conversations, Ended, Scope, Stopped

__all__ = ["Endstop", "EndstopStopped", "Guarded", "tapped"]

Model = TypeVar("Model")


class EndstopStopped(Stopped):
    """The run has ended; `outcome` says how."""


_CURRENT: ContextVar[Endstop | None] = ContextVar("endstop_llama_index", default=None)
_OF: ContextVar[str] = ContextVar("endstop_llama_index_agent", default="")
"""The conversation of the agent that runs in this context."""


class Endstop(Scope):
    """One run of an agent or of an `AgentWorkflow`."""

    stopped = EndstopStopped
    unseen = "put Guarded before the agent's class: class Agent(Guarded, FunctionAgent)"
    _token: Token[Endstop | None] | None = None

    def __init__(self, **settings: Any) -> None:
        super().__init__(**settings)
        self._conversations = Conversations()
        # What `run` of a guarded agent or workflow returned, by the conversation.
        self._handlers: dict[str, Any] = {}
        self._open: set[str] = set()
        self._direct: str | None = None
        self._waiting: set[str] = set()

    def begin(self, name: str) -> str:
        """Names the conversation of an agent that starts."""
        for of, handler in self._handlers.items():
            if handler.get_stop_event() is not None:
                self._conversations.end(of)
        of = self._conversations.start(object(), name)
        if of == "":
            self._handlers.pop(of, None)
        return of

    def translated(self, response: Detection) -> Detection:
        self._open |= {call.id for call in response.calls}
        self._direct = None
        return response

    def answered(self, result: Any) -> None:
        """Feeds the result of a tool, which may be the answer."""
        self._open.discard(result.tool_id)
        failed, output = result.tool_output.is_error, str(result.tool_output.content)
        if result.return_direct and not failed and result.tool_name != "handoff":
            self._direct = output
        self.after_tool(result.tool_id, output, status="error" if failed else "ok")

    def ended_by(self, problem: BaseException) -> Ended | None:
        if isinstance(problem, WorkflowCancelledByUser):
            self.run.cancel()
        elif isinstance(problem, WorkflowTimeoutError):
            return "error_halted", f"{type(problem).__name__}: {problem}"
        elif isinstance(problem, WorkflowRuntimeError) and "Max iterations of" in str(problem):
            return "error_max_turns", f"{type(problem).__name__}: {problem}"
        return None

    def returned(self) -> None:
        handler = self._handlers.get("")
        stop = handler.get_stop_event() if handler is not None else None
        # None if the workflow was cancelled, or has not ended.
        result = getattr(stop, "result", None)
        structured = getattr(result, "structured_response", None)
        if self._waiting:
            self.park()
        elif self._direct is not None:
            self.submitted(self._direct)
        elif structured is not None:
            self.submitted(structured)
        elif self.run.ending is not None and (handler is None or result is not None):
            self._live.close()
        elif result is not None:
            # `early_stopping_method="generate"` gives an answer instead of the calls.
            self._live.close(ended="error_max_turns", detail="LlamaIndex: max_iterations")
        else:
            # The caller has left the events.
            self.run.cancel()

    def __enter__(self) -> Self:
        self._token = _CURRENT.set(self)
        return super().__enter__()

    def __exit__(
        self,
        kind: type[BaseException] | None,
        problem: BaseException | None,
        traceback: TracebackType | None,
    ) -> bool:
        self._leave()
        return super().__exit__(kind, problem, traceback)

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        problem: BaseException | None,
        traceback: TracebackType | None,
    ) -> bool:
        self._leave()
        return await super().__aexit__(kind, problem, traceback)

    def _leave(self) -> None:
        if self._token is not None:
            _CURRENT.reset(self._token)
            self._token = None


def tapped(model: Model) -> Model:
    """Puts the tap into the clients of a model of `llama-index-llms-openai`, `-openai-like` or
    `-anthropic`, and lets chat completions ask for the usage of streams."""
    for make in ("_get_client", "_get_aclient"):
        if hasattr(model, make):
            tap.wrap(getattr(model, make)())
    for name in ("_client", "_aclient"):
        if getattr(model, name, None) is not None:
            tap.wrap(getattr(model, name))
    options = getattr(model, "additional_kwargs", None)
    # The model leaves this option out of requests that do not stream. OpenAI's Responses API and
    # Anthropic have no such option, and send the usage by themselves.
    if isinstance(options, dict) and _is_chat(type(model)):
        options.setdefault("stream_options", {"include_usage": True})
    return model


def _is_chat(model: type) -> bool:
    """Returns True for the class of OpenAI's chat completions, and for those that extend it."""
    return any(
        (cls.__module__, cls.__name__) == ("llama_index.llms.openai.base", "OpenAI")
        for cls in model.__mro__
    )


class Guarded:
    """The first base of an agent's class; the second one is the class of LlamaIndex. As the first base of an
    `AgentWorkflow`, it sees the workflow's structured answer and the tools that wait for a person."""

    def run(self, *given: Any, **options: Any) -> Any:
        stop = _current()
        of = stop.begin(str(getattr(self, "name", "agent")))
        # The steps run in tasks, which have this context.
        token = _OF.set(of)
        try:
            base: Any = super()
            handler = base.run(*given, **options)
        finally:
            _OF.reset(token)
        stop._handlers[of] = handler
        return handler

    async def take_step(self, ctx: Any, llm_input: Any, tools: Any, memory: Any) -> AgentOutput:
        stop, of = _current(), _OF.get()
        base: Any = super()
        await stop.wait_async()
        with stop.call(of, streaming=bool(getattr(self, "streaming", False))):
            output: AgentOutput = await base.take_step(ctx, llm_input, tools, memory)
        stop.after_call(lambda: _described(output), of=of)
        return output

    async def _call_tool(self, ctx: Any, tool: Any, given: Any) -> Any:
        stop, call = _current(), f"{tool.metadata.name} {arguments(given)}"
        base: Any = super()
        try:
            output = await base._call_tool(ctx, tool, given)
        except Exception:
            # Only a step that waits for an event is left by an exception, and runs again with it.
            stop._waiting.add(call)
            raise
        stop._waiting.discard(call)
        return output

    async def handle_tool_call_results(self, ctx: Any, results: Any, memory: Any) -> None:
        base: Any = super()
        await base.handle_tool_call_results(ctx, results, memory)
        stop = _current()
        for result in results:
            stop.answered(result)


def _current() -> Endstop:
    stop = _CURRENT.get()
    if stop is None:
        raise endstop.ConfigError("enter the run around the agent: async with Endstop(…) as stop")
    return stop


def _described(output: AgentOutput) -> Detection:
    """Describes a step by the provider's object, or else by what LlamaIndex made of it."""
    raw = output.raw
    if isinstance(raw, dict) and raw.get("object") != "chat.completion.chunk":
        try:
            return endstop.detect(raw)
        except (endstop.EndstopError, TypeError):
            pass
    # The last chunk of a stream, or the object of another provider.
    choices = raw.get("choices") if isinstance(raw, dict) else None
    if choices == []:
        raise endstop.ConfigError(
            "the last chunk of the stream has its usage, and no finish value; "
            "tap the model: endstop.adapters.llama_index.tapped(llm)"
        )
    finish = choices[0].get("finish_reason") if choices else None
    # Some servers put the usage into the chunk with the finish value.
    counted = endstop.detect([raw], api="openai-chat").usage if choices else None
    return endstop.response(
        output.response.content or "",
        finish=finish,
        calls=[(c.tool_id, c.tool_name, arguments(c.tool_kwargs)) for c in output.tool_calls],
        **(tokens_of(counted) if counted else {}),
    )
