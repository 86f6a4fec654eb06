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
                status, kind, body = (
                    outer.script.pop(0) if outer.script else (500, "text/plain", b"")
                )
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


@pytest.fixture
def server() -> Iterator[Server]:
    server = Server()
    yield server
    server.close()
