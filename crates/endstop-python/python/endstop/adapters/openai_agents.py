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
its `run_data` has the work so far.

Blind spots without the adapter, all of which it covers: a truncated or filtered answer, and a stream
that was cut, are final outputs; a tool call that was cut by the token limit is repeated until
`max_turns`. A response of the SDK has no finish value, so the adapter reads the tap. It does not see
calls of a client that is not wrapped (`set_default_openai_client` takes a wrapped one), realtime
sessions and the retries of a voice pipeline.
"""

from __future__ import annotations

from endstop.adapters._versions import require

require("openai_agents")

from contextlib import ExitStack
from dataclasses import replace
from types import TracebackType
from typing import Any, Self

from agents import ModelSettings, RunConfig, RunHooks
from agents.exceptions import AgentsException

import endstop
from endstop import Outcome, Run, tap
from endstop.adapters._base import Settings, feed, feed_failure, why

__all__ = ["EndstopHooks", "EndstopStopped"]


class EndstopStopped(AgentsException):
    """The run has ended; `outcome` says how."""

    def __init__(self, outcome: Outcome) -> None:
        super().__init__(why(outcome))
        self.outcome = outcome


class EndstopHooks(RunHooks[Any]):
    """Hooks of one run. Enter them around `Runner.run`, or with a plain `with` around
    `Runner.run_sync`; leaving them ends the run."""

    def __init__(
        self,
        *,
        policy: Any = None,
        model: str | None = None,
        price: Any = None,
        task: str = "",
        **limits: Any,
    ) -> None:
        self.run: Run = Settings(policy, model, price, task, limits).run()
        self._exits = ExitStack()
        self._recording: tap.Recording | None = None

    @property
    def outcome(self) -> Outcome:
        """The outcome, once the run has ended."""
        return self.run.finished()

    @staticmethod
    def run_config(given: RunConfig | None = None) -> RunConfig:
        """Returns the configuration of a run that asks each server for the usage of streams, as
        `ModelSettings(include_usage=True)` does. `given` may decide otherwise."""
        config = given or RunConfig()
        settings = ModelSettings(include_usage=True).resolve(config.model_settings)
        return replace(config, model_settings=settings)

    def __enter__(self) -> Self:
        self._recording = self._exits.enter_context(tap.record())
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        problem: BaseException | None,
        traceback: TracebackType | None,
    ) -> bool:
        self._settle(problem)
        return self.run.__exit__(kind, problem, traceback)

    async def __aenter__(self) -> Self:
        self.__enter__()
        await self.run.__aenter__()
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        problem: BaseException | None,
        traceback: TracebackType | None,
    ) -> bool:
        self._settle(problem)
        return await self.run.__aexit__(kind, problem, traceback)

    def _settle(self, problem: BaseException | None) -> None:
        # The SDK has no hook for a failed call. A stream that broke was paid for until then.
        seen = self._recording.take() if self._recording is not None else []
        if seen and isinstance(problem, Exception) and self.run.running:
            feed_failure(self.run, problem, seen)
        self._exits.close()

    async def on_llm_start(
        self, context: Any, agent: Any, system_prompt: Any, input_items: Any
    ) -> None:
        if not self.run.ask():
            raise EndstopStopped(self.outcome)

    async def on_llm_end(self, context: Any, agent: Any, response: Any) -> None:
        if self._recording is None:
            raise endstop.ConfigError("enter the hooks: async with EndstopHooks(…) as hooks")
        seen = self._recording.take()
        if not seen:
            raise endstop.ConfigError(
                "the tap saw no response; wrap the client: endstop.tap.wrap(AsyncOpenAI())"
            )
        stopped = feed(self.run, seen).stopped
        if stopped is not None and not stopped.is_success:
            raise EndstopStopped(stopped)

    async def on_tool_end(self, context: Any, agent: Any, tool: Any, result: Any) -> None:
        if not self.run.result(context.tool_call_id, result):
            raise EndstopStopped(self.outcome)
