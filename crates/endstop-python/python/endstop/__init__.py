"""Why an agent's run ended: one ending per run, typed, priced and explained.

>>> import endstop
>>> endstop.detect(b'{"choices":[{"message":{"content":"Hi"},"finish_reason":"length"}]}').reason
<SignalReason.TOKEN_LIMIT_REACHED: 'token_limit_reached'>

`detect` says why a model stopped its turn. `Run` puts a loop under the kernel, with limits and
policies; its `Outcome` says how the run ended. `backtest` and `audit` look at recorded runs.
`endstop.adapters` has the loops of frameworks, `endstop.tap` a transport that reads responses on their
way, `endstop.rlm` the policies of RLM Code.
"""

from typing import TYPE_CHECKING

from endstop import _pydantic as _pydantic
from endstop._endstop import (
    Audit,
    AuditReport,
    Backtest,
    BacktestReport,
    Call,
    Context,
    Delta,
    Detection,
    ModelCall,
    ModelError,
    Outcome,
    Policy,
    Price,
    Signal,
    Step,
    StreamDecoder,
    Turn,
    Usage,
    Verdict,
    __version__,
    default_limits,
    detect,
    k_of,
    limit_names,
    policy_names,
    price,
    redact,
    response,
)
from endstop._enums import (
    Category,
    Confidence,
    ErrorClass,
    SignalReason,
    Termination,
    ToolStatus,
)
from endstop._errors import (
    BusyError,
    ConfigError,
    EndstopError,
    FormatError,
    MergeError,
    Unsuccessful,
    VersionError,
)
from endstop._policies import CONFIDENCE, FINAL, REWARD, policy
from endstop._recorded._api import audit, backtest
from endstop._run import Run

if TYPE_CHECKING:
    from endstop import adapters, rlm, tap
    from endstop._types import Limits

__all__ = [
    "CONFIDENCE",
    "FINAL",
    "REWARD",
    "Audit",
    "AuditReport",
    "Backtest",
    "BacktestReport",
    "BusyError",
    "Call",
    "Category",
    "Confidence",
    "ConfigError",
    "Context",
    "Delta",
    "Detection",
    "EndstopError",
    "ErrorClass",
    "FormatError",
    "Limits",
    "MergeError",
    "ModelCall",
    "ModelError",
    "Outcome",
    "Policy",
    "Price",
    "Run",
    "Signal",
    "SignalReason",
    "Step",
    "StreamDecoder",
    "Termination",
    "ToolStatus",
    "Turn",
    "Unsuccessful",
    "Usage",
    "Verdict",
    "VersionError",
    "__version__",
    "adapters",
    "audit",
    "backtest",
    "default_limits",
    "detect",
    "k_of",
    "limit_names",
    "policy",
    "policy_names",
    "price",
    "redact",
    "response",
    "rlm",
    "tap",
]


if not TYPE_CHECKING:  # A type checker would take every name for one of this function.

    def __getattr__(name):
        # At their first use, because most programs need none of them.
        from importlib import import_module

        if name in ("adapters", "rlm", "tap"):
            return import_module(f"endstop.{name}")
        if name == "Limits":
            return import_module("endstop._types").Limits
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")

    def __dir__():
        return __all__
