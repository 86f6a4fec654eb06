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
import sys
import time
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
    "loop",
    "parallel",
    "budget",
    "concurrent",
]
# Seconds after which a run is reported as still running.
LIMIT = float(os.environ.get("LIMIT", "20"))

Run = Callable[[str, bool, bool], Awaitable[dict[str, Any]]]

LIMITS: dict[str, Any] = {"max_turns": 25}
"""The limits of the adapter's run. A scenario may have others."""
# A turn of the server costs $0.20 then.
BUDGET = {"max_turns": 25, "max_budget_usd": 0.5, "price": "in=1000,out=2000"}

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


def main(name: str, run: Run, absent: tuple[str, ...] = ()) -> None:
    """`run(model, stream, guarded)` runs the framework once and returns the fields of a row. `absent`
    names the modes and scenarios that the framework does not have."""

    def alarm(*_: object) -> None:
        raise StillRunning

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
                except StillRunning:
                    row["ending"] = "still running"
                except Exception as problem:
                    # A framework may turn the alarm into an exception of its own.
                    late = time.monotonic() - began >= limit
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
