"""Reads the responses of model calls on their way through an HTTP client.

Many frameworks drop the provider's finish value, or make one up. The tap sits below them, in the
transport of `httpx` or `httpx2`, and decodes the bytes while they pass. The client gets them
unchanged.

>>> import openai
>>> client = endstop.tap.wrap(openai.OpenAI())
>>> with endstop.tap.record() as recording:
...     answer = client.chat.completions.create(model="gpt-4o", messages=[])
>>> recording.last.reason
<SignalReason.NATURAL_COMPLETION: 'natural_completion'>

A response belongs to the recording of the context (`contextvars`) in which its request is sent, so
that concurrent runs can share a client. Recordings nest: the innermost one gets the response, so that
each model call can have its own. A client outside of `httpx` can be put behind `endstop guard` instead.
"""

from __future__ import annotations

import sys
import zlib
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, suppress
from contextvars import ContextVar
from functools import cache
from typing import Any, Protocol, TypeVar

from endstop._endstop import Detection, StreamDecoder, api_of
from endstop._errors import ConfigError, EndstopError

__all__ = ["AsyncTransport", "Recording", "Transport", "record", "use", "wrap"]

Client = TypeVar("Client")


class Owner(Protocol):
    """The run of an adapter that requests belong to. They wait as its model calls do."""

    @property
    def live(self) -> object: ...

    def wait(self) -> object: ...

    async def wait_async(self) -> object: ...


class Recording:
    """The responses of model calls, in the order of their ends. `each` is called with every response
    at its end, `before` ahead of every request; an exception of `before` refuses the request. Before that a
    request waits, unless it is that of a model call, which has waited."""

    def __init__(
        self,
        each: Callable[[Detection], None] | None = None,
        before: Callable[[], None] | None = None,
        owner: Owner | None = None,
    ) -> None:
        self.detections: list[Detection] = []
        self._each, self._before, self.owner = each, before, owner
        self._open: list[Observer] = []
        self.left = False
        """True if the reader of the last response closed it before its end, without an error."""

    @property
    def last(self) -> Detection | None:
        """The response that ended last; None before the first."""
        return self.detections[-1] if self.detections else None

    def take(self) -> list[Detection]:
        """Returns the responses since the last call of this method, and forgets them."""
        taken, self.detections = self.detections, []
        return taken

    def cut(self) -> None:
        """Records the responses that are still being read as they are until now: their reader left."""
        for observer in [*self._open]:
            observer.end(reset=True, left=True)

    def _add(self, detection: Detection) -> None:
        self.detections.append(detection)
        if self._each is not None:
            self._each(detection)


_CURRENT: ContextVar[Recording | None] = ContextVar("endstop_recording", default=None)
_FINDERS: list[Callable[[], Recording | None]] = []
"""What finds the recording of a request outside of a block: a framework may know its own context."""


def record(
    each: Callable[[Detection], None] | None = None,
) -> AbstractContextManager[Recording]:
    """Records the responses to requests of this context, also in the tasks that it starts. `each`
    is called with every response at its end."""
    recording, around = Recording(each), _CURRENT.get()
    recording.owner = around.owner if around is not None else None
    return use(recording)


@contextmanager
def use(recording: Recording) -> Iterator[Recording]:
    """Records the responses to requests of this context into a recording that exists already."""
    token = _CURRENT.set(recording)
    try:
        yield recording
    finally:
        # A generator may be closed in another context, where this one's value is not set.
        with suppress(ValueError):
            _CURRENT.reset(token)


def attach(recording: Recording | None) -> None:
    """Records into `recording` from here on in this context. For hooks, which are no block."""
    _CURRENT.set(recording)


def is_attached(recording: Recording) -> bool:
    """Returns True if the requests of this context belong to `recording`."""
    return _CURRENT.get() is recording


def _current() -> Recording | None:
    recording = _CURRENT.get()
    for find in _FINDERS if recording is None else ():
        recording = recording or find()
    return recording


PIECE = 1 << 20
"""Bytes that are unpacked at once, because a few packed bytes may be very many."""


class _Unpacker:
    """Unpacks one coding of a body: gzip with any number of members, or deflate with or without the
    header of zlib. Bytes after the end are ignored, as HTTP clients do."""

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
        recording._open.append(self)

    def push(self, chunk: bytes) -> None:
        if self._ended:
            return
        try:
            for piece in _through(self._unpackers, chunk):
                self._decoder.push(piece)
        except zlib.error:
            self._unpackers = []
            self._decoder.push(chunk)

    def end(self, *, reset: bool, left: bool = False) -> None:
        if not self._ended:
            self._ended = True
            self._recording._open.remove(self)
            complete = self._decoder.complete
            self._recording.left = left and not complete
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


class Exchange:
    """A request for a model call, and the recording that its response belongs to."""

    def __init__(self, request: Any) -> None:
        if "accept-encoding" in request.headers:
            # Codings that the standard library unpacks.
            request.headers["accept-encoding"] = "gzip, deflate"
        self._request = request
        self._recording = _current()
        path = request.url.raw_path.decode("ascii", "replace")
        self._api = api_of(request.method, path) if self._recording is not None else None
        known = self._recording if self._api is not None else None
        self._before = known._before if known else None
        # The requests of a model call have no condition: it was asked for, and has waited.
        self._owner = known.owner if known and self._before is not None else None

    def permit(self) -> None:
        """Waits, or refuses the request, if its recording does."""
        if self._owner is not None:
            self._owner.wait()
        if self._before is not None:
            self._before()

    async def permit_async(self) -> None:
        if self._owner is not None:
            await self._owner.wait_async()
        if self._before is not None:
            self._before()

    def observe(self, response: Any) -> Observer | None:
        """Returns what decodes the response; None if it is not that of a model call."""
        if not response.is_stream_consumed:
            return self._observer(response.status_code, response.headers)
        # A transport of tests has read its response itself; no stream of it will pass.
        headers = {k: v for k, v in response.headers.items() if k.lower() != "content-encoding"}
        observer = self._observer(response.status_code, headers)
        if observer is not None:
            observer.push(response.content)
            observer.end(reset=False)
        return None

    def failed(self) -> None:
        """Records a request without a response: it may have reached the server."""
        observer = self._observer(200, {})
        if observer is not None:
            observer.end(reset=True)

    def _observer(self, status: int, headers: Mapping[str, str]) -> Observer | None:
        if self._recording is None or self._api is None:
            return None
        return Observer(self._recording, self._api, status, headers, _body(self._request))


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
            self._observer.end(reset=True, left=True)
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
            self._observer.end(reset=True, left=True)
            await self._inner.aclose()

    return Stream, AsyncStream


def _library(response: Any) -> str:
    return str(type(response).__module__.partition(".")[0])


class Transport:
    """A transport for `httpx.Client` or `httpx2.Client` around another one."""

    def __init__(self, inner: Any) -> None:
        self._inner = inner

    def handle_request(self, request: Any) -> Any:
        exchange = Exchange(request)
        exchange.permit()
        try:
            response = self._inner.handle_request(request)
        except BaseException:
            exchange.failed()
            raise
        observer = exchange.observe(response)
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
        exchange = Exchange(request)
        await exchange.permit_async()
        try:
            response = await self._inner.handle_async_request(request)
        except BaseException:
            exchange.failed()
            raise
        observer = exchange.observe(response)
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
