"""Objects of the providers' SDKs, where they are installed, compared with the bytes they came from."""

from __future__ import annotations

import json
from typing import Any

import pytest
from conftest import chat, tool

import endstop

BODIES = [
    chat("Hello"),
    chat("Hel", finish="length"),
    tool(),
    tool(arguments='{"te', finish="length"),
]


def same(found: Any, raw: bytes) -> None:
    """Compares an object with the bytes, in all that the command prints."""
    assert endstop.detect(found).to_dict() == endstop.detect(raw).to_dict()


@pytest.mark.parametrize("raw", BODIES)
def test_openai_chat(raw: bytes) -> None:
    types = pytest.importorskip("openai.types.chat")
    body = {"id": "r1", "created": 1, **json.loads(raw)}
    body["usage"]["total_tokens"] = 150
    same(types.ChatCompletion.model_validate(body), raw)


@pytest.mark.parametrize("finish", ["stop", "length", None])
def test_openai_chunks(finish: str | None) -> None:
    types = pytest.importorskip("openai.types.chat")
    events = [
        {"choices": [{"index": 0, "delta": {"role": "assistant", "content": "Hel"}}]},
        {"choices": [{"index": 0, "delta": {"content": "lo"}, "finish_reason": finish}]},
    ]
    whole = [
        {"id": "r", "created": 1, "model": "m", "object": "chat.completion.chunk", **event}
        for event in events
    ]
    found = endstop.detect([types.ChatCompletionChunk.model_validate(event) for event in whole])
    assert found.text == "Hello"
    expected = {"stop": "natural_completion", "length": "token_limit_reached"}
    assert found.reason == expected.get(finish or "", "error_termination")


@pytest.mark.parametrize("reason", ["end_turn", "max_tokens", "tool_use", "refusal"])
def test_anthropic_message(reason: str) -> None:
    types = pytest.importorskip("anthropic.types")
    content: list[dict[str, Any]] = [{"type": "text", "text": "Hello"}]
    if reason == "tool_use":
        content.append({"type": "tool_use", "id": "t1", "name": "f", "input": {"a_b": 1}})
    body = {
        "id": "m1",
        "type": "message",
        "role": "assistant",
        "model": "claude-3-haiku",
        "content": content,
        "stop_reason": reason,
        "stop_sequence": None,
        "usage": {"input_tokens": 3, "output_tokens": 4},
    }
    same(types.Message.model_validate(body), json.dumps(body).encode())


@pytest.mark.parametrize("reason", ["STOP", "MAX_TOKENS", "SAFETY"])
def test_google_response(reason: str) -> None:
    types = pytest.importorskip("google.genai.types")
    part = {"functionCall": {"name": "f", "args": {"a_b": 1}}}
    body = {
        "candidates": [
            {"content": {"role": "model", "parts": [part]}, "finishReason": reason, "index": 0}
        ],
        "usageMetadata": {"promptTokenCount": 3, "candidatesTokenCount": 4},
        "modelVersion": "gemini-2.5-flash",
    }
    found = types.GenerateContentResponse.model_validate(body)
    same(found, json.dumps(body).encode())
    # The form with the names of Python, as `model_dump()` writes it.
    same(found.model_dump(), json.dumps(body).encode())
