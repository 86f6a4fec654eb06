"""Measures what a call of the bindings costs, in microseconds of processor time: the best of several
rounds.

    target/python/clean/bin/python bench/python/costs.py [--wheel FILE] [--peers PYTHON] [--out RESULTS.md]

Run it with the wheel that `crates/endstop-python/check --pgo` installs, which is built as that of a release.
The last column has the bounds that the project holds. They are for a machine on which `json.dumps` of the
small response takes `DUMPS` microseconds, and are scaled by what it takes here. `--wheel` adds the wheel's
size, `--peers` the costs of other guards, measured by an interpreter that has them (see `peers.py`).
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path

import page

import endstop

DUMPS = 4.5


def best(code: Callable[[], object], number: int, rounds: int = 7) -> float:
    """Returns the microseconds of one call."""
    results = []
    for _ in range(rounds):
        began = time.thread_time()
        for _ in range(number):
            code()
        results.append((time.thread_time() - began) / number * 1e6)
    return min(results)


def body(number: int, text: str | None = None) -> bytes:
    message: dict[str, object] = {"role": "assistant", "content": text}
    if text is None:
        call = {"name": "read", "arguments": json.dumps({"path": f"src/file_{number}.rs"})}
        message["tool_calls"] = [{"id": f"call_{number}", "type": "function", "function": call}]
    finish = "tool_calls" if text is None else "stop"
    return json.dumps(
        {
            "id": f"chatcmpl-{number}",
            "object": "chat.completion",
            "created": 1,
            "model": "gpt-4o-mini-2024-07-18",
            "choices": [{"index": 0, "message": message, "finish_reason": finish}],
            "usage": {"prompt_tokens": 100, "completion_tokens": 50, "total_tokens": 150},
        }
    ).encode()


def turns(number: int, block: int = 200) -> list[float]:
    """Returns the microseconds of a turn with a tool result: in each tenth of a run the best block."""
    limits = {"max_turns": None, "max_unproductive_turns": None, "max_consecutive_mistakes": None}
    run = endstop.Run(limits=limits, price="in=1,out=2")
    bodies = [body(n) for n in range(number)]
    costs = []
    for at in range(0, number, block):
        began = time.thread_time()
        for n in range(at, at + block):
            run.go()
            for call in run.turn(bodies[n]).calls:
                run.result(call, "17 lines")
        costs.append((time.thread_time() - began) / block * 1e6)
    assert run.turns == number
    tenth = len(costs) // 10
    return [min(costs[at : at + tenth]) for at in range(0, len(costs), tenth)]


def ticks(size: int) -> float:
    """Returns the share of its ticks that a thread keeps while another one decodes."""

    def count(until: threading.Event) -> int:
        n = 0
        while not until.is_set():
            n += 1
        return n

    def measure(work: Callable[[], object]) -> float:
        until, counted = threading.Event(), []
        thread = threading.Thread(target=lambda: counted.append(count(until)))
        thread.start()
        began = time.perf_counter()
        while time.perf_counter() - began < 1.0:
            work()
        until.set()
        thread.join()
        return counted[0] / (time.perf_counter() - began)

    large = body(0, "x" * size)
    return measure(lambda: endstop.detect(large)) / measure(lambda: time.sleep(0.01))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--wheel", type=Path)
    parser.add_argument("--build", default="release, profile-guided", help="how the wheel was built, for the page")
    parser.add_argument("--peers", type=Path)
    parser.add_argument("--out", type=Path)
    given = parser.parse_args()
    small, large = body(1, "The capital of France is Paris."), body(1, "x" * 100_000)
    parsed = json.loads(small)
    event = (
        b'data: {"object":"chat.completion.chunk","choices":[{"delta":{"content":"word "}}]}\n\n'
    )
    decoder = endstop.StreamDecoder("openai-chat")
    finished = endstop.detect(small)

    @endstop.policy("no")
    def no(step: endstop.Step, context: endstop.Context) -> None:
        return None

    dumps = best(lambda: json.dumps(parsed), 5_000)

    def bound(microseconds: float) -> str:
        return f"{microseconds * dumps / DUMPS:.2f}"

    rows: list[tuple[str, float, str]] = [
        ("json.dumps(dict), for comparison", dumps, ""),
        (f"detect(bytes), {len(small)} bytes", best(lambda: endstop.detect(small), 20_000), bound(2)),
        ("detect(bytes, api=)", best(lambda: endstop.detect(small, api="openai-chat"), 20_000), ""),
        ("detect(dict)", best(lambda: endstop.detect(parsed), 5_000), ""),
        ("detect(bytes), 100 kB", best(lambda: endstop.detect(large), 1_000), ""),
        ("detection.reason", best(lambda: finished.reason, 50_000), ""),
        ("decoder.push, an event", best(lambda: decoder.push(event), 20_000), ""),
        ("policy in Python", best(lambda: no.should_stop("text"), 20_000), ""),
        (
            "FINAL.should_stop, 2 kB",
            best(lambda: endstop.FINAL.should_stop("x " * 1000), 5_000),
            "",
        ),
        ("redact, 2 kB", best(lambda: endstop.redact("x " * 1000), 2_000), ""),
    ]
    costs = turns(20_000)
    rows += [
        ("go, turn and result, turns 1 to 2,000 of 20,000", costs[0], bound(4)),
        ("the same, the last 2,000", costs[-1], bound(4)),
    ]
    lines = [
        "# Costs of a call",
        "",
        "Written by `bench/python/costs.py`: microseconds of processor time, the best of several rounds.",
        f"The bounds, 2 and 4 on a machine where `json.dumps` takes {DUMPS}, are scaled by what it takes here.",
        "",
        "| call | µs | bound |",
        "|---|--:|--:|",
        *(f"| {name} | {cost:.2f} | {bound} |" for name, cost, bound in rows),
        "",
        f"A thread next to `detect` of 5 MB keeps {ticks(5_000_000) * 100:.0f} % of its ticks.",
        f"`import endstop` takes {import_ms():.1f} ms after the start of Python.",
    ]
    if given.wheel is not None:
        size = given.wheel.stat().st_size / 1e6
        lines[-1] += f" The wheel has {size:.1f} MB ({given.build})."
    if given.peers is not None:
        lines += ["", "A turn with one tool call under other guards:", "", "| guard | part | µs |", "|---|---|--:|"]
        peers = Path(__file__).with_name("peers.py")
        done = subprocess.run([str(given.peers), str(peers)], stdout=subprocess.PIPE, check=True)
        lines += [f"| {name} | {part} | {cost:.1f} |" for name, part, cost in json.loads(done.stdout)]
    text = "\n".join([*lines, ""])
    print(text)
    if given.out is not None:
        page.put(given.out, text)
    over = [name for name, cost, bound in rows if bound and cost > float(bound)]
    if over:
        sys.exit(f"over their bounds: {', '.join(over)}")


def import_ms() -> float:
    """Returns the milliseconds of an import, without the start of the interpreter."""

    def once(code: str) -> float:
        began = time.perf_counter()
        subprocess.run([sys.executable, "-c", code], check=True)
        return time.perf_counter() - began

    return (min(once("import endstop") for _ in range(9)) - min(once("") for _ in range(9))) * 1e3


if __name__ == "__main__":
    main()
