"""Policies: built in, combined, in Python, and hostile."""

from __future__ import annotations

import functools
import operator
import pickle
import subprocess
import sys
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from conftest import chat, tool

import endstop
from endstop import Context, Run, Step, Termination, Verdict


def ends(policy: endstop.Policy | str, *responses: bytes) -> endstop.Outcome:
    """Runs a loop over scripted responses under a policy."""
    with Run(policy=policy) as run:
        for response in responses:
            if not run.go():
                break
            for call in run.turn(response).calls:
                run.result(call, "result")
    return run.finished()


def test_final_pattern_finds_the_answer() -> None:
    verdict = endstop.FINAL.should_stop("FINAL('42')")
    assert verdict and verdict.stops
    assert (verdict.answer, verdict.policy, verdict.ends_as) == ("42", "final_pattern", "submitted")
    assert not endstop.FINAL.should_stop("the FINAL answer comes later")
    assert ends("final_pattern", chat("FINAL('42')")).termination is Termination.SUBMITTED


def test_combinators() -> None:
    @endstop.policy("long")
    def long(step: Step, context: Context) -> bool:
        return len(step.output or "") > 20

    text = "FINAL('42')"
    assert (endstop.FINAL | long).should_stop(text)
    assert not (endstop.FINAL & long).should_stop(text)
    assert (endstop.FINAL & long).should_stop("It is the following: \n" + text + "\n")
    assert not (~endstop.FINAL).should_stop(text)
    assert endstop.k_of(1, [endstop.FINAL, long]).should_stop(text)
    assert not endstop.FINAL.after_steps(2).should_stop(text, Context(step=1))
    assert endstop.FINAL.after_steps(2).should_stop(text, Context(step=2))
    twice = endstop.FINAL.sustained(2)
    assert not twice.should_stop(text) and twice.should_stop(text)
    twice.reset()
    assert not twice.should_stop(text)
    with pytest.raises(endstop.ConfigError, match="expected 1 to 2"):
        endstop.k_of(3, [endstop.FINAL, long])


@pytest.mark.parametrize(
    ("returned", "stops", "answer"),
    [
        (None, False, None),
        (False, False, None),
        (True, True, None),
        ("the answer", True, "the answer"),
        ((True, "pair"), True, "pair"),
        ((False, None), False, None),
        (Verdict.stop("v", evidence="mine"), True, "v"),
        (Verdict.proceed(), False, None),
        (Verdict.tell("go on"), False, None),
    ],
)
def test_function_returns(returned: object, stops: bool, answer: str | None) -> None:
    @endstop.policy("mine")
    def mine(step: Step, context: Context) -> object:
        return returned

    verdict = mine.should_stop("text")
    assert (verdict.stops, verdict.answer) == (stops, answer)
    assert verdict.policy == ("mine" if stops else None)


def test_policy_sees_the_step() -> None:
    seen: list[tuple[object, ...]] = []

    @endstop.policy("sees", description="Looks on.")
    def sees(step: Step, context: Context) -> None:
        calls = [call.name for call in step.calls]
        results = [one["result"] for one in step.results]
        assert step.outputs == [], "what tools return is data"
        seen.append((step.output, calls, results, context.step))

    assert sees.description == "Looks on."
    ends(sees, tool(), chat("Done."))
    # A turn with tools and no text has no output of its own.
    assert seen[0][1:] == (["echo"], ["result"], 0)
    assert seen[1] == ("Done.", [], [], 1)


def test_class_has_an_instance_for_each_run() -> None:
    made = 0

    @endstop.policy("counts")
    class Counts:
        """Stops at the second step."""

        def __init__(self) -> None:
            nonlocal made
            made += 1
            self.steps = 0

        def __call__(self, step: Step, context: Context) -> str | None:
            self.steps += 1
            return "enough" if self.steps == 2 else None

    for _ in range(2):
        outcome = ends(Counts, tool(1, '{"a":1}'), tool(2, '{"a":2}'), tool(3, '{"a":3}'))
        assert (outcome.termination, outcome.turns) == (Termination.SUBMITTED, 2)
    assert made == 2


def test_policy_may_give_up() -> None:
    @endstop.policy("no")
    def no(step: Step, context: Context) -> Verdict:
        return Verdict.stop(evidence="three strikes", ends_as="error_halted")

    outcome = ends(no, tool())
    assert outcome.termination is Termination.ERROR_HALTED
    assert (outcome.evidence, outcome.decided_by["name"]) == ("three strikes", "no")
    with pytest.raises(endstop.ConfigError, match="expected one of submitted"):
        Verdict.stop(ends_as="stop")


def test_policy_that_raises_ends_the_run_typed() -> None:
    @endstop.policy("raises")
    def raises(step: Step, context: Context) -> bool:
        raise KeyError("reward of sk-abcdef1234567890")

    outcome = ends(raises, tool())
    assert outcome.termination is Termination.ERROR_DURING_EXECUTION
    assert outcome.decided_by == {
        "layer": "fault",
        "name": "raises",
        "evidence": "KeyError: 'reward of [redacted]'",
    }
    assert outcome.error_diagnostic is not None
    assert "Traceback" in outcome.error_diagnostic and "in raises" in outcome.error_diagnostic
    assert "sk-abcdef" not in outcome.to_json()
    with pytest.raises(KeyError):
        raises.should_stop("x")


def test_policy_that_returns_nonsense_ends_the_run_typed() -> None:
    @endstop.policy("odd")
    def odd(step: Step, context: Context) -> object:
        return 7

    outcome = ends(odd, tool())
    assert outcome.termination is Termination.ERROR_DURING_EXECUTION
    assert "`odd` returned `int`" in outcome.evidence


def test_answer_stands_if_the_policy_raises() -> None:
    @endstop.policy("raises")
    def raises(step: Step, context: Context) -> bool:
        raise ValueError("late")

    outcome = ends(raises, chat("The answer."))
    assert outcome.termination is Termination.STOP
    assert outcome.also == [Termination.ERROR_DURING_EXECUTION]


def test_policy_that_calls_its_run_gets_an_error() -> None:
    runs: list[Run] = []

    @endstop.policy("recursive")
    def recursive(step: Step, context: Context) -> bool:
        runs[0].turn(chat("again"))
        return False

    runs.append(Run(policy=recursive))
    with runs[0] as run:
        run.go()
        for call in run.turn(tool()).calls:
            run.result(call, "x")
    outcome = run.finished()
    assert outcome.termination is Termination.ERROR_DURING_EXECUTION
    assert "BusyError" in outcome.evidence


def test_policy_that_calls_itself_gets_an_error() -> None:
    policies: list[endstop.Policy] = []

    @endstop.policy("itself")
    def itself(step: Step, context: Context) -> bool:
        return policies[0].should_stop(step).stops

    policies.append(itself)
    with pytest.raises(endstop.BusyError):
        itself.should_stop("x")
    assert itself.name == "itself"


def test_keyboard_interrupt_in_a_policy_reaches_the_caller() -> None:
    @endstop.policy("stopped")
    def stopped(step: Step, context: Context) -> bool:
        raise KeyboardInterrupt

    run = Run(policy=stopped)
    with pytest.raises(KeyboardInterrupt), run:
        run.go()
        for call in run.turn(tool()).calls:
            run.result(call, "x")
    assert run.finished().termination is Termination.ERROR_DURING_EXECUTION


def test_specifications() -> None:
    spec = {"any": ["final_pattern", {"confidence": {"confidence_threshold": 0.9}}]}
    assert endstop.Policy(spec).specification == spec
    with pytest.raises(endstop.ConfigError, match="did you mean `final_pattern`"):
        endstop.Policy("final_patern")
    with pytest.raises(endstop.ConfigError, match="unknown key `x`"):
        endstop.Policy({"name": "final_pattern", "config": {"x": 1}})
    with pytest.raises(endstop.ConfigError, match="a name, a specification, or a function"):
        Run(policy=7)  # type: ignore[arg-type]
    with pytest.raises(endstop.ConfigError, match="callable"):
        endstop.Policy.of("x", 7)  # type: ignore[arg-type]
    assert "final_pattern" in endstop.policy_names()


def test_metrics_and_variables_reach_policies() -> None:
    with Run(policy=endstop.REWARD) as run:
        run.go()
        call = run.turn(tool()).calls[0]
        assert not run.result(call, "scored", metrics={"last_reward": 0.99})
    assert run.finished().termination is Termination.SUBMITTED
    with Run(policy=endstop.FINAL, variables={"best": "41"}) as run:
        run.go()
        run.turn(chat("FINAL_VAR(best)"))
    assert run.finished().answer == "41"


def test_notes_are_for_the_next_request() -> None:
    @endstop.policy("tells")
    def tells(step: Step, context: Context) -> Verdict:
        return Verdict.tell("use the other tool")

    for inject, notes in ((True, ["use the other tool"]), (False, [])):
        with Run(policy=tells, inject=inject) as run:
            run.go()
            for call in run.turn(tool()).calls:
                run.result(call, "x")
            assert run.go()
            assert [note for note in run.notes() if "other tool" in note] == notes
            assert run.notes() == []
            run.turn(chat("Done."))


SPEC = {"confidence": {"confidence_threshold": 0.9}}


@pytest.mark.parametrize("other", ["reward_threshold", SPEC, endstop.REWARD])
def test_operators_take_names_and_specifications(other: Any) -> None:
    text = "FINAL('42')"
    for stops in (endstop.FINAL | other, other | endstop.FINAL):
        assert stops.should_stop(text)
    for stops in (endstop.FINAL & other, other & endstop.FINAL):
        assert not stops.should_stop(text)
    assert endstop.k_of(1, [other, endstop.FINAL]).should_stop(text)


@pytest.mark.parametrize("other", [1, None, ["final_pattern"], len, object()])
@pytest.mark.parametrize("combine", [operator.or_, operator.and_])
def test_operators_refuse_other_objects(combine: Callable[..., Any], other: object) -> None:
    for pair in [(endstop.FINAL, other), (other, endstop.FINAL)]:
        with pytest.raises(TypeError, match="unsupported operand"):
            combine(*pair)
    with pytest.raises(endstop.ConfigError, match="did you mean `final_pattern`"):
        combine(endstop.FINAL, "final_patern")
    with pytest.raises(endstop.ConfigError, match="final_pattern"):
        combine({"nope": {}}, endstop.FINAL)


async def wait(step: Step, context: Context) -> bool:
    return True


async def wait_often(step: Step, context: Context) -> AsyncIterator[bool]:
    yield True


def generate(step: Step, context: Context) -> Iterator[bool]:
    yield True


class Waits:
    async def __call__(self, step: Step, context: Context) -> bool:
        return True


class Inherits(Waits):
    pass


class NeedsArgument:
    def __init__(self, most: int) -> None:
        self.most = most

    def __call__(self, step: Step, context: Context) -> bool:
        return True


class NotCallable:
    pass


@pytest.mark.parametrize(
    ("code", "fix"),
    [
        (wait, "asynchronous"),
        (wait_often, "asynchronous"),
        (functools.partial(wait), "asynchronous"),
        (Waits, "asynchronous"),
        (Waits(), "asynchronous"),
        (Inherits, "asynchronous"),
        (Waits().__call__, "asynchronous"),
        (generate, "generator"),
        (lambda step: True, r"policy\(step, context\)"),
        (lambda: True, r"policy\(step, context\)"),
        (lambda step, context, more: True, r"policy\(step, context\)"),
        (NotCallable, r"policy\(step, context\)"),
        (NeedsArgument, "without arguments"),
        (3, r"policy\(step, context\)"),
    ],
)
def test_code_that_cannot_be_a_policy_is_refused(code: Any, fix: str) -> None:
    with pytest.raises(endstop.ConfigError, match=f"`mine`.*{fix}"):
        endstop.policy("mine")(code)
    with pytest.raises(endstop.ConfigError, match=fix):
        endstop.policy(code)


@pytest.mark.parametrize(
    "code",
    [
        lambda step, context: True,
        lambda *given: True,
        lambda step, context=None, more=3: True,
        functools.partial(lambda most, step, context: True, 3),
        NeedsArgument(3),
        functools.partial(NeedsArgument, 3)(),
        max,
    ],
)
def test_other_code_is_a_policy(code: Any) -> None:
    assert endstop.policy("mine")(code).name == "mine"


@endstop.policy("named")
def named(step: Step, context: Context) -> bool:
    return "Goodbye" in (step.output or "")


def plain(step: Step, context: Context) -> bool:
    return "Goodbye" in (step.output or "")


class Counter:
    def __init__(self) -> None:
        self.steps = 0

    def __call__(self, step: Step, context: Context) -> bool:
        self.steps += 1
        return self.steps == 2


def test_decorator_without_name_takes_that_of_the_function() -> None:
    @endstop.policy
    def polite(step: Step, context: Context) -> bool:
        """Stops at a farewell."""
        return "Goodbye" in (step.output or "")

    assert (polite.name, polite.description) == ("polite", "Stops at a farewell.")
    assert ends(polite, chat("Goodbye")).decided_by["name"] == "polite"

    @endstop.policy
    class Second:
        def __call__(self, step: Step, context: Context) -> bool:
            return True

    assert isinstance(Second, endstop.Policy) and Second.name == "Second"


@pytest.mark.parametrize("code", [plain, Counter, functools.partial(plain), Counter()])
def test_run_takes_code(code: Any) -> None:
    outcome = ends(code, chat("so far", finish="tool_calls"), chat("Goodbye"))
    assert endstop.Policy(code).name in ("plain", "Counter", "partial")
    assert outcome.turns <= 2
    with pytest.raises(endstop.ConfigError, match="asynchronous"):
        Run(policy=wait)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "policy",
    [
        endstop.FINAL,
        endstop.Policy(SPEC),
        endstop.Policy(named),
        endstop.Policy(plain),
        endstop.FINAL | "reward_threshold",
        "reward_threshold" | endstop.FINAL,
        ~endstop.FINAL & SPEC,
        endstop.FINAL.after_steps(2).sustained(3),
        endstop.k_of(1, [endstop.FINAL, "reward_threshold"]),
        named,
        named | endstop.FINAL,
        (~named).sustained(2) & endstop.k_of(1, [named]),
        endstop.Policy.of("plain", plain),
        endstop.policy("counter")(Counter) | named,
    ],
)
def test_policies_survive_pickling(policy: endstop.Policy) -> None:
    again = pickle.loads(pickle.dumps(policy))
    assert (again.name, again.description) == (policy.name, policy.description)
    assert again.specification == policy.specification
    for text in ("FINAL('42')", "Goodbye", "so far"):
        for step in range(4):
            both = [one.should_stop(text, Context(step=step)) for one in (policy, again)]
            assert both[0] == both[1]
    # A pickled policy has no state, as a copy of a run.
    fresh = pickle.loads(pickle.dumps(policy))
    policy.reset()
    assert fresh.should_stop("FINAL('42')") == policy.should_stop("FINAL('42')")
    policy.reset()


def test_code_without_a_name_cannot_be_pickled() -> None:
    local = endstop.policy("local")(lambda step, context: True)
    for policy in (local, local | endstop.FINAL):
        with pytest.raises((pickle.PicklingError, AttributeError)):
            pickle.dumps(policy)


def test_policies_go_to_spawned_workers(tmp_path: Path) -> None:
    program = tmp_path / "program.py"
    program.write_text(
        """
import multiprocessing
import endstop

@endstop.policy("polite")
def polite(step: endstop.Step, context: endstop.Context) -> bool:
    return "Goodbye" in (step.output or "")

def work(policy: endstop.Policy) -> tuple[endstop.Verdict, endstop.Turn]:
    with endstop.Run(policy=policy) as run:
        run.go()
        turn = run.turn({"choices": [{"message": {"content": "Goodbye"}, "finish_reason": "stop"}]})
    return policy.should_stop("Goodbye"), turn

if __name__ == "__main__":
    with multiprocessing.get_context("spawn").Pool(1) as pool:
        for verdict, turn in pool.map(work, [polite | endstop.FINAL, polite]):
            print(verdict.stops, turn.outcome.decided_by["name"])
"""
    )
    done = subprocess.run(
        [sys.executable, str(program)], capture_output=True, text=True, timeout=60
    )
    assert done.stdout.splitlines() == ["True polite"] * 2, done.stderr
