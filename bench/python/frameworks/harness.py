"""Runs one framework over the scenarios of `server.py`, without and with its adapter, and prints a
JSON line for each: how the run ended, the tool bodies that ran with cut arguments, the calls made.
"""

from __future__ import annotations

import asyncio
import contextlib
import io
import json
import logging
import os
import signal
import subprocess
import sys
import time
import traceback
import urllib.request
import warnings
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

warnings.filterwarnings("ignore")
logging.disable(logging.ERROR)

ROOT = f"http://127.0.0.1:{os.environ.get('MOCK_PORT', '8099')}"
BASE = ROOT + "/v1"
os.environ.update(
    OPENAI_API_KEY="x",
    ANTHROPIC_API_KEY="x",
    OPENAI_AGENTS_DISABLE_TRACING="1",
    LANGSMITH_TRACING="false",
    DO_NOT_TRACK="1",
)
SCENARIOS = [
    "stop",
    "length",
    "lengthtool",
    "cuttool",
    "filter",
    "refusal",
    "cut",
    "reset",
    "unknown",
    "empty",
    "denied",
    "loop",
    "parallel",
    "budget",
    "concurrent",
]
# Seconds after which a run is reported as still running.
LIMIT = float(os.environ.get("LIMIT", "20"))

Run = Callable[[str, bool, bool], Awaitable[dict[str, Any]]]
Case = Callable[[], Awaitable[Any]]
"""What a program does with a framework and its adapter. Returns the outcome, or several."""

LIMITS: dict[str, Any] = {"max_turns": 25}
"""The limits of the adapter's run. A scenario may have others."""
PRICE = "in=1000,out=2000"
CALL_USD = 0.2
"""The cost of a call of the server at that price."""
BUDGET = {"max_turns": 25, "max_budget_usd": 0.5, "price": PRICE}
CASE_LIMITS = {"max_turns": 25, "price": PRICE}
CACHED_LIMITS = {"max_turns": 25, "price": "in=2,out=10,cached=0.2"}
"""The limits of the case `cached`, whose prompt has 900,000 of its 1,000,000 tokens from a cache."""
CACHED_USD = 0.3805
"""The cost of that call at this price."""

RAN: list[str] = []
"""The arguments of the tool bodies that ran."""


class StillRunning(BaseException):
    """The run did not end in time."""


def get(path: str) -> Any:
    with urllib.request.urlopen(ROOT + path, timeout=10) as answer:
        return json.loads(answer.read())


def ended(outcome: Any) -> dict[str, Any]:
    """Returns the fields of a row for an outcome of Endstop."""
    return {
        "ending": str(outcome.termination),
        "evidence": outcome.evidence[:80],
        "tokens": outcome.usage.total_tokens,
    }


AT_ONCE = ("stop", "length", "loop", "filter")


def concurrent(run: Run) -> Run:
    """Returns a run of several scenarios at the same time, whose ending lists theirs."""

    async def all_at_once(_: str, stream: bool, guarded: bool) -> dict[str, Any]:
        if not guarded:
            return {"ending": "not run"}
        rows = await asyncio.gather(*(run("m-" + name, stream, True) for name in AT_ONCE))
        return {"ending": " + ".join(row["ending"] for row in rows)}

    return all_at_once


def cancel_rest(loop: asyncio.AbstractEventLoop) -> None:
    """Cancels what a run left behind, whose calls would count for the next one."""
    rest = asyncio.all_tasks(loop)
    for task in rest:
        task.cancel()
    if rest:
        loop.run_until_complete(asyncio.wait(rest, timeout=2))


def end_processes() -> None:
    """Kills the processes that a run left behind, for the same reason. Only on Linux."""
    for children in Path("/proc/self/task").glob("*/children"):
        for process in children.read_text().split():
            with contextlib.suppress(ProcessLookupError):
                os.kill(int(process), signal.SIGKILL)


CASES: dict[str, tuple[str, Case]] = {}
"""What programs do with the framework: the expected ending, and the program."""
ELSEWHERE: dict[str, Callable[[str], Awaitable[str]]] = {}
"""What a case does in another process: text in, text out."""


def case(ending: str) -> Callable[[Case], Case]:
    """Registers a case by the name of its function. A parked run has no ending until it is resumed, so
    `ending` is that of the whole; "paused" for a run that stays parked."""

    def register(program: Case) -> Case:
        CASES[program.__name__] = (ending, program)
        return program

    return register


def elsewhere(program: Callable[[str], Awaitable[str]]) -> Callable[[str], str]:
    """Returns a function that performs `program` in another process."""
    ELSEWHERE[program.__name__] = program

    def call(text: str) -> str:
        command = [sys.executable, sys.argv[0], "--elsewhere", program.__name__]
        done = subprocess.run(command, input=text, capture_output=True, text=True, timeout=120)
        if done.returncode != 0:
            raise AssertionError(done.stderr[-600:])
        return done.stdout

    return call


def alarm(*_: object) -> None:
    raise StillRunning


async def begun(model: str, calls: int = 1) -> None:
    """Waits until the server has this many requests of a model."""
    while get("/stats").get(model.removeprefix("m-"), 0) < calls:
        await asyncio.sleep(0.05)


async def cancelled(task: asyncio.Task[Any], model: str, calls: int = 1) -> None:
    """Cancels a task that waits for the answer to this call of a model."""
    await begun(model, calls)
    task.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await task


def run_cases(name: str, loop: asyncio.AbstractEventLoop, only: list[str]) -> None:
    """Runs the cases. A row has the calls on the wire and in the outcome, and their dollars."""
    for title, (expected, program) in CASES.items():
        if only and not {title, "cases"} & {*only}:
            continue
        get("/reset")
        RAN.clear()
        LIMITS.clear()
        LIMITS.update(CACHED_LIMITS if title == "cached" else CASE_LIMITS)
        row: dict[str, Any] = {
            "framework": name,
            "guarded": True,
            "mode": "case",
            "scenario": title,
            "expected": expected,
        }
        signal.setitimer(signal.ITIMER_REAL, 5 * LIMIT, 1.0)
        noise = io.StringIO()
        try:
            with contextlib.redirect_stdout(noise), contextlib.redirect_stderr(noise):
                outcome = loop.run_until_complete(program())
            row |= ended(outcome)
            row |= {"booked": outcome.model_calls, "usd": outcome.cost_usd or 0}
            row["upper_usd"] = outcome.cost_upper_usd
        except StillRunning:
            row["ending"] = "still running"
        except Exception as problem:
            row["ending"] = f"raised {type(problem).__name__}"
            row["evidence"] = "".join(traceback.format_exception(problem))[-1200:]
        signal.setitimer(signal.ITIMER_REAL, 0)
        cancel_rest(loop)
        row["cut_bodies"] = sum(text == "hel" for text in RAN)
        row["bodies"] = len(RAN)
        # The server bills whole answers; a request that it denies is not an answer, and one whose
        # reader left is estimated by the run.
        stats = get("/stats")
        row["calls"], whole = sum(stats.values()), get("/answered")
        row["left"] = row["calls"] > whole + stats.get("denied", 0)
        row["bill_usd"] = (CACHED_USD if title == "cached" else CALL_USD) * whole
        print(json.dumps(row), flush=True)


def main(name: str, run: Run, absent: tuple[str, ...] = ()) -> None:
    """`run(model, stream, guarded)` runs the framework once and returns the fields of a row. `absent`
    names the modes and scenarios that the framework does not have."""
    if sys.argv[1:2] == ["--elsewhere"]:
        program = ELSEWHERE[sys.argv[2]]
        print(asyncio.run(program(sys.stdin.read())), end="")
        return
    signal.signal(signal.SIGALRM, alarm)
    loop = asyncio.new_event_loop()
    only = sys.argv[1:]
    for guarded in (True,) if "ONLY_GUARDED" in os.environ else (False, True):
        for mode in ("plain", "stream"):
            for scenario in SCENARIOS:
                if (only and scenario not in only) or {mode, scenario} & {*absent}:
                    continue
                get("/reset")
                RAN.clear()
                LIMITS.clear()
                LIMITS.update(BUDGET if scenario == "budget" else {"max_turns": 25})
                row: dict[str, Any] = {
                    "framework": name,
                    "guarded": guarded,
                    "mode": mode,
                    "scenario": scenario,
                }
                began = time.monotonic()
                # A run with an adapter ends, also on a busy machine.
                limit = 5 * LIMIT if guarded else LIMIT
                signal.setitimer(signal.ITIMER_REAL, limit, 1.0)
                noise = io.StringIO()
                try:
                    once = concurrent(run) if scenario == "concurrent" else run
                    with contextlib.redirect_stdout(noise), contextlib.redirect_stderr(noise):
                        row |= loop.run_until_complete(
                            once("m-" + scenario, mode == "stream", guarded)
                        )
                except BaseException as problem:
                    # A framework may turn the alarm into an exception of its own, or put it into a group.
                    late = time.monotonic() - began >= limit
                    if not late and not isinstance(problem, Exception):
                        raise
                    raised = f"raised {type(problem).__name__}"
                    row["ending"] = "still running" if late else raised
                    row["evidence"] = str(problem)[:160]
                signal.setitimer(signal.ITIMER_REAL, 0)
                cancel_rest(loop)
                if not guarded:  # What an adapter leaves must show in the runs after it.
                    end_processes()
                # The scenario's only cut argument begins so.
                row["cut_bodies"] = sum(text == "hel" for text in RAN)
                row["bodies"] = len(RAN)
                row["calls"] = sum(get("/stats").values())
                print(json.dumps(row), flush=True)
    run_cases(name, loop, only)
    # Python would wait for threads that a framework left behind.
    sys.stdout.flush()
    os._exit(0)
