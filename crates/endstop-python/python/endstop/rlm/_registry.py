"""The process-wide registry of termination policies, as RLM Code has it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

from endstop.rlm._base import Policy, TerminationPolicy

__all__ = ["PolicyRegistry"]

Class = TypeVar("Class", bound=type[TerminationPolicy])


class PolicyRegistry:
    """Termination policies by name. The sections of RLM Code for rewards, actions and compaction are
    not part of it; `create_from_config` ignores them."""

    _termination_policies: dict[str, type[TerminationPolicy]] = {}
    _default_termination: str = "final_pattern"

    @classmethod
    def register_termination(cls, name: str | None = None) -> Callable[[Class], Class]:
        """Registers a class under a name, or under its own; replaces an earlier one silently."""

        def decorator(policy: Class) -> Class:
            cls._termination_policies[name or policy.name] = policy
            return policy

        return decorator

    @classmethod
    def get_termination(
        cls, name: str | None = None, config: dict[str, Any] | None = None
    ) -> TerminationPolicy:
        """Returns a new instance; without a name, of the default policy."""
        chosen = name or cls._default_termination
        if chosen not in cls._termination_policies:
            available = ", ".join(cls._termination_policies)
            raise ValueError(f"Unknown termination policy '{chosen}'. Available: {available}")
        return cls._termination_policies[chosen](config)

    @classmethod
    def list_termination_policies(cls) -> list[dict[str, str]]:
        """Returns the names and the descriptions, in the order of registration."""
        return [
            {"name": name, "description": policy.description}
            for name, policy in cls._termination_policies.items()
        ]

    @classmethod
    def set_default_termination(cls, name: str) -> None:
        """Makes a registered policy the default."""
        if name not in cls._termination_policies:
            raise ValueError(f"Unknown termination policy: {name}")
        cls._default_termination = name

    @classmethod
    def create_from_config(cls, config: dict[str, Any]) -> dict[str, Policy]:
        """Makes the policies of a configuration `{"termination": {"name": …, "config": …}}`."""
        policies: dict[str, Policy] = {}
        if "termination" in config:
            section = config["termination"]
            policies["termination"] = cls.get_termination(
                section.get("name"), section.get("config")
            )
        return policies
