"""Pydantic AI: a capability that puts every run of an agent under the kernel.

```python
from endstop.adapters.pydantic_ai import Endstop, EndstopStopped

guard = Endstop(max_turns=25, max_budget_usd=2.0)
agent = Agent(model, capabilities=[guard])
result = await agent.run("Go.")                # or EndstopStopped, with .outcome
guard.outcome_of(result)                       # one ending
```

The capability may be shared by any number of runs, also at the same time. If a run must not
continue, `EndstopStopped` leaves it, an `AgentRunError`. A run that ends in `DeferredToolRequests` has
not ended: its history carries it to the run that gets the results, with one budget.

Blind spots without the adapter: **a stream that was cut gets the finish reason `stop`**, a truncated
or filtered text is the output, a loop ends after 50 requests. The adapter covers them: it reads the
provider's own value from `provider_details`, and the bytes if the client is wrapped
(`endstop.tap.wrap(AsyncOpenAI())`), which also gives the usage of aborted streams.
"""

from __future__ import annotations

from endstop.adapters._versions import require

require("pydantic_ai")

import asyncio
import copy
from collections import OrderedDict
from collections.abc import AsyncIterator, Callable, Iterable
from contextlib import asynccontextmanager
from typing import Any

from pydantic_ai import DeferredToolRequests
from pydantic_ai.capabilities import AbstractCapability
from pydantic_ai.exceptions import (
    AgentRunError,
    ApprovalRequired,
    CallDeferred,
    ModelRetry,
    SkipModelRequest,
    UsageLimitExceeded,
)
from pydantic_ai.messages import ModelResponse, TextPart, ToolCallPart

import endstop
from endstop import Detection, Outcome, tap
from endstop._types import RunEnding
from endstop.adapters._base import Asked, Ended, Live, Settings, arguments, why

__all__ = ["Endstop", "EndstopStopped"]

# Outcomes and parked runs that a capability stores at most, the newest ones.
_MOST_STORED = 1000
_PARKED = "endstop"
"""The key of a parked run in the metadata of a response, which is not sent to the model."""
_RESUMED = "resumed"
_LIMITS: dict[str, RunEnding] = {
    "request_limit": "error_max_turns",
    "tokens_limit": "error_max_tokens",
    "cost_limit": "error_max_budget_usd",
}
"""The endings for limits of Pydantic AI, by what its message has."""


class EndstopStopped(AgentRunError):
    """The run has ended; `outcome` says how."""

    def __init__(self, outcome: Outcome) -> None:
        super().__init__(why(outcome))
        self.outcome = outcome


class Endstop(AbstractCapability[Any]):
    """Puts every run of an agent under the kernel. `on_end` is called once with each outcome. `allow`
    names the limits that may be looser when a parked run is resumed."""

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
        self._settings = Settings(policy, model, price, limits=limits)
        self._on_end = on_end
        self._allow = tuple(allow)
        self._outcomes: OrderedDict[str, Outcome] = OrderedDict()
        self._parked: OrderedDict[str, str] = OrderedDict()
        # That of one run, in the copy that `for_run` makes.
        self._own: Live | None = None

    def outcome_of(self, ended: Any) -> Outcome:
        """Returns the outcome of the run that gave this result, has this id, or ended with this
        exception."""
        if isinstance(ended, BaseException):
            found = getattr(ended, "endstop_outcome", getattr(ended, "outcome", None))
        else:
            found = self._outcomes.get(ended if isinstance(ended, str) else ended.run_id)
        if not isinstance(found, Outcome):
            raise endstop.ConfigError(
                "no outcome of this run is known here: it is parked, has another capability, or is "
                f"older than the last {_MOST_STORED} runs"
            )
        return found

    def parked_in(self, messages: Iterable[Any]) -> str | None:
        """Returns the run that is parked in a history, as text; None if there is none. A run with that
        history continues it by itself. The history carries it from now on, also that of `run_stream`,
        which has a copy of the response."""
        last = _last_response(messages)
        if last is None:
            return None
        found = (last.metadata or {}).get(_PARKED) or self._parked.get(last.run_id or "")
        if found == _RESUMED:
            raise endstop.ConfigError(
                "the parked run of this history was resumed before; go on with the history of the run "
                "that resumed it"
            )
        if found is not None:
            last.metadata = {**(last.metadata or {}), _PARKED: found}
        return found

    async def for_run(self, ctx: Any) -> Endstop:
        own = copy.copy(self)
        own._own = None
        return own

    async def wrap_run(self, ctx: Any, *, handler: Any) -> Any:
        live = self._own = self._start(ctx)
        try:
            with tap.use(live.rest):
                async with live.run:
                    try:
                        result = await handler()
                    except BaseException as problem:
                        self._raised(live, problem)
                        raise
                    self._returned(live, result)
                    return result
            # At `timeout` no exception leaves the block.
            raise EndstopStopped(live.run.finished())
        except BaseException as problem:
            if live.run.outcome is not None:
                problem.endstop_outcome = live.run.outcome  # type: ignore[attr-defined]
            raise
        finally:
            if not live.run.parked:
                _store(self._outcomes, ctx.run_id, live.end())

    def _start(self, ctx: Any) -> Live:
        parked = self.parked_in(ctx.messages or ())
        if parked is not None:
            run = self._settings.resume(parked, self._allow)
            # The text has done its work, and has the conversation in it.
            _last_response(ctx.messages).metadata[_PARKED] = _RESUMED
        else:
            run = self._settings.run(ctx.prompt if isinstance(ctx.prompt, str) else "")
        return Live(run, self._on_end, EndstopStopped)

    def _returned(self, live: Live, result: Any) -> None:
        live.leave()
        output = result.output
        if not live.run.running:
            return
        if isinstance(output, DeferredToolRequests):
            # The calls wait for a person or another system. The history carries the run to its end.
            _store(self._parked, result.run_id, live.park())
            self.parked_in(result.all_messages())
            return
        if isinstance(output, str) and live.run.ending == "stop":
            live.close()
        else:
            live.close(ended="submitted", deliverable=output)

    def _raised(self, live: Live, problem: BaseException) -> None:
        ended = _ended_by(problem)
        live.leave(_of_provider(problem) if ended is None else None)
        if ended is not None and live.run.running:
            live.run.close(ended=ended[0], detail=ended[1])

    async def wrap_model_request(self, ctx: Any, *, request_context: Any, handler: Any) -> Any:
        live = self._live()
        await live.wait_async()
        asked = live.ask()
        if asked is None:
            raise EndstopStopped(live.run.finished())
        with asked.recorded():
            try:
                async with _in_time(live):
                    response = await handler(request_context)
            except BaseException as problem:
                self._failed(asked, problem)
                raise
        tapped = asked.take()
        seen = tapped or [_described(response, request_context.model)]
        # Without the tap only newer versions tell.
        if asked.left or (not tapped and response.state == "incomplete"):
            # The program left the stream: it is paid for until then.
            asked.feed(seen, left=True)
            return response
        stopped = asked.feed(seen).stopped
        if stopped is not None and not stopped.is_success:
            raise EndstopStopped(stopped)
        return response

    def _failed(self, asked: Asked, problem: BaseException) -> None:
        # A hook may answer or repeat a request instead of the model.
        decided = isinstance(problem, ModelRetry | SkipModelRequest)
        if not asked.recording.detections and decided:
            asked.close()
        elif isinstance(problem, Exception):
            asked.failed(_of_provider(problem))
        # What was cancelled is fed when the exception leaves the run.

    async def wrap_tool_execute(
        self, ctx: Any, *, call: ToolCallPart, tool_def: Any, args: Any, handler: Any
    ) -> Any:
        async with _in_time(self._live()):
            return await handler(args)

    async def after_tool_execute(
        self, ctx: Any, *, call: ToolCallPart, tool_def: Any, args: Any, result: Any
    ) -> Any:
        live = self._live()
        live.book()
        if not live.run.result(call.tool_call_id, result):
            raise EndstopStopped(live.run.finished())
        return result

    async def on_tool_execute_error(
        self, ctx: Any, *, call: ToolCallPart, tool_def: Any, args: Any, error: Exception
    ) -> Any:
        # A call that waits for a person has no result yet.
        if not isinstance(error, ApprovalRequired | CallDeferred):
            self._live().run.result(call.tool_call_id, error)
        raise error

    def _live(self) -> Live:
        if self._own is None:
            raise endstop.ConfigError("pass the capability to an agent: capabilities=[Endstop(…)]")
        return self._own


@asynccontextmanager
async def _in_time(live: Live) -> AsyncIterator[None]:
    """Cancels the block at the deadline of the run, and raises `EndstopStopped` then. Pydantic AI runs
    the agent in another task than `wrap_run`."""
    wait = live.run.wake_in
    try:
        # A little later, because the clock of the loop may be ahead of the run's.
        async with asyncio.timeout(None if wait is None else wait + 0.01) as limit:
            yield
    except TimeoutError:
        if not limit.expired() or live.run.tick():
            raise
        raise EndstopStopped(live.run.finished()) from None


def _last_response(messages: Iterable[Any]) -> Any:
    return next((m for m in reversed([*messages]) if isinstance(m, ModelResponse)), None)


def _store(known: OrderedDict[str, Any], run_id: str, value: object) -> None:
    known[run_id] = value
    while len(known) > _MOST_STORED:
        known.popitem(last=False)


def _of_provider(problem: Any) -> Any:
    """Returns the exception of the provider's SDK, which has the response and names its class."""
    cause = problem.__cause__ if isinstance(problem, AgentRunError) else None
    return cause if isinstance(cause, Exception) else problem


def _ended_by(problem: BaseException) -> Ended | None:
    """Returns the ending for an exception of Pydantic AI that is a limit of its own."""
    if not isinstance(problem, UsageLimitExceeded):
        return None
    detail = f"UsageLimitExceeded: {problem}"
    known = (ending for name, ending in _LIMITS.items() if name in str(problem))
    return next(known, "error_halted"), detail


def _described(response: ModelResponse, model: Any) -> Detection:
    """Describes a response, by the provider's own finish value: that of Pydantic AI is made up if
    none arrived."""
    facts = response.provider_details or {}
    finish = facts.get("finish_reason")
    if finish is None and facts.get("refusal"):
        # A refusal has no other finish value in newer versions.
        finish = response.finish_reason
    if finish is None and getattr(model, "system", None) in ("test", "function"):
        # The models for tests have no provider, and their responses are whole.
        finish = "stop"
    calls = [
        (part.tool_call_id, part.tool_name, arguments(part.args or "{}"))
        for part in response.parts
        if isinstance(part, ToolCallPart)
    ]
    return endstop.response(
        "".join(part.content for part in response.parts if isinstance(part, TextPart)),
        finish=finish,
        calls=calls,
        refusal=facts.get("refusal"),
        model=response.model_name,
        **_tokens(response.usage),
    )


def _tokens(usage: Any) -> dict[str, Any]:
    """Returns the counts of a response, as `endstop.response` takes them: those of Pydantic AI are inclusive."""
    if getattr(usage, "unmeasured_requests", 0):
        # The provider did not count, and the zeros stand for nothing.
        return {}
    return {
        "input_tokens": usage.input_tokens,
        "output_tokens": usage.output_tokens,
        "cached_input_tokens": usage.cache_read_tokens,
        "cache_write_tokens": usage.cache_write_tokens,
        "cache_write_1h_tokens": getattr(usage, "cache_write_1h_tokens", None),
        "reasoning_tokens": getattr(usage, "output_reasoning_tokens", None),
    }
