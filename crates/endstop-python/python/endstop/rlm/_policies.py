"""The termination policies of RLM Code."""

from __future__ import annotations

import json
import math
from typing import Any

import endstop
from endstop import Context, Step
from endstop.rlm._base import TerminationPolicy
from endstop.rlm._registry import PolicyRegistry

__all__ = [
    "CompositeTerminationPolicy",
    "ConfidenceTerminationPolicy",
    "FinalPatternTerminationPolicy",
    "RewardThresholdTerminationPolicy",
]

# Distance below a threshold at which a sum of decimal fractions still meets it.
_TOLERANCE = 1e-9


class _OfKernel(TerminationPolicy):
    """A policy that the kernel has. It is built anew if the configuration has changed."""

    # The keys that the kernel knows. Others are ignored, as RLM Code does.
    _known: tuple[str, ...] = ()

    def __init__(self, config: dict[str, Any] | None = None) -> None:
        super().__init__(config)
        self._built: endstop.Policy | None = None
        self._built_of = ""

    def _kernel_config(self, settings: dict[str, Any]) -> dict[str, Any]:
        return {name: settings[name] for name in self._known if name in settings}

    def _policy(self, settings: dict[str, Any]) -> endstop.Policy:
        config = self._kernel_config(settings)
        # Text, because the caller may change a list in its configuration.
        text = json.dumps(config)
        if self._built is None or self._built_of != text:
            self._built = endstop.Policy({"name": self.name, "config": config})
            self._built_of = text
        return self._built

    def _judge(
        self, settings: dict[str, Any], result: Any, context: Any
    ) -> tuple[bool, str | None]:
        output = result.output
        step = Step(
            output,
            action_type=result.action_type,
            success=bool(getattr(result, "success", True)),
            metadata=getattr(result, "metadata", None) or {},
        )
        # Only variables that the text can name are passed on: there may be megabytes of others.
        text = output or ""
        # RLM Code answers with `str(value)`, Endstop's scanner with JSON.
        as_json = settings.get("matching") == "call"
        variables = {
            name: value if isinstance(value, str) or as_json else str(value)
            for name, value in context.variables.items()
            if name in text
        }
        around = Context(task=context.task, step=context.step, variables=variables)
        verdict = self._policy(settings).should_stop(step, around)
        return verdict.stops, verdict.answer


@PolicyRegistry.register_termination("final_pattern")
class FinalPatternTerminationPolicy(_OfKernel):
    """Stops at an answer that the text declares. `matching="call"` selects Endstop's scanner."""

    name = "final_pattern"
    description = "Detect FINAL()/FINAL_VAR() patterns (paper-compliant)"
    _known = ("matching", "case_sensitive", "extract_answer", "scope", "pick")

    @classmethod
    def get_default_config(cls) -> dict[str, Any]:
        return {
            "final_patterns": [
                r"FINAL\s*\(\s*['\"](.+?)['\"]\s*\)",
                r"FINAL\s*\(\s*(.+?)\s*\)",
                r"FINAL_VAR\s*\(\s*['\"](\w+)['\"]\s*\)",
            ],
            "case_sensitive": False,
            "extract_answer": True,
        }

    def _kernel_config(self, settings: dict[str, Any]) -> dict[str, Any]:
        if settings.get("matching") == "call":
            config = super()._kernel_config(settings)
            # RLM Code's default, which is meant for its patterns.
            if "case_sensitive" not in self.config:
                del config["case_sensitive"]
            return config
        return {
            "matching": "regex",
            "lenient": True,
            "final_patterns": settings["final_patterns"],
            "case_sensitive": bool(settings["case_sensitive"]),
            "extract_answer": bool(settings["extract_answer"]),
        }

    def should_terminate(self, result: Any, context: Any) -> tuple[bool, str | None]:
        return self._judge(self._settings(), result, context)


def _number(reward: Any) -> float:
    """Returns a reward of any number type (NumPy's, a tensor of one element, `Decimal`) or a string that
    contains one. As in the kernel, anything else is not a reward."""
    if isinstance(reward, bool):
        return 0.0
    try:
        number = float(reward)
    except (TypeError, ValueError, OverflowError, RuntimeError):
        return 0.0
    return number if math.isfinite(number) else 0.0


@PolicyRegistry.register_termination("reward_threshold")
class RewardThresholdTerminationPolicy(TerminationPolicy):
    """Stops when the sum of `metrics["last_reward"]` reaches a threshold, and gives up after a streak
    of negative rewards."""

    # The sum is kept in Python, and not in the kernel's policy, because subclasses of RLM Code read
    # and set it, and because the configuration may change between steps.

    name = "reward_threshold"
    description = "Stop when reward reaches threshold"

    @classmethod
    def get_default_config(cls) -> dict[str, Any]:
        return {
            "min_reward_threshold": 0.8,
            "max_negative_streak": 3,
            "require_final_action": False,
        }

    def __init__(self, config: dict[str, Any] | None = None) -> None:
        super().__init__(config)
        self._cumulative_reward = 0.0
        self._negative_streak = 0

    def should_terminate(self, result: Any, context: Any) -> tuple[bool, str | None]:
        settings = self._settings()
        reward = _number(context.metrics.get("last_reward", 0.0))
        self._cumulative_reward += reward
        self._negative_streak = self._negative_streak + 1 if reward < 0 else 0
        waits = settings["require_final_action"] and result.action_type != "final"
        threshold = settings["min_reward_threshold"] - _TOLERANCE
        if self._cumulative_reward >= threshold and not waits:
            reached = f"Reward threshold reached: {self._cumulative_reward:.2f}"
            return True, result.output or reached
        most = settings["max_negative_streak"]
        return most is not None and self._negative_streak >= most, None

    def reset(self) -> None:
        """Resets the sum and the streak."""
        self._cumulative_reward = 0.0
        self._negative_streak = 0


@PolicyRegistry.register_termination("confidence")
class ConfidenceTerminationPolicy(_OfKernel):
    """Stops when the confidence in the step's metadata reaches a threshold."""

    name = "confidence"
    description = "Stop when model confidence exceeds threshold"
    _known = ("confidence_threshold", "min_steps_before_termination", "confidence_key")

    @classmethod
    def get_default_config(cls) -> dict[str, Any]:
        return {
            "confidence_threshold": 0.85,
            "min_steps_before_termination": 2,
            "confidence_key": "confidence",
            "fallback_to_final_pattern": True,
        }

    def _kernel_config(self, settings: dict[str, Any]) -> dict[str, Any]:
        # The fallback of the kernel is its scanner; RLM Code's are the patterns.
        return {**super()._kernel_config(settings), "fallback_to_final_pattern": False}

    def should_terminate(self, result: Any, context: Any) -> tuple[bool, str | None]:
        settings = self._settings()
        stops, answer = self._judge(settings, result, context)
        early = context.step < settings["min_steps_before_termination"]
        if stops or (early and result.action_type != "final"):
            return stops, answer
        if settings["fallback_to_final_pattern"]:
            return FinalPatternTerminationPolicy().should_terminate(result, context)
        return False, None


@PolicyRegistry.register_termination("composite")
class CompositeTerminationPolicy(TerminationPolicy):
    """Stops when any of its members does, or all of them. Each member sees every step. A member is a
    name, or `{"name": …, "config": …}`."""

    name = "composite"
    description = "Combine multiple termination policies (OR logic)"

    @classmethod
    def get_default_config(cls) -> dict[str, Any]:
        return {"policies": ["final_pattern", "reward_threshold"], "require_all": False}

    def __init__(self, config: dict[str, Any] | None = None) -> None:
        super().__init__(config)
        self._sub_policies: list[TerminationPolicy] = []
        self._init_sub_policies()

    def _init_sub_policies(self) -> None:
        for member in self._settings().get("policies", []):
            if isinstance(member, str):
                self._sub_policies.append(PolicyRegistry.get_termination(member))
            else:
                name, config = member.get("name"), member.get("config")
                self._sub_policies.append(PolicyRegistry.get_termination(name, config))

    def should_terminate(self, result: Any, context: Any) -> tuple[bool, str | None]:
        results = [policy.should_terminate(result, context) for policy in self._sub_policies]
        if self._settings().get("require_all", False):
            if not results or not all(stops for stops, _ in results):
                return False, None
            return True, next((answer for _, answer in results if answer), None)
        return next(((True, answer) for stops, answer in results if stops), (False, None))

    def reset(self) -> None:
        """Resets the members that have a state."""
        for policy in self._sub_policies:
            reset = getattr(policy, "reset", None)
            if reset is not None:
                reset()
