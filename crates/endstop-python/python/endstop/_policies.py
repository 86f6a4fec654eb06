"""The built-in policies, and the decorator for custom ones.

>>> policy = endstop.FINAL | endstop.REWARD
>>> @endstop.policy("polite")
... def polite(step: endstop.Step, context: endstop.Context) -> bool:
...     return "Goodbye" in (step.output or "")
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, overload

from endstop._endstop import Policy
from endstop._errors import ConfigError

if TYPE_CHECKING:
    from endstop._types import PolicyCode

__all__ = ["CONFIDENCE", "FINAL", "REWARD", "policy"]

FINAL = Policy("final_pattern")
"""Stops at an answer that the model declares: `FINAL(…)`, `FINAL_VAR(name)`, `SUBMIT(key=value)`."""

REWARD = Policy("reward_threshold")
"""Stops when the metric `last_reward`, or the sum of rewards, reaches a threshold."""

CONFIDENCE = Policy("confidence")
"""Stops at an answer whose confidence reaches a threshold."""


@overload
def policy(name: PolicyCode, /) -> Policy: ...
@overload
def policy(name: str, *, description: str = "") -> Callable[[PolicyCode], Policy]: ...
def policy(
    name: str | PolicyCode, *, description: str = ""
) -> Policy | Callable[[PolicyCode], Policy]:
    """Makes a policy of a function `(step, context)`, or of a class whose instances are called so.

    The function returns None or False to continue, True or the answer to stop, or a
    `endstop.Verdict`. Each run has its own instance of a class. An exception ends the run as
    `error_during_execution`, with the traceback in the outcome's `error_diagnostic`. An asynchronous
    function is a ConfigError, because a run does not wait.

    Without a name (`@endstop.policy`), the policy has the name of the function.
    """
    if not isinstance(name, str):
        return policy(getattr(name, "__name__", type(name).__name__))(name)

    def wrap(code: PolicyCode) -> Policy:
        text = description or (code.__doc__ or "").strip().partition("\n")[0]
        return Policy.of(name, code, text)

    return wrap


def check_code(name: str, code: Any) -> None:
    """Raises ConfigError for code that cannot be called as a policy. The compiled half calls this."""
    # Here, because its import takes as long as that of the whole package.
    import inspect
    from functools import partial

    inner = code
    while isinstance(inner, partial):
        inner = inner.func
    # The function that runs at each step. `type` itself is callable, its instances need not be.
    if inspect.isclass(inner):
        step = next((vars(c)["__call__"] for c in inner.__mro__ if "__call__" in vars(c)), None)
        given: tuple[None, ...] = (None, None, None)
    elif inspect.isroutine(inner):
        step, given = code, (None, None)
    else:
        step, given = type(inner).__call__, (None, None, None)
    problem = None
    if step is None:
        problem = "its instances must be callable as policy(step, context)"
    elif _is_async(step) or _is_async(inner):
        problem = (
            "it is asynchronous, and a run does not wait for it; write it with `def`, and give it what "
            "it needs with run.observe(variables=…)"
        )
    elif inspect.isgeneratorfunction(step):
        problem = "it is a generator; write `return` instead of `yield`"
    elif not _takes(step, given):
        problem = "it must be callable as policy(step, context)"
    elif inspect.isclass(inner) and not _takes(code, ()):
        problem = "each run makes an instance of the class, without arguments"
    if problem is not None:
        raise ConfigError(f"invalid policy `{name}`: {problem}")


def _is_async(code: Any) -> bool:
    import inspect

    return inspect.iscoroutinefunction(code) or inspect.isasyncgenfunction(code)


def _takes(code: Any, given: tuple[None, ...]) -> bool:
    import inspect

    try:
        signature = inspect.signature(code)
    except (TypeError, ValueError):  # Compiled code may have none.
        return True
    try:
        signature.bind(*given)
    except TypeError:
        return False
    return True


def reduce_code(made: Policy, code: Any) -> tuple[Callable[..., Policy], tuple[Any, ...]]:
    """Returns how a policy that is code is pickled. The compiled half calls this."""
    module, path = getattr(code, "__module__", None), getattr(code, "__qualname__", None)
    # The name of a decorated function is that of the policy, so that pickle would not find the function.
    if module in sys.modules and isinstance(path, str) and _found(module, path) is made:
        return _found, (module, path)
    return Policy.of, (made.name, code, made.description)


def _found(module: str, path: str) -> Any:
    """Returns what a module has under a dotted name; None if it has nothing."""
    __import__(module)
    found: Any = sys.modules[module]
    for name in path.split("."):
        found = getattr(found, name, None)
    return found
