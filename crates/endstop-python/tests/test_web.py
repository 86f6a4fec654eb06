"""The program of the page about web routes, over sockets: a server, a model, and a client that leaves."""

from __future__ import annotations

import asyncio
import contextlib
import json
import re
import socket
import threading
import time
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import httpx
import pytest

from endstop import Outcome

PAGE = Path(__file__).parents[3] / "docs" / "src" / "python" / "web.md"
WORDS = ["The ", "capital ", "is ", "Paris."]


class Model(BaseHTTPRequestHandler):
    """Streams an answer. A question with `slow` has a pause after each word, one with `cut` no end."""

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["content-length"]))
        question = json.loads(body)["messages"][0]["content"]
        self.send_response(200)
        self.send_header("content-type", "text/event-stream")
        self.end_headers()
        finish = "length" if question == "cut" else "stop"
        pieces: list[dict[str, Any]] = [{"delta": {"content": word}} for word in WORDS]
        for piece in [*pieces, {"delta": {}, "finish_reason": finish}]:
            chunk = {"id": "1", "object": "chat.completion.chunk", "created": 1, "model": "m"}
            self.wfile.write(
                f"data: {json.dumps({**chunk, 'choices': [{'index': 0, **piece}]})}\n\n".encode()
            )
            self.wfile.flush()
            if question == "slow":
                time.sleep(0.3)
        self.wfile.write(b"data: [DONE]\n\n")

    def handle_one_request(self) -> None:
        with contextlib.suppress(ConnectionError):  # The client has left.
            super().handle_one_request()

    def log_message(self, *_: Any) -> None:
        pass


@pytest.fixture
def program(monkeypatch: pytest.MonkeyPatch) -> Iterator[tuple[str, list[Outcome]]]:
    """The page's program behind a real server: its address, and the list of its outcomes."""
    for package in ("starlette", "uvicorn", "openai"):
        pytest.importorskip(package, reason=f"{package} is not installed")
    import uvicorn

    model = ThreadingHTTPServer(("127.0.0.1", 0), Model)
    threading.Thread(target=model.serve_forever, daemon=True).start()
    monkeypatch.setenv("OPENAI_BASE_URL", f"http://127.0.0.1:{model.server_port}/v1")
    monkeypatch.setenv("OPENAI_API_KEY", "x")
    source = re.findall(r"^```python\n(.*?)^```", PAGE.read_text(), re.M | re.S)[0]
    names: dict[str, Any] = {}
    exec(compile(source, str(PAGE), "exec"), names)
    listener = socket.socket()
    listener.bind(("127.0.0.1", 0))
    config = uvicorn.Config(names["app"], log_level="error", lifespan="off")
    server = uvicorn.Server(config)
    thread = threading.Thread(target=lambda: asyncio.run(server.serve([listener])), daemon=True)
    thread.start()
    yield f"http://127.0.0.1:{listener.getsockname()[1]}/ask", names["ended"]
    server.should_exit = True
    thread.join(10)
    model.shutdown()


def events(text: str) -> list[tuple[str, Any]]:
    found = re.findall(r"event: (\w+)\ndata: (.*)\n\n", text)
    return [(kind, json.loads(data)) for kind, data in found]


@pytest.mark.parametrize(
    ("question", "ending"), [("whole", "stop"), ("cut", "error_output_truncated")]
)
def test_outcome_is_the_last_event(
    program: tuple[str, list[Outcome]], question: str, ending: str
) -> None:
    address, ended = program
    found = events(httpx.get(address, params={"q": question}, timeout=20).text)
    assert [data for kind, data in found[:-1] if kind == "text"] == WORDS
    assert found[-1][0] == "outcome" and found[-1][1]["termination"] == ending
    assert [outcome.termination for outcome in ended] == [ending]


def test_client_that_leaves_cancels(program: tuple[str, list[Outcome]]) -> None:
    address, ended = program
    with httpx.stream("GET", address, params={"q": "slow"}, timeout=20) as response:
        next(response.iter_text())
    until = time.monotonic() + 20
    while not ended and time.monotonic() < until:
        time.sleep(0.05)
    assert [outcome.termination for outcome in ended] == ["cancelled"]
