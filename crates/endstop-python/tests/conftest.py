"""Responses of the formats, as the tests feed them."""

from __future__ import annotations

import json
from typing import Any

import pytest


def chat(
    text: str | None = None,
    *,
    finish: str | None = "stop",
    calls: list[tuple[str, str, str]] | None = None,
    model: str = "gpt-4o-mini",
) -> bytes:
    """Returns the body of a chat completion."""
    message: dict[str, Any] = {"role": "assistant", "content": text}
    if calls:
        message["tool_calls"] = [
            {"id": id, "type": "function", "function": {"name": name, "arguments": arguments}}
            for id, name, arguments in calls
        ]
    body = {
        "object": "chat.completion",
        "model": model,
        "choices": [{"index": 0, "message": message, "finish_reason": finish}],
        "usage": {"prompt_tokens": 100, "completion_tokens": 50},
    }
    return json.dumps(body).encode()


def tool(number: int = 1, arguments: str = '{"text":"x"}', finish: str = "tool_calls") -> bytes:
    """Returns a chat completion that calls the tool `echo`."""
    return chat(finish=finish, calls=[(f"c{number}", "echo", arguments)])


def sse(*events: object, done: bool = True) -> bytes:
    """Returns a stream of server-sent events."""
    lines = [f"data: {json.dumps(event)}\n\n" for event in events]
    return "".join([*lines, "data: [DONE]\n\n" if done else ""]).encode()


@pytest.fixture
def clock() -> Clock:
    return Clock()


class Clock:
    """A clock that a test moves."""

    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now
