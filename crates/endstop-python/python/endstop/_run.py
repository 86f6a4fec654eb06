"""The run as Python programs use it: the compiled class, and its use in asyncio."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Self

from endstop import _endstop
from endstop._errors import BusyError

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Callable, Iterator
    from types import TracebackType

    from endstop._types import Limits

__all__ = ["Run"]

_BUSY = 0.02
"""Seconds until a deadline is looked at again if another thread works with the run."""
_LOOK = 0.05
"""Seconds until a pause is looked at again: a stop, the deadline or another limit may have ended it."""


class Run(_endstop.Run):
    __doc__ = _endstop.Run.__doc__

    # Set by `__aenter__`. The compiled class has no place for them.
    _timer: asyncio.TimerHandle | None = None
    _timed_out: bool = False
    _rearm: Callable[[], object] | None = None

    def wait(self) -> bool:
        """Waits as long as the next model call must (`max_rate`, `wait_for_window`). A stop from any thread,
        the deadline and other limits end the wait. False: the run has ended."""
        for seconds in self._parts():
            time.sleep(seconds)
        return self.running

    async def wait_async(self) -> bool:
        """Waits as `wait`, while other tasks run."""
        for seconds in self._parts():
            import asyncio

            await asyncio.sleep(seconds)
        return self.running

    def _parts(self) -> Iterator[float]:
        """Yields the seconds of each part of a pause."""
        left = self.pause()
        while left is not None:
            yield min(left, _LOOK)
            try:
                left = self.pause()
            except BusyError:
                # Another thread works with the run, and so may make the pause longer.
                left = _LOOK

    async def __aenter__(self) -> Self:
        """Starts the run's deadline: at `timeout` the block is cancelled, and the run ends as
        `error_timeout`. No exception leaves the block then."""
        # Here, because the import of asyncio takes longer than that of the whole package.
        import asyncio

        task = asyncio.current_task()
        if task is not None:
            self._arm(task)
        return self

    def _arm(self, task: asyncio.Task[object]) -> None:
        import asyncio

        def due() -> None:
            try:
                if self.parked:
                    return
                if self.running and self.tick():
                    # The clock of the loop was ahead of the run's.
                    arm()
                elif self.finished().termination == "error_timeout":
                    # A run that had ended otherwise has its block to itself.
                    self._timed_out = True
                    task.cancel("the run's timeout")
            except BusyError:
                # Another thread works with the run, for example in a policy that takes long.
                self._timer = loop.call_later(_BUSY, due)

        def arm() -> None:
            if self._timer is not None:
                self._timer.cancel()
            wait = self.wake_in
            self._timer = None if wait is None else loop.call_later(wait, due)

        loop = asyncio.get_running_loop()
        self._rearm = lambda: loop.call_soon_threadsafe(arm)
        arm()

    def set_limits(self, limits: Limits) -> bool:
        running = super().set_limits(limits)
        if self._rearm is not None and running:
            # The deadline may be another one now.
            self._rearm()
        return running

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        problem: BaseException | None,
        traceback: TracebackType | None,
    ) -> bool:
        import asyncio

        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        self._rearm = None
        self.__exit__(kind, problem, traceback)
        if not self._timed_out:
            return False
        task = asyncio.current_task()
        # Another request to cancel, from outside, must not be swallowed.
        others = task.uncancel() if task is not None else 0
        return isinstance(problem, asyncio.CancelledError) and others == 0
