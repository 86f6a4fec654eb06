"""The built-in policies, and the decorator for custom ones.

>>> policy = endstop.FINAL | endstop.REWARD
>>> @endstop.policy("polite")
... def polite(step, context):
...     return "Goodbye" in (step.output or "")
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from endstop._endstop import Policy

__all__ = ["CONFIDENCE", "FINAL", "REWARD", "policy"]

FINAL = Policy("final_pattern")
"""Stops at an answer that the model declares: `FINAL(…)`, `FINAL_VAR(name)`, `SUBMIT(key=value)`."""

REWARD = Policy("reward_threshold")
"""Stops when the metric `last_reward`, or the sum of rewards, reaches a threshold."""

CONFIDENCE = Policy("confidence")
"""Stops at an answer whose confidence reaches a threshold."""


def policy(name: str, *, description: str = "") -> Callable[[Callable[..., Any]], Policy]:
    """Makes a policy of a function `(step, context)`, or of a class whose instances are called so.

    The function returns None or False to continue, True or the answer to stop, or a
    `endstop.Verdict`. Each run has its own instance of a class. An exception ends the run as
    `error_during_execution`, with the traceback in the outcome's `error_diagnostic`.
    """

    def wrap(code: Callable[..., Any]) -> Policy:
        text = description or (code.__doc__ or "").strip().partition("\n")[0]
        return Policy.of(name, code, text)

    return wrap
