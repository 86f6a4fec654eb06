"""smolagents: a model whose calls are checked, and a step callback for the results of tools.

```python
from smolagents import OpenAIModel, ToolCallingAgent
from endstop.adapters.smolagents import Endstop

with Endstop(max_turns=25, max_budget_usd=2.0) as stop:
    model = stop.model(OpenAIModel("gpt-4o"))
    agent = ToolCallingAgent(tools=[…], model=model, step_callbacks=[stop.on_step])
    answer = agent.run("Go.", max_steps=1000)      # or AgentGenerationError
stop.outcome                                       # one ending
```

A whole call of `final_answer` is the answer of the run. A text is not one in smolagents: a
`ToolCallingAgent` reports a parsing error to the model and calls it again. With `stop_on_answer`, a
complete answer in text ends the run instead: the same error leaves it, and the outcome is a success.

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

from collections.abc import Generator
from typing import Any

from smolagents import ActionStep, Model
from smolagents.models import ChatMessage

import endstop
from endstop import Detection, tap
from endstop.adapters._base import arguments
from endstop.adapters._scope import Scope, Stopped

__all__ = ["Endstop", "EndstopModel", "EndstopStopped"]


class EndstopStopped(Stopped):
    """The run has ended; `outcome` says how. smolagents raises its own error from it: see
    `stop.outcome`."""


class Endstop(Scope):
    """One run of an agent, and of the agents that it manages."""

    stopped = EndstopStopped

    def __init__(self, *, stop_on_answer: bool = False, **settings: Any) -> None:
        super().__init__(**settings)
        self._stop_on_answer = stop_on_answer

    def model(self, inner: Model) -> EndstopModel:
        """Wraps the model of an agent."""
        return EndstopModel(inner, self)

    def on_step(self, step: ActionStep, agent: Any = None) -> None:
        """Feeds the results of a step's tools. Pass it as one of the `step_callbacks`."""
        # A step that failed has no `tool_calls`; the message has the calls of both.
        message = step.model_output_message
        for call in (message.tool_calls or []) if message is not None else []:
            if call.function.name != "final_answer" and self.run.running:
                status = endstop.ToolStatus.OK if step.error is None else endstop.ToolStatus.ERROR
                self.run.result(call.id, str(step.error or step.observations), status=status)

    def translated(self, response: Detection) -> Detection:
        names = [call.name for call in response.calls]
        if names != ["final_answer"] or response.cut_calls or response.reason != "tool_use":
            return response
        answer = response.calls[0].args.get("answer", "")
        return endstop.response(
            answer if isinstance(answer, str) else arguments(answer),
            finish="stop",
            input_tokens=response.usage.input_tokens,
            output_tokens=response.usage.output_tokens,
            model=response.model,
        )

    def answered(self) -> None:
        """Ends the run if its last response is an answer in text."""
        if self._stop_on_answer and self.run.ending == "stop":
            raise self.stopped(self.run.close())


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
        self._stop.before_call()
        try:
            message = self._inner.generate(messages, **options)
        except Exception as problem:
            self._stop.failed_call(problem)
            raise
        self._stop.after_call(lambda: _described(message))
        if not message.tool_calls:
            self._stop.answered()
        return message

    def _generate_stream(self, messages: Any, **options: Any) -> Generator[Any]:
        self._stop.before_call(streaming=True)
        called = False
        try:
            for delta in self._inner.generate_stream(messages, **options):
                called = called or bool(delta.tool_calls)
                self._stop.streamed(delta.content or "")
                yield delta
        except Exception as problem:
            self._stop.failed_call(problem)
            raise
        # smolagents runs no tool before the stream has ended here.
        self._stop.after_call(lambda: endstop.response(finish=None))
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
