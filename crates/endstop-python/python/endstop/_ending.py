"""Reports the ending of a run: to the logger `endstop`, and to the current span of OpenTelemetry.

A report has neither text of the model nor evidence, which may quote it. The attributes have the names of
the spans that `endstop run` exports.
"""

from __future__ import annotations

import sys
from typing import Any

from endstop._endstop import Outcome
from endstop._enums import Termination

__all__ = ["report"]

WANTED = (Termination.CANCELLED, Termination.TERMINATED)
"""Endings that the program asked for, which are not failures of the run."""


def report(outcome: Outcome) -> None:
    """Reports an ending. The compiled half calls this once for each run."""
    known = attributes(outcome)
    if (logging := sys.modules.get("logging")) is not None:
        _log(logging, outcome, known)
    if (trace := sys.modules.get("opentelemetry.trace")) is not None:
        span = trace.get_current_span()
        if span.is_recording():
            span.set_attributes(known)


def attributes(outcome: Outcome) -> dict[str, str | int | float | bool]:
    """Returns the attributes of an ending."""
    by = outcome.decided_by
    known: dict[str, str | int | float | bool] = {
        "endstop.termination": str(outcome.termination),
        "endstop.category": str(outcome.category),
        "endstop.decided_by": f"{by['layer']}:{by['name']}",
        "endstop.turns": outcome.turns,
        "endstop.model_calls": outcome.model_calls,
        "endstop.tool_calls": outcome.tool_calls,
    }
    if outcome.cost_usd is not None:
        known["endstop.cost_usd"] = outcome.cost_usd
    if outcome.cost_unknown:
        known["endstop.cost_unknown"] = True
    if not outcome.is_success:
        known["error.type"] = str(outcome.termination)
    return known


def _cost(outcome: Outcome) -> str:
    if outcome.cost_usd is None:
        return "unknown cost"
    return f"${outcome.cost_usd:.6f}{' or more' if outcome.cost_unknown else ''}"


def _log(logging: Any, outcome: Outcome, known: dict[str, str | int | float | bool]) -> None:
    logger = logging.getLogger("endstop")
    if not logger.handlers:
        # Without a handler, Python prints warnings of a library that the program did not ask for.
        logger.addHandler(logging.NullHandler())
    is_failure = not outcome.is_success and outcome.termination not in WANTED
    logger.log(
        logging.WARNING if is_failure else logging.INFO,
        "run ended: %s (%s), %d turns, %s",
        outcome.termination,
        outcome.category,
        outcome.turns,
        _cost(outcome),
        extra={name.replace(".", "_"): value for name, value in known.items()},
    )
