"""smolagents: a model whose calls are checked, and a step callback for the results of tools.

```python
from smolagents import OpenAIModel, ToolCallingAgent
from endstop.adapters.smolagents import Endstop

with Endstop(max_turns=25, max_budget_usd=2.0) as stop:
    model = stop.model(OpenAIModel("gpt-4o"))
    agent = ToolCallingAgent(tools=[], model=model, step_callbacks=[stop.on_step])
    answer = agent.run("Go.", max_steps=1000)      # or EndstopStopped leaves the block
stop.outcome                                       # one ending
```

`final_answer` is the answer of the run. A text is not one in smolagents: a `ToolCallingAgent` reports a
parsing error to the model and calls it again. With `stop_on_answer`, a complete answer in text ends the run
instead: the same error leaves it, and the outcome is a success. smolagents wraps `EndstopStopped` into an
`AgentGenerationError`, which code in the block sees. `on_end=` is called once with the outcome.

Blind spots without the adapter, which it covers: the finish value is dropped, so that a truncated,
filtered or cut text is parsed like any other; **a tool gets the broken JSON of a call that was cut**;
a loop ends after `max_steps` with an answer that the model is forced to give. A step callback alone is
called after the tools. Blind spots that remain: a model without an `openai` client inside has no finish
value, and its runs end as failures (put it behind `endstop guard`); calls of a `CodeAgent` are text for
the provider, so that a loop is seen by its text only; and smolagents sends `AgentGenerationError`s to
the log first.
"""

from __future__ import annotations

from endstop.adapters._versions import require

require("smolagents")

import threading
from collections.abc import Generator
from dataclasses import dataclass, field
from types import TracebackType
from typing import Any

from smolagents import ActionStep, AgentError, AgentMaxStepsError, Model
from smolagents.models import ChatMessage

import endstop
from endstop import Call, Detection, tap
from endstop._types import ResultStatus
from endstop.adapters._base import Asked, arguments
from endstop.adapters._scope import Ended, Scope, Stopped

__all__ = ["Endstop", "EndstopModel", "EndstopStopped"]


class EndstopStopped(Stopped):
    """The run has ended; `outcome` says how. smolagents raises its own error from it, and it leaves the
    block of the run."""


@dataclass
class _Agent:
    """The conversation of an agent, and its calls that are not answered yet."""

    of: str = ""
    calls: dict[str, Call] = field(default_factory=dict)


class Endstop(Scope):
    """One run of an agent, and of the agents that it manages."""

    stopped = EndstopStopped
    unseen = "wrap the model: model = stop.model(…)"

    def __init__(self, *, stop_on_answer: bool = False, **settings: Any) -> None:
        super().__init__(**settings)
        self._stop_on_answer = stop_on_answer
        self._main = _Agent()
        # The agents that its calls run, by thread: each one was called by the one before it.
        self._managed: dict[int, list[_Agent]] = {}
        self._count = 0
        self._current: dict[int, _Agent] = {}
        # Managed agents may run in several threads, and a run may be used by one at a time.
        self._lock = threading.RLock()
        self._answer: tuple[object] | None = None
        self._limit = ""
        self._stepped = False

    def model(self, inner: Model) -> EndstopModel:
        """Wraps the model of an agent."""
        return EndstopModel(inner, self)

    def on_step(self, step: ActionStep, agent: Any = None) -> None:
        """Feeds the results of a step's tools. Pass it as one of the `step_callbacks`, also of the agents
        that are managed."""
        with self._lock:
            self._step(step)

    def _step(self, step: ActionStep) -> None:
        self._stepped = True
        # A step that failed has no `tool_calls`; the message has the calls of both.
        message = step.model_output_message
        calls = [call.id for call in message.tool_calls or []] if message is not None else []
        main = not self._main.calls or any(call in self._main.calls for call in calls)
        if main and isinstance(step.error, AgentMaxStepsError):
            self._limit = f"{type(step.error).__name__}: {step.error}"
        elif main and step.is_final_answer and step.error is None:
            self._answer = (self._final(calls, step.action_output),)
        status: ResultStatus = "ok" if step.error is None else "error"
        for call in calls:
            for one in [self._main, *(one for known in self._managed.values() for one in known)]:
                one.calls.pop(call, None)
            if self.run.running:
                self.run.result(call, str(step.error or step.observations), status=status)

    def _final(self, calls: list[str], output: object) -> object:
        """Returns the final answer of a step: its output, which is that of code, or else the argument."""
        for call in (self._main.calls.get(call) for call in calls):
            if output is None and call is not None and call.name == "final_answer":
                return call.args.get("answer")
        return output

    def conversation(self) -> str:
        """Returns the conversation of the agent that calls the model in this thread: an agent with open
        calls waits for one that it manages."""
        with self._lock:
            thread = threading.get_ident()
            managed = self._managed.setdefault(thread, [])
            for depth, agent in enumerate([self._main, *managed]):
                if not agent.calls:
                    # Those that it managed have returned.
                    del managed[depth:]
                    break
            else:
                self._count += 1
                agent = _Agent(f"managed#{self._count}")
                managed.append(agent)
            self._current[thread] = agent
            return agent.of

    def before_call(self, **settings: Any) -> Asked:
        with self._lock:
            return super().before_call(**settings)

    def after_call(self, *described: Any, **settings: Any) -> None:
        with self._lock:
            super().after_call(*described, **settings)

    def failed_call(self, problem: BaseException, **settings: Any) -> None:
        with self._lock:
            super().failed_call(problem, **settings)

    def streamed(self, text: str, **settings: Any) -> None:
        with self._lock:
            super().streamed(text, **settings)

    def translated(self, response: Detection) -> Detection:
        agent = self._current.get(threading.get_ident(), self._main)
        agent.calls = {call.id: call for call in response.calls}
        return response

    def answered(self) -> None:
        """Ends the run if its last response is an answer in text."""
        if self._stop_on_answer and self.run.ending == "stop":
            raise self.stopped(self._live.close())

    def ended_by(self, problem: BaseException) -> Ended | None:
        if isinstance(problem, AgentError) and "Agent interrupted" in str(problem):
            self.run.cancel()
        return None

    def returned(self) -> None:
        calls = list(self._main.calls.values())
        if self._limit:
            self._live.close(ended="error_max_turns", detail=self._limit)
        elif self._answer is not None:
            self.submitted(self._answer[0])
        elif self._stepped:
            # The caller has left the steps.
            self.run.cancel()
        elif [call.name for call in calls] == ["final_answer"]:
            # Without the step callback.
            self.submitted(calls[0].args.get("answer"))
        else:
            self._live.close()

    def __exit__(
        self,
        kind: type[BaseException] | None,
        problem: BaseException | None,
        traceback: TracebackType | None,
    ) -> bool:
        left = super().__exit__(kind, problem, traceback)
        if problem is not None and isinstance(problem.__cause__, EndstopStopped):
            raise problem.__cause__ from None
        return left


class EndstopModel(Model):
    """A model whose calls are counted, and stopped, by a run."""

    def __init__(self, inner: Model, stop: Endstop) -> None:
        super().__init__(model_id=inner.model_id)
        self._inner, self._stop = inner, stop
        if hasattr(inner, "generate_stream"):
            # The agent asks for the attribute before it streams.
            self.generate_stream = self._generate_stream
        try:
            tap.wrap(getattr(inner, "client", None))
        except endstop.ConfigError:
            # A model without httpx inside: its own messages are used.
            pass

    def generate(self, messages: Any, **options: Any) -> ChatMessage:
        self._stop.wait()
        of = self._stop.conversation()
        with self._stop.call(of):
            message = self._inner.generate(messages, **options)
        self._stop.after_call(lambda: _described(message), of=of)
        if not message.tool_calls:
            self._stop.answered()
        return message

    def _generate_stream(self, messages: Any, **options: Any) -> Generator[Any]:
        self._stop.wait()
        of = self._stop.conversation()
        called = False
        with self._stop.call(of, streaming=True):
            for delta in self._inner.generate_stream(messages, **options):
                called = called or bool(delta.tool_calls)
                self._stop.streamed(delta.content or "", of=of)
                yield delta
        # smolagents runs no tool before the stream has ended here.
        self._stop.after_call(lambda: endstop.response(finish=None), of=of)
        if not called:
            self._stop.answered()

    def parse_tool_calls(self, message: ChatMessage) -> ChatMessage:
        return self._inner.parse_tool_calls(message)

    def to_dict(self) -> dict[str, Any]:
        return self._inner.to_dict()

    def __getattr__(self, name: str) -> Any:
        return getattr(self.__dict__["_inner"], name)


def _described(message: ChatMessage) -> Detection:
    """Describes a message of smolagents, whose `raw` is the provider's object."""
    try:
        return endstop.detect(message.raw)
    except (endstop.EndstopError, TypeError):
        pass
    usage = message.token_usage
    return endstop.response(
        message.content if isinstance(message.content, str) else "",
        finish=None,
        calls=[
            (c.id, c.function.name, arguments(c.function.arguments))
            for c in message.tool_calls or []
        ],
        input_tokens=usage.input_tokens if usage else None,
        output_tokens=usage.output_tokens if usage else None,
    )
