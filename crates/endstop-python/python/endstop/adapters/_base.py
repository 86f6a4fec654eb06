"""What the adapters share: the making of runs, and the rule when to stop."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any, NamedTuple, cast

from endstop import Call, Detection, Limits, Outcome, Policy, Price, Run

__all__ = ["Fed", "Settings", "arguments", "feed", "feed_failure", "why"]


@dataclass(frozen=True)
class Settings:
    """The settings of the runs of an adapter, which it makes as the framework starts them."""

    policy: Policy | str | dict[str, Any] | None = None
    model: str | None = None
    price: Price | str | None = None
    task: str = ""
    limits: dict[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        # An invalid limit is an error where the user wrote it, and not at the first run.
        self.run()

    def run(self, task: str = "") -> Run:
        """Makes a run."""
        return Run(
            limits=cast(Limits, self.limits),
            policy=self.policy,
            model=self.model,
            price=self.price,
            task=task or self.task,
        )


class Fed(NamedTuple):
    """What a framework must do after a response."""

    stopped: Outcome | None
    """The outcome, if the framework must stop."""
    held_back: tuple[Call, ...]
    """The calls that must not run if it continues, because they are cut."""


def feed(run: Run, responses: Iterable[Detection]) -> Fed:
    """Feeds the responses of one model call to a run: failed attempts, and then the last one.

    The framework must stop if the run has ended, and if the response is neither an answer nor a
    request for tools. It would take such a response for an answer, or run a tool with half of its
    arguments.
    """
    *failed, last = responses
    for attempt in failed:
        if attempt.error is not None:
            run.turn(attempt)
    turn = run.turn(last)
    if turn.outcome is not None:
        return Fed(turn.outcome, turn.held_back)
    if turn.ending is not None and not _is_success(turn.ending):
        return Fed(run.close(), turn.held_back)
    return Fed(None, turn.held_back)


def feed_failure(run: Run, problem: Exception, seen: Iterable[Detection] = ()) -> None:
    """Feeds the exception of a model call. `seen` are the responses that the tap saw for it: a stream
    that broke was paid for until then, and only its bytes say how much that was."""
    attempts = list(seen)
    last = attempts.pop() if attempts else None
    for attempt in attempts:
        if attempt.error is not None:
            run.turn(attempt)
    if last is not None and last.error is not None and (last.text or last.calls):
        run.turn(last)
    else:
        run.failed(problem)


def _is_success(ending: str) -> bool:
    return ending in ("stop", "submitted")


def arguments(value: object) -> str:
    """Returns the arguments of a call as JSON text."""
    return value if isinstance(value, str) else json.dumps(value, default=str)


def why(outcome: Outcome) -> str:
    """Returns the ending as a message for a person."""
    return f"Endstop: {outcome.termination}: {outcome.evidence}"
