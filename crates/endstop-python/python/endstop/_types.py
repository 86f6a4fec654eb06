"""The types of arguments, for programs and for type checkers. Nothing here is needed at run time."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence, Set
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from os import PathLike
from typing import Any, ClassVar, Literal, Protocol, TypeAlias, TypedDict
from uuid import UUID

from endstop._endstop import Context, Detection, Policy, Step, StreamDecoder, Verdict
from endstop._enums import ErrorClass, ToolStatus

__all__ = [
    "DeltaKind",
    "ErrorKind",
    "Limits",
    "PolicyClass",
    "PolicyCode",
    "PolicyFunction",
    "PolicyResult",
    "PolicySpec",
    "Response",
    "ResultStatus",
    "RunEnding",
    "RunPolicy",
    "ToolOutput",
]

Count: TypeAlias = int | Literal["off"] | None
Time: TypeAlias = str | timedelta | None


class Limits(TypedDict, total=False):
    """The limits of a run by name, as the page on limits describes them. None and "off" switch one off.
    A time is text with a unit, such as "90s" or "15m", or a `timedelta`."""

    max_turns: Count
    max_tool_calls: Count
    max_budget_usd: float | Literal["off"] | None
    max_tokens: Count
    max_tokens_counts: Literal["all", "uncached", "output"]
    max_window: str | None
    wait_for_window: bool
    max_rate: str | None
    timeout: Time
    timeout_ms: int | None
    thinking_timeout: Time
    thinking_timeout_ms: int | None
    max_consecutive_mistakes: Count
    max_unproductive_turns: Count
    max_empty_turns: Count
    max_continuations: Count
    warn_model: bool
    accept_unknown_finish: bool


DeltaKind: TypeAlias = Literal[
    "text", "reasoning", "refusal", "call", "arguments", "hidden", "hidden_reasoning"
]
"""The kind of streamed content."""

ResultStatus: TypeAlias = ToolStatus | Literal["ok", "error", "denied", "timeout", "aborted"]
"""The status of a tool's result. A run refuses `skipped`, because only the run skips calls."""

ErrorKind: TypeAlias = (
    ErrorClass
    | Literal[
        "authentication",
        "permission",
        "not_found",
        "invalid_request",
        "context_length_exceeded",
        "request_too_large",
        "content_policy",
        "quota_exhausted",
        "rate_limit",
        "overloaded",
        "server_error",
        "timeout",
        "incomplete_stream",
        "cancelled",
        "unknown_error",
    ]
)
"""The class of an error."""

RunEnding: TypeAlias = Literal[
    "submitted", "error_max_turns", "error_max_budget_usd", "error_max_tokens", "error_halted"
]
"""The endings that a framework may name when it closes a run."""

PolicyResult: TypeAlias = bool | str | Verdict | tuple[bool, str | None] | None
"""What a policy returns: None or False to continue, True, the answer or a Verdict to stop."""


class PolicyFunction(Protocol):
    """A policy: a function, or an object that is called as one."""

    def __call__(self, step: Step, context: Context, /) -> PolicyResult: ...


class PolicyClass(Protocol):
    """A class whose instances are policies; each run makes one."""

    def __call__(self) -> PolicyFunction: ...


PolicyCode: TypeAlias = PolicyFunction | PolicyClass
PolicySpec: TypeAlias = Policy | str | dict[str, Any]
"""A policy, its name, or its specification."""

RunPolicy: TypeAlias = PolicySpec | PolicyCode
"""The policy of a run: also code, which then has its own name."""


class _Model(Protocol):
    """A model of pydantic, as most SDKs return."""

    def model_dump_json(self, *, by_alias: bool = ..., exclude_none: bool = ...) -> str: ...


class _Dumped(Protocol):
    def model_dump(self, *, mode: Literal["json"]) -> Any: ...


class _Fields(Protocol):
    """An object with its fields as a dict."""

    def to_dict(self) -> Any: ...


class _Http(Protocol):
    """A response of an HTTP client, for example of httpx or requests."""

    @property
    def content(self) -> bytes: ...


class _Open(Protocol):
    """A body that is open for reading, for example of urllib or boto3."""

    def read(self) -> bytes: ...


class _Dataclass(Protocol):
    __dataclass_fields__: ClassVar[dict[str, Any]]


Body: TypeAlias = (
    bytes
    | bytearray
    | memoryview
    | str
    | Mapping[str, Any]
    | Iterator[Any]
    | Sequence[Any]
    | _Model
    | _Fields
    | _Http
    | _Open
)
"""A response or a request in any form that is read."""

Response: TypeAlias = Body | Detection | StreamDecoder
"""A response: bytes, text, a dict, an SDK's object, a stream or its chunks, an HTTP response, or what
`detect` returned."""

ToolOutput: TypeAlias = (
    str
    | bytes
    | int
    | float
    | Mapping[Any, Any]
    | Sequence[Any]
    | Set[Any]
    | BaseException
    | _Dumped
    | _Dataclass
    | date
    | datetime
    | time
    | timedelta
    | Decimal
    | UUID
    | PathLike[str]
    | None
)
"""The result of a tool. A value other than text is written as JSON, an exception is an error."""
