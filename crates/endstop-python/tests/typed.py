"""Programs for type checkers. A line with `# wrong` is an error of each checker, and no other line is."""

from __future__ import annotations

import asyncio
import dataclasses
import io
from datetime import timedelta
from typing import Any, Literal

import endstop
from endstop import ErrorClass, Limits, ToolStatus


async def ask() -> bytes:
    return b"{}"


async def tool() -> str:
    return "x"


@dataclasses.dataclass
class City:
    name: str


def limits() -> None:
    own: Limits = {"max_turns": 3, "timeout": timedelta(minutes=5)}
    endstop.Run(limits=own)
    endstop.Run(
        limits={
            "max_turns": 2,
            "max_budget_usd": 0.5,
            "timeout": "30s",
            "accept_unknown_finish": True,
        }
    )
    endstop.Run(limits={"max_turns": None, "max_tokens": "off"})
    endstop.Run(limits={**endstop.default_limits(), "max_turns": 3})
    endstop.Run(limits={"max_turn": 2})  # wrong
    endstop.Run(limits={"max_turns": "many"})  # wrong
    endstop.Run(limits={"timeout": 30})  # wrong
    endstop.Run(limits={"max_retries": 3})  # wrong
    endstop.Run(limits={"max_tokens_counts": "some"})  # wrong
    endstop.Run(limit={"max_turns": 2})  # wrong
    endstop.Run(limits=3)  # wrong
    endstop.Run(max_turns=3, timeout="30s", policy="final_pattern")
    endstop.Run(max_turn=3)  # wrong
    endstop.Run(timeout=30)  # wrong
    endstop.Run.resume("{}", limits={"max_turns": 3}, allow=["max_turns"])
    endstop.Run.resume("{}", limits={"max_turn": 3})  # wrong
    endstop.Run().set_limits({"max_turns": 5})
    endstop.Run().set_limits({"max_turn": 5})  # wrong


def responses(run: endstop.Run, sdk: Any, chunks: list[dict[str, Any]]) -> None:
    for response in (b"{}", "{}", {"choices": 1}, chunks, bytearray(), memoryview(b""), sdk):
        run.turn(response)
        endstop.detect(response)
    run.turn(chunk for chunk in chunks)
    run.turn(endstop.detect(b"{}"))
    run.turn(endstop.StreamDecoder(request={"n": 1}))
    run.turn(io.BytesIO(b"{}"))
    run.turn(None)  # wrong
    run.turn(3)  # wrong
    run.turn(ask())  # wrong
    endstop.detect(ask())  # wrong
    endstop.detect(asyncio.sleep(1))  # wrong
    endstop.detect(ValueError("x"))  # wrong
    endstop.detect(b"{}", request=ask())  # wrong
    endstop.detect(b"{}", status="200")  # wrong


async def awaited(run: endstop.Run, call: endstop.Call) -> None:
    run.turn(await ask())
    run.result(call, await tool())
    run.result(call, tool())  # wrong
    run.result(call, asyncio.create_task(tool()))  # wrong


def results(run: endstop.Run, call: endstop.Call, failed: bool, row: Any) -> None:
    for output in (
        "x",
        1,
        1.5,
        None,
        True,
        {"a": [1]},
        [1],
        ("a",),
        ValueError("x"),
        City("Bonn"),
        row,
    ):
        run.result(call, output)
    run.result("call-1", "x", status="denied")
    run.result(call, "x", status=ToolStatus.TIMEOUT)
    status: Literal["ok", "error"] = "error" if failed else "ok"
    run.result(call, "x", status=status)
    run.result(call, "x", status="failed")  # wrong
    run.result(call, "x", status="skipped")  # wrong
    run.result(3, "x")  # wrong
    run.delta("x", kind="reasoning")
    run.delta("x", kind="nonsense")  # wrong
    run.failed(ValueError("x"))
    run.failed("overloaded", kind="overloaded")
    run.failed("slow", kind=ErrorClass.TIMEOUT)
    run.failed("x", kind="nonsense")  # wrong
    run.failed(ask())  # wrong
    endstop.Verdict.stop("x", ends_as="error_halted")
    endstop.Verdict.stop("x", ends_as="stop")  # wrong


@endstop.policy("polite")
def polite(step: endstop.Step, context: endstop.Context) -> bool:
    return "Goodbye" in (step.output or "")


@endstop.policy
def brief(step: endstop.Step, context: endstop.Context) -> endstop.Verdict | str | None:
    return step.output


@endstop.policy("counter")
class Counter:
    def __init__(self) -> None:
        self.steps = 0

    def __call__(self, step: endstop.Step, context: endstop.Context) -> tuple[bool, str | None]:
        self.steps += 1
        return self.steps == 2, None


def one_argument(step: endstop.Step) -> bool:
    return True


async def waits(step: endstop.Step, context: endstop.Context) -> bool:
    return True


def returns_a_number(step: endstop.Step, context: endstop.Context) -> float:
    return 0.5


class Silent:
    pass


def policies() -> None:
    for policy in (polite, brief, Counter, polite | brief, endstop.FINAL | "confidence", ~polite):
        endstop.Run(policy=policy)
    endstop.Run(policy="final_pattern")
    endstop.Run(policy={"confidence": {"confidence_threshold": 0.9}})
    both: endstop.Policy = "confidence" | endstop.FINAL & {"confidence": {}}
    endstop.k_of(1, [both, "confidence"])
    endstop.policy("one")(one_argument)  # wrong
    endstop.policy("waits")(waits)  # wrong
    endstop.policy("number")(returns_a_number)  # wrong
    endstop.policy("silent")(Silent)  # wrong
    endstop.policy(one_argument)  # wrong
    endstop.Policy.of("one", one_argument)  # wrong
    endstop.Run(policy=one_argument)  # wrong
    endstop.Run(policy=3)  # wrong
    print(endstop.FINAL | 3)  # wrong


def calls(run: endstop.Run) -> None:
    with run.call("researcher") as call:
        call.ask()
        call.turn({"choices": []})
        call.turn(ask())  # wrong
        call.turn(None)  # wrong
        call.delta("x", kind="call")
        call.delta("x", kind="image")  # wrong
        call.failed("slow", kind="timeout")
        call.failed("slow", kind="slow")  # wrong
    run.spent(endstop.detect(b"{}"))
    run.spent(ask())  # wrong
    run.close(ended="submitted", deliverable={"a": 1})
    run.close(ended="stop")  # wrong


def outcomes(run: endstop.Run) -> str:
    if run.outcome:
        return run.outcome.termination
    print(run.outcome.termination)  # wrong
    return run.finished().evidence


def modules(client: Any, registry: Any) -> None:
    endstop.tap.wrap(client).close()
    with endstop.tap.record() as recording:
        print(recording.last.reason if recording.last else None)
    endstop.rlm.install(registry)
    print(endstop.tap.unknown)  # wrong
    print(endstop.unknown)  # wrong
