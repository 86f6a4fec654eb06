"""Pydantic AI: a capability that puts every run of an agent under the kernel.

```python
from endstop.adapters.pydantic_ai import Endstop, EndstopStopped

guard = Endstop(max_turns=25, max_budget_usd=2.0)
agent = Agent(model, capabilities=[guard])
result = await agent.run("Go.")                # or EndstopStopped, with .outcome
guard.outcome_of(result)                       # one ending
```

The capability may be shared by any number of runs, also at the same time. If a run must not
continue, `EndstopStopped` leaves it, an `AgentRunError`.

Blind spots without the adapter: **a stream that was cut gets the finish reason `stop`**, a truncated
or filtered text is the output, a loop ends after 50 requests. The adapter covers them: it reads the
provider's own value from `provider_details`, and the bytes if the client is wrapped
(`endstop.tap.wrap(AsyncOpenAI())`), which also gives the usage of aborted streams.
"""

from __future__ import annotations

from endstop.adapters._versions import require

require("pydantic_ai")

import copy
from collections import OrderedDict
from collections.abc import Callable
from typing import Any

from pydantic_ai.capabilities import AbstractCapability
from pydantic_ai.exceptions import AgentRunError
from pydantic_ai.messages import ModelResponse, TextPart, ToolCallPart

import endstop
from endstop import Detection, Outcome, Run, tap
from endstop.adapters._base import Settings, arguments, feed, why

__all__ = ["Endstop", "EndstopStopped"]

# Outcomes that a capability stores at most, the newest ones.
_MOST_STORED = 1000


class EndstopStopped(AgentRunError):
    """The run has ended; `outcome` says how."""

    def __init__(self, outcome: Outcome) -> None:
        super().__init__(why(outcome))
        self.outcome = outcome


class Endstop(AbstractCapability[Any]):
    """Puts every run of an agent under the kernel. `on_end` is called with each outcome."""

    def __init__(
        self,
        *,
        policy: Any = None,
        model: str | None = None,
        price: Any = None,
        on_end: Callable[[Outcome], None] | None = None,
        **limits: Any,
    ) -> None:
        self._settings = Settings(policy, model, price, limits=limits)
        self._on_end = on_end
        self._outcomes: OrderedDict[str, Outcome] = OrderedDict()
        # Those of one run, in the copy that `for_run` makes.
        self._run: Run | None = None
        self._recording: tap.Recording | None = None

    def outcome_of(self, result: Any) -> Outcome:
        """Returns the outcome of the run that gave this result, or has this id."""
        return self._outcomes[result if isinstance(result, str) else result.run_id]

    async def for_run(self, ctx: Any) -> Endstop:
        own = copy.copy(self)
        own._run = self._settings.run(ctx.prompt if isinstance(ctx.prompt, str) else "")
        return own

    async def wrap_run(self, ctx: Any, *, handler: Any) -> Any:
        run = self._live()
        try:
            with tap.record() as self._recording, run:
                return await handler()
        finally:
            outcome = run.close()
            self._outcomes[ctx.run_id] = outcome
            while len(self._outcomes) > _MOST_STORED:
                self._outcomes.popitem(last=False)
            if self._on_end is not None:
                self._on_end(outcome)

    async def before_model_request(self, ctx: Any, request_context: Any) -> Any:
        run = self._live()
        if not run.ask():
            raise EndstopStopped(run.finished())
        return request_context

    async def after_model_request(
        self, ctx: Any, *, request_context: Any, response: ModelResponse
    ) -> ModelResponse:
        seen = self._recording.take() if self._recording is not None else []
        stopped = feed(self._live(), seen or [_described(response)]).stopped
        if stopped is not None and not stopped.is_success:
            raise EndstopStopped(stopped)
        return response

    async def after_tool_execute(
        self, ctx: Any, *, call: ToolCallPart, tool_def: Any, args: Any, result: Any
    ) -> Any:
        run = self._live()
        if not run.result(call.tool_call_id, result):
            raise EndstopStopped(run.finished())
        return result

    async def on_tool_execute_error(
        self, ctx: Any, *, call: ToolCallPart, tool_def: Any, args: Any, error: Exception
    ) -> Any:
        self._live().result(call.tool_call_id, error)
        raise error

    def _live(self) -> Run:
        if self._run is None:
            raise endstop.ConfigError("pass the capability to an agent: capabilities=[Endstop(…)]")
        return self._run


def _described(response: ModelResponse) -> Detection:
    """Describes a response, by the provider's own finish value: that of Pydantic AI is made up if
    none arrived."""
    facts = response.provider_details or {}
    calls = [
        (part.tool_call_id, part.tool_name, arguments(part.args or "{}"))
        for part in response.parts
        if isinstance(part, ToolCallPart)
    ]
    return endstop.response(
        "".join(part.content for part in response.parts if isinstance(part, TextPart)),
        finish=facts.get("finish_reason"),
        calls=calls,
        refusal=facts.get("refusal"),
        input_tokens=response.usage.input_tokens,
        output_tokens=response.usage.output_tokens,
        model=response.model_name,
    )
