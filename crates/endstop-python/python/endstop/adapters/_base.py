"""What the adapters share: the making of runs, their model calls, and the rule when to stop."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterable
from contextlib import AbstractContextManager, suppress
from dataclasses import dataclass, field
from typing import Any, NamedTuple, cast

from endstop import (
    BusyError,
    Call,
    ConfigError,
    Detection,
    Limits,
    ModelCall,
    Outcome,
    Policy,
    Price,
    Run,
    Usage,
    tap,
)
from endstop._types import RunEnding

__all__ = [
    "Asked",
    "Ended",
    "Fed",
    "Live",
    "Settings",
    "arguments",
    "feed",
    "feed_failure",
    "tokens_of",
    "why",
]

OnEnd = Callable[[Outcome], None]
Ended = tuple[RunEnding, str]
"""An ending of the framework's own, and its details: see `Run.close`."""


@dataclass(frozen=True)
class Settings:
    """The settings of the runs of an adapter, which it makes as the framework starts them."""

    policy: Policy | str | dict[str, Any] | None = None
    model: str | None = None
    price: Price | str | None = None
    task: str = ""
    limits: dict[str, Any] = field(default_factory=dict)
    waits: bool = True
    """False if the framework only reports its model calls, so that none can be held back."""

    def __post_init__(self) -> None:
        # An invalid limit is an error where the user wrote it, and not at the first run.
        self.run()

    def run(self, task: str = "") -> Run:
        """Makes a run."""
        return Run(
            limits=self._changes(),
            policy=self.policy,
            model=self.model,
            price=self.price,
            waits=self.waits,
            max_calls=self.limits.get("max_calls"),
            task=task or self.task,
        )

    def resume(self, parked: str, allow: Iterable[str] = ()) -> Run:
        """Continues a parked run. A limit that is looser than before is an error unless `allow` names
        it."""
        limits = self._changes() or None
        return Run.resume(parked, limits=limits, allow=[*allow], policy=self.policy)

    def _changes(self) -> Limits:
        # A parked run has its limits of single tools.
        limits = {name: value for name, value in self.limits.items() if name != "max_calls"}
        return cast(Limits, limits)


class Fed(NamedTuple):
    """What a framework must do after a response."""

    stopped: Outcome | None
    """The outcome, if the framework must stop."""
    held_back: tuple[Call, ...]
    """The calls that must not run if it continues, because they are cut."""


class Live:
    """A run of a framework while it lives: what the tap sees goes to its model calls, and the rest,
    for example that of a sub-agent, into its spending.

    `on_end` is called once, with the outcome.
    """

    def __init__(
        self,
        run: Run,
        on_end: OnEnd | None = None,
        stopped: Callable[[Outcome], Exception] | None = None,
    ) -> None:
        self.run = run
        self.rest = tap.Recording(self._spend, self._permit, self)
        """The responses to requests that are not the run's own model calls."""
        self.outer: Live | None = None
        """The run of an adapter around this one, which pays for it; None if there is none."""
        self.nested: list[Run] = []
        """The runs inside of this one that have spent something."""
        self.asked: dict[str, Asked] = {}
        """The model calls whose response is awaited, by conversation."""
        self.saw_call = False
        """True once a model call was asked for."""
        self._on_end = on_end
        self._stopped = stopped or _Refused
        self.lock = threading.Lock()
        self.enter()

    def enter(self) -> None:
        """Takes the run that this context belongs to for the one around this one."""
        found = around()
        self.outer = found if found is not self else self.outer

    @property
    def live(self) -> Live:
        """The run itself."""
        return self

    def wait(self) -> None:
        """Waits as long as the next model call must, in a thread of the framework's own."""
        if self.outer is not None:
            self.outer.wait()
        self.book()
        with suppress(BusyError):
            if not self.run.parked:
                self.run.wait()

    async def wait_async(self) -> None:
        """Waits as long as the next model call must, while other tasks run."""
        if self.outer is not None:
            await self.outer.wait_async()
        self.book()
        with suppress(BusyError):
            if not self.run.parked:
                await self.run.wait_async()

    def ask(
        self, of: str = "", *, streaming: bool = False, recording: tap.Recording | None = None
    ) -> Asked | None:
        """Asks for a model call of a conversation. None: the run has ended."""
        self.saw_call = True
        self._follow()
        asked = Asked(self, of, recording)
        if not asked.call.ask(streaming=streaming):
            return None
        while asked.of in self.asked:
            # At the same time as another call of this name: the kernel gives it a conversation of its own.
            asked.of += "+"
        self.asked[asked.of] = asked
        return asked

    def may(self) -> bool:
        """Asks if the framework may call the model again, before it does. False: the run has ended."""
        self._follow()
        return self.run.may()

    def _follow(self) -> None:
        """Books what is new, and cancels the run if the one around it must not continue."""
        self.book()
        if self.outer is not None and not self.outer.allows():
            self.run.cancel()

    def open(self, of: str = "") -> Asked | None:
        """The model call of a conversation whose response is awaited: of several at the same time that
        of this context."""
        named = [asked for asked in self.asked.values() if of in (asked.of, asked.named)]
        here = [asked for asked in named if tap.is_attached(asked.recording)]
        return next(iter(here or named), None)

    def allows(self) -> bool:
        """Returns False if a run inside of this one must stop: this one has ended, and not by an answer."""
        with suppress(BusyError):
            if self.run.parked:
                return True
            if self.outer is not None and self.run.running and not self.outer.allows():
                self.run.cancel()
            return self.run.may_spend() or self.run.finished().is_success
        return True

    def book(self) -> None:
        """Books the responses that belong to no model call of the run, and charges all that is new to the run
        around it."""
        # A thread that is booking already takes these, too; and so does the next hook, if a policy
        # in Python makes the call while the run waits for it.
        for waiting in (self.rest.detections, self.nested):
            while waiting and self.lock.acquire(blocking=False):
                try:
                    while waiting:
                        self.run.spent(waiting[0])
                        del waiting[0]
                except BusyError:
                    return
                except ConfigError:
                    # The run is parked: it has no place for what comes later.
                    waiting.clear()
                finally:
                    self.lock.release()
        self._charge()

    def _charge(self) -> None:
        if self.outer is not None:
            self.outer.nested.append(self.run)
            self.outer.book()

    def end(self, outcome: Outcome | None = None) -> Outcome:
        """Reports the outcome, once."""
        outcome = self.run.finished() if outcome is None else outcome
        self._charge()
        on_end, self._on_end = self._on_end, None
        if on_end is not None:
            on_end(outcome)
        return outcome

    def close(
        self,
        ok: bool = True,
        detail: str = "",
        *,
        ended: RunEnding | None = None,
        deliverable: object = None,
    ) -> Outcome:
        """Ends the run, and reports the outcome."""
        self.book()
        given = plain(deliverable) if ended == "submitted" else None
        return self.end(self.run.close(ok, detail, ended=ended, deliverable=given))

    def leave(self, problem: BaseException | None = None) -> None:
        """Feeds what is left of open model calls when the framework returns, or an exception leaves
        it: a stream that broke or was left is paid for until then."""
        self.rest.cut()
        for asked in [*self.asked.values()]:
            asked.recording.cut()
            seen = asked.recording.detections or self.rest.detections
            if isinstance(problem, Exception) or seen:
                asked.failed(problem if isinstance(problem, Exception) else None)
            else:
                asked.close()
        self.book()

    def park(self) -> str:
        """Returns the run as text, with which `Run.resume` continues it."""
        self.leave()
        return self.run.park()

    def _spend(self, detection: Detection) -> None:
        # A hook in another context than its model call finds the response here.
        if not self.asked:
            self.book()

    def _permit(self) -> None:
        """Refuses the request of a sub-agent whose run has ended, and ends a run that has spent its
        money or tokens: the loop around the sub-agent would ask again only when that is done."""
        with suppress(BusyError):
            if not self.run.parked and not self.run.may_spend():
                raise self._stopped(self.run.finished())


AROUND: list[Callable[[], Live | None]] = []
"""What finds the run of a context whose adapter has no tap in it."""


def around() -> Live | None:
    """Returns the run of an adapter that this context belongs to."""
    recording = tap._current()
    live = recording.owner.live if recording is not None and recording.owner is not None else None
    if isinstance(live, Live):
        return live
    return next((found for find in AROUND if (found := find()) is not None), None)


class Asked:
    """A model call of a run, from the question until its response is fed."""

    def __init__(self, live: Live, of: str, recording: tap.Recording | None = None) -> None:
        self.live, self.of, self.named = live, of, of
        self.call: ModelCall = live.run.call(of)
        self.recording = recording or tap.Recording()
        self.recording.owner = live
        self.left = False
        """True if the program left the stream that `take` returned last."""

    def recorded(self) -> AbstractContextManager[tap.Recording]:
        """Records the responses to requests in the block as those of this call."""
        return tap.use(self.recording)

    def take(self) -> list[Detection]:
        """Takes the responses that the tap saw for this call."""
        for recording in (self.recording, self.live.rest):
            with self.live.lock:
                seen = recording.take()
            if seen:
                self.left = recording.left
                return seen
            # A hook in another context than the request could not attach the recording of the call.
        return []

    def feed(self, responses: Iterable[Detection], *, left: bool = False) -> Fed:
        """Feeds the responses of this call; see `feed`. With `left` the program left the last one, a
        stream: the run is cancelled."""
        self._done()
        if left:
            feed_failure(self.live.run, None, responses, self.call)
            self.live.run.cancel()
            return Fed(self.live.run.outcome, ())
        fed = feed(self.live.run, responses, self.call)
        self.live.book()
        return fed

    def failed(self, problem: Exception | None) -> None:
        """Feeds the exception of this call; see `feed_failure`."""
        self._done()
        feed_failure(self.live.run, problem, self.take(), self.call)
        self.live.book()

    def close(self) -> None:
        """Reports that nothing more will come."""
        self._done()
        self.call.close()

    def _done(self) -> None:
        if self.live.asked.get(self.of) is self:
            del self.live.asked[self.of]


def feed(run: Run, responses: Iterable[Detection], call: ModelCall | None = None) -> Fed:
    """Feeds the responses of one model call to a run: failed attempts, and then the last one. A whole
    response before the last one is that of another request, which the framework made inside of this one:
    it is booked.

    The framework must stop if the run has ended, and if the response is neither an answer nor a
    request for tools. It would take such a response for an answer, or run a tool with half of its
    arguments.
    """
    to = call or run
    *before, last = responses
    _feed_earlier(run, to, before)
    turn = to.turn(last)
    if turn.outcome is not None:
        return Fed(turn.outcome, turn.held_back)
    if turn.ending is not None and not _is_success(turn.ending):
        return Fed(run.close(), turn.held_back)
    return Fed(None, turn.held_back)


def feed_failure(
    run: Run,
    problem: Exception | None,
    seen: Iterable[Detection] = (),
    call: ModelCall | None = None,
) -> None:
    """Feeds the exception of a model call. `seen` are the responses that the tap saw for it. The last of
    them says more than an exception: a whole response that the SDK refused has its own ending, and a
    stream that broke was paid for until then. Without an exception the call was left."""
    to = call or run
    attempts = list(seen)
    last = attempts.pop() if attempts else None
    _feed_earlier(run, to, attempts)
    if last is not None and (problem is None or last.error is None or last.text or last.calls):
        to.turn(last)
    elif problem is not None:
        to.failed(problem)


def _feed_earlier(run: Run, to: Run | ModelCall, attempts: Iterable[Detection]) -> None:
    for attempt in attempts:
        if attempt.error is not None:
            to.turn(attempt)
        else:
            run.spent(attempt)


def _is_success(ending: str) -> bool:
    return ending in ("stop", "submitted")


class _Refused(Exception):
    """The run of this request has ended."""

    def __init__(self, outcome: Outcome) -> None:
        super().__init__(why(outcome))
        self.outcome = outcome


def arguments(value: object) -> str:
    """Returns the arguments of a call as JSON text."""
    return value if isinstance(value, str) else json.dumps(value, default=str)


def tokens_of(usage: Usage) -> dict[str, Any]:
    """Returns the counts of a response that was decoded, as `endstop.response` takes them."""
    return {
        "input_tokens": usage.input_tokens,
        "output_tokens": usage.output_tokens,
        "cached_input_tokens": usage.cached_input_tokens,
        "cache_write_tokens": usage.cache_write_tokens,
        "cache_write_1h_tokens": usage.to_dict().get("cache_write_1h_tokens"),
        "reasoning_tokens": usage.reasoning_tokens,
        "total_tokens": usage.total_tokens,
    }


def plain(value: object) -> Any:
    """Returns an answer as a JSON value: the fields of a model or a dataclass, else its text. An answer
    without a value is the text `null`, because it is an answer."""
    if value is None:
        return "null"
    try:
        return json.loads(json.dumps(value, default=_fields, allow_nan=False))
    except (TypeError, ValueError):
        # Keys that are no text, a value in itself, or a number that JSON does not have.
        return str(value)


def _fields(value: Any) -> Any:
    if isinstance(value, type):
        return str(value)
    dump = getattr(value, "model_dump", None)
    if dump is not None:
        return dump(mode="json")
    names = getattr(value, "__dataclass_fields__", None)
    return {name: getattr(value, name) for name in names} if names else str(value)


def why(outcome: Outcome) -> str:
    """Returns the ending as a message for a person."""
    return f"Endstop: {outcome.termination}: {outcome.evidence}"
