"""The termination policies of RLM Code, by their own names, on Endstop's scanner.

A program changes its import, and nothing else:

```python
from endstop.rlm import FinalPatternTerminationPolicy, PolicyRegistry   # was rlm_code.rlm.policies
```

or keeps RLM Code, and puts these classes into its registry; RLM Code's `composite` then uses them:

```python
from rlm_code.rlm.policies import PolicyRegistry
endstop.rlm.install(PolicyRegistry)
```

The results are those of RLM Code 0.1.13, except for the departures:

- `final_pattern` runs its patterns in linear time; one that cannot is a `ValueError`. With
  `matching="call"` it uses Endstop's scanner instead, which reads nested brackets and strings, ignores
  code blocks and prose, and finds the first declaration.
- `reward_threshold` meets its threshold within 1e-9, also checks the negative streak while it waits
  for a final action, and gives no answer for a streak.
- `confidence` reads numbers in text ("0.9", "90%"), ignores what is outside of 0 to 1, and lets a
  final action end a run before the minimum of steps.
- `composite` raises `ValueError` for an unknown member, instead of dropping it.

The registry is process-wide and replaces names silently, and unknown keys of a configuration are
ignored, because programs rely on both. A policy of this module is one of Endstop as well:
`endstop.policy("mine")(policy)` makes it one.
"""

from __future__ import annotations

from typing import Any

from endstop.rlm._base import ActionResult, Policy, PolicyContext, TerminationPolicy
from endstop.rlm._policies import (
    CompositeTerminationPolicy,
    ConfidenceTerminationPolicy,
    FinalPatternTerminationPolicy,
    RewardThresholdTerminationPolicy,
)
from endstop.rlm._registry import PolicyRegistry

__all__ = [
    "ActionResult",
    "CompositeTerminationPolicy",
    "ConfidenceTerminationPolicy",
    "FinalPatternTerminationPolicy",
    "Policy",
    "PolicyContext",
    "PolicyRegistry",
    "RewardThresholdTerminationPolicy",
    "TerminationPolicy",
    "install",
]


def install(registry: Any) -> None:
    """Registers the policies of this module, except `composite`, in the registry of RLM Code."""
    for policy in (
        FinalPatternTerminationPolicy,
        RewardThresholdTerminationPolicy,
        ConfidenceTerminationPolicy,
    ):
        registry.register_termination(policy.name)(policy)
