"""The run as Python programs use it: the compiled class, and its use in asyncio."""

from __future__ import annotations

from typing import TYPE_CHECKING, Self

from endstop import _endstop

if TYPE_CHECKING:
    import asyncio
    from types import TracebackType

__all__ = ["Run"]


class Run(_endstop.Run):
    __doc__ = _endstop.Run.__doc__

    # Set by `__aenter__`. The compiled class has no place for them.
    _timer: asyncio.TimerHandle | None = None
    _timed_out: bool = False

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

        wait = self.wake_in
        if wait is None:
            return

        def due() -> None:
            if self.parked:
                return
            if self.tick():
                # The clock of the loop was ahead of the run's.
                self._arm(task)
            else:
                self._timed_out = True
                task.cancel("the run's timeout")

        self._timer = asyncio.get_running_loop().call_later(wait, due)

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
        self.__exit__(kind, problem, traceback)
        if not self._timed_out:
            return False
        task = asyncio.current_task()
        # Another request to cancel, from outside, must not be swallowed.
        others = task.uncancel() if task is not None else 0
        return isinstance(problem, asyncio.CancelledError) and others == 0
