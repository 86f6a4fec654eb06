"""The work that a profile-guided build of the wheel is optimised for: `maturin build --pgo` runs it with a
build that counts which paths it takes.

It needs a clone of the repository, because it reads the recorded responses of the tests. It covers all
formats, whole and streamed, long runs with tools, and files of recorded runs. What it does not reach is
compiled for size.
"""

from __future__ import annotations

import base64
import contextlib
import gzip
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import endstop

ROOT = Path(__file__).resolve().parents[2]
RECORDINGS = ROOT / "testdata" / "recordings"
FIXTURES = ROOT / "crates" / "endstop-trajectory" / "fixtures"


def recorded() -> Iterator[tuple[dict[str, Any], bytes]]:
    """Yields the recorded responses."""
    files = sorted(RECORDINGS.glob("*.jsonl.gz"))
    if not files:
        raise SystemExit(f"no recordings in {RECORDINGS}; run this in a clone of the repository")
    for file in files:
        for line in gzip.decompress(file.read_bytes()).splitlines():
            one = json.loads(line)
            is_text = one["body_encoding"] == "utf-8"
            body = one["body"]
            yield one, body.encode() if is_text else base64.b64decode(body)


def read(one: dict[str, Any], body: bytes) -> None:
    """Reads a recorded response in each of the ways that a program may."""
    known = {"status": one["status"], "headers": one["headers"]}
    endstop.detect(body, api=one["api"], **known)
    # Some errors have no format of their own.
    with contextlib.suppress(endstop.FormatError):
        endstop.detect(body, **known)
    if one["streaming"]:
        decoder = endstop.StreamDecoder(one["api"], **known)
        # Clients get a stream in chunks that have nothing to do with its events.
        for at in range(0, len(body), 700):
            decoder.push(body[at : at + 700])
        decoder.finish()
    elif isinstance(parsed := json.loads(body), dict):
        endstop.detect(parsed, api=one["api"], status=one["status"])


def openai(number: int, text: str | None) -> dict[str, Any]:
    message: dict[str, Any] = {"role": "assistant", "content": text}
    if text is None:
        arguments = json.dumps({"path": f"src/file_{number}.rs", "lines": [number, number + 40]})
        call = {"name": "read", "arguments": arguments}
        message["tool_calls"] = [{"id": f"call_{number}", "type": "function", "function": call}]
    finish = "tool_calls" if text is None else "stop"
    return {
        "id": f"chatcmpl-{number}",
        "object": "chat.completion",
        "created": 1,
        "model": "gpt-4o-mini-2024-07-18",
        "choices": [{"index": 0, "message": message, "finish_reason": finish}],
        "usage": {
            "prompt_tokens": 100 + number,
            "completion_tokens": 50,
            "total_tokens": 150 + number,
        },
    }


def anthropic(number: int, text: str | None) -> dict[str, Any]:
    given = {"path": f"src/file_{number}.rs"}
    call = {"type": "tool_use", "id": f"toolu_{number}", "name": "read", "input": given}
    return {
        "id": f"msg_{number}",
        "type": "message",
        "role": "assistant",
        "model": "claude-sonnet-4-5-20250929",
        "content": [
            {"type": "text", "text": text or f"I read file {number}."},
            *([] if text else [call]),
        ],
        "stop_reason": "end_turn" if text else "tool_use",
        "stop_sequence": None,
        "usage": {"input_tokens": 100 + number, "cache_read_input_tokens": 9, "output_tokens": 50},
    }


def run(make: Any, turns: int, policy: Any, as_bytes: bool) -> None:
    """Performs a run of many turns with a tool, and then an answer."""
    limits = {"max_turns": None, "max_budget_usd": 100.0}
    run = endstop.Run(limits=limits, price="in=1,out=2", policy=policy, task="Read all files.")
    for number in range(turns):
        assert run.go(), run.outcome
        body = make(number, None)
        for call in run.turn(json.dumps(body).encode() if as_bytes else body).calls:
            run.result(call, f"{number} lines of {call.args['path']}")
    assert run.go()
    run.turn(make(turns, "FINAL(42)"))
    assert not run.go()
    outcome = run.outcome
    assert outcome is not None and outcome.turns == turns + 1, outcome
    json.dumps(outcome.to_dict())


def main() -> None:
    for one, body in recorded():
        for _ in range(20):
            read(one, body)
    for make in (openai, anthropic):
        for policy in (None, endstop.FINAL):
            for as_bytes in (True, True, False):
                run(make, 500, policy, as_bytes)
    for number in range(200):
        endstop.FINAL.should_stop("All files are read. " * number)
        endstop.redact(f"Authorization: Bearer {number:064x}, and then text " * 20)
    endstop.backtest([path for path in sorted(FIXTURES.iterdir()) if path.is_dir()])
    endstop.audit([path for path in sorted(FIXTURES.iterdir()) if path.is_dir()])


if __name__ == "__main__":
    main()
