"""One run of a framework as a context manager: its tap, its deadline, and the steps of its loop."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, contextmanager
from types import TracebackType
from typing import Any, Self

import endstop
from endstop import Detection, Outcome, Run, tap
from endstop._types import ResultStatus
from endstop.adapters._base import Asked, Ended, Live, Settings, why

__all__ = ["Conversations", "Ended", "Scope", "Stopped"]


class Stopped(Exception):
    """The run has ended; `outcome` says how."""

    def __init__(self, outcome: Outcome) -> None:
        super().__init__(why(outcome))
        self.outcome = outcome


class Scope:
    """A run of a framework. Enter it around the call of the framework, with `with` or `async with`;
    leaving it ends the run, unless the run is parked. `on_end` is called once with the outcome.

    `parked` is the text of a parked run, which this one continues with what it has spent; `allow`
    names the limits that may be looser than before.
    """

    stopped: Callable[[Outcome], Exception] = Stopped
    """Makes the exception that leaves the framework if the run must not continue."""
    unseen: str = "pass the adapter to the framework"
    """What to do if the framework has returned and no model call was seen."""
    waits: bool = True
    """False if the framework only reports its model calls, so that none can be held back."""

    def __init__(
        self,
        *,
        policy: Any = None,
        model: str | None = None,
        price: Any = None,
        task: str = "",
        on_end: Callable[[Outcome], None] | None = None,
        parked: str | None = None,
        allow: Iterable[str] = (),
        **limits: Any,
    ) -> None:
        settings = Settings(policy, model, price, task, limits, type(self).waits)
        run = settings.run() if parked is None else settings.resume(parked, allow)
        self._live = Live(run, on_end, type(self).stopped)
        self._exits = ExitStack()
        self._inside = False
        self._parked: str | None = None
        # A resumed run may end without another call.
        self._live.saw_call = parked is not None

    @property
    def run(self) -> Run:
        """The run under the kernel."""
        return self._live.run

    @property
    def outcome(self) -> Outcome:
        """The outcome, once the run has ended."""
        return self.run.finished()

    @property
    def parked(self) -> str | None:
        """The parked run as text, if the framework has paused for a person; otherwise None. Store
        it with the framework's own state, and give it to the next one as `parked=`."""
        return self._parked

    def park(self) -> str:
        """Parks the run, and returns it as text: it has not ended, and takes nothing more."""
        if self._parked is None:
            self._parked = self._live.park()
        return self._parked

    # --- a model call ---

    def wait(self) -> None:
        """Waits as long as the next model call must, in a thread of the framework's own."""
        self._live.wait()

    async def wait_async(self) -> None:
        """Waits as long as the next model call must, while other tasks run."""
        await self._live.wait_async()

    @contextmanager
    def call(self, of: str = "", *, streaming: bool = False) -> Iterator[Asked]:
        """A model call around which an adapter can put a block: it asks, records the call's own
        responses, and feeds an exception. Feed the response with `after_call(…, of=of)` in or after it."""
        asked = self.before_call(streaming=streaming, of=of, attach=False)
        with asked.recorded():
            try:
                yield asked
            except BaseException as problem:
                self.failed_call(problem, of=of)
                raise

    def before_call(
        self,
        *,
        streaming: bool = False,
        of: str = "",
        attach: bool = True,
        recording: tap.Recording | None = None,
    ) -> Asked:
        """Asks for a model call of the conversation `of`. Raises if the run has ended. With `attach`
        what this context requests from here on belongs to the call, until `after_call`. `recording` is one
        that its context is attached to already."""
        self._enter_first()
        asked = self._live.ask(of, streaming=streaming, recording=recording)
        if asked is None:
            raise self.stopped(self._live.end())
        if attach and recording is None:
            tap.attach(asked.recording)
        return asked

    def after_call(self, described: Callable[[], Detection] | None = None, *, of: str = "") -> None:
        """Feeds the responses that the tap saw for the model call; if there are none, the response as
        the framework describes it. Raises if the framework must not use it."""
        self._enter_first()
        asked = self._live.open(of) or Asked(self._live, of)
        self._detach(asked)
        seen = asked.take()
        if not seen:
            if described is None:
                raise endstop.ConfigError(
                    "the tap saw no response; wrap the client of the model: endstop.tap.wrap(client)"
                )
            seen = [described()]
        seen[-1] = self.translated(seen[-1])
        stopped, held_back = asked.feed(seen)
        if stopped is None and held_back:
            # The framework would run these calls: it cannot leave single calls out.
            names = ", ".join(call.name for call in held_back)
            stopped = self.run.close(False, f"the arguments of a tool call are cut: {names}")
        # A success without calls is an answer, which the framework returns by itself.
        if stopped is not None and (not stopped.is_success or seen[-1].calls):
            raise self.stopped(self._live.end(stopped))

    def translated(self, response: Detection) -> Detection:
        """Returns the response as the run must see it. A framework may have an answer in a call."""
        return response

    def failed_call(self, problem: BaseException, *, of: str = "") -> None:
        """Feeds the exception of a model call, after the attempts that the tap saw."""
        asked = self._live.open(of)
        if (
            asked is not None
            and isinstance(problem, Exception)
            and not isinstance(problem, Stopped)
        ):
            self._detach(asked)
            asked.failed(problem)

    def streamed(self, text: str, *, of: str = "") -> None:
        """Feeds streamed text while it arrives. Raises if a policy or a limit ended the run."""
        asked = self._live.open(of)
        to = asked.call if asked is not None else self.run
        if text and not to.delta(text):
            raise self.stopped(self._live.end())

    # --- tools, and the end ---

    def after_tool(self, call: str, output: Any, *, status: ResultStatus = "ok") -> None:
        """Feeds the result of a tool call. Raises if the run has ended."""
        self._live.book()
        if not self.run.result(call, output, status=status):
            raise self.stopped(self._live.end())

    def submitted(self, deliverable: object) -> None:
        """Ends the run with an answer that the framework took from a call or a structured object. A
        response that was cut or filtered stays one."""
        self._live.close(ended="submitted", deliverable=deliverable)

    def ended_by(self, problem: BaseException) -> Ended | None:
        """Returns the ending for an exception of the framework that is a limit or a rule of its own."""
        return None

    def returned(self) -> None:
        """Ends the run after the framework has returned without an exception; or parks it."""
        self._live.close()

    def _entered(self) -> tap.Recording:
        """Returns the recording of the model call that is open, else that of the rest."""
        self._enter_first()
        asked = self._live.open()
        return self._live.rest if asked is None else asked.recording

    def _enter_first(self) -> None:
        if not self._inside:
            kind = type(self).__name__
            raise endstop.ConfigError(f"enter the run around the call: with {kind}(…) as stop")

    def _detach(self, asked: Asked) -> None:
        if tap.is_attached(asked.recording):
            tap.attach(self._live.rest)

    def _settle(self, problem: BaseException | None) -> None:
        """Decides how the run ends, before its block is left."""
        self._inside = False
        self._exits.close()
        ended = self.ended_by(problem) if problem is not None else None
        # A framework may read a stream after its hooks have returned.
        self._live.leave(problem if ended is None else None)
        if not self.run.running:
            return
        if problem is not None:
            if ended is not None:
                self.run.close(ended=ended[0], detail=ended[1])
        elif not self._live.saw_call:
            self.run.close(False, f"no model call was seen: {self.unseen}")
        else:
            self.returned()

    def _report(self) -> None:
        if not self.run.parked:
            self._live.end()

    def __enter__(self) -> Self:
        if not self.run.running or self._inside:
            kind = type(self).__name__
            state = "is parked" if self.run.parked else "has ended"
            state = "is in use" if self._inside else state
            raise endstop.ConfigError(f"the run {state}: make a new {kind}(…) for each run")
        self._inside = True
        self._live.enter()
        self._exits.enter_context(tap.use(self._live.rest))
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        problem: BaseException | None,
        traceback: TracebackType | None,
    ) -> bool:
        self._settle(problem)
        left = self.run.__exit__(kind, problem, traceback)
        self._report()
        return left

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
        left = await self.run.__aexit__(kind, problem, traceback)
        self._report()
        return left


class Conversations:
    """Names the conversations of agents. An agent that runs alone continues the run's own, as after a
    handoff; one that starts while that one runs, as its tool or in parallel, has a name of its own."""

    def __init__(self) -> None:
        self._active: dict[object, str] = {}
        self._names: dict[str, int] = {}

    def start(self, agent: object, name: str) -> str:
        """Names the conversation of an agent that starts."""
        if "" not in self._active.values():
            of = ""
        else:
            # A second one of the same name must not continue the first.
            self._names[name] = self._names.get(name, 0) + 1
            of = f"{name}#{self._names[name]}"
        self._active[agent] = of
        return of

    @property
    def running(self) -> bool:
        """True while an agent runs."""
        return bool(self._active)

    def knows(self, agent: object) -> bool:
        """Returns True for an agent that runs."""
        return agent in self._active

    def of(self, agent: object) -> str:
        """Returns the conversation of an agent that runs; the run's own for an unknown one."""
        return self._active.get(agent, "")

    def end(self, agent: object) -> str:
        """Returns the conversation of an agent that has ended."""
        return self._active.pop(agent, "")
