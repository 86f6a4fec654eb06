"""One run of a framework as a context manager: its tap, its deadline, and the steps of its loop."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack
from types import TracebackType
from typing import Any, Self

import endstop
from endstop import Detection, Outcome, Run, tap
from endstop._types import ResultStatus
from endstop.adapters._base import Settings, feed, feed_failure, why

__all__ = ["Scope", "Stopped"]


class Stopped(Exception):
    """The run has ended; `outcome` says how."""

    def __init__(self, outcome: Outcome) -> None:
        super().__init__(why(outcome))
        self.outcome = outcome


class Scope:
    """A run of a framework. Enter it around the call of the framework, with `with` or `async with`;
    leaving it ends the run."""

    stopped: Callable[[Outcome], Exception] = Stopped
    """Makes the exception that leaves the framework if the run must not continue."""

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

    def before_call(self, *, streaming: bool = False) -> None:
        """Asks for a model call. Raises if the run has ended."""
        self._entered()
        if not self.run.ask(streaming=streaming):
            raise self.stopped(self.outcome)

    def after_call(self, described: Callable[[], Detection] | None = None) -> None:
        """Feeds the responses that the tap saw since the last call of this method; if there are
        none, the response as the framework describes it. Raises if the framework must not use it."""
        seen = self._entered().take()
        if not seen:
            if described is None:
                raise endstop.ConfigError(
                    "the tap saw no response; wrap the client of the model: endstop.tap.wrap(client)"
                )
            seen = [described()]
        seen[-1] = self.translated(seen[-1])
        stopped, held_back = feed(self.run, seen)
        if stopped is None and held_back:
            # The framework would run these calls: it cannot leave single calls out.
            names = ", ".join(call.name for call in held_back)
            stopped = self.run.close(False, f"the arguments of a tool call are cut: {names}")
        # A success without calls is an answer, which the framework returns by itself.
        if stopped is not None and (not stopped.is_success or seen[-1].calls):
            raise self.stopped(stopped)

    def translated(self, response: Detection) -> Detection:
        """Returns the response as the run must see it. A framework may have an answer in a call."""
        return response

    def failed_call(self, problem: BaseException) -> None:
        """Feeds the exception of a model call, after the attempts that the tap saw."""
        if isinstance(problem, Exception) and not isinstance(problem, Stopped):
            feed_failure(self.run, problem, self._entered().take())

    def streamed(self, text: str) -> None:
        """Feeds streamed text while it arrives. Raises if a policy or a limit ended the run."""
        if text and not self.run.delta(text):
            raise self.stopped(self.outcome)

    def after_tool(self, call: str, output: Any, *, status: ResultStatus = "ok") -> None:
        """Feeds the result of a tool call. Raises if the run has ended."""
        if not self.run.result(call, output, status=status):
            raise self.stopped(self.outcome)

    def _entered(self) -> tap.Recording:
        if self._recording is None:
            kind = type(self).__name__
            raise endstop.ConfigError(f"enter the run around the call: with {kind}(…) as stop")
        return self._recording

    def _settle(self, problem: BaseException | None) -> None:
        """Feeds a response that broke outside of this run's hooks: a framework may read a stream
        after its hooks have returned."""
        seen = self._entered().take()
        if seen and isinstance(problem, Exception) and self.run.running:
            feed_failure(self.run, problem, seen)
        self._exits.close()

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
