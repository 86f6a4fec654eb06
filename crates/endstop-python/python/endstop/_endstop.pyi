"""The compiled half of the package `endstop`."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from os import PathLike
from pathlib import Path
from types import TracebackType
from typing import Any, Final, Literal, Self, TypeAlias, Unpack, final

from typing_extensions import disjoint_base

from endstop._enums import Category, Confidence, ErrorClass, SignalReason, Termination
from endstop._types import (
    Body,
    DeltaKind,
    ErrorKind,
    Limits,
    PolicyCode,
    PolicySpec,
    Response,
    ResultStatus,
    RunEnding,
    RunPolicy,
    ToolOutput,
)

__all__ = [
    "Audit",
    "AuditReport",
    "Backtest",
    "BacktestReport",
    "Call",
    "Context",
    "Delta",
    "Detection",
    "ModelCall",
    "ModelError",
    "Outcome",
    "Policy",
    "Price",
    "Run",
    "Signal",
    "Step",
    "StreamDecoder",
    "Turn",
    "Usage",
    "Verdict",
    "__version__",
    "api_of",
    "default_limits",
    "detect",
    "fields",
    "k_of",
    "limit_names",
    "members",
    "policy_names",
    "price",
    "redact",
    "response",
    "run_files",
]
__version__: Final[str]

_Part: TypeAlias = Any
"""A path, bytes, or a file object that is open for reading bytes."""

@final
class Audit:
    """An audit in parts: `tally` looks at the sessions of one part, in any process, and `merge`
    makes the report of all counts. The report is the same for each division into parts and each
    order.

    >>> audit = endstop.Audit()
    >>> paths = ("runs/a.jsonl", "runs/b.jsonl")
    >>> audit.merge([audit.tally(path) for path in paths]).sessions
    80
    """

    def __new__(
        cls, *, top: int = 10, since: str | None = None, format: str | None = None
    ) -> Self: ...
    def tally(
        self,
        part: _Part,
        *,
        file: str = "runs.jsonl",
        dataset: str | None = None,
        folder: str | PathLike[str] | None = None,
    ) -> bytes:
        """Counts the sessions of a part: a path, bytes, or a file object that is open for reading
        bytes.

        `file` is the name of a part that is not a path, and helps to recognise its format.
        `dataset` is the place of the sessions in the report, instead of their file and line.
        `folder` is the folder in which a path was found.
        """
    def tally_skipped(self, skipped: str) -> bytes:
        """Counts the entries of a folder that are not read; `skipped` is what `run_files` returned."""
    @staticmethod
    def combine(parts: Sequence[bytes]) -> bytes:
        """Merges counts into counts, so that an engine can merge some parts while others are
        counted.
        """
    def merge(self, parts: Sequence[bytes]) -> AuditReport:
        """Makes the report of counts, in any order. Counts of another version or with other
        settings are a `MergeError`.
        """
    def __getnewargs_ex__(self) -> tuple[tuple[()], dict[str, Any]]: ...

@final
class AuditReport:
    """The report of an audit: how sessions ended, what their loops cost, and what limits would have
    saved.
    """

    @property
    def sessions(self) -> int:
        """Number of sessions."""
    @property
    def wrong(self) -> int:
        """Number of sessions without an answer, with a loop, or with a contradicted claim."""
    @property
    def usd(self) -> float:
        """US dollars of all sessions, as recorded or by the price list."""
    @property
    def in_question_usd(self) -> float:
        """US dollars of the part that is in question."""
    @property
    def ended(self) -> dict[str, int]:
        """Number of sessions by ending: `answered`, `no_answer`, `limit`, …"""
    @property
    def worst(self) -> list[dict[str, Any]]:
        """The worst sessions, as dicts."""
    @property
    def problems(self) -> dict[str, dict[str, Any]]:
        """Records that could not be read: by kind, a dict with `count` and `first`."""
    @property
    def notes(self) -> dict[str, dict[str, Any]]:
        """Notes of the readers about sessions, such as failed calls: by kind, a dict with `count`
        and `first`.
        """
    @property
    def skipped_for(self) -> dict[str, dict[str, Any]]:
        """Files and folders that are not sessions: by reason, a dict with `count` and `first`."""
    @property
    def counts(self) -> bytes:
        """The merged counts as bytes: `merge` takes them as a part, with those of further sessions."""
    def to_dict(self) -> dict[str, Any]:
        """Returns the report as `endstop audit --json` prints it."""
    def to_json(self) -> str:
        """Returns the same as JSON text."""
    def to_html(self) -> str:
        """Returns the report as `endstop audit --report` writes it: an HTML page."""
    def _repr_html_(self) -> str: ...
    def __reduce__(self) -> tuple[Callable[[list[bytes]], AuditReport], tuple[list[bytes]]]: ...

@final
class Backtest:
    """A backtest in parts: `tally` counts the runs of one part, in any process, and `merge` makes
    the report of all counts. The report is the same for each division into parts and each order.

    >>> test = endstop.Backtest("reference")
    >>> parts = [test.tally(path) for path in ("runs/a.jsonl", "runs/b.jsonl")]
    >>> test.merge(parts).runs
    80
    """

    def __new__(
        cls,
        policies: str | PolicySpec | Iterable[PolicySpec] | None = None,
        *,
        calibrate: float | None = None,
        group_by: str = "auto",
        max_harm: float = 0.01,
        format: str | None = None,
        outcomes: dict[str, Any] | str | PathLike[str] | bytes | None = None,
    ) -> Self: ...
    @property
    def candidates(self) -> list[str]:
        """The names of the candidates."""
    def tally(
        self,
        part: _Part,
        *,
        file: str = "runs.jsonl",
        dataset: str | None = None,
        folder: str | PathLike[str] | None = None,
    ) -> bytes:
        """Counts the runs of a part: a path, bytes, or a file object that is open for reading
        bytes.

        `file` is the name of a part that is not a path, and helps to recognise its format.
        `dataset` names the dataset; by default it is the file's name. `folder` is the folder in
        which a path was found: a file that is obviously not a run is then skipped.
        """
    def tally_skipped(self, skipped: str) -> bytes:
        """Counts the entries of a folder that are not read; `skipped` is what `run_files` returned."""
    @staticmethod
    def combine(parts: Sequence[bytes]) -> bytes:
        """Merges counts into counts, so that an engine can merge some parts while others are
        counted.
        """
    def merge(self, parts: Sequence[bytes]) -> BacktestReport:
        """Makes the report of counts, in any order. Counts of another version or with other
        settings are a `MergeError`.
        """
    def __getnewargs_ex__(self) -> tuple[tuple[Any], dict[str, Any]]: ...

@final
class BacktestReport:
    """The report of a backtest: first what a stop would have cost, then what it would have saved."""

    @property
    def runs(self) -> int:
        """Number of runs that were read."""
    @property
    def judged(self) -> int:
        """Number of runs with a recorded success or failure."""
    @property
    def datasets(self) -> list[str]:
        """Names of the datasets with judged runs."""
    @property
    def recommended(self) -> str | None:
        """Name of the recommended candidate; None if there is none."""
    @property
    def strength(self) -> Literal["set", "try"] | None:
        """`set` if the runs show that the recommended candidate stops few good runs, `try` if it
        only did so in these runs; None without a recommendation.
        """
    @property
    def problems(self) -> dict[str, dict[str, Any]]:
        """Records that could not be read: by kind, a dict with `count` and `first`."""
    @property
    def figures(self) -> dict[str, Any]:
        """The figures by dataset and candidate, as the member `figures` of `to_dict()`."""
    @property
    def counts(self) -> bytes:
        """The merged counts as bytes: `merge` takes them as a part, with those of further runs."""
    def to_dict(self) -> dict[str, Any]:
        """Returns the report as `endstop backtest --json` prints it. `census` has those of its
        members that do not depend on the division into files.
        """
    def to_json(self) -> str:
        """Returns the same as JSON text."""
    def to_html(self) -> str:
        """Returns the report as `endstop backtest --report` writes it: an HTML page."""
    def to_toml(self, mode: str = "observe", *, day: str = "") -> str:
        """Returns the recommended or calibrated candidate as settings in TOML. `mode` states what a
        rule does when it fires: `observe`, `warn`, `nudge` or `stop`. `day` is today's date.
        """
    def _repr_html_(self) -> str: ...
    def __reduce__(self) -> tuple[Callable[[list[bytes]], BacktestReport], tuple[list[bytes]]]: ...

@final
class Call:
    """A tool call that the model requested."""

    def __new__(cls, id: str, name: str, arguments: str) -> Self: ...
    @property
    def id(self) -> str:
        """The provider's id of the call."""
    @property
    def name(self) -> str:
        """Name of the tool."""
    @property
    def arguments(self) -> str:
        """The arguments as the model wrote them: JSON text."""
    @property
    def args(self) -> dict[str, Any]:
        """The arguments, parsed. Blank arguments are an empty dict."""
    def to_dict(self) -> dict[str, Any]:
        """Returns the fields as a dict."""
    def __eq__(self, other: object, /) -> bool: ...
    def __hash__(self) -> int: ...
    def __getnewargs__(self) -> tuple[str, str, str]: ...

@final
class Context:
    """The state of a run around a step."""

    def __new__(
        cls,
        *,
        task: str = "",
        step: int = 0,
        variables: dict[str, Any] | None = None,
        metrics: dict[str, Any] | None = None,
        cost_usd: float | None = None,
    ) -> Self: ...
    @property
    def task(self) -> str:
        """The run's task."""
    @property
    def step(self) -> int:
        """Number of turns completed before this one, from 0."""
    @property
    def variables(self) -> dict[str, Any]:
        """Named values, set by tools or by the caller."""
    @property
    def metrics(self) -> dict[str, Any]:
        """Measurements, such as `last_reward`."""
    @property
    def cost_usd(self) -> float | None:
        """Cost of the run so far in US dollars, if the price is known."""
    @property
    def message_arrived(self) -> bool:
        """True if a message that the model did not write arrived since the previous step."""
    def __eq__(self, other: object, /) -> bool: ...

@final
class Delta:
    """An increment of a streamed turn."""

    @property
    def kind(self) -> DeltaKind:
        """`text`, `reasoning`, `refusal`, `call` (a call starts), `arguments`; `hidden` or
        `hidden_reasoning` for output that is not part of the turn.
        """
    @property
    def text(self) -> str:
        """The text; of a call that starts, the name of the tool."""
    @property
    def index(self) -> int | None:
        """Position of the call among the turn's calls, from 0; None for text."""
    @property
    def id(self) -> str | None:
        """Id of the call that starts."""
    def to_dict(self) -> dict[str, Any]:
        """Returns the fields as a dict."""
    def __eq__(self, other: object, /) -> bool: ...

@final
class Detection:
    """A decoded response: its content, and why the model stopped."""

    @property
    def api(self) -> str:
        """The wire format, for example `openai-chat`; empty if the response was described by hand."""
    @property
    def signal(self) -> Signal:
        """The reason why the model stopped, with the provider's own value."""
    @property
    def reason(self) -> SignalReason:
        """The reason alone, a `SignalReason`."""
    @property
    def should_terminate(self) -> bool:
        """True if the turn ends the model's part: it asks for no tool and is not paused."""
    @property
    def text(self) -> str:
        """The visible text."""
    @property
    def reasoning(self) -> str:
        """The reasoning in plain text."""
    @property
    def refusal(self) -> str | None:
        """The text with which the model refused, if the provider marks it."""
    @property
    def calls(self) -> list[Call]:
        """The tool calls that may run. A call that the token limit or a lost connection cut, or
        whose arguments are not a JSON object, is never among them.
        """
    @property
    def cut_calls(self) -> list[Call]:
        """The tool calls that must not run, because they are cut or invalid."""
    @property
    def usage(self) -> Usage:
        """Token usage."""
    @property
    def model(self) -> str | None:
        """The model that answered, as the provider names it."""
    @property
    def error(self) -> ModelError | None:
        """The error that the response is, or that ended it."""
    @property
    def complete(self) -> bool:
        """True if a finish value or the protocol's end marker arrived."""
    @property
    def streamed(self) -> bool:
        """True if the response was a stream of events."""
    def to_dict(self) -> dict[str, Any]:
        """Returns the object that `endstop detect` prints, as a dict."""
    @staticmethod
    def _from_json(text: str) -> Detection: ...
    def __eq__(self, other: object, /) -> bool: ...
    def __reduce__(self) -> tuple[Any, tuple[str]]: ...

@final
class ModelError:
    """The error of a model call, or a response that is an error."""

    @property
    def kind(self) -> ErrorClass:
        """Class of the error, an `ErrorClass`."""
    @property
    def category(self) -> Category:
        """The category, which determines what to do next."""
    @property
    def status(self) -> int | None:
        """HTTP status, if there was a response."""
    @property
    def message(self) -> str:
        """The provider's message, or Endstop's own. Contains no credential."""
    @property
    def retry_after(self) -> float | None:
        """Wait time that the provider asks for: in seconds, and in milliseconds in JavaScript."""
    def to_dict(self) -> dict[str, Any]:
        """Returns the fields as a dict."""
    @staticmethod
    def _from_json(text: str) -> ModelError: ...
    def __eq__(self, other: object, /) -> bool: ...
    def __reduce__(self) -> tuple[Any, tuple[str]]: ...

@final
class Outcome:
    """The ending of a run: one, typed, priced and explained.

    Like any object it is true in a condition, so that `if run.outcome:` asks if the run has
    ended. A truncated answer is an outcome as well: ask `outcome.is_success`.
    """

    @property
    def termination(self) -> Termination:
        """The termination."""
    @property
    def category(self) -> Category:
        """The category, which determines what to do next."""
    @property
    def is_success(self) -> bool:
        """True if the run succeeded."""
    @property
    def evidence(self) -> str:
        """The reason for the ending, for a person to read."""
    @property
    def decided_by(self) -> dict[str, str]:
        """The check that ended the run: `layer`, `name` and `evidence`."""
    @property
    def also(self) -> list[Termination]:
        """Other terminations that also applied."""
    @property
    def answer(self) -> str | None:
        """The answer of a success: what was declared, else the visible part of the last text.
        Missing if the run is not a success; the last text may then be partial.
        """
    @property
    def last_text(self) -> str | None:
        """The last visible text that is not blank; partial if the response was cut."""
    @property
    def deliverable(self) -> Any:
        """The declared answer of a submitted run."""
    @property
    def turns(self) -> int:
        """Number of responses that became part of the conversation."""
    @property
    def model_calls(self) -> int:
        """Number of attempts at model calls."""
    @property
    def tool_calls(self) -> int:
        """Number of tool calls that were answered."""
    @property
    def usage(self) -> Usage:
        """Token usage of all attempts."""
    @property
    def cost_usd(self) -> float | None:
        """Known cost in US dollars; missing if no part of it is known."""
    @property
    def cost_upper_usd(self) -> float | None:
        """Upper bound on the cost in US dollars, if one is known."""
    @property
    def cost_unknown(self) -> bool:
        """True if part of the cost is unknown. The known cost is then a lower bound."""
    @property
    def duration(self) -> float:
        """Seconds from start to end; milliseconds in JavaScript."""
    @property
    def retry_after(self) -> float | None:
        """Wait time that the provider asked for, if that is why the run ended: in seconds, and in
        milliseconds in JavaScript.
        """
    @property
    def error_diagnostic(self) -> str | None:
        """Details of a failure, for example the trace of a policy that failed."""
    @property
    def no_progress(self) -> dict[str, Any] | None:
        """The proof of a run that made no progress: its repeated calls and results."""
    @property
    def messages(self) -> list[dict[str, Any]]:
        """The conversation, valid for providers, in the kernel's JSON form."""
    @property
    def exit_status(self) -> int:
        """Exit status for a process whose run ended so: 0 success, 10 retryable, 20 capacity, 30
        fatal, 130 cancelled, 143 terminated.
        """
    def to_dict(self) -> dict[str, Any]:
        """Returns the fields as a dict, the same as the last line of `endstop run --json`. A
        function for values that the `json` module does not know: `json.dumps(row,
        default=endstop.Outcome.to_dict)`.
        """
    def to_json(self) -> str:
        """Returns the fields as JSON."""
    @staticmethod
    def from_json(text: str) -> Outcome:
        """Reads what `to_json` wrote, also in another process or by an earlier version."""
    def check(self) -> Self:
        """Returns the outcome if it is a success, and raises `Unsuccessful` otherwise."""
    def _repr_html_(self) -> str:
        """Returns a table for a notebook."""
    def __eq__(self, other: object, /) -> bool: ...
    def __reduce__(self) -> tuple[Any, tuple[str]]: ...
    __hash__: None  # type: ignore[assignment]

@final
class Policy:
    """A rule that decides after each step if the run stops.

    `a | b` stops when one of them does, `a & b` when both do for the same step, `~a` when it
    does not. A run works on its own copy, so one policy can serve many runs.

    >>> endstop.Policy("final_pattern").should_stop("FINAL('42')").answer
    '42'
    """

    def __new__(cls, specification: PolicySpec) -> Self: ...
    @staticmethod
    def of(name: str, code: PolicyCode, description: str = "") -> Policy:
        """Makes a policy of a function `(step, context)`, or of a class whose instances are called
        so; each run then has its own instance.
        """
    @property
    def name(self) -> str:
        """The name that outcomes use."""
    @property
    def description(self) -> str:
        """One line about the policy."""
    @property
    def specification(self) -> Any:
        """The specification that the policy was built from; None for code."""
    def should_stop(self, step: Step | str, context: Context | None = None) -> Verdict:
        """Judges a step: a `Step`, or the text of a message. The policy keeps its state between
        calls, until `reset`. An exception of the policy is raised here.
        """
    def reset(self) -> None:
        """Discards the state."""
    def after_steps(self, steps: int) -> Policy:
        """Returns a policy that stops as this one does, but not before `steps` turns are completed."""
    def sustained(self, steps: int) -> Policy:
        """Returns a policy that stops when this one does for the `steps`-th step in a row."""
    def __or__(self, other: PolicySpec, /) -> Policy: ...
    def __ror__(self, other: PolicySpec, /) -> Policy: ...
    def __and__(self, other: PolicySpec, /) -> Policy: ...
    def __rand__(self, other: PolicySpec, /) -> Policy: ...
    def __invert__(self) -> Policy: ...
    def __reduce__(self) -> tuple[Callable[..., Policy], tuple[Any, ...]]: ...

@final
class Price:
    """The price of a model in US dollars per million tokens."""

    def __new__(
        cls,
        input: float,
        output: float,
        *,
        cached_input: float | None = None,
        cache_write: float | None = None,
    ) -> Self: ...
    @property
    def input(self) -> float:
        """Dollars per million prompt tokens."""
    @property
    def output(self) -> float:
        """Dollars per million generated tokens."""
    @property
    def cached_input(self) -> float | None:
        """Dollars per million prompt tokens read from a cache, if that is not the price of `input`."""
    @property
    def cache_write(self) -> float | None:
        """Dollars per million prompt tokens written to a cache, if that is not the price of
        `input`.
        """
    @property
    def exact(self) -> bool:
        """True if every call has this price; false if it is the highest of several."""
    @property
    def context_window(self) -> int | None:
        """Tokens of prompt and answer together, if the catalogue knows them."""
    @property
    def source(self) -> str:
        """Source of the price: the caller, or the entry of the catalogue."""
    def cost(self, input_tokens: int, output_tokens: int, cached_input_tokens: int = 0) -> float:
        """Returns the cost in US dollars of this many tokens."""
    def to_dict(self) -> dict[str, Any]:
        """Returns the prices as a dict, in US dollars per million tokens."""
    @staticmethod
    def _from_json(text: str) -> Price: ...
    def __reduce__(self) -> tuple[Any, tuple[str]]: ...
    def __eq__(self, other: object, /) -> bool: ...

@disjoint_base
class _Calls:
    """The methods that a run and a call of it have in common."""

    def ask(
        self,
        input: str | Sequence[str] | None = None,
        *,
        retry: bool = False,
        prompt_bytes: int | None = None,
        output_cap: int | None = None,
        streaming: bool = False,
    ) -> bool:
        """Reports that a framework is about to call the model. False: it must not, because the run
        has ended. Unlike `Run.go`, this continues after an answer, because the framework decides
        about that. A call that has no response yet counts as a failed attempt.
        """
    def turn(
        self,
        response: Response,
        *,
        api: str | None = None,
        status: int | None = None,
        request: Body | None = None,
    ) -> Turn:
        """Feeds the model's response, and returns the calls that may run.

        `response` is anything that `detect` reads, a Detection, or a StreamDecoder, which is
        then finished. `request` is the request that was sent.
        """
    def delta(self, text: str, *, kind: DeltaKind = "text") -> bool:
        """Feeds streamed text while it arrives. False: stop reading, the run has ended."""
    def failed(
        self, problem: BaseException | ModelError | str, *, kind: ErrorKind | None = None
    ) -> bool:
        """Feeds the failure of a model call: an exception of the SDK, a ModelError, or a message
        with its `kind`, an ErrorClass. The loop may retry it. False: the run has ended.
        """
    def result(
        self,
        call: Call | str,
        output: ToolOutput,
        *,
        status: ResultStatus = "ok",
        variables: dict[str, Any] | None = None,
        metrics: dict[str, Any] | None = None,
        halt: str | None = None,
    ) -> bool:
        """Feeds the result of a tool call. `call` is a Call or its id. An `output` other than text
        is written as JSON; an exception is an error. `halt` is a reason to end the run as
        `error_halted`. False: the run has ended.

        A result given to a ModelCall belongs to its conversation; given to the Run, to the Run's
        own if that waits for the id, else to the one that waits longest. A second result of a
        call is ignored, and so is one of a call that was held back. Raises ConfigError for the
        id of a call that no response has asked for.
        """

@disjoint_base
class Run(_Calls):
    """A run of an agent's loop under the kernel: it observes the model's responses and the results
    of tools, and says when to stop, and why.

    >>> from openai import OpenAI
    >>> client, messages = OpenAI(), [{"role": "user", "content": "Go."}]
    >>> with endstop.Run(max_turns=25, policy="final_pattern") as run:
    ...     while run.go():
    ...         response = client.chat.completions.create(model="gpt-4o", messages=messages)
    ...         for call in run.turn(response).calls:
    ...             more = run.result(call, "the tool's result")
    >>> run.outcome.termination
    <Termination.STOP: 'stop'>

    Leaving the block ends the run if nothing else has: with the last answer, with the exception
    that left the block, or as cancelled. Use a run from one thread at a time; `cancel` and
    `terminate` may come from any.
    """

    def __new__(
        cls,
        *,
        limits: Limits | None = None,
        policy: RunPolicy | None = None,
        task: str = "",
        model: str | None = None,
        price: Price | str | None = None,
        inject: bool = False,
        waits: bool = False,
        max_calls: Mapping[str, int] | None = None,
        variables: dict[str, Any] | None = None,
        clock: Callable[[], float] | None = None,
        **more: Unpack[Limits],
    ) -> Self: ...
    def go(
        self,
        input: str | Sequence[str] | None = None,
        *,
        retry: bool = False,
        prompt_bytes: int | None = None,
        output_cap: int | None = None,
        streaming: bool = False,
    ) -> bool:
        """Asks if a plain loop may call the model. False: the run has ended.

        Ends the run if the last response was an answer, or no answer at all (truncated,
        filtered), unless `input` continues the conversation with messages of the user, or
        `retry` repeats the last call.
        """
    def observe(
        self, *, variables: dict[str, Any] | None = None, metrics: dict[str, Any] | None = None
    ) -> bool:
        """Feeds named values and measurements for policies, such as `last_reward`."""
    def spent(
        self,
        response: Response | Run | None = None,
        *,
        input_tokens: int = 0,
        output_tokens: int = 0,
        cost_usd: float | None = None,
        cost_unknown: bool = False,
        turns: int = 0,
    ) -> bool:
        """Adds what a nested run, such as a sub-agent, has spent: the Run itself, of which each
        part is added once; the response of one of its calls, which is priced by its model; or
        numbers. `cost_usd` is what is known of its cost; `cost_unknown` is True if that is not
        all, and need not be given without it. Its turns count towards `max_turns`. A ceiling
        that is reached ends the run, unless its last response was an answer.
        """
    def set_limits(self, limits: Limits) -> bool:
        """Changes limits of the run by name, and leaves the others as they are. What was spent so
        far counts against the new ones.
        """
    def may(self) -> bool:
        """Asks if the model may be called again, before it is known that it will be. False: the run
        has ended, because a limit is reached.
        """
    def may_spend(self) -> bool:
        """Asks if a nested run, or another one that this run pays for, may call a model. False: the
        run has ended, also because its money or tokens are spent, or its time is over. Its turns
        are no limit for others.
        """
    def tick(self) -> bool:
        """Checks the clock. False: the run has ended."""
    def pause(self) -> float | None:
        """Returns the seconds for which the next model call must wait, for `max_rate` or a window
        of a subscription; None if it may start now, or the run has ended. `wait` waits.
        """
    def notes(self) -> list[str]:
        """Returns the messages of Endstop that belong into the next request, and forgets them.
        Empty unless the run was created with `inject=True`.
        """
    def cancel(self) -> Outcome | None:
        """Cancels the run, from any thread. Returns the outcome, or None if another call uses the
        run at this moment; that call then performs it.
        """
    def terminate(self) -> Outcome | None:
        """Terminates the run, from any thread. Returns as `cancel` does."""
    def fault(self, name: str, message: str) -> Outcome:
        """Reports that code around the run failed, for example a hook of the framework. Ends the
        run as `error_during_execution`.
        """
    def close(
        self,
        ok: bool = True,
        detail: str = "",
        *,
        ended: RunEnding | None = None,
        deliverable: object = None,
    ) -> Outcome:
        """Reports that the loop is gone, and returns the outcome. The ending of the last response
        becomes final if `ok`. A loop that ends with an error, described by `detail`, or with an
        open call is never a success. A run that has ended keeps its outcome.

        `ended` names the ending if only the framework knows it: `submitted` with a
        `deliverable`, for an answer in a call or a structured one; `error_max_turns`,
        `error_max_budget_usd` or `error_max_tokens` for its own limit; `error_halted` for
        another limit or a guardrail, whose name is the `detail`. A response that failed, was cut
        or was filtered is not a success by this.
        """
    def call(self, of: str = "") -> ModelCall:
        """Returns a handle for model calls that may be in flight at the same time as others. `of`
        names the conversation that they belong to, such as an agent: repetition is detected in
        each, and limits hold for all of them together.
        """
    def park(self, *, keep: bool = False) -> str:
        """Parks the run: a person or another process decides, and `Run.resume` continues it.
        Returns its text, JSON with the conversation, the spending and the open calls. Nothing
        can be fed to this object from now on, and leaving its block does nothing.

        With `keep` the run continues here, and the text is for a checkpoint: another process
        continues from it if this one does not.
        """
    @property
    def parked(self) -> bool:
        """True if the run is parked."""
    @classmethod
    def resume(
        cls,
        text: str,
        *,
        limits: Limits | None = None,
        allow: Sequence[str] = [],
        policy: RunPolicy | None = None,
        clock: Callable[[], float] | None = None,
    ) -> Self:
        """Continues a parked run, once in each process: the program that stores the text makes sure
        that it is used once. `limits` changes limits by name; looser ones are refused unless
        `allow` names them. The time for which the run was parked does not count. The policy is
        code, and is given again.
        """
    @property
    def outcome(self) -> Outcome | None:
        """The outcome; None while the run continues."""
    def finished(self) -> Outcome:
        """Returns the outcome, and raises ConfigError if the run has not ended."""
    @property
    def running(self) -> bool:
        """True while the run continues."""
    @property
    def ending(self) -> Termination | None:
        """The ending that the run has if its loop ends now: that of the last response, if it was an
        answer or failed.
        """
    @property
    def turns(self) -> int:
        """Number of responses that became part of the conversation."""
    @property
    def usage(self) -> Usage:
        """Token usage so far."""
    @property
    def cost_usd(self) -> float:
        """Known cost so far in US dollars; None if no part of it is known."""
    @property
    def wake_in(self) -> float | None:
        """Seconds until `tick` must be called, because a deadline comes then; None if there is
        none.
        """
    def __enter__(self) -> Self: ...
    def __exit__(
        self,
        kind: type[BaseException] | None,
        problem: BaseException | None,
        traceback: TracebackType | None,
    ) -> bool: ...
    def __reduce__(self) -> Any: ...

@final
class ModelCall(_Calls):
    """A model call of a run, one at a time: `ask`, then `turn` or `failed`. Made by `Run.call`.

    >>> from openai import OpenAI
    >>> client, run = OpenAI(), endstop.Run(max_turns=25)
    >>> with run.call("researcher") as call:
    ...     if call.ask():
    ...         turn = call.turn(client.chat.completions.create(model="gpt-4o", messages=[]))
    >>> run.close().termination
    <Termination.STOP: 'stop'>
    """

    @property
    def open(self) -> bool:
        """True if the call waits for its response."""
    def close(self) -> None:
        """Reports that no response comes. A call that is open has failed, and may have been billed."""
    def __enter__(self) -> Self: ...
    def __exit__(
        self,
        kind: type[BaseException] | None,
        problem: BaseException | None,
        traceback: TracebackType | None,
    ) -> bool: ...

@final
class Signal:
    """The reason why the model stopped its turn, with the provider's own value."""

    @property
    def reason(self) -> SignalReason:
        """The reason, a `SignalReason`."""
    @property
    def should_terminate(self) -> bool:
        """True if the turn ends the model's part: it asks for no tool and is not paused."""
    @property
    def confidence(self) -> Confidence:
        """The confidence that the reason was read correctly, a `Confidence`."""
    @property
    def original_field(self) -> str:
        """Name of the field that the reason was read from, for example `finish_reason`."""
    @property
    def original_value(self) -> str:
        """Raw value of that field; empty if it was missing."""
    @property
    def metadata(self) -> dict[str, Any]:
        """Other data of the provider about the end of the turn."""
    @property
    def message(self) -> str | None:
        """An explanation for a person, if there is one."""
    def to_dict(self) -> dict[str, Any]:
        """Returns the fields as a dict."""
    @staticmethod
    def _from_json(text: str) -> Signal: ...
    def __eq__(self, other: object, /) -> bool: ...
    def __reduce__(self) -> tuple[Any, tuple[str]]: ...

@final
class Step:
    """The outcome of a step: a turn of the model with its tools."""

    def __new__(
        cls,
        output: str | None = None,
        *,
        action_type: str = "message",
        success: bool = True,
        metadata: dict[str, Any] | None = None,
    ) -> Self: ...
    @property
    def action_type(self) -> str:
        """Kind of the step: `message`, `final`, `tool` or `code`."""
    @property
    def success(self) -> bool:
        """True if the step succeeded."""
    @property
    def output(self) -> str | None:
        """Text of the step; None if it has none."""
    @property
    def metadata(self) -> dict[str, Any]:
        """Metadata of the step."""
    @property
    def calls(self) -> list[Call]:
        """The tool calls of the step, in order. Their ids are blank."""
    @property
    def outputs(self) -> list[dict[str, Any]]:
        """The outputs of the step's own code, in call order: dicts with `name`, `action_type`,
        `success` and `output`.
        """
    @property
    def results(self) -> list[dict[str, Any]]:
        """The results of the step's tools, in call order: dicts with `name`, `success` and
        `result`.
        """
    def __eq__(self, other: object, /) -> bool: ...

@final
class StreamDecoder:
    """Decodes a streamed response while its bytes pass.

    >>> decoder = endstop.StreamDecoder()
    >>> for chunk in [b'data: {"choices":[{"delta":{"content":"Hi"},', b'"finish_reason":"stop"}]}\\n\\n']:
    ...     for delta in decoder.push(chunk):
    ...         print(delta.text)
    Hi
    >>> decoder.finish().reason
    <SignalReason.NATURAL_COMPLETION: 'natural_completion'>
    """

    def __new__(
        cls,
        api: str | None = None,
        *,
        status: int = 200,
        headers: Mapping[str, str] | None = None,
        request: Body | None = None,
    ) -> Self: ...
    def push(self, chunk: bytes) -> list[Delta]:
        """Takes the next bytes, and returns what they add to the turn. Nothing is added by a body
        that is not a stream: it is decoded at the end. After `finish`, bytes are ignored.
        """
    def finish(self, *, reset: bool = False) -> Detection:
        """Ends the body. `reset` is True if the connection broke. Bytes that cannot be understood
        give an error in the result, never a success.
        """
    @property
    def complete(self) -> bool:
        """True if the protocol's end marker arrived, so that nothing more needs to be read."""
    @property
    def api(self) -> str | None:
        """The format, once it is known."""
    def __reduce__(self) -> Any: ...

@final
class Turn:
    """A response that was fed to a run."""

    @property
    def text(self) -> str:
        """The visible text."""
    @property
    def calls(self) -> tuple[Call, ...]:
        """The calls that may run, and no others of the response: a cut call is never among them.
        Empty if the run has ended.
        """
    @property
    def held_back(self) -> tuple[Call, ...]:
        """The calls of the response that must not run: it was cut, or their arguments are not a
        JSON object, or the run has ended. The kernel has answered them.
        """
    @property
    def signal(self) -> Signal:
        """The reason why the model stopped."""
    @property
    def usage(self) -> Usage:
        """Token usage of the response."""
    @property
    def error(self) -> ModelError | None:
        """The error that the response is, or that ended it."""
    @property
    def ending(self) -> Termination | None:
        """The ending that the run has if its loop ends now; there is none while the model waits for
        its tools. An ending that is not a success, such as `error_output_truncated`, means that
        the response is not an answer; the loop may still continue from it.
        """
    @property
    def stopped(self) -> bool:
        """True if the run has ended: call neither the model nor a tool."""
    @property
    def outcome(self) -> Outcome | None:
        """The outcome, if the run has ended."""
    def to_dict(self) -> dict[str, Any]:
        """Returns the fields as a dict."""
    @staticmethod
    def _from_json(text: str) -> Turn: ...
    def __eq__(self, other: object, /) -> bool: ...
    def __reduce__(self) -> tuple[Any, tuple[str]]: ...
    __hash__: None  # type: ignore[assignment]

@final
class Usage:
    """Token usage of a response or of a run. None stands for a count that was not reported."""

    @property
    def input_tokens(self) -> int | None:
        """Prompt tokens, as the provider counts them."""
    @property
    def output_tokens(self) -> int | None:
        """Generated tokens, as the provider counts them."""
    @property
    def cached_input_tokens(self) -> int | None:
        """Prompt tokens read from a cache."""
    @property
    def cache_write_tokens(self) -> int | None:
        """Prompt tokens written to a cache."""
    @property
    def reasoning_tokens(self) -> int | None:
        """Generated tokens spent on reasoning."""
    @property
    def total_tokens(self) -> int:
        """Prompt and generated tokens together, including cached ones."""
    @property
    def estimated(self) -> bool:
        """True if Endstop estimated the numbers, because the provider did not count."""
    def to_dict(self) -> dict[str, Any]:
        """Returns the fields as a dict."""
    @staticmethod
    def _from_json(text: str) -> Usage: ...
    def __eq__(self, other: object, /) -> bool: ...
    def __reduce__(self) -> tuple[Any, tuple[str]]: ...

@final
class Verdict:
    """The decision of a policy about a step: continue, continue with a message for the model, or
    stop.

    True in a condition if it stops.
    """

    @staticmethod
    def stop(
        answer: str | None = None,
        *,
        evidence: str = "",
        ends_as: Literal[
            "submitted", "error_no_progress", "error_consecutive_mistakes", "error_halted"
        ] = "submitted",
        deliverable: Any | None = None,
    ) -> Verdict:
        """A verdict that stops the run. `ends_as` is `submitted`, `error_no_progress`,
        `error_consecutive_mistakes` or `error_halted`.
        """
    @staticmethod
    def proceed() -> Verdict:
        """A verdict that continues the run."""
    @staticmethod
    def tell(message: str) -> Verdict:
        """A verdict that continues, and sends the model a message. The message is dropped if the
        framework cannot add one.
        """
    @property
    def stops(self) -> bool:
        """True if the run stops."""
    @property
    def ends_as(self) -> Termination | None:
        """The termination of the run, if it stops."""
    @property
    def answer(self) -> str | None:
        """The answer as text, if the verdict has one."""
    @property
    def deliverable(self) -> Any:
        """The answer as a value of JSON, if the verdict has one."""
    @property
    def policy(self) -> str | None:
        """Name of the policy that decided."""
    @property
    def evidence(self) -> str:
        """The reason, for a person to read; empty if the run continues."""
    @property
    def message(self) -> str | None:
        """The message for the model, if the policy has one."""
    def __bool__(self) -> bool: ...
    @staticmethod
    def _from_json(text: str) -> Verdict: ...
    def __reduce__(self) -> tuple[Any, tuple[str]]: ...
    def __eq__(self, other: object, /) -> bool: ...

def api_of(method: str, path: str) -> str | None:
    """Returns the format of the responses to a request, by its method and its path; `None` if it is
    not a model call.
    """

def default_limits() -> Limits:
    """Returns the limits that apply if nothing is set, spelled as `Run(limits=…)` reads them."""

def detect(
    response: Response,
    *,
    api: str | None = None,
    status: int | None = None,
    headers: Mapping[str, str] | None = None,
    request: Body | None = None,
) -> Detection:
    """Detects why a model's turn ended.

    `response` is the body as bytes or text, a dict, an object of an SDK, a stream or the list of
    its chunks, or the response of an HTTP client. A stream is read to its end; one of asyncio is
    read by its program, and passed as a list. `api` names the format, for example `openai-chat`;
    if it is missing, the format is recognised. `request` is the request that was sent, as bytes
    or a dict; it tells a cut at the output cap and a stop string from other ends.

    Raises FormatError if the format is not recognised, or ambiguous, or if this is only a part
    of a response, for example a choice or a message.

    >>> endstop.detect(b'{"choices":[{"message":{"content":"Hi"},"finish_reason":"length"}]}').reason
    <SignalReason.TOKEN_LIMIT_REACHED: 'token_limit_reached'>
    """

def fields() -> list[tuple[str, list[tuple[str, str]]]]:
    """Returns the names and the kinds of the fields of each class, from which `_endstop.pyi` is
    generated.
    """

def k_of(n: int, policies: Sequence[PolicySpec]) -> Policy:
    """Returns a policy that stops when at least `n` of these do."""

def limit_names() -> list[str]:
    """Returns the names of the limits that a run may have, with `inject=True` and `waits=True`. A
    duration also has a name with the suffix `_ms`.
    """

def members() -> list[tuple[str, list[str]]]:
    """Returns the values of all enumerations as the kernel spells them, by name of the enumeration.
    A test compares `endstop._enums` with them.
    """

def policy_names() -> list[str]:
    """Returns the names of the built-in policies."""

def price(model: str) -> Price | None:
    """Returns the price of a model from the catalogue, or None if it has none. `model` is
    `provider/model`, for example `openai/gpt-4o`.

    Prices are upper bounds: if a price depends on the size of the prompt or on the hour, the
    highest is used.
    """

def redact(text: str, *, keys: Sequence[str] = ...) -> str:
    """Removes credentials from text: those of known formats, and the given keys wherever they
    occur.

    >>> endstop.redact("bad key: sk-abcdef1234567890")
    'bad key: [redacted]'
    """

def response(
    text: str = "",
    *,
    finish: str | None,
    calls: Iterable[Call | tuple[str, str, str]] = ...,
    refusal: str | None = None,
    input_tokens: int | None = None,
    output_tokens: int | None = None,
    cached_input_tokens: int | None = None,
    cache_write_tokens: int | None = None,
    cache_write_1h_tokens: int | None = None,
    reasoning_tokens: int | None = None,
    total_tokens: int | None = None,
    cost_usd: float | None = None,
    model: str | None = None,
) -> Detection:
    """Describes a response by hand, for a framework that does not show the provider's bytes.

    `finish` is the provider's finish value as it sent it, in any format. None means that none
    arrived: the response then counts as cut, and never as a success.

    Cached tokens are part of `input_tokens`, and reasoning is part of `output_tokens`, unless
    `total_tokens` counts them next to those, as some providers do, or more tokens are cached
    than `input_tokens` says.
    """

def run_files(path: str | PathLike[str]) -> tuple[list[Path], str | None]:
    """Returns the files that a backtest or an audit reads of a folder, sorted; of a file, only
    itself. The second value is what `tally_skipped` counts: the entries that are not read, as
    JSON; `None` if there are none.
    """
