"""Limits that pause a run, count its tools or read a subscription, and the warning before a limit."""

from __future__ import annotations

import asyncio
import threading
import time
from typing import Any

import httpx
import pytest
from conftest import Clock, chat, tool

import endstop
from endstop import Category, Outcome, Run, Termination, tap
from endstop.adapters import _base, _scope

MINUTE = 60.0


class Fast(Clock):
    """A clock that moves by itself, so that a test of a minute takes a second."""

    def __call__(self) -> float:
        return self.now + time.monotonic() * MINUTE


def spent(run: Run) -> Run:
    """Spends the 150 tokens of a response."""
    assert run.wait() and run.go()
    run.result(run.turn(tool()).calls[0], "x")
    return run


def of_window(used: str, reset: str = "1785003600") -> httpx.Response:
    """Returns a response of a subscription, of whose window a share is used."""
    prefix = "anthropic-ratelimit-unified-5h"
    headers = {f"{prefix}-status": "allowed", f"{prefix}-utilization": used}
    return httpx.Response(200, headers={**headers, f"{prefix}-reset": reset}, content=tool())


def test_rate_pauses_a_run(clock: Clock) -> None:
    run = spent(Run(max_rate="100 tokens/m", waits=True, clock=clock))
    assert run.pause() == MINUTE
    clock.now += 20
    assert run.pause() == 40
    clock.now += 40
    assert run.pause() is None and run.go()
    run.turn(chat("Done."))
    # An answer ends the run, and does not wait.
    assert run.close().termination is Termination.STOP


def test_rate_in_dollars_counts_what_others_spend(clock: Clock) -> None:
    run = Run(max_rate="$2/h", waits=True, clock=clock, price="in=3,out=15")
    assert run.go()
    run.spent(cost_usd=2.5, cost_unknown=True)
    assert run.pause() == 3600
    run.turn(chat("Done."))
    outcome = run.close()
    assert outcome.cost_unknown and outcome.cost_usd == pytest.approx(2.50105)


def test_wait_ends_with_the_pause() -> None:
    began = time.monotonic()
    run = spent(Run(max_rate="100 tokens/m", waits=True, clock=Fast()))
    assert run.wait() and run.go()
    assert 1 <= time.monotonic() - began < 30
    run.result(run.turn(tool(2, '{"text":"y"}')).calls[0], "y")

    async def other() -> int:
        ticks = 0
        waits = asyncio.ensure_future(run.wait_async())
        while not waits.done():
            ticks += 1
            await asyncio.sleep(0.01)
        assert waits.result()
        return ticks

    assert asyncio.run(other()) > 5, "other tasks run meanwhile"


@pytest.mark.parametrize("stop", ["cancel", "terminate", "set_limits"])
def test_stop_ends_a_wait(stop: str) -> None:
    run = spent(Run(max_rate="100 tokens/m", waits=True))
    act: Any = (lambda: run.set_limits({"max_rate": None})) if stop == "set_limits" else None
    timer = threading.Timer(0.2, act or getattr(run, stop))
    timer.start()
    began = time.monotonic()
    assert run.wait() is (stop == "set_limits")
    assert time.monotonic() - began < 30
    timer.join()
    ended = {"cancel": Termination.CANCELLED, "terminate": Termination.TERMINATED}
    assert (run.outcome and run.outcome.termination) == ended.get(stop)


def test_deadline_ends_a_wait(clock: Clock) -> None:
    run = spent(Run(max_rate="100 tokens/m", timeout="30s", waits=True, clock=clock))
    assert run.pause() is None, "the deadline comes first"
    assert not run.go()
    outcome = run.finished()
    assert outcome.termination is Termination.ERROR_TIMEOUT and outcome.retry_after == MINUTE
    # Of another agent, which has no clock of its own.
    run = spent(Run(max_rate="100 tokens/m", timeout="30s", waits=True, clock=clock))
    assert not run.call("other").ask()
    assert run.finished().termination is Termination.ERROR_TIMEOUT
    run = spent(Run(max_rate="100 tokens/m", timeout="70s", waits=True, clock=clock))
    run.set_limits({"timeout": "61s"})
    assert run.pause() == MINUTE
    clock.now += 61
    assert run.pause() is None and not run.wait()
    assert run.finished().termination is Termination.ERROR_TIMEOUT


def test_deadline_of_a_block_ends_a_wait() -> None:
    async def program() -> Outcome:
        run = Run(max_rate="100 tokens/m", timeout="61s", waits=True, clock=Fast())
        async with run:
            spent(run)
            run.set_limits({"timeout": "90s"})
            # Another agent spends meanwhile, so that the pause would end after the run.
            asyncio.get_running_loop().call_later(0.5, run.spent, chat("x"))
            assert await run.wait_async()
            assert not run.go()
        return run.finished()

    assert asyncio.run(program()).termination is Termination.ERROR_TIMEOUT


def test_pause_of_a_parked_run_continues(clock: Clock) -> None:
    run = spent(Run(max_rate="100 tokens/m", waits=True, clock=clock))
    text = run.park()
    # The time in between does not count.
    clock.now += 1000
    resumed = Run.resume(text, clock=clock)
    assert resumed.pause() == MINUTE
    assert Run.resume(spent(Run()).park()).pause() is None
    with pytest.raises(endstop.ConfigError, match=r"max_rate.*`waits`"):
        Run.resume(spent(Run()).park(), limits={"max_rate": "$1/h"})


def test_window_pauses_or_ends_a_run() -> None:
    reset = str(int(time.time()) + 600)
    for waits in (False, True):
        run = Run(max_window="5h=80%", wait_for_window=waits, waits=waits)
        assert run.go()
        run.result(run.turn(of_window("0.81", reset)).calls[0], "x")
        if waits:
            pause = run.pause()
            assert pause is not None and 590 < pause <= 600
            continue
        assert run.pause() is None and not run.go()
        outcome = run.finished()
        assert outcome.termination is Termination.ERROR_MAX_WINDOW
        assert outcome.category is Category.CAPACITY
        assert outcome.retry_after is not None and 590 < outcome.retry_after <= 600
        assert outcome.decided_by == {
            "layer": "limit",
            "name": "max_window",
            "evidence": outcome.evidence,
        }
        assert "81%" in outcome.evidence and "80%" in outcome.evidence


def test_tool_calls_are_limited() -> None:
    two = [("c1", "echo", "{}"), ("c2", "shell", "{}")]
    for limits, evidence in (
        ({"max_tool_calls": 1}, "1 of 1 tool calls; `shell` was not started"),
        ({"max_calls": {"shell": 0}}, "0 of 0 calls of `shell`; another one was not started"),
    ):
        run = Run(**limits)  # type: ignore[arg-type]
        assert run.go()
        turn = run.turn(chat(finish="tool_calls", calls=two))
        assert turn.calls == () and [call.id for call in turn.held_back] == ["c1", "c2"]
        outcome = run.finished()
        assert outcome.termination is Termination.ERROR_MAX_TOOL_CALLS
        assert outcome.category is Category.CAPACITY and not outcome.is_success
        assert outcome.evidence == evidence
        assert outcome.to_dict()["decided_by"]["name"] == "max_tool_calls"
    # As many as allowed, and then an answer.
    with Run(max_tool_calls=2, max_calls={"echo": 1}) as run:
        run.go()
        for call in run.turn(chat(finish="tool_calls", calls=two)).calls:
            run.result(call, "x")
        assert run.go()
        run.turn(chat("Done."))
    assert run.finished().is_success


def test_model_is_warned_of_a_limit() -> None:
    run = Run(max_turns=5, warn_model=True, inject=True, max_unproductive_turns=None)
    notes = []
    for number in range(5):
        assert run.go()
        notes.append(run.notes())
        run.result(run.turn(tool(number, f'{{"text":"{number}"}}')).calls[0], f"{number}")
    assert [len(note) for note in notes] == [0, 0, 0, 0, 1]
    assert "1 of 5 turns" in notes[4][0]


@pytest.mark.parametrize(
    ("limits", "message"),
    [
        ({"max_rate": "$2/day"}, "`max_rate`.*neither `m` nor `h`"),
        ({"max_rate": 2}, "`max_rate`"),
        ({"max_window": "5h=300%"}, "`max_window`"),
        ({"max_tool_calls": -1}, "`max_tool_calls`"),
        ({"wait_for_window": "yes"}, "`wait_for_window`"),
        ({"max_calls": {"shell": -1}}, "`max_calls`: `shell`: expected a whole number"),
        ({"max_calls": 3}, "`max_calls`: expected a table"),
        ({"max_calls": {"shell": float("nan")}}, "max_calls"),
    ],
)
def test_bad_value_names_the_field(limits: Any, message: str) -> None:
    for make in (lambda: Run(waits=True, **limits), lambda: _scope.Scope(**limits)):
        with pytest.raises(endstop.ConfigError, match=message):
            make()


def test_loop_that_does_not_wait_refuses_a_rate() -> None:
    class Watched(_scope.Scope):
        waits = False

    for limits in ({"max_rate": "$2/h"}, {"wait_for_window": True}):
        for make in (Run, Watched):
            with pytest.raises(endstop.ConfigError, match="cannot be held back"):
                make(**limits)


@pytest.fixture
def fast(monkeypatch: pytest.MonkeyPatch) -> None:
    """Gives the runs of adapters a fast clock."""
    make = _base.Run
    monkeypatch.setattr(_base, "Run", lambda **options: make(clock=Fast(), **options))


@pytest.mark.usefixtures("fast")
def test_adapter_holds_a_call() -> None:
    answer = endstop.response("Hi", finish="stop", input_tokens=100, output_tokens=50)

    def call(stop: _scope.Scope) -> None:
        stop.before_call()
        stop.after_call(lambda: answer)

    async def program() -> float:
        async with _scope.Scope(max_rate="100 tokens/m") as stop:
            began = time.monotonic()
            call(stop)
            await stop.wait_async()
            call(stop)
            waited = time.monotonic() - began
        assert (stop.outcome.termination, stop.outcome.turns) == (Termination.STOP, 2)
        return waited

    with _scope.Scope(max_rate="100 tokens/m") as stop:
        began = time.monotonic()
        call(stop)
        stop.wait()
        call(stop)
        assert 1 <= time.monotonic() - began < 30
    assert 1 <= asyncio.run(program()) < 30


@pytest.mark.usefixtures("fast")
def test_request_of_a_sub_agent_waits() -> None:
    sent: list[float] = []

    def answer(request: httpx.Request) -> httpx.Response:
        sent.append(time.monotonic())
        return httpx.Response(200, content=chat("Hi"))

    url, body = "http://x/v1/chat/completions", {"model": "m"}

    async def program() -> None:
        async with _scope.Scope(max_rate="100 tokens/m") as stop:
            stop.before_call()
            stop.after_call(lambda: endstop.detect(tool()))
            async with tap.wrap(httpx.AsyncClient(transport=httpx.MockTransport(answer))) as client:
                await client.post(url, json=body)

    began = time.monotonic()
    with _scope.Scope(max_rate="100 tokens/m") as stop:
        stop.before_call()
        stop.after_call(lambda: endstop.detect(tool()))
        with tap.wrap(httpx.Client(transport=httpx.MockTransport(answer))) as client:
            client.post(url, json=body)
    assert 1 <= sent[0] - began < 30
    began = time.monotonic()
    asyncio.run(program())
    assert 1 <= sent[1] - began < 30
