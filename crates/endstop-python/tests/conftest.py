"""Responses of the formats, as the tests feed them."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
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


class Server:
    """A server on a real socket that answers each request with the next scripted response."""

    def __init__(self) -> None:
        self.script: list[tuple[int, str, bytes]] = []
        self.requests: list[tuple[str, bytes]] = []
        outer = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                length = int(self.headers.get("content-length") or 0)
                outer.requests.append((self.path, self.rfile.read(length)))
                status, kind, body = outer.answer(*outer.requests[-1])
                self.send_response(status)
                self.send_header("content-type", kind)
                self.send_header("content-length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, *_: Any) -> None:
                pass

        self._listening = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._thread = threading.Thread(target=self._listening.serve_forever)
        self._thread.start()
        self.url = f"http://127.0.0.1:{self._listening.server_port}"

    def answer(self, path: str, body: bytes) -> tuple[int, str, bytes]:
        """Returns status, content type and body of the next response."""
        return self.script.pop(0) if self.script else (500, "text/plain", b"")

    def say(self, *bodies: bytes, status: int = 200, kind: str | None = None) -> None:
        """Adds responses to the script."""
        for body in bodies:
            stream = body.startswith((b"data:", b"event:"))
            known = "text/event-stream" if stream else "application/json"
            self.script.append((status, kind or known, body))

    def close(self) -> None:
        self._listening.shutdown()
        self._thread.join()
        self._listening.server_close()


class Model(Server):
    """A model of OpenAI or Google that calls its first tool once, and then answers, whole or as a stream."""

    def answer(self, path: str, body: bytes) -> tuple[int, str, bytes]:
        ask = json.loads(body)
        if ":generateContent" in path:
            parts = [{"text": "All done."}]
            candidate = {"content": {"role": "model", "parts": parts}, "finishReason": "STOP"}
            usage = {"promptTokenCount": 100, "candidatesTokenCount": 50, "totalTokenCount": 150}
            whole = {
                "candidates": [candidate],
                "usageMetadata": usage,
                "modelVersion": "gemini-2.5-flash",
            }
            return 200, "application/json", json.dumps(whole).encode()
        given = ask.get("messages") or ask.get("input") or []
        answered = "tool_call_id" in str(given) or "function_call_output" in str(given)
        call = None
        if ask.get("tools") and not answered:
            function = ask["tools"][0].get("function") or ask["tools"][0]
            fields = (function.get("parameters") or {}).get("properties", {})
            values = {"string": "notes.txt", "integer": 1, "number": 1.5, "boolean": True}
            arguments = {
                name: values.get(field.get("type", "string"), "x") for name, field in fields.items()
            }
            call = (function["name"], json.dumps(arguments))
        respond = _responses if path.endswith("/responses") else _completions
        # DSPy asks for its fields by these names.
        marked = "[[ ## answer ## ]]" in str(given)
        text = "[[ ## answer ## ]]\nAll done.\n\n[[ ## completed ## ]]" if marked else "All done."
        whole, events = respond(call, text)
        if ask.get("stream"):
            return 200, "text/event-stream", b"".join(events)
        return 200, "application/json", json.dumps(whole).encode()


def _completions(call: tuple[str, str] | None, text: str) -> tuple[dict[str, Any], list[bytes]]:
    head = {"id": "r1", "created": 1, "model": "gpt-4o-2024-08-06"}
    usage = {"prompt_tokens": 100, "completion_tokens": 50, "total_tokens": 150}
    message: dict[str, Any] = {"role": "assistant", "content": text}
    finish = "stop"
    if call is not None:
        function = {"name": call[0], "arguments": call[1]}
        message = {
            "role": "assistant",
            "content": None,
            "tool_calls": [{"id": "call_1", "type": "function", "function": function}],
        }
        finish = "tool_calls"
    whole = {
        **head,
        "object": "chat.completion",
        "choices": [{"index": 0, "message": message, "finish_reason": finish}],
        "usage": usage,
    }
    delta = {
        **message,
        "tool_calls": [{"index": 0, **one} for one in message.get("tool_calls", [])],
    }
    chunk = {**head, "object": "chat.completion.chunk"}
    events = [
        {**chunk, "choices": [{"index": 0, "delta": delta, "finish_reason": None}]},
        {**chunk, "choices": [{"index": 0, "delta": {}, "finish_reason": finish}]},
        {**chunk, "choices": [], "usage": usage},
    ]
    return whole, [sse(*events)]


def _responses(call: tuple[str, str] | None, text: str) -> tuple[dict[str, Any], list[bytes]]:
    part = {"type": "output_text", "text": text, "annotations": []}
    item: dict[str, Any] = {
        "type": "message",
        "id": "m1",
        "role": "assistant",
        "status": "completed",
        "content": [part],
    }
    if call is not None:
        item = {
            "type": "function_call",
            "id": "f1",
            "call_id": "call_1",
            "name": call[0],
            "arguments": call[1],
            "status": "completed",
        }
    details = {
        "input_tokens_details": {"cached_tokens": 0},
        "output_tokens_details": {"reasoning_tokens": 0},
    }
    whole = {
        "id": "r1",
        "object": "response",
        "created_at": 1,
        "model": "gpt-4o-2024-08-06",
        "status": "completed",
        "output": [item],
        "parallel_tool_calls": True,
        "tool_choice": "auto",
        "tools": [],
        "usage": {"input_tokens": 100, "output_tokens": 50, "total_tokens": 150, **details},
    }
    last = {"type": "response.completed", "sequence_number": 1, "response": whole}
    first = {
        "type": "response.created",
        "sequence_number": 0,
        "response": {**whole, "status": "in_progress", "output": []},
    }
    return whole, [
        f"event: {one['type']}\ndata: {json.dumps(one)}\n\n".encode() for one in (first, last)
    ]


@pytest.fixture
def model() -> Iterator[Model]:
    model = Model()
    yield model
    model.close()


@pytest.fixture
def server() -> Iterator[Server]:
    server = Server()
    yield server
    server.close()
