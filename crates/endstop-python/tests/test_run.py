"""Runs: endings, limits, cancellation, and misuse."""

from __future__ import annotations

import asyncio
import json
import math
import os
import pickle
import subprocess
import sys
import threading
import time
from datetime import timedelta
from typing import Any

import pytest
from conftest import Clock, chat, tool

import endstop
from endstop import Category, Outcome, Run, Termination


def loop(run: Run, *responses: bytes) -> int:
    """Runs a plain loop over scripted responses, the last of them for ever; returns its calls."""
    made = 0
    while run.go():
        made += 1
        for call in run.turn(responses[min(made, len(responses)) - 1]).calls:
            run.result(call, f"result {made}")
    return made


def test_plain_loop_ends_with_its_answer() -> None:
    with Run() as run:
        assert loop(run, tool(), chat("All done.")) == 2
    outcome = run.finished()
    assert outcome.termination is Termination.STOP
    assert outcome.category is Category.SUCCESS and outcome.is_success
    assert outcome.answer == "All done."
    assert (outcome.turns, outcome.tool_calls, outcome.model_calls) == (2, 1, 2)
    assert outcome.check() == outcome


@pytest.mark.parametrize(
    ("response", "ending"),
    [
        (chat("The capital", finish="length"), Termination.ERROR_OUTPUT_TRUNCATED),
        (chat("The", finish="content_filter"), Termination.ERROR_CONTENT_FILTERED),
        (chat("The capital", finish=None), Termination.ERROR_DURING_EXECUTION),
        (chat("The capital", finish="weird"), Termination.ERROR_DURING_EXECUTION),
        (tool(arguments='{"te', finish="length"), Termination.ERROR_OUTPUT_TRUNCATED),
        (b"", Termination.ERROR_DURING_EXECUTION),
    ],
)
def test_defect_is_not_a_success(response: bytes, ending: Termination) -> None:
    with Run() as run:
        assert loop(run, response) == 1
    assert run.finished().termination is ending
    with pytest.raises(endstop.Unsuccessful) as caught:
        run.finished().check()
    assert caught.value.outcome == run.outcome
    assert pickle.loads(pickle.dumps(caught.value)).outcome == run.outcome


def test_loop_of_equal_calls_ends() -> None:
    def repeat(run: Run) -> int:
        made = 0
        while run.go():
            made += 1
            for call in run.turn(tool(made)).calls:
                run.result(call, "same")
        return made

    with Run() as run:
        made = repeat(run)
    outcome = run.finished()
    assert outcome.termination is Termination.ERROR_NO_PROGRESS
    assert made <= 5
    assert outcome.no_progress is not None and outcome.no_progress["calls"][0]["name"] == "echo"


def test_limits_end_runs(clock: Clock) -> None:
    with Run(limits={"max_turns": 3}) as run:
        assert loop(run, tool()) == 3
    assert run.finished().termination is Termination.ERROR_MAX_TURNS
    with Run(limits={"max_tokens": 400, "max_turns": None}) as run:
        assert loop(run, tool()) == 3
    assert run.finished().termination is Termination.ERROR_MAX_TOKENS
    with Run(limits={"max_budget_usd": 0.01}, price="in=10,out=60", task="go") as run:
        loop(run, tool())
    assert run.finished().termination is Termination.ERROR_MAX_BUDGET_USD
    for limit in ("90s", timedelta(seconds=90)):
        with Run(limits={"timeout": limit}, clock=clock) as run:
            assert run.go()
            run.turn(tool())
            clock.now += 91
            assert not run.go()
        assert run.finished().termination is Termination.ERROR_TIMEOUT
    assert run.finished().duration == pytest.approx(91)


def test_unknown_limit_names_the_nearest() -> None:
    with pytest.raises(endstop.ConfigError, match="did you mean `max_turns`"):
        Run(limits={"max_turn": 3})
    with pytest.raises(endstop.ConfigError, match="max_turns"):
        Run(limits={"max_turns": "many"})
    assert "max_turns" in endstop.limit_names()
    assert endstop.default_limits()["max_turns"] == 25


def test_limit_without_effect_is_refused() -> None:
    for name, value in {"turn_timeout": "5m", "verify_rounds": 3, "wrap_up": True}.items():
        with pytest.raises(endstop.ConfigError, match=f"`{name}`: has no effect"):
            Run(limits={name: value})
    run = Run(limits={"max_retries": 0, "verify_rounds": None})
    with run, pytest.raises(endstop.ConfigError, match="max_continuations"):
        run.set_limits({"max_continuations": 1})
    Run(limits={"max_continuations": 1}, inject=True)


def test_cost_of_an_unknown_model_is_none() -> None:
    with Run() as run:
        assert run.cost_usd == 0
        loop(run, chat("Hi", model="unheard-of"))
        assert run.cost_usd is None
    outcome = run.finished()
    assert outcome.cost_usd is None and outcome.cost_unknown
    assert json.loads(outcome.to_json())["cost_usd"] is None


def test_price_follows_the_model_that_answered() -> None:
    with Run() as run:
        loop(run, chat("Hi"))
    outcome = run.finished()
    price = endstop.price("openai/gpt-4o-mini")
    assert price is not None
    assert outcome.cost_usd == pytest.approx(price.cost(100, 50))
    assert not outcome.cost_unknown


def test_outcome_is_true_like_any_object() -> None:
    with Run() as run:
        assert not run.outcome
        loop(run, chat("Hel", finish="length"))
    # The idiom for something that may be missing, also after a failure.
    assert run.outcome and bool(run.finished())
    assert not run.outcome.is_success


def test_outcome_survives_pickling_and_json() -> None:
    with Run(limits={"max_turns": 2}) as run:
        loop(run, tool())
    outcome = run.finished()
    assert pickle.loads(pickle.dumps(outcome)) == outcome
    assert endstop.Outcome.from_json(outcome.to_json()) == outcome
    assert json.loads(outcome.to_json()) == outcome.to_dict()
    with pytest.raises(endstop.ConfigError, match="outcome"):
        endstop.Outcome.from_json("{}")


def test_html_escapes_what_the_model_wrote() -> None:
    with Run() as run:
        loop(run, chat("<script>alert('x')</script>\u202e"))
    page = run.finished()._repr_html_()
    assert "<script>" not in page and "&lt;script&gt;" in page and "\u202e" not in page


def test_exception_in_the_block_ends_the_run() -> None:
    run = Run()
    with pytest.raises(ValueError, match="boom"), run:
        run.go()
        run.turn(chat("Hi"))
        raise ValueError("boom with sk-abcdef1234567890")
    outcome = run.finished()
    assert outcome.termination is Termination.ERROR_DURING_EXECUTION
    assert "ValueError: boom" in outcome.evidence
    assert "sk-abcdef" not in outcome.to_json()


def test_open_call_is_not_a_success() -> None:
    with Run() as run:
        run.go()
        run.turn(tool())
    assert run.finished().termination is Termination.ERROR_DURING_EXECUTION
    assert "echo" in run.finished().evidence


def test_turn_without_go_is_admitted() -> None:
    run = Run(limits={"max_turns": 1})
    assert run.turn(tool()).calls
    late = run.turn(tool(2))
    assert late.calls == () and late.stopped
    assert late.outcome is not None and late.outcome.termination is Termination.ERROR_MAX_TURNS
    assert run.close() == late.outcome, "a run has one ending"


def test_result_reports_failures() -> None:
    with Run() as run:
        for number in range(9):
            if not run.go():
                break
            for call in run.turn(tool(number, json.dumps({"n": number}))).calls:
                run.result(call, ValueError("no such file"))
    assert run.finished().termination is Termination.ERROR_CONSECUTIVE_MISTAKES
    with pytest.raises(endstop.ConfigError, match="expected one of ok"):
        Run().result("c1", "x", status="fine")
    with Run() as run:
        run.go()
        call = run.turn(tool()).calls[0]
        run.result(call, {"a": [1, 2]}, halt="the budget owner said no")
    assert run.finished().termination is Termination.ERROR_HALTED


def test_failed_call_may_be_retried() -> None:
    class RateLimitError(Exception):
        class response:  # noqa: N801
            content = b'{"error":{"message":"slow","type":"x","param":null,"code":null}}'
            status_code = 429
            headers = {"retry-after": "7"}

    with Run() as run:
        assert run.go()
        assert run.failed(RateLimitError("slow"))
        assert run.go(retry=True)
        run.turn(chat("Hi"))
    assert run.finished().termination is Termination.STOP
    with Run() as run:
        run.go()
        run.failed(TimeoutError("no answer"))
    assert run.finished().termination is Termination.ERROR_DURING_EXECUTION
    assert run.finished().decided_by["name"] == "timeout"


def test_keyboard_interrupt_cancels() -> None:
    run = Run()
    with pytest.raises(KeyboardInterrupt), run:
        run.go()
        raise KeyboardInterrupt
    assert run.finished().termination is Termination.CANCELLED


def test_cancelled_task_is_cancelled_and_raised_again() -> None:
    runs: list[Run] = []

    async def body() -> None:
        async with Run() as run:
            runs.append(run)
            run.go()
            await asyncio.sleep(600)

    async def main() -> None:
        task = asyncio.create_task(body())
        while not runs:
            await asyncio.sleep(0)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    asyncio.run(main())
    assert runs[0].finished().termination is Termination.CANCELLED


def test_timeout_interrupts_an_async_block() -> None:
    async def main() -> Run:
        async with Run(limits={"timeout": "50ms"}) as run:
            run.go()
            await asyncio.sleep(600)
        return run

    run = asyncio.run(main())
    assert run.finished().termination is Termination.ERROR_TIMEOUT


def test_deltas_let_a_policy_stop_the_stream() -> None:
    run = Run(policy=endstop.FINAL)
    assert run.go(streaming=True)
    pieces = ["The answer is ", "\nFINAL('4", "2')\n", "and more"]
    read = [run.delta(piece) for piece in pieces]
    assert read == [True, True, False, False]
    outcome = run.finished()
    assert outcome.termination is Termination.SUBMITTED and outcome.answer == "42"


def test_decoder_is_a_response() -> None:
    decoder = endstop.StreamDecoder()
    decoder.push(chat("Hello"))
    with Run() as run:
        run.go()
        assert run.turn(decoder).text == "Hello"
    assert run.finished().is_success


def test_nested_spending_counts() -> None:
    with Run(limits={"max_tokens": 1000}) as run:
        assert not run.spent(input_tokens=900, output_tokens=200, cost_usd=0.5, turns=2)
        assert not run.go()
    outcome = run.finished()
    assert outcome.termination is Termination.ERROR_MAX_TOKENS
    assert outcome.turns == 2 and outcome.cost_usd == pytest.approx(0.5)


def test_limits_are_checked_before_a_call() -> None:
    run = Run(max_turns=2)
    for turn in (1, 2):
        run.turn(endstop.response(finish="tool_calls", calls=[("c", "f", "{}")]))
        run.result("c", str(turn))
        assert run.may() is (turn < 2)
    outcome = run.finished()
    assert (outcome.termination, outcome.model_calls) == (Termination.ERROR_MAX_TURNS, 2)


def test_spending_of_a_run_is_added_once() -> None:
    outer, inner = Run(price="in=1000,out=0", max_turns=2), Run(price="in=1000,out=0")
    for spent in (0.1, 0.2):
        inner.turn(
            endstop.response(finish="tool_calls", calls=[("c", "f", "{}")], input_tokens=100)
        )
        inner.result("c", "x")
        assert outer.spent(inner) and outer.spent(inner)
        assert outer.cost_usd == pytest.approx(spent)
    assert outer.turns == 0 and outer.may_spend()
    with pytest.raises(endstop.ConfigError, match="pass another run"):
        outer.spent(outer)
    # What was added before a park is not added again.
    resumed = Run.resume(inner.park())
    assert outer.spent(resumed)
    resumed.turn(endstop.response("42", finish="stop", input_tokens=100))
    outer.spent(resumed)
    outcome = outer.close()
    assert outcome.cost_usd == pytest.approx(0.3) and outcome.model_calls == 3


def test_cached_tokens_have_their_price() -> None:
    """A framework counts cached tokens in the input or next to it, and reasoning likewise."""
    price = "in=2,out=10,cached=0.2,cache_write=2.5,cache_write_1h=4"

    def cost(**counts: int) -> float | None:
        run = Run(price=price)
        run.turn(endstop.response("42", finish="stop", output_tokens=0, **counts))
        return run.close().cost_usd

    assert cost(input_tokens=1_000_000, cached_input_tokens=900_000) == pytest.approx(0.38)
    apart = {"input_tokens": 100_000, "cached_input_tokens": 900_000}
    assert cost(**apart) == cost(**apart, total_tokens=1_000_000) == pytest.approx(0.38)
    few = {"input_tokens": 900_000, "cached_input_tokens": 100_000}
    assert cost(**few, total_tokens=1_000_000) == pytest.approx(1.82)
    written = {"input_tokens": 1_000_000, "cache_write_tokens": 600_000}
    assert cost(**written) == pytest.approx(0.8 + 1.5)
    assert cost(**written, cache_write_1h_tokens=200_000) == pytest.approx(0.8 + 1.0 + 0.8)
    known = endstop.price("openai/gpt-4o")
    run, most = Run(model="openai/gpt-4o"), {"input_tokens": 1_000_000, "output_tokens": 50}
    run.turn(endstop.response("42", finish="stop", cached_input_tokens=900_000, **most))
    assert known is not None and run.close().cost_usd == known.cost(1_000_000, 50, 900_000)
    thought = {"input_tokens": 0, "reasoning_tokens": 100_000}
    assert cost(**thought) == 0 and cost(**thought, total_tokens=100_000) == pytest.approx(1.0)


def test_two_threads_get_an_error_and_no_deadlock() -> None:
    entered, leave = threading.Event(), threading.Event()

    @endstop.policy("blocks")
    def blocks(step: endstop.Step, context: endstop.Context) -> None:
        entered.set()
        assert leave.wait(60)

    run = Run(policy=blocks)

    def work() -> None:
        run.go()
        run.turn(chat("Hi"))

    thread = threading.Thread(target=work)
    thread.start()
    assert entered.wait(60)
    with pytest.raises(endstop.BusyError, match="in use"):
        run.go()
    with pytest.raises(endstop.BusyError):
        run.outcome  # noqa: B018
    assert "in use" in repr(run)
    assert run.cancel() is None, "the call that has the run performs the cancel"
    leave.set()
    thread.join(60)
    assert run.finished().termination is Termination.CANCELLED


def test_cancel_from_another_thread() -> None:
    run = Run()
    run.go()
    thread = threading.Thread(target=run.cancel)
    thread.start()
    thread.join(60)
    assert run.finished().termination is Termination.CANCELLED
    assert run.terminate() == run.outcome, "the first ending stands"


def test_run_in_many_threads_at_once() -> None:
    def work(results: list[Termination]) -> None:
        with Run(limits={"max_turns": 200, "max_unproductive_turns": None}) as run:
            loop(run, tool())
        results.append(run.finished().termination)

    results: list[Termination] = []
    threads = [threading.Thread(target=work, args=(results,)) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert results == [Termination.ERROR_MAX_TURNS] * 8


@pytest.mark.skipif(not hasattr(os, "fork"), reason="requires fork")
def test_fork_in_the_middle_of_a_run() -> None:
    code = """
import os, endstop
run = endstop.Run(policy=endstop.FINAL)
run.go()
child = os.fork()
response = endstop.response("FINAL('x')", finish="stop")
run.turn(response)
run.close()
assert run.outcome.termination == "submitted", run.outcome
if child:
    assert os.waitpid(child, 0)[1] == 0
"""
    subprocess.run([sys.executable, "-c", code], check=True, timeout=120)


@pytest.mark.parametrize("end", ["pass", "sys.exit(0)", "raise SystemExit"])
def test_interpreter_exits_in_the_middle_of_a_run(end: str) -> None:
    code = f"""
import sys, threading, endstop
@endstop.policy("mine")
class Mine:
    def __call__(self, step, context):
        return False
run = endstop.Run(policy=Mine | endstop.FINAL)
run.go()
run.turn(endstop.response("", finish="tool_calls", calls=[("c", "f", "{{}}")]))
def busy():
    while True:
        endstop.Run(policy=Mine).turn(endstop.response("Hi", finish="stop"))
threading.Thread(target=busy, daemon=True).start()
{end}
"""
    done = subprocess.run([sys.executable, "-c", code], timeout=120, capture_output=True)
    assert done.returncode == 0, done.stderr


def test_runs_refuse_pickling() -> None:
    with pytest.raises(endstop.ConfigError, match="outcome"):
        pickle.dumps(Run())


def calls(*names: str, tokens: int = 100) -> endstop.Detection:
    """A response that asks for tools."""
    asked = [(name, "look", json.dumps({"at": name})) for name in names]
    return endstop.response(
        "", finish="tool_calls", calls=asked, input_tokens=tokens, output_tokens=0
    )


def answer(text: str = "done", tokens: int = 100) -> endstop.Detection:
    return endstop.response(text, finish="stop", input_tokens=tokens, output_tokens=0)


def test_limits_as_keywords() -> None:
    run = Run(max_turns=1, limits={"max_budget_usd": 2.0}, timeout=timedelta(minutes=1))
    assert run.go() and run.turn(calls("a"))
    assert not run.go()
    assert run.finished().termination == "error_max_turns"
    for wrong, message in [
        ({"max_turns": 3, "limits": {"max_turns": 3}}, "given twice"),
        ({"max_turn": 3}, "did you mean `max_turns`"),
        ({"max_turns": math.nan}, "max_turns"),
        ({"max_turns": -1}, "max_turns"),
        ({"max_turns": "3"}, "max_turns"),
        ({"timeout": 30}, "has no unit"),
        ({"timeout": 0.5}, "has no unit"),
        ({"timeout_ms": -1}, "timeout_ms"),
    ]:
        with pytest.raises(endstop.ConfigError, match=message):
            Run(**wrong)  # type: ignore[arg-type]


def test_parallel_calls_have_handles() -> None:
    run = Run(price=endstop.Price(1.0, 1.0))
    first, second = run.call("a"), run.call("b")
    with first, second:
        assert first.ask() and second.ask() and first.open
        assert [call.id for call in first.turn(calls("x")).calls] == ["x"]
        assert run.result("x", "found") and not first.open
        second.turn(answer())
    outcome = run.close()
    assert outcome.termination == "stop"
    assert (outcome.model_calls, outcome.turns, outcome.usage.total_tokens) == (2, 2, 200)
    assert outcome.cost_usd == outcome.cost_upper_usd == pytest.approx(0.0002)


def test_loop_that_swallows_errors_ends() -> None:
    run = Run(max_turns=3)
    asked = 0
    while run.go():
        asked += 1
        assert asked <= 6
    assert asked == 6
    kinds: list[tuple[endstop.ErrorClass, int]] = [
        (endstop.ErrorClass.SERVER_ERROR, 20),
        (endstop.ErrorClass.AUTHENTICATION, 2),
    ]
    for kind, most in kinds:
        run = Run(max_turns=3)
        asked = 0
        while run.go(retry=True):
            asked += 1
            assert asked <= most
            run.failed("no", kind=kind)
        assert asked == most and run.finished().model_calls == most
        assert run.finished().evidence.startswith(f"{most} calls in a row failed")
    run = Run()
    with run.call() as call:
        assert call.ask()
    assert run.close().termination == "error_during_execution"


def test_loop_declares_its_ending() -> None:
    def ended(**how: Any) -> Outcome:
        run = Run()
        run.turn(calls("final_result"))
        return run.close(**how)

    outcome = ended(ended="submitted", deliverable={"city": "Paris"})
    assert (outcome.termination, outcome.deliverable) == ("submitted", {"city": "Paris"})
    assert ended(ok=False, detail="25 steps", ended="error_max_turns").category == "capacity"
    halted = ended(ended="error_halted", detail="pii: a name")
    assert (halted.termination, halted.decided_by["name"]) == ("error_halted", "pii")
    run = Run()
    run.turn(endstop.response("cut", finish="length"))
    assert run.close(ended="submitted", deliverable="cut").termination == "error_output_truncated"
    for wrong in [
        {"ended": "stop"},
        {"ended": "submitted"},
        {"deliverable": 1},
        {"ended": "error_halted"},
    ]:
        with pytest.raises(endstop.ConfigError):
            ended(**wrong)


def test_responses_of_other_agents_cost() -> None:
    run = Run(price=endstop.Price(1.0, 1.0), max_budget_usd=0.0004)
    run.turn(calls("a"))
    for _ in range(3):
        run.spent(answer())
    assert run.turns == 1
    run.result("a", "found")
    assert not run.ask()
    outcome = run.finished()
    assert (outcome.termination, outcome.model_calls) == ("error_max_budget_usd", 4)
    assert outcome.cost_upper_usd == pytest.approx(0.0004)
    with pytest.raises(endstop.ConfigError):
        Run().spent(answer(), input_tokens=1)


def test_copy_of_a_run_for_a_checkpoint() -> None:
    run = Run(max_turns=2)
    run.ask()
    run.turn(tool(1))
    text = run.park(keep=True)
    assert run.running and not run.parked
    run.result("c1", "x")
    run.ask()
    run.turn(chat("Hi"))
    assert run.close().turns == 2
    copy = Run.resume(text)
    assert (copy.turns, copy.usage.total_tokens) == (1, 150)
    with pytest.raises(endstop.ConfigError, match="resumed before"):
        Run.resume(text)
    copy.cancel()


def test_park_and_resume_in_another_process() -> None:
    now = 0.0
    run = Run(max_turns=2, timeout="10s", price=endstop.Price(1.0, 1.0), clock=lambda: now)
    with run:
        assert run.go()
        run.turn(calls("a"))
        now = 3.0
        text = run.park()
        assert run.parked and run.outcome is None and not run.running
        for use in (run.go, run.close, run.cancel, run.park):
            with pytest.raises(endstop.ConfigError, match="parked"):
                use()
    assert run.parked, "leaving the block does nothing"
    code = """
import json, sys, endstop
run = endstop.Run.resume(sys.stdin.read())
assert type(run) is endstop.Run
run.result("a", "found")
assert run.go()
run.turn(endstop.response("", finish="tool_calls", calls=[("b", "look", "{}")], input_tokens=50))
print(run.park())
"""
    done = subprocess.run(
        [sys.executable, "-c", code], input=text, text=True, capture_output=True, check=True
    )
    again = Run.resume(done.stdout)
    assert again.turns == 2 and again.usage.input_tokens == 150
    again.result("b", "found")
    assert not again.go()
    assert again.finished().termination == "error_max_turns"
    with pytest.raises(endstop.ConfigError, match="resumed before"):
        Run.resume(done.stdout)
    with pytest.raises(endstop.ConfigError, match="changed"):
        Run.resume(text.replace('"max_turns":2', '"max_turns":9'))
    with pytest.raises(endstop.ConfigError, match="max_turns"):
        Run.resume(text, limits={"max_turns": 9})
    assert Run.resume(text, limits={"max_turns": 9}, allow=["max_turns"]).go()


def test_unknown_limit_lists_those_of_a_run() -> None:
    with pytest.raises(endstop.ConfigError) as raised:
        Run(limits={"nonsense": 3})  # type: ignore[typeddict-unknown-key]
    listed = str(raised.value).partition("expected one of ")[2].split(", ")
    assert "max_turns" in listed and "verify_rounds" not in listed
    for name in listed:
        Run(limits={name: endstop.default_limits()[name]})  # type: ignore[misc, literal-required]
    assert {*listed} < {*endstop.limit_names()}
    # A limit of another engine has its own message.
    with pytest.raises(endstop.ConfigError, match="has no effect"):
        Run(limits={"verify_rounds": 3})  # type: ignore[typeddict-unknown-key]


def test_result_of_an_unknown_call_is_an_error() -> None:
    with Run() as run:
        run.go()
        turn = run.turn(calls("a", "b"))
        for wrong in ("look", "c", "", endstop.Call("c", "look", "{}")):
            with pytest.raises(endstop.ConfigError, match="no response here has asked for it"):
                run.result(wrong, "x")
        assert run.result(turn.calls[0], "x")
        # A second result is ignored, as some frameworks report one again.
        assert run.result("a", "y")
        assert run.result("b", "x")
        run.go()
        held = run.turn(endstop.response(finish="length", calls=[("d", "look", "{}")])).held_back
        assert run.result(held[0], "x")
    # After the end, no call is open, and every call of a run returns False.
    assert not run.result("c", "x")


def test_result_of_a_parked_run_may_be_of_an_earlier_call() -> None:
    run = Run()
    run.go()
    run.turn(calls("a", "b"))
    run.result("a", "x")
    with Run.resume(run.park()) as again:
        assert again.result("a", "x") and again.result("b", "x")
        # An id that the parked run never had is as wrong as in a new run.
        with pytest.raises(endstop.ConfigError, match="no response here has asked for it"):
            again.result("c", "x")


def test_result_belongs_to_the_conversation_it_is_given_to() -> None:
    with Run() as run:
        first, second = run.call("first"), run.call("second")
        for call in (first, second):
            assert call.ask()
            assert len(call.turn(calls("a")).calls) == 1
        assert second.result("a", "x")
        assert second.result("a", "x"), "a second result is ignored"
        assert run.result("a", "x"), "the first one still waits"
        with pytest.raises(endstop.ConfigError, match="no response here"):
            first.result("b", "x")


def test_failed_resume_does_not_use_the_text() -> None:
    run = Run(max_turns=2)
    run.ask()
    run.turn(tool(1))
    text = run.park()

    def broken() -> float:
        raise OSError("no clock")

    class Refusing(Run):
        def __init__(self, **options: Any) -> None:
            raise ValueError("no")

    with pytest.raises(OSError, match="no clock"):
        Run.resume(text, clock=broken)
    with pytest.raises(ValueError, match="no"):
        Refusing.resume(text)
    assert Run.resume(text).turns == 1
    with pytest.raises(endstop.ConfigError, match="resumed before"):
        Run.resume(text)


def test_spending_that_reaches_a_ceiling_ends_the_run() -> None:
    with Run(max_budget_usd=1.0, max_turns=9) as run:
        run.ask()
        run.turn(tool(1))
        assert run.spent(cost_usd=0.5, turns=1)
        assert not run.spent(cost_usd=0.6)
        assert run.finished().termination is Termination.ERROR_MAX_BUDGET_USD
    with Run(max_turns=3) as run:
        run.ask()
        run.turn(tool(1))
        assert not run.spent(cost_usd=0, turns=2)
        assert run.finished().termination is Termination.ERROR_MAX_TURNS
    # What was answered before stays an answer.
    with Run(max_budget_usd=1.0) as run:
        loop(run, chat("42"))
    with Run(max_budget_usd=1.0) as run:
        run.ask()
        run.turn(chat("42"))
        assert run.spent(cost_usd=2)
    assert run.finished().termination is Termination.STOP


def test_set_limits_leaves_the_others() -> None:
    with Run(max_turns=1) as run:
        assert run.set_limits({"max_tokens": 1_000_000})
        run.ask()
        run.turn(tool(1))
        run.result("c1", "x")
        assert not run.ask()
    assert run.finished().termination is Termination.ERROR_MAX_TURNS


def test_cost_without_known_prompt_has_no_bound() -> None:
    def lost(**ask: Any) -> Outcome:
        run = Run(price="in=1,out=1")
        run.ask(output_cap=100, **ask)
        run.failed("lost", kind="incomplete_stream")
        return run.close(False)

    assert lost().cost_upper_usd is None
    assert lost(prompt_bytes=400).cost_upper_usd == pytest.approx(500e-6)
    counted = Run(price="in=1,out=1")
    counted.ask()
    counted.turn(answer())
    assert counted.close().cost_upper_usd == pytest.approx(100e-6)


def test_evidence_is_redacted() -> None:
    secret = "sk-ant-api03-" + "a1B2" * 23
    run = Run()
    run.ask()
    run.turn(endstop.response("half", finish=secret))
    outcome = run.close()
    assert "[redacted]" in outcome.evidence and secret not in outcome.to_json()


def test_time_needs_a_unit_in_every_form() -> None:
    for timeout in ("30", " 1.5 "):
        with pytest.raises(endstop.ConfigError, match='write "[0-9.]+s", or timeout_ms'):
            Run(timeout=timeout)
    run = Run(timeout="5s")
    text = run.park()
    with pytest.raises(endstop.ConfigError, match="looser"):
        Run.resume(text, limits={"timeout_ms": 9_000})
    again = Run.resume(text, limits={"timeout_ms": 9_000}, allow=["timeout_ms"])
    assert again.wake_in == pytest.approx(9, abs=1)


def test_number_beyond_json_is_named() -> None:
    run = Run()
    run.ask()
    run.turn(tool(1))
    with pytest.raises(endstop.ConfigError, match="pass such a number as text"):
        run.close(ended="submitted", deliverable={"n": 2**70})
    for wrong in (10**400, -(2**70)):
        with pytest.raises(endstop.ConfigError, match="pass such a number as text"):
            endstop.Verdict.stop("x", deliverable=wrong)
    assert endstop.Verdict.stop("x", deliverable=2**64 - 1).deliverable == 2**64 - 1
    assert endstop.Verdict.stop("x", deliverable=1e300).deliverable == 1e300
    text = 'a "quoted" \\ 99999999999999999999999'
    assert endstop.Verdict.stop("x", deliverable=[text]).deliverable == [text]
    with pytest.raises(endstop.ConfigError, match="pass such a number as text"):
        Run(variables={"n": 10**400})


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
def test_number_that_json_lacks_is_named(value: float) -> None:
    for use in (
        lambda: Run(limits={"timeout_ms": value}),
        lambda: Run(max_budget_usd=value),
        lambda: Run(variables={"a": [value]}),
        lambda: Run().observe(metrics={"a": value}),
        lambda: endstop.Verdict.stop("x", deliverable=value),
    ):
        with pytest.raises(endstop.ConfigError, match="(NaN|Infinity) is not a number in JSON"):
            use()


def test_deadline_of_an_async_block() -> None:
    async def ended_before() -> list[str]:
        seen = []
        async with Run(timeout="100ms") as run:
            assert run.go()
            run.turn(answer())
            assert not run.go()
            await asyncio.sleep(0.2)
            seen.append("slept")
        return [*seen, run.finished().termination]

    assert asyncio.run(ended_before()) == ["slept", "stop"]

    async def changed() -> str:
        async with Run() as run:
            run.set_limits({"timeout": "100ms"})
            await asyncio.sleep(30)
        return run.finished().termination

    assert asyncio.run(changed()) == "error_timeout"

    async def busy() -> float:
        started = asyncio.get_running_loop().time()

        def slow(step: endstop.Step, context: endstop.Context) -> bool:
            time.sleep(0.3)
            return False

        async with Run(timeout="100ms", policy=endstop.policy("slow")(slow)) as run:
            assert run.go()
            run.turn(calls("x"))
            await asyncio.to_thread(run.result, "x", "found")
            await asyncio.sleep(30)
        assert run.finished().termination == "error_timeout"
        return asyncio.get_running_loop().time() - started

    assert asyncio.run(busy()) < 10


def test_values_that_would_lose_a_limit() -> None:
    for both in [
        {"timeout": "5s", "timeout_ms": None},
        {"timeout": "5s", "limits": {"timeout_ms": 1}},
    ]:
        with pytest.raises(endstop.ConfigError, match="twice"):
            Run(**both)  # type: ignore[arg-type]
    run = Run(max_budget_usd=1.0)
    for usd in (math.nan, math.inf, -1.0):
        with pytest.raises(endstop.ConfigError, match="cost_usd"):
            run.spent(cost_usd=usd)
    with pytest.raises(endstop.ConfigError, match="not a time"):
        Run(timeout="5s", clock=lambda: math.nan).go()


def test_handle_of_a_parked_run_closes() -> None:
    run = Run()
    with run.call("a") as call:
        call.ask()
        call.turn(calls("x"))
        text = run.park()
    assert Run.resume(text).turns == 1


def test_reason_of_a_halt_is_redacted() -> None:
    run = Run()
    run.turn(calls("a"))
    key = "sk-proj-" + "a1B2" * 12
    run.result("a", "x", halt=f"bad {key}")
    assert key not in repr(run.finished()) + run.finished().to_json()
