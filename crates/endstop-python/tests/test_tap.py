"""The tap, over real sockets."""

from __future__ import annotations

import asyncio
import gzip
import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest
from conftest import chat, sse

import endstop
from endstop import ErrorClass, SignalReason, tap

httpx = pytest.importorskip("httpx")

STREAM = sse(
    {"choices": [{"delta": {"content": "Hel"}}]},
    {"choices": [{"delta": {"content": "lo"}, "finish_reason": "length"}]},
)


class Handler(BaseHTTPRequestHandler):
    """Answers by the name of the model."""

    def do_POST(self) -> None:
        length = int(self.headers["content-length"])
        model = json.loads(self.rfile.read(length))["model"]
        status = 429 if model == "busy" else 200
        body = {"stream": STREAM, "cut": STREAM[:60], "reset": STREAM[:60]}.get(
            model, chat("Hello", model=model)
        )
        if status == 429:
            body = b'{"error":{"message":"slow down","type":"x","param":null,"code":null}}'
        self.send_response(status)
        if model == "packed":
            body = gzip.compress(body)
            self.send_header("content-encoding", "gzip")
        if model == "reset":
            # More is announced than is sent.
            self.send_header("content-length", str(len(body) + 100))
        else:
            self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)
        self.close_connection = True

    def log_message(self, *_: Any) -> None:
        pass


@pytest.fixture(scope="module")
def server() -> Iterator[str]:
    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as listening:
        thread = threading.Thread(target=listening.serve_forever)
        thread.start()
        yield f"http://127.0.0.1:{listening.server_port}/v1/chat/completions"
        listening.shutdown()
        thread.join()


def test_bytes_pass_unchanged_and_are_decoded(server: str) -> None:
    with tap.wrap(httpx.Client()) as client, tap.record() as recording:
        answer = client.post(server, json={"model": "gpt-4o"})
        assert answer.content == chat("Hello", model="gpt-4o")
        assert recording.last is not None and recording.last.text == "Hello"
        packed = client.post(server, json={"model": "packed"})
        assert packed.content == chat("Hello", model="packed")
        assert recording.last.model == "packed"
        streamed = b""
        with client.stream("POST", server, json={"model": "stream"}) as response:
            for chunk in response.iter_raw():
                streamed += chunk
        assert streamed == STREAM
        assert recording.last.reason is SignalReason.TOKEN_LIMIT_REACHED
        assert [found.text for found in recording.take()] == ["Hello"] * 3
        assert recording.last is None


def test_lost_stream_and_error_are_reported(server: str) -> None:
    with tap.wrap(httpx.Client()) as client, tap.record() as recording:
        client.post(server, json={"model": "cut"})
        assert recording.last is not None and recording.last.error is not None
        assert recording.last.error.kind is ErrorClass.INCOMPLETE_STREAM
        with pytest.raises(httpx.RemoteProtocolError):
            client.post(server, json={"model": "reset"})
        assert len(recording.detections) == 2 and recording.last.error is not None
        client.post(server, json={"model": "busy"})
        assert recording.last.error is not None
        assert recording.last.error.kind is ErrorClass.RATE_LIMIT


def test_stream_that_the_client_leaves_is_cut(server: str) -> None:
    with tap.wrap(httpx.Client()) as client, tap.record() as recording:
        with client.stream("POST", server, json={"model": "stream"}):
            pass
        assert recording.last is not None
        assert recording.last.error is not None
        assert recording.last.error.kind is ErrorClass.INCOMPLETE_STREAM


def test_concurrent_runs_share_a_client(server: str) -> None:
    async def one(client: Any, model: str) -> list[str | None]:
        with tap.record() as recording:
            for _ in range(5):
                await client.post(server, json={"model": model})
                await asyncio.sleep(0)
            return [found.model for found in recording.detections]

    async def main() -> None:
        async with tap.wrap(httpx.AsyncClient()) as client:
            models = [f"model-{n}" for n in range(8)]
            found = await asyncio.gather(*(one(client, model) for model in models))
            assert found == [[model] * 5 for model in models]

    asyncio.run(main())


def test_requests_outside_of_a_recording_are_left_alone(server: str) -> None:
    seen: list[endstop.Detection] = []
    with tap.wrap(httpx.Client()) as client:
        client.post(server, json={"model": "a"})
        with tap.record(seen.append) as recording:
            client.post(server.replace("/chat/completions", "/embeddings"), json={"model": "b"})
            assert recording.detections == []
            client.post(server, json={"model": "c"})
        client.post(server, json={"model": "d"})
    assert [found.model for found in seen] == ["c"]


@pytest.mark.parametrize(
    "path",
    [
        "/v1/chat/%63ompletions",
        "/v1/chat%2Fcompletions",
        "/v1//chat//completions",
        "/v1/Chat/Completions",
    ],
)
def test_another_spelling_of_a_path_is_that_path(server: str, path: str) -> None:
    with tap.wrap(httpx.Client()) as client, tap.record() as recording:
        client.post(server.replace("/v1/chat/completions", path), json={"model": "m"})
        assert [found.model for found in recording.detections] == ["m"]


def test_wrapping_twice_changes_nothing() -> None:
    client = httpx.Client()
    tap.wrap(client)
    transport = client._transport
    assert tap.wrap(client)._transport is transport
    with pytest.raises(endstop.ConfigError, match="endstop guard"):
        tap.wrap(object())
