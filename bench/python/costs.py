"""Measures what a call of the bindings costs, in microseconds of processor time: the best of several
rounds.

    LAB/clean/bin/python bench/python/costs.py

Run it with the release wheel that `crates/endstop-python/check` installs. The bounds in the last
column are those that the project holds.
"""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable

import endstop


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

    rows: list[tuple[str, float, str]] = [
        (f"detect(bytes), {len(small)} bytes", best(lambda: endstop.detect(small), 20_000), "2"),
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
    for name, cost, bound in rows:
        print(f"| {name} | {cost:.2f} | {bound} |")
    costs = turns(20_000)
    print(f"| go, turn and result, turns 1 to 2,000 of 20,000 | {costs[0]:.2f} | 4 |")
    print(f"| the same, the last 2,000 | {costs[-1]:.2f} | 4 |")
    print(f"a thread next to detect(5 MB) keeps {ticks(5_000_000) * 100:.0f} % of its ticks")


if __name__ == "__main__":
    main()
