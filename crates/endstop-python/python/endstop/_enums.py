"""The vocabulary of endings. Every member is a string, so that it compares and serialises as one.

>>> Termination.STOP == "stop"
True
"""

from enum import StrEnum

__all__ = ["Category", "Confidence", "ErrorClass", "SignalReason", "Termination", "ToolStatus"]


class Termination(StrEnum):
    """The reason why a run ended."""

    STOP = "stop"
    SUBMITTED = "submitted"
    ERROR_MAX_TURNS = "error_max_turns"
    ERROR_MAX_BUDGET_USD = "error_max_budget_usd"
    ERROR_MAX_TOOL_CALLS = "error_max_tool_calls"
    ERROR_MAX_TOKENS = "error_max_tokens"
    ERROR_MAX_WINDOW = "error_max_window"
    ERROR_TIMEOUT = "error_timeout"
    ERROR_MAX_STRUCTURED_OUTPUT_RETRIES = "error_max_structured_output_retries"
    ERROR_CONSECUTIVE_MISTAKES = "error_consecutive_mistakes"
    ERROR_PROMPT_TOO_LONG = "error_prompt_too_long"
    ERROR_NO_PROGRESS = "error_no_progress"
    ERROR_THINKING_STARVED = "error_thinking_starved"
    ERROR_OUTPUT_TRUNCATED = "error_output_truncated"
    ERROR_NOT_VERIFIED = "error_not_verified"
    ERROR_DURING_EXECUTION = "error_during_execution"
    ERROR_SCHEMA_VALIDATION = "error_schema_validation"
    ERROR_CONTENT_FILTERED = "error_content_filtered"
    ERROR_PROVIDER_REJECTED = "error_provider_rejected"
    GAVE_UP = "gave_up"
    ERROR_HALTED = "error_halted"
    ERROR_COMPACTION_FAILED = "error_compaction_failed"
    ERROR_PROVIDER_AUTH = "error_provider_auth"
    CANCELLED = "cancelled"
    TERMINATED = "terminated"


class Category(StrEnum):
    """What to do after an ending."""

    SUCCESS = "success"
    RETRYABLE = "retryable"
    CAPACITY = "capacity"
    FATAL = "fatal"


class SignalReason(StrEnum):
    """The reason why the model stopped one turn."""

    NATURAL_COMPLETION = "natural_completion"
    TOKEN_LIMIT_REACHED = "token_limit_reached"
    CONTENT_FILTERED = "content_filtered"
    STOP_SEQUENCE = "stop_sequence"
    ERROR_TERMINATION = "error_termination"
    UNKNOWN = "unknown"
    TOOL_USE = "tool_use"
    PAUSED = "paused"
    IN_PROGRESS = "in_progress"


class Confidence(StrEnum):
    """The confidence that a reason was read correctly."""

    LOW = "low"
    MEDIUM = "medium"
    HIGH = "high"


class ErrorClass(StrEnum):
    """The class of a provider's error, the same for every provider."""

    AUTHENTICATION = "authentication"
    PERMISSION = "permission"
    NOT_FOUND = "not_found"
    INVALID_REQUEST = "invalid_request"
    CONTEXT_LENGTH_EXCEEDED = "context_length_exceeded"
    REQUEST_TOO_LARGE = "request_too_large"
    CONTENT_POLICY = "content_policy"
    QUOTA_EXHAUSTED = "quota_exhausted"
    RATE_LIMIT = "rate_limit"
    OVERLOADED = "overloaded"
    SERVER_ERROR = "server_error"
    TIMEOUT = "timeout"
    INCOMPLETE_STREAM = "incomplete_stream"
    CANCELLED = "cancelled"
    UNKNOWN_ERROR = "unknown_error"


class ToolStatus(StrEnum):
    """The final status of a tool call."""

    OK = "ok"
    ERROR = "error"
    DENIED = "denied"
    TIMEOUT = "timeout"
    ABORTED = "aborted"
    SKIPPED = "skipped"
