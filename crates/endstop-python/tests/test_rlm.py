"""`endstop.rlm` over the conformance vectors, and RLM Code itself where it is installed."""

from __future__ import annotations

import importlib.util
import json
from collections.abc import Iterator
from decimal import Decimal
from fractions import Fraction
from pathlib import Path
from typing import Any

import pytest

import endstop
from endstop import rlm

VECTORS = Path(__file__).resolve().parents[3] / "testdata" / "conformance"
FILES = [
    "policy_final_pattern_regex",
    "policy_final_pattern_call",
    "policy_reward_threshold",
    "policy_confidence",
    "policy_composite",
]


def cases(name: str) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = json.loads((VECTORS / f"{name}.json").read_text())["cases"]
    return found


def answers(registry: Any, module: Any, case: dict[str, Any]) -> list[dict[str, Any] | None]:
    """Feeds the lines of a case to one instance of a policy."""
    config = dict(case["config"])
    if case["id"].startswith("fc-") and case["policy"] == "final_pattern":
        config.setdefault("matching", "call")
    policy = registry.get_termination(case["policy"], config)
    found: list[dict[str, Any] | None] = []
    for line in case["lines"]:
        if line.get("reset"):
            getattr(policy, "reset", lambda: None)()
            found.append(None)
            continue
        result = module.ActionResult(**line["result"])
        given = line["context"]
        known = {
            name: given[name] for name in ("task", "step", "variables", "metrics") if name in given
        }
        stops, answer = policy.should_terminate(result, module.PolicyContext(**known))
        found.append({"terminate": stops, "answer": answer})
    return found


@pytest.mark.parametrize("name", FILES)
def test_vectors(name: str) -> None:
    wrong = {}
    for case in cases(name):
        got = answers(rlm.PolicyRegistry, rlm, case)
        if got != case["expect"]:
            wrong[case["id"]] = (got, case["expect"])
    assert wrong == {}


@pytest.fixture
def registry() -> Iterator[type[rlm.PolicyRegistry]]:
    """The registry, whose process-wide state is restored."""
    before = dict(rlm.PolicyRegistry._termination_policies)
    yield rlm.PolicyRegistry
    rlm.PolicyRegistry._termination_policies = before
    rlm.PolicyRegistry._default_termination = "final_pattern"


# Sections of RLM Code that Endstop does not have.
OTHER_SECTIONS = {"rg-040-all-sections"}


@pytest.mark.parametrize("case", cases("policies_registry"), ids=lambda case: case["id"])
def test_registry_vectors(case: dict[str, Any], registry: type[rlm.PolicyRegistry]) -> None:
    if case["id"] in OTHER_SECTIONS:
        pytest.skip("RLM Code's rewards are not part of endstop.rlm")
    found = []
    for step in case["input"]:
        try:
            found.append(perform(step, registry))
        except (ValueError, AttributeError) as problem:
            found.append({"raises": type(problem).__name__, "message": str(problem)})
    assert found == case["expect"]


def perform(step: dict[str, Any], registry: type[rlm.PolicyRegistry]) -> dict[str, Any]:
    name = step.get("name")
    match step["op"]:
        case "list":
            return {"list": registry.list_termination_policies()}
        case "list_names":
            return {"names": [row["name"] for row in registry.list_termination_policies()]}
        case "get":
            policy = registry.get_termination(name, step.get("config"))
            return {"class_name": policy.name, "config": policy.config}
        case "set_default":
            registry.set_default_termination(name or "")
            return {"default": name}
        case "register":
            made = type("Made", (rlm.FinalPatternTerminationPolicy,), {"name": step["class_name"]})
            assert registry.register_termination(name)(made) is made
            return {"registered": name or step["class_name"]}
        case "create_from_config":
            made_policies = registry.create_from_config(step["config"])
            created = {
                section: {"name": policy.name, "config": policy.config}
                for section, policy in made_policies.items()
            }
            return {"created": created}
        case "defaults":
            return {
                "default_config": registry._termination_policies[name or ""].get_default_config()
            }
    raise AssertionError(step)


def test_config_is_kept_by_reference_and_read_at_every_step() -> None:
    config: dict[str, Any] = {"unknown": 1}
    policy = rlm.FinalPatternTerminationPolicy(config)
    step, context = rlm.ActionResult("code", True, "FINAL('42')"), rlm.PolicyContext()
    assert policy.config is config
    assert policy.should_terminate(step, context) == (True, "42")
    config["extract_answer"] = False
    assert policy.should_terminate(step, context) == (True, "FINAL('42')")
    config["final_patterns"] = [r"DONE\((\d+)\)"]
    assert policy.should_terminate(step, context) == (False, None)


def test_reward_state_is_readable() -> None:
    policy = rlm.RewardThresholdTerminationPolicy()
    context = rlm.PolicyContext(metrics={"last_reward": -0.5})
    for _ in range(2):
        assert policy.should_terminate(rlm.ActionResult("code", True, ""), context) == (False, None)
    assert (policy._cumulative_reward, policy._negative_streak) == (-1.0, 2)
    assert policy.should_terminate(rlm.ActionResult("code", True, ""), context) == (True, None)
    policy.reset()
    assert (policy._cumulative_reward, policy._negative_streak) == (0.0, 0)


def test_pattern_that_is_not_linear_is_an_error() -> None:
    policy = rlm.FinalPatternTerminationPolicy({"final_patterns": [r"(FINAL)\1"]})
    with pytest.raises(ValueError, match="pattern"):
        policy.should_terminate(rlm.ActionResult("code", True, "x"), rlm.PolicyContext())


def test_unknown_member_is_an_error() -> None:
    with pytest.raises(ValueError, match="Unknown termination policy 'finall'"):
        rlm.CompositeTerminationPolicy({"policies": ["finall"]})


def test_policy_of_rlm_in_a_run() -> None:
    policy = endstop.policy("rlm")(rlm.FinalPatternTerminationPolicy())
    with endstop.Run(policy=policy) as run:
        run.go()
        run.turn(endstop.response("FINAL('42')", finish="stop"))
    assert run.finished().answer == "42"


@pytest.mark.skipif(
    importlib.util.find_spec("rlm_code") is None, reason="rlm-code is not installed"
)
class TestOriginal:
    """RLM Code itself, next to `endstop.rlm`."""

    # The cases in which Endstop departs: quirks of the original, and rules of Endstop's own.
    def test_same_results_but_for_departures(self) -> None:
        from rlm_code.rlm.policies import PolicyRegistry, base

        compared = different = 0
        for name in FILES:
            if name == "policy_final_pattern_call":
                continue
            for case in cases(name):
                try:
                    theirs = answers(PolicyRegistry, base, case)
                except TypeError:
                    # A value that the original cannot compare.
                    theirs = []
                ours = answers(rlm.PolicyRegistry, rlm, case)
                compared += 1
                if theirs != ours:
                    different += 1
                    assert ours == case["expect"], case["id"]
                    print(f"{case['id']}: RLM Code {theirs}, Endstop {ours}")
        print(f"{compared} cases, {different} departures")
        assert compared > 100 and different <= 10

    def test_their_composite_uses_our_scanner(self) -> None:
        from rlm_code.rlm.policies import PolicyRegistry, base
        from rlm_code.rlm.policies.termination_policies import CompositeTerminationPolicy

        before = dict(PolicyRegistry._termination_policies)
        try:
            rlm.install(PolicyRegistry)
            composite = CompositeTerminationPolicy()
            kinds = [type(policy) for policy in composite._sub_policies]
            assert kinds[0] is rlm.FinalPatternTerminationPolicy
            result = base.ActionResult(action_type="code", success=True, output="FINAL('42')")
            assert composite.should_terminate(result, base.PolicyContext()) == (True, "42")
        finally:
            PolicyRegistry._termination_policies = before


class _Scalar:
    """A number as NumPy and PyTorch have them."""

    def __float__(self) -> float:
        return 0.9


@pytest.mark.parametrize(
    ("reward", "stops"),
    [
        (0.9, True),
        (1, True),
        (Decimal("0.9"), True),
        (Fraction(9, 10), True),
        (_Scalar(), True),
        ("0.9", True),
        ("good", False),
        (True, False),
        (None, False),
        (float("nan"), False),
        (float("inf"), False),
    ],
)
def test_rewards_of_any_number_type_count(reward: object, stops: bool) -> None:
    policy = rlm.RewardThresholdTerminationPolicy()
    context = rlm.PolicyContext(metrics={"last_reward": reward})
    step = rlm.ActionResult("code", True, "text")
    assert policy.should_terminate(step, context)[0] is stops
