"""Reads the responses of model calls on their way through an HTTP client.

Many frameworks drop the provider's finish value, or make one up. The tap sits below them, in the
transport of `httpx` or `httpx2`, and decodes the bytes while they pass. The client gets them
unchanged.

>>> client = endstop.tap.wrap(openai.AsyncOpenAI())
>>> with endstop.tap.record() as recording:
...     await framework.run(client)
>>> recording.last.reason
<SignalReason.TOKEN_LIMIT_REACHED: 'token_limit_reached'>

A response belongs to the recording of the context (`contextvars`) in which its request is sent, so
that concurrent runs can share a client. A client outside of `httpx` can be put behind `endstop
guard` instead.
"""

from __future__ import annotations

import sys
import zlib
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from functools import cache
from typing import Any, TypeVar

from endstop._endstop import Detection, StreamDecoder, api_of
from endstop._errors import ConfigError, EndstopError

__all__ = ["AsyncTransport", "Recording", "Transport", "record", "wrap"]

Client = TypeVar("Client")


class Recording:
    """The responses of model calls, in the order of their ends."""

    def __init__(self, each: Callable[[Detection], None] | None = None) -> None:
        self.detections: list[Detection] = []
        self._each = each

    @property
    def last(self) -> Detection | None:
        """The response that ended last; None before the first."""
        return self.detections[-1] if self.detections else None

    def take(self) -> list[Detection]:
        """Returns the responses since the last call of this method, and forgets them."""
        taken, self.detections = self.detections, []
        return taken

    def _add(self, detection: Detection) -> None:
        self.detections.append(detection)
        if self._each is not None:
            self._each(detection)


_CURRENT: ContextVar[Recording | None] = ContextVar("endstop_recording", default=None)


@contextmanager
def record(each: Callable[[Detection], None] | None = None) -> Iterator[Recording]:
    """Records the responses to requests of this context, also in the tasks that it starts. `each`
    is called with every response at its end."""
    recording = Recording(each)
    token = _CURRENT.set(recording)
    try:
        yield recording
    finally:
        _CURRENT.reset(token)


class Observer:
    """Decodes one response while its bytes pass."""

    def __init__(
        self,
        recording: Recording,
        api: str,
        status: int,
        headers: Mapping[str, str],
        body: bytes | None,
    ) -> None:
        self._recording = recording
        self._decoder = StreamDecoder(api, status=status, headers=dict(headers), request=body)
        coding = headers.get("content-encoding", "").strip().lower()
        # 32 more: the header of gzip or of zlib decides.
        self._unpack = zlib.decompressobj(zlib.MAX_WBITS | 32) if coding else None
        self._ended = False

    def push(self, chunk: bytes) -> None:
        if self._unpack is not None:
            try:
                chunk = self._unpack.decompress(chunk)
            except zlib.error:
                # The decoder reports the packed bytes as unreadable.
                self._unpack = None
        self._decoder.push(chunk)

    def end(self, *, reset: bool) -> None:
        if not self._ended:
            self._ended = True
            complete = self._decoder.complete
            self._recording._add(self._decoder.finish(reset=reset and not complete))


def _body(request: Any) -> bytes | None:
    """Returns the request's JSON, if it was built from bytes."""
    try:
        content = request.content
    except Exception:  # A streamed body cannot be read twice.
        return None
    return content if isinstance(content, bytes) and content[:1] == b"{" else None


def _observe(request: Any, response: Any) -> Observer | None:
    recording = _CURRENT.get()
    api = api_of(request.method, request.url.raw_path.decode("ascii", "replace"))
    if recording is None or api is None:
        return None
    return Observer(recording, api, response.status_code, response.headers, _body(request))


@cache
def _streams(library: str) -> tuple[type[Any], type[Any]]:
    """Makes the stream classes for `httpx` or `httpx2`, which check the type of a stream."""
    module = sys.modules[library]

    class Stream(module.SyncByteStream):  # type: ignore[name-defined, misc]
        def __init__(self, inner: Any, observer: Observer) -> None:
            self._inner, self._observer = inner, observer

        def __iter__(self) -> Iterator[bytes]:
            try:
                for chunk in self._inner:
                    self._observer.push(chunk)
                    yield chunk
            except Exception:
                self._observer.end(reset=True)
                raise
            self._observer.end(reset=False)

        def close(self) -> None:
            self._observer.end(reset=True)
            self._inner.close()

    class AsyncStream(module.AsyncByteStream):  # type: ignore[name-defined, misc]
        def __init__(self, inner: Any, observer: Observer) -> None:
            self._inner, self._observer = inner, observer

        async def __aiter__(self) -> AsyncIterator[bytes]:
            try:
                async for chunk in self._inner:
                    self._observer.push(chunk)
                    yield chunk
            except Exception:
                self._observer.end(reset=True)
                raise
            self._observer.end(reset=False)

        async def aclose(self) -> None:
            self._observer.end(reset=True)
            await self._inner.aclose()

    return Stream, AsyncStream


def _library(response: Any) -> str:
    return str(type(response).__module__.partition(".")[0])


def _prepare(request: Any) -> None:
    # Codings that the standard library unpacks.
    if "accept-encoding" in request.headers:
        request.headers["accept-encoding"] = "gzip, deflate"


class Transport:
    """A transport for `httpx.Client` or `httpx2.Client` around another one."""

    def __init__(self, inner: Any) -> None:
        self._inner = inner

    def handle_request(self, request: Any) -> Any:
        _prepare(request)
        response = self._inner.handle_request(request)
        observer = _observe(request, response)
        if observer is not None:
            response.stream = _streams(_library(response))[0](response.stream, observer)
        return response

    def close(self) -> None:
        self._inner.close()

    def __enter__(self) -> Transport:
        self._inner.__enter__()
        return self

    def __exit__(self, *problem: Any) -> None:
        self._inner.__exit__(*problem)


class AsyncTransport:
    """A transport for `httpx.AsyncClient` or `httpx2.AsyncClient` around another one."""

    def __init__(self, inner: Any) -> None:
        self._inner = inner

    async def handle_async_request(self, request: Any) -> Any:
        _prepare(request)
        response = await self._inner.handle_async_request(request)
        observer = _observe(request, response)
        if observer is not None:
            response.stream = _streams(_library(response))[1](response.stream, observer)
        return response

    async def aclose(self) -> None:
        await self._inner.aclose()

    async def __aenter__(self) -> AsyncTransport:
        await self._inner.__aenter__()
        return self

    async def __aexit__(self, *problem: Any) -> None:
        await self._inner.__aexit__(*problem)


def wrap(client: Client) -> Client:
    """Puts the tap into a client of `httpx` or `httpx2`, or into the client of an SDK that has one
    (`openai`, `anthropic`). Returns the same client. A second call changes nothing."""
    inner: Any = client
    for _ in range(3):
        if hasattr(inner, "_transport") and hasattr(inner, "_mounts"):
            break
        inner = getattr(inner, "_client", None)
    else:
        inner = None
    if inner is None:
        kind = f"{type(client).__module__}.{type(client).__qualname__}"
        raise ConfigError(
            f"invalid client `{kind}`: expected a client of httpx or httpx2, or of an SDK that "
            "uses one; or point the SDK at `endstop guard`"
        )
    inner._transport = _tapped(inner._transport)
    inner._mounts = {pattern: _tapped(mount) for pattern, mount in inner._mounts.items()}
    return client


def _tapped(transport: Any) -> Any:
    if transport is None or isinstance(transport, Transport | AsyncTransport):
        return transport
    if hasattr(transport, "handle_async_request"):
        return AsyncTransport(transport)
    if hasattr(transport, "handle_request"):
        return Transport(transport)
    raise EndstopError(f"a transport of an unknown kind: {type(transport).__qualname__}")
