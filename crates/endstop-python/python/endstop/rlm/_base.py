"""The base classes of RLM Code's policies."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass, field
from typing import Any

__all__ = ["ActionResult", "Policy", "PolicyContext", "TerminationPolicy"]


@dataclass
class PolicyContext:
    """The state of a run around a step. Policies read it by attribute."""

    task: str = ""
    step: int = 0
    max_steps: int = 10
    history: list[dict[str, Any]] = field(default_factory=list)
    variables: dict[str, Any] = field(default_factory=dict)
    metrics: dict[str, float] = field(default_factory=dict)
    config: dict[str, Any] = field(default_factory=dict)


@dataclass
class ActionResult:
    """The result of a step. `output` may be None as well."""

    action_type: str
    success: bool
    output: str = ""
    error: str | None = None
    duration_ms: float = 0.0
    tokens_used: int = 0
    metadata: dict[str, Any] = field(default_factory=dict)


class Policy(ABC):
    """The base of all policies. `config` is the caller's dict itself: a change of it counts from the
    next step on."""

    name: str = "base"
    description: str = "Base policy"

    def __init__(self, config: dict[str, Any] | None = None) -> None:
        self.config: dict[str, Any] = config or {}

    @classmethod
    def get_default_config(cls) -> dict[str, Any]:
        """Returns the configuration that applies if nothing is configured."""
        return {}

    def validate_config(self) -> list[str]:
        """Returns the errors of the configuration."""
        return []

    def _settings(self) -> dict[str, Any]:
        return {**self.get_default_config(), **self.config}


class TerminationPolicy(Policy):
    """The base of termination policies."""

    name = "termination_base"
    description = "Base termination policy"

    @abstractmethod
    def should_terminate(self, result: Any, context: Any) -> tuple[bool, str | None]:
        """Decides about a step: True to stop, and the answer if there is one."""

    def __call__(self, step: Any, context: Any) -> tuple[bool, str | None]:
        """Judges a step of an Endstop run, which has the same attributes."""
        return self.should_terminate(step, context)
