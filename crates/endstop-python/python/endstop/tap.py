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
that concurrent runs can share a client. Recordings nest: the innermost open one gets the response, so
that each model call can have its own. A client outside of `httpx` can be put behind `endstop guard`
instead.
"""

from __future__ import annotations

import sys
import zlib
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from functools import cache
from typing import Any, Self, TypeVar

from endstop._endstop import Detection, StreamDecoder, api_of
from endstop._errors import ConfigError, EndstopError

__all__ = ["AsyncTransport", "Recording", "Transport", "current", "record", "wrap"]

Client = TypeVar("Client")


class Recording:
    """The responses of model calls, in the order of their ends.

    `record` opens one for a block. Hooks around a model call, which a framework may call in other
    tasks, use `open` and `close`. A response that ends after `close` still arrives here, if its request
    was sent before.
    """

    def __init__(self, each: Callable[[Detection], None] | None = None) -> None:
        self.detections: list[Detection] = []
        self._each = each
        self._outer: Recording | None = None
        self._is_open = False

    def open(self) -> Self:
        """Records the responses to requests of this context from now on, also in the tasks that it
        starts."""
        if self._is_open:
            raise ConfigError("this recording is open already; make one for each model call")
        self._outer, self._is_open = current(), True
        _CURRENT.set(self)
        return self

    def close(self) -> None:
        """Gives later requests back to the recording outside of this one, in every context."""
        self._is_open = False
        # Another context keeps this one, which `current` then skips.
        if _CURRENT.get() is self:
            _CURRENT.set(current())

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


def current() -> Recording | None:
    """Returns the recording that a request of this context would get; None if there is none."""
    recording = _CURRENT.get()
    while recording is not None and not recording._is_open:
        recording = recording._outer
    return recording


@contextmanager
def record(each: Callable[[Detection], None] | None = None) -> Iterator[Recording]:
    """Records the responses to requests of this context, also in the tasks that it starts. `each`
    is called with every response at its end."""
    recording = Recording(each).open()
    try:
        yield recording
    finally:
        recording.close()


PIECE = 1 << 20
"""Bytes that are unpacked at once, because a few packed bytes may be very many."""


class _Unpacker:
    """Unpacks one coding of a body: gzip with any number of members, or deflate with or without the
    header of zlib. Bytes behind the end are ignored, as HTTP clients do."""

    def __init__(self, coding: str) -> None:
        self._is_gzip = "gzip" in coding
        self._inflate: Any = None
        # The start of a header, which two bytes decide.
        self._held = b""

    def push(self, chunk: bytes) -> Iterator[bytes]:
        """Returns what a chunk has unpacked. Raises `zlib.error` for bytes that are not packed so."""
        chunk = self._held + chunk
        self._held = b""
        while chunk:
            if self._inflate is None or self._inflate.eof:
                if self._inflate is not None and not (self._is_gzip and chunk[:1] == b"\x1f"):
                    return
                if len(chunk) < 2:
                    self._held = chunk
                    return
                self._inflate = zlib.decompressobj(self._bits(chunk))
            piece = self._inflate.decompress(chunk, PIECE)
            while piece:
                yield piece
                # Some of the rest may be in the decompressor, with all of the input.
                rest = self._inflate.unconsumed_tail
                piece = (
                    self._inflate.decompress(rest, PIECE) if len(piece) == PIECE or rest else b""
                )
            chunk = self._inflate.unused_data if self._inflate.eof else b""

    def _bits(self, start: bytes) -> int:
        if self._is_gzip:
            return zlib.MAX_WBITS | 16
        # What many servers call `deflate` has no header of zlib.
        has_header = start[0] & 0x0F == 8 and int.from_bytes(start[:2], "big") % 31 == 0
        return zlib.MAX_WBITS if has_header else -zlib.MAX_WBITS


def _unpackers(header: str) -> list[_Unpacker] | None:
    """Returns the unpackers of a body, the outermost coding first; None for an unknown coding."""
    codings = [coding.strip().lower() for coding in header.split(",")]
    codings = [coding for coding in codings if coding not in ("", "identity")]
    if not {*codings} <= {"gzip", "x-gzip", "deflate"}:
        return None
    return [_Unpacker(coding) for coding in reversed(codings)]


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
        try:
            self._decoder = StreamDecoder(api, status=status, headers=dict(headers), request=body)
        except EndstopError:
            # A request that is not JSON is the server's to refuse.
            self._decoder = StreamDecoder(api, status=status, headers=dict(headers))
        # The decoder reports packed bytes as unreadable.
        self._unpackers = _unpackers(headers.get("content-encoding", "")) or []
        self._ended = False

    def push(self, chunk: bytes) -> None:
        try:
            for piece in _through(self._unpackers, chunk):
                self._decoder.push(piece)
        except zlib.error:
            self._unpackers = []
            self._decoder.push(chunk)

    def end(self, *, reset: bool) -> None:
        """Ends the response. `reset` is True if the connection broke, or the client left."""
        if not self._ended:
            self._ended = True
            complete = self._decoder.complete
            self._recording._add(self._decoder.finish(reset=reset and not complete))


def _through(unpackers: list[_Unpacker], chunk: bytes) -> Iterator[bytes]:
    if not unpackers:
        yield chunk
        return
    for piece in unpackers[0].push(chunk):
        yield from _through(unpackers[1:], piece)


def _body(request: Any) -> bytes | None:
    """Returns the request's JSON, if it was built from bytes."""
    try:
        content = request.content
    except Exception:  # A streamed body cannot be read twice.
        return None
    if not isinstance(content, bytes):
        return None
    # Servers accept both before the object.
    content = content.removeprefix(b"\xef\xbb\xbf").lstrip()
    return content if content.startswith(b"{") else None


def _observe(request: Any, response: Any) -> Observer | None:
    recording = current()
    api = api_of(request.method, request.url.raw_path.decode("ascii", "replace"))
    if recording is None or api is None:
        return None
    headers, body = response.headers, _body(request)
    if not response.is_stream_consumed:
        return Observer(recording, api, response.status_code, headers, body)
    # A transport of tests has read its response itself; no stream of it will pass.
    plain = {name: value for name, value in headers.items() if name.lower() != "content-encoding"}
    observer = Observer(recording, api, response.status_code, plain, body)
    observer.push(response.content)
    observer.end(reset=False)
    return None


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
    # By the client, because a transport may serve both kinds, such as `httpx.MockTransport`.
    method, tapped = (
        ("handle_async_request", AsyncTransport)
        if hasattr(inner, "aclose")
        else ("handle_request", Transport)
    )

    def wrapped(transport: Any) -> Any:
        if transport is None or isinstance(transport, tapped):
            return transport
        if not hasattr(transport, method):
            kind = f"{type(inner).__module__}.{type(inner).__qualname__}"
            raise ConfigError(
                f"invalid transport `{type(transport).__qualname__}`: `{kind}` needs one with `{method}`"
            )
        return tapped(transport)

    # All of them first, so that an invalid one leaves the client as it was.
    transport = wrapped(inner._transport)
    mounts = {pattern: wrapped(mount) for pattern, mount in inner._mounts.items()}
    inner._transport, inner._mounts = transport, mounts
    return client
