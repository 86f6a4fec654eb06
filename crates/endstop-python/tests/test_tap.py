"""The tap, over real sockets."""

from __future__ import annotations

import asyncio
import gzip
import itertools
import json
import subprocess
import sys
import threading
import zlib
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import ExitStack
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


def raw(body: bytes) -> bytes:
    packer = zlib.compressobj(wbits=-zlib.MAX_WBITS)
    return packer.compress(body) + packer.flush()


PACKED: dict[str, Callable[[bytes], bytes]] = {
    "gzip": gzip.compress,
    "x-gzip": gzip.compress,
    "GZIP": gzip.compress,
    "deflate": zlib.compress,
    "deflate+raw": raw,
    "identity": bytes,
    "gzip, gzip": lambda body: gzip.compress(gzip.compress(body)),
    "deflate, gzip": lambda body: gzip.compress(zlib.compress(body)),
    "gzip+members": lambda body: b"".join(gzip.compress(bytes([byte])) for byte in body),
    "gzip+garbage": lambda body: gzip.compress(body) + b"\0\0garbage",
    "gzip+padding": lambda body: gzip.compress(body) + b"\0" * 9,
    "deflate+garbage": lambda body: zlib.compress(body) + b"garbage",
}
"""The codings by the header of their response, and what is unusual about the bytes."""


class Handler(BaseHTTPRequestHandler):
    """Answers by the name of the model."""

    def do_POST(self) -> None:
        length = int(self.headers["content-length"])
        model = json.loads(self.rfile.read(length).decode("utf-8-sig"))["model"]
        status = 429 if model == "busy" else 200
        body = {"stream": STREAM, "cut": STREAM[:60], "reset": STREAM[:60]}.get(
            model, chat("Hello", model=model)
        )
        if status == 429:
            body = b'{"error":{"message":"slow down","type":"x","param":null,"code":null}}'
        self.send_response(status)
        coding = model.partition(":")[2]
        if coding:
            body = PACKED[coding](body)
            self.send_header("content-encoding", coding.partition("+")[0])
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
        streamed = b""
        with client.stream("POST", server, json={"model": "stream"}) as response:
            for chunk in response.iter_raw():
                streamed += chunk
        assert streamed == STREAM
        assert recording.last.reason is SignalReason.TOKEN_LIMIT_REACHED
        assert [found.text for found in recording.take()] == ["Hello"] * 2
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


@pytest.mark.parametrize("coding", [*PACKED])
def test_packed_responses_are_unpacked(server: str, coding: str) -> None:
    with tap.wrap(httpx.Client()) as client, tap.record() as recording:
        model = f"m:{coding}"
        with client.stream("POST", server, json={"model": model}) as response:
            b"".join(response.iter_raw())
        assert recording.last is not None
        assert (recording.last.text, recording.last.model) == ("Hello", model)


@pytest.mark.parametrize("coding", [*PACKED])
def test_packed_bytes_are_unpacked_at_every_cut(coding: str) -> None:
    body = chat("Hello")
    packed = PACKED[coding](body)
    for size in (1, 2, 3, 7, len(packed)):
        observer = tap.Observer(
            tap.Recording(),
            "openai-chat",
            200,
            {"content-encoding": coding.partition("+")[0]},
            None,
        )
        for at in range(0, len(packed), size):
            observer.push(packed[at : at + size])
        observer.end(reset=False)
        assert observer._recording.last == endstop.detect(body)


def test_unpacked_bytes_are_bounded() -> None:
    text = "x" * 3_000_000
    packed = gzip.compress(gzip.compress(chat(text)))
    pieces = list(tap._through(tap._unpackers("gzip, gzip") or [], packed))
    assert b"".join(pieces) == chat(text)
    assert max(len(piece) for piece in pieces) <= tap.PIECE


@pytest.mark.parametrize("coding", ["br", "zstd", "gzip, br", "unheard-of"])
def test_unknown_coding_is_an_error_of_the_response(coding: str) -> None:
    observer = tap.Observer(tap.Recording(), "openai-chat", 200, {"content-encoding": coding}, None)
    observer.push(b"\x0b\x02\x80")
    observer.end(reset=False)
    assert observer._recording.last is not None and observer._recording.last.error is not None


@pytest.mark.parametrize("start", [b"", b"\xef\xbb\xbf", b" \r\n\t", b"\xef\xbb\xbf \n"])
def test_request_is_read_after_a_mark_or_blanks(server: str, start: bytes) -> None:
    # A stop string may be why the model stopped, which only the request tells.
    ask = start + b'{"model": "m", "stop": ["x"]}'
    with tap.wrap(httpx.Client()) as client, tap.record() as recording:
        client.post(server, content=ask)
    answer = chat("Hello", model="m")
    assert recording.last is not None
    assert recording.last.signal == endstop.detect(answer, request={"stop": ["x"]}).signal
    assert recording.last.signal != endstop.detect(answer).signal


@pytest.mark.parametrize("ask", [b"{", b"{}}", b"[]", b"not json", b'{"model": \xff}'])
def test_request_that_is_not_json_is_left_alone(ask: bytes) -> None:
    transport = httpx.MockTransport(lambda request: httpx.Response(200, content=chat("Hi")))
    with tap.wrap(httpx.Client(transport=transport)) as client, tap.record() as recording:
        client.post("http://test/v1/chat/completions", content=ask)
    assert recording.last is not None and recording.last.text == "Hi"


def test_mock_transport_serves_both_clients() -> None:
    url = "http://test/v1/chat/completions"
    packed = {"content": gzip.compress(chat("Hi")), "headers": {"content-encoding": "gzip"}}
    answers = itertools.cycle([{"content": chat("Hi")}, packed])
    mock = httpx.MockTransport(lambda request: httpx.Response(200, **next(answers)))
    with tap.record() as recording:
        with tap.wrap(httpx.Client(transport=mock)) as client:
            assert client.post(url, json={}).status_code == 200
        with tap.wrap(httpx.Client(mounts={"http://": mock})) as client:
            assert client.post(url, json={}).status_code == 200

        async def main() -> None:
            async with tap.wrap(httpx.AsyncClient(transport=mock)) as client:
                assert (await client.post(url, json={})).status_code == 200
            async with tap.wrap(httpx.AsyncClient(mounts={"http://": mock})) as client:
                assert (await client.post(url, json={})).status_code == 200

        asyncio.run(main())
    assert [found.text for found in recording.detections] == ["Hi"] * 4


def test_transport_of_the_other_kind_is_refused() -> None:
    async def app(scope: Any, receive: Any, send: Any) -> None:
        pass

    client = httpx.Client(transport=httpx.ASGITransport(app))
    before = client._transport
    with pytest.raises(endstop.ConfigError, match="`httpx.Client` needs one with `handle_request`"):
        tap.wrap(client)
    assert client._transport is before
    both = httpx.AsyncClient(transport=httpx.WSGITransport(lambda environ, start: []))
    with pytest.raises(endstop.ConfigError, match="`handle_async_request`"):
        tap.wrap(both)


def test_innermost_recording_gets_the_response(server: str) -> None:
    def models(recording: tap.Recording) -> list[str | None]:
        return [found.model for found in recording.detections]

    with tap.wrap(httpx.Client()) as client, tap.record() as outer:
        client.post(server, json={"model": "a"})
        with tap.record() as inner:
            client.post(server, json={"model": "b"})
            with tap.record() as third:
                client.post(server, json={"model": "c"})
            client.post(server, json={"model": "d"})
        client.post(server, json={"model": "e"})
    client = tap.wrap(httpx.Client())
    client.post(server, json={"model": "f"})
    assert (models(outer), models(inner), models(third)) == (["a", "e"], ["b", "d"], ["c"])


def test_response_belongs_to_the_recording_of_its_request(server: str) -> None:
    with tap.wrap(httpx.Client()) as client, tap.record() as outer, ExitStack() as stack:
        with tap.record() as call:
            ask = client.stream("POST", server, json={"model": "stream"})
            response = stack.enter_context(ask)
        client.post(server, json={"model": "later"})
        assert response.read() == STREAM
    assert [found.text for found in call.detections] == ["Hello"]
    assert [found.model for found in outer.detections] == ["later"]


def test_hooks_may_record_in_other_tasks(server: str) -> None:
    """A framework calls the hooks around a model call in tasks of its own."""

    async def main() -> None:
        async with tap.wrap(httpx.AsyncClient()) as client:

            async def ask(model: str) -> None:
                await client.post(server, json={"model": model})

            with tap.record() as outer:
                call = tap.Recording()

                async def before() -> None:
                    tap.attach(call)
                    await ask("call")
                    await asyncio.create_task(after())

                async def after() -> None:
                    tap.attach(outer)
                    await ask("after")

                await asyncio.create_task(before())
                await ask("outer")
            assert [found.model for found in call.detections] == ["call"]
            assert [found.model for found in outer.detections] == ["after", "outer"]

    asyncio.run(main())


def test_recording_may_end_in_another_context(server: str) -> None:
    async def stream() -> AsyncIterator[int]:
        with tap.record():
            yield 1
            yield 2

    async def main() -> None:
        values = stream()
        await asyncio.create_task(anext(values))  # type: ignore[arg-type]
        await values.aclose()

    asyncio.run(main())


def test_recordings_of_parallel_calls_are_apart(server: str) -> None:
    async def main() -> None:
        async with tap.wrap(httpx.AsyncClient()) as client:

            async def call(model: str) -> list[str | None]:
                with tap.use(tap.Recording()) as recording:
                    await client.post(server, json={"model": model})
                    await asyncio.sleep(0)
                    await client.post(server, json={"model": model})
                return [found.model for found in recording.detections]

            with tap.record() as outer:
                models = [f"model-{n}" for n in range(8)]
                found = await asyncio.gather(*(call(model) for model in models))
                assert found == [[model] * 2 for model in models]
            assert outer.detections == []

    asyncio.run(main())


def test_names_of_the_package_are_imported_when_used() -> None:
    code = "import sys, endstop; a = 'endstop.tap' in sys.modules; endstop.tap.wrap; endstop.rlm.install; print(a, endstop.adapters.__name__, 'tap' in dir(endstop))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["False", "endstop.adapters", "True"]
    with pytest.raises(AttributeError, match="no attribute 'taps'"):
        endstop.taps  # type: ignore[attr-defined]  # noqa: B018


def test_reader_that_leaves_is_not_a_broken_connection() -> None:
    pieces = [f'data: {{"choices":[{{"delta":{{"content":"{n} "}}}}]}}\n\n' for n in range(3)]

    def stream() -> Iterator[bytes]:
        yield from (piece.encode() for piece in pieces)

    def respond(request: httpx.Request) -> httpx.Response:
        return httpx.Response(200, headers={"content-type": "text/event-stream"}, content=stream())

    with tap.wrap(httpx.Client(transport=httpx.MockTransport(respond))) as client:
        url = "http://x/v1/chat/completions"
        with tap.record() as recording, client.stream("POST", url, json={}) as response:
            next(response.iter_raw())
        assert recording.left and recording.last is not None and recording.last.text == "0 "
        with tap.record() as recording, client.stream("POST", url, json={}) as response:
            response.read()
        assert not recording.left
        # What is open can be recorded as it is; what comes later changes nothing.
        with tap.record() as recording, client.stream("POST", url, json={}) as response:
            body = response.iter_raw()
            next(body)
            recording.cut()
            assert recording.left and len(recording.detections) == 1
            assert len([*body]) == 2
        assert len(recording.detections) == 1


def test_request_without_a_response_is_recorded() -> None:
    def respond(request: httpx.Request) -> httpx.Response:
        raise httpx.ConnectError("refused")

    with tap.wrap(httpx.Client(transport=httpx.MockTransport(respond))) as client:
        with tap.record() as recording, pytest.raises(httpx.ConnectError):
            client.post("http://x/v1/chat/completions", json={"model": "m"})
        assert recording.last is not None and recording.last.error is not None
        with tap.record() as recording, pytest.raises(httpx.ConnectError):
            client.post("http://x/v1/embeddings", json={"model": "m"})
        assert recording.detections == []


def test_recording_may_refuse_a_request() -> None:
    def no() -> None:
        raise ValueError("the run has ended")

    sent: list[httpx.Request] = []

    def respond(request: httpx.Request) -> httpx.Response:
        sent.append(request)
        return httpx.Response(200, json={})

    client = tap.wrap(httpx.Client(transport=httpx.MockTransport(respond)))
    with client, tap.use(tap.Recording(before=no)):
        with pytest.raises(ValueError, match="has ended"):
            client.post("http://x/v1/chat/completions", json={"model": "m"})
        client.post("http://x/v1/embeddings", json={"model": "m"})
    assert [request.url.path for request in sent] == ["/v1/embeddings"]
