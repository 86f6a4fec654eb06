"""The exceptions of the package.

How a run ended is an `Outcome` and never an exception, except through `Outcome.check`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from endstop._endstop import Outcome

__all__ = [
    "BusyError",
    "ConfigError",
    "EndstopError",
    "FormatError",
    "MergeError",
    "Unsuccessful",
    "VersionError",
]


class EndstopError(Exception):
    """The base of the exceptions of this package."""


class ConfigError(EndstopError, ValueError):
    """An invalid limit, policy, price or argument. The message names it, and the choices."""


class FormatError(EndstopError, ValueError):
    """A response in an unknown or ambiguous format; pass `api`."""


class MergeError(EndstopError, ValueError):
    """Counts that cannot be merged: of another version, with other settings, or damaged."""


class BusyError(EndstopError, RuntimeError):
    """An object that another call is using: a second thread, or a policy that calls its own run."""


class VersionError(EndstopError, ImportError):
    """A framework that is missing, or whose version the adapter does not support."""


class Unsuccessful(EndstopError):
    """A run that did not succeed, from `Outcome.check`. The attribute `outcome` has the outcome."""

    def __init__(self, outcome: Outcome) -> None:
        super().__init__(f"the run ended as {outcome}")
        self.outcome = outcome

    def __reduce__(self) -> tuple[type[Unsuccessful], tuple[Outcome]]:
        return (Unsuccessful, (self.outcome,))
