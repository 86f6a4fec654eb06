"""What the adapters share, and their errors. The adapters themselves run in `bench/python`."""

from __future__ import annotations

import contextlib
import contextvars
import dataclasses
import importlib
import importlib.util
import json
import sys
import threading
import tomllib
from importlib import metadata
from pathlib import Path
from typing import Any

import httpx
import pytest

import endstop
from endstop import Run, Termination, tap
from endstop.adapters import _base, _scope, _versions

ADAPTERS = {
    "agent_framework": "agent_framework",
    "autogen": "autogen_agentchat",
    "claude_sdk": "claude_agent_sdk",
    "crewai": "crewai",
    "dspy": "dspy",
    "google_adk": "google.adk",
    "inspect": "inspect_ai",
    "langchain": "langchain",
    "llama_index": "llama_index",
    "openai_agents": "agents",
    "pydantic_ai": "pydantic_ai",
    "smolagents": "smolagents",
    "strands": "strands",
}


def test_version_out_of_range_names_the_range(monkeypatch: pytest.MonkeyPatch) -> None:
    def version(package: str) -> str:
        if package == "gone":
            raise metadata.PackageNotFoundError(package)
        return {"low": "0.9.9", "high": "2.0.0rc1", "first": "1", "last": "1.99.1.dev3"}[package]

    monkeypatch.setattr(metadata, "version", version)
    for package in ("low", "high"):
        with pytest.raises(endstop.VersionError, match=rf"{package}>=1\.0,<2"):
            _versions.check(package, "1.0", "2")
    with pytest.raises(endstop.VersionError, match="gone is not installed"):
        _versions.check("gone", "1.0", "2")
    for package in ("first", "last"):
        _versions.check(package, "1.0", "2")


@pytest.mark.parametrize(("module", "package"), ADAPTERS.items())
def test_missing_framework_is_an_import_error(module: str, package: str) -> None:
    # The parent of a dotted name may be missing, for which `find_spec` raises.
    parent = package.partition(".")[0]
    if importlib.util.find_spec(parent) and importlib.util.find_spec(package):
        importlib.import_module(f"endstop.adapters.{module}")
        return
    with pytest.raises(ImportError):
        importlib.import_module(f"endstop.adapters.{module}")


def test_extras_have_the_supported_ranges() -> None:
    text = (Path(__file__).parents[1] / "pyproject.toml").read_text()
    extras = tomllib.loads(text)["project"]["optional-dependencies"]
    for adapter, packages in _versions.SUPPORTED.items():
        ranges = [f"{package}>={lowest},<{below}" for package, lowest, below in packages]
        assert extras[adapter.replace("_", "-")] == ranges
    assert set(_versions.SUPPORTED) == set(ADAPTERS)


def test_version_is_checked_before_the_framework(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(metadata, "version", lambda package: "0.0.1")
    for adapter in ADAPTERS:
        name = f"endstop.adapters.{adapter}"
        monkeypatch.delitem(sys.modules, name, raising=False)
        with pytest.raises(endstop.VersionError, match="0.0.1 is not supported; the supported"):
            importlib.import_module(name)


def test_invalid_limit_is_an_error_where_it_is_written() -> None:
    with pytest.raises(endstop.ConfigError, match="max_turns"):
        _base.Settings(limits={"max_turn": 3})


def test_feed_stops_at_what_is_not_an_answer() -> None:
    called = endstop.response(finish="tool_calls", calls=[("c1", "f", "{}")])
    run = Run()
    assert _base.feed(run, [called]) == (None, ())
    run.result("c1", "x")
    assert _base.feed(run, [endstop.response("Done.", finish="stop")]).stopped is None
    assert run.close().termination is Termination.STOP

    cut = endstop.response(finish="length", calls=[("c1", "f", '{"a')])
    fed = _base.feed(Run(), [cut])
    assert fed.stopped is not None
    assert fed.stopped.termination is Termination.ERROR_OUTPUT_TRUNCATED
    assert [call.name for call in fed.held_back] == ["f"]


def test_feed_counts_failed_attempts() -> None:
    busy = endstop.detect(b"{}", api="openai-chat", status=529)
    run = Run()
    assert _base.feed(run, [busy, busy, endstop.response("Hi", finish="stop")]).stopped is None
    outcome = run.close()
    assert (outcome.termination, outcome.model_calls, outcome.turns) == (Termination.STOP, 3, 1)


def test_call_that_is_cut_is_held_back() -> None:
    run = Run()
    both = [("c1", "f", '{"a": 1}'), ("c2", "f", '{"a')]
    turn = run.turn(endstop.response(finish="tool_calls", calls=both))
    assert [call.id for call in turn.calls] == ["c1"]
    assert [call.id for call in turn.held_back] == ["c2"]
    run.result("c1", "fine")
    assert run.ask()
    turn = run.turn(endstop.response(finish="tool_calls", calls=[("c3", "f", '{"a')]))
    assert turn.calls == () and len(turn.held_back) == 1


def test_scope_stops_at_a_cut_call() -> None:
    cut = endstop.response(finish="tool_calls", calls=[("c1", "f", '{"a')])
    with _scope.Scope() as stop:
        stop.before_call()
        with pytest.raises(_scope.Stopped) as stopped:
            stop.after_call(lambda: cut)
        with pytest.raises(_scope.Stopped):
            stop.before_call()
    assert stopped.value.outcome == stop.outcome
    assert not stop.outcome.is_success and "f" in stop.outcome.evidence


def test_broken_stream_is_paid_for() -> None:
    def broken() -> endstop.Detection:
        decoder = endstop.StreamDecoder("openai-chat")
        piece = {"choices": [{"delta": {"content": "The capital of France is Paris."}}]}
        decoder.push(f"data: {json.dumps(piece)}\n\n".encode())
        return decoder.finish(reset=True)

    gone = ConnectionError("gone")
    run = Run()
    run.ask()
    _base.feed_failure(run, gone, [broken()])
    assert run.close().usage.output_tokens == 8
    with pytest.raises(ConnectionError), _scope.Scope() as stop:
        stop.before_call()
        # The framework reads its stream after the hooks, so that they do not see the exception.
        stop._live.rest._add(broken())
        raise gone
    assert stop.outcome.usage.output_tokens == 8
    assert stop.outcome.termination == Termination.ERROR_DURING_EXECUTION


def answer(text: str = "Hi", finish: str = "stop") -> endstop.Detection:
    return endstop.response(text, finish=finish, input_tokens=100, output_tokens=50, model="m")


def test_whole_response_behind_an_exception_keeps_its_ending() -> None:
    """An SDK may refuse a response that the token limit cut."""
    for finish, ending in (
        ("length", Termination.ERROR_OUTPUT_TRUNCATED),
        ("content_filter", Termination.ERROR_CONTENT_FILTERED),
        ("stop", Termination.ERROR_DURING_EXECUTION),
    ):
        with pytest.raises(ValueError), _scope.Scope() as stop:
            stop.before_call()
            stop._live.rest._add(answer(finish=finish))
            raise ValueError("LengthFinishReasonError")
        assert stop.outcome.termination == ending
        assert (stop.outcome.model_calls, stop.outcome.usage.total_tokens) == (1, 150)


def test_responses_of_sub_agents_are_spending() -> None:
    with _scope.Scope(price="in=1000,out=2000") as stop:
        asked = stop.before_call()
        # The framework asked another model inside of the call.
        asked.recording._add(answer(finish="length"))
        # A guardrail's agent at the same time: its cut answer is not that of the run.
        asked.recording._add(answer())
        stop._live.rest._add(answer(finish="length"))
        stop.after_call()
        # A sub-agent in a tool is booked at once.
        stop._live.rest._add(answer())
        assert stop.run.cost_usd == pytest.approx(0.8)
    outcome = stop.outcome
    assert (outcome.termination, outcome.turns, outcome.model_calls) == (Termination.STOP, 1, 4)
    assert outcome.cost_usd == pytest.approx(0.8)


def test_calls_at_the_same_time_keep_their_responses() -> None:
    """Hooks of two agents with the same name, each in a context of its own."""
    with _scope.Scope() as stop:
        stop.before_call()
        called = endstop.response(
            finish="tool_calls", calls=[("c1", "f", "{}")], input_tokens=100, output_tokens=50
        )
        stop.after_call(lambda: called)
        contexts = [contextvars.copy_context() for _ in range(3)]
        asked = [one.run(stop.before_call, of="agent") for one in contexts]
        assert len({call.of for call in asked}) == 3
        for call, text in zip(asked, "abc", strict=True):
            call.recording._add(answer(text))
        for left in (2, 1, 0):
            contexts[left].run(stop.after_call, of="agent")
            waiting = [bool(call.recording.detections) for call in asked]
            assert waiting == [index < left for index in range(3)]
        assert (stop.run.turns, stop.run.usage.total_tokens) == (4, 600)
        stop.after_tool("c1", "fine")
        stop.before_call()
        stop.after_call(answer)
    assert (stop.outcome.termination, stop.outcome.model_calls) == (Termination.STOP, 5)


def test_deliverable_of_any_kind_is_json() -> None:
    @dataclasses.dataclass
    class City:
        name: str

    within: list[Any] = []
    within.append(within)
    for value, expected in (
        (City("Paris"), {"name": "Paris"}),
        ([City("Paris"), 1, None], [{"name": "Paris"}, 1, None]),
        (None, "null"),
        ({1: "a"}, {"1": "a"}),
        ({(1, 2): "a"}, "{(1, 2): 'a'}"),
        (float("nan"), "nan"),
        (Path("a"), "a"),
        (within, "[[...]]"),
        (City, str(City)),
    ):
        with _scope.Scope() as stop:
            stop.before_call()
            stop.after_call(answer)
            stop.submitted(value)
        assert (stop.outcome.termination, stop.outcome.deliverable) == ("submitted", expected)


def test_budget_holds_in_sub_agents() -> None:
    """The request of a sub-agent whose run has ended is refused."""
    body = {"choices": [{"message": {"content": "Hi"}, "finish_reason": "stop"}]}
    body["usage"] = {"prompt_tokens": 100, "completion_tokens": 50}  # type: ignore[assignment]
    transport = httpx.MockTransport(lambda request: httpx.Response(200, json=body))
    sent = 0
    with _scope.Scope(price="in=1000,out=2000", max_budget_usd=0.5) as stop:
        stop.before_call()
        called = endstop.response(finish="tool_calls", calls=[("c1", "f", "{}")])
        stop.after_call(lambda: called)
        client = tap.wrap(httpx.Client(transport=transport))
        with client, pytest.raises(_scope.Stopped):
            for _ in range(10):
                client.post("http://x/v1/chat/completions", json={"model": "m"})
                sent += 1
    assert sent == 3 and stop.outcome.termination == Termination.ERROR_MAX_BUDGET_USD


def call(number: int) -> endstop.Detection:
    """A response that costs $0.20 and calls a tool."""
    calls = [(f"c{number}", "f", "{}")]
    return endstop.response(finish="tool_calls", calls=calls, input_tokens=100, output_tokens=50)


def test_run_inside_another_is_charged_once() -> None:
    """Three levels, of which the middle one is of another object; a budget of the outer one stops the inner one."""
    price = "in=1000,out=2000"
    # Made before the outer block: what counts is where it is entered.
    middle = _scope.Scope(price=price)
    with _scope.Scope(price=price, max_budget_usd=0.7) as outer:
        outer.before_call()
        outer.after_call(lambda: call(1))
        with middle, pytest.raises(_scope.Stopped) as stopped:
            middle.before_call()
            middle.after_call(lambda: call(1))
            with _scope.Scope(price=price) as inner:
                for number in range(9):
                    inner.before_call()
                    inner.after_call(lambda number=number: call(number))
                    inner.after_tool(f"c{number}", str(number))
        assert stopped.value.outcome == inner.outcome
        assert (inner.outcome.termination, inner.outcome.model_calls) == (Termination.CANCELLED, 2)
        assert inner.outcome.cost_usd == pytest.approx(0.4)
        assert middle.outcome.cost_usd == pytest.approx(0.6)
    outcome = outer.outcome
    assert outcome.termination == Termination.ERROR_MAX_BUDGET_USD
    assert outcome.cost_usd == pytest.approx(0.8)
    assert (outcome.turns, outcome.model_calls, outcome.usage.total_tokens) == (1, 4, 600)


def test_run_inside_another_is_charged_although_that_is_in_use() -> None:
    """A policy of the outer run waits for a thread with the inner one, as a tool in another thread may work with both."""
    price = "in=1000,out=2000"

    def work() -> None:
        with _scope.Scope(price=price) as inner:
            inner.before_call()
            inner.after_call(answer)

    @endstop.policy("works")
    def works(step: endstop.Step, context: endstop.Context) -> None:
        if context.step == 0:
            thread = threading.Thread(target=contextvars.copy_context().run, args=(work,))
            thread.start()
            thread.join()

    with _scope.Scope(price=price, policy=works) as outer:
        for number in (1, 2):
            outer.before_call()
            outer.after_call(lambda number=number: call(number))
            outer.after_tool(f"c{number}", str(number))
        assert outer.run.cost_usd == pytest.approx(0.6)
        outer.before_call()
        outer.after_call(answer)
    assert outer.outcome.cost_usd == pytest.approx(0.8)


def test_run_inside_another_is_found_by_its_context() -> None:
    """In another thread or task a run belongs to the context that was copied there."""
    price = "in=1000,out=2000"

    def work() -> endstop.Outcome:
        with tap.record(), _scope.Scope(price=price) as inner:
            inner.before_call()
            inner.after_call(answer)
        return inner.outcome

    with _scope.Scope(price=price) as outer:
        outer.before_call()
        outer.after_call(lambda: call(1))
        outer.after_tool("c1", "x")
        for context, cost in ((contextvars.copy_context(), 0.4), (contextvars.Context(), 0.4)):
            thread = threading.Thread(target=context.run, args=(work,))
            thread.start()
            thread.join()
            assert outer.run.cost_usd == pytest.approx(cost)
        outer.before_call()
        outer.after_call(answer)
    assert outer.outcome.termination == Termination.STOP
    # One that works on after the answer is not stopped by it.
    assert outer._live.allows()


def test_langchain_counts_have_their_names() -> None:
    pytest.importorskip("langchain", reason="langchain is not installed")
    langchain = importlib.import_module("endstop.adapters.langchain")
    messages = importlib.import_module("langchain_core.messages")

    def cost(usage: dict[str, Any]) -> float | None:
        message = messages.AIMessage("42", response_metadata={"finish_reason": "stop"})
        message.usage_metadata = {
            "output_tokens": 0,
            "total_tokens": usage["input_tokens"],
            **usage,
        }
        run = Run(price="in=2,out=10,cached=0.2,cache_write=2.5,cache_write_1h=4")
        run.turn(langchain._described(message))
        return run.close().cost_usd

    read = {"input_tokens": 1_000_000, "input_token_details": {"flex_cache_read": 900_000}}
    assert cost(read) == pytest.approx(0.38)
    for total in (0, 300_000):
        parts = {"ephemeral_5m_input_tokens": 200_000, "ephemeral_1h_input_tokens": 100_000}
        written = {
            "input_tokens": 300_000,
            "input_token_details": {"cache_creation": total, **parts},
        }
        assert cost(written) == pytest.approx(0.5 + 0.4)


def test_paused_scope_does_not_end() -> None:
    heard: list[endstop.Outcome] = []
    called = endstop.response(
        finish="tool_calls", calls=[("c1", "f", "{}")], input_tokens=100, output_tokens=50
    )
    with _scope.Scope(max_turns=2, on_end=heard.append) as first:
        first.before_call()
        first.after_call(lambda: called)
        parked = first.park()
    assert heard == [] and first.parked == parked
    with pytest.raises(endstop.ConfigError, match="the run is parked"):
        first.__enter__()
    with pytest.raises(endstop.ConfigError, match="max_turns"):
        _scope.Scope(parked=parked, max_turns=3)
    with _scope.Scope(parked=parked, max_turns=2, on_end=heard.append) as second:
        second.after_tool("c1", "fine")
        second.before_call()
        second.after_call(answer)
    assert heard == [second.outcome]
    assert (second.outcome.termination, second.outcome.turns) == (Termination.STOP, 2)
    assert (second.outcome.tool_calls, second.outcome.usage.total_tokens) == (1, 300)


def test_scope_of_an_ended_run_is_refused_with_the_fix() -> None:
    with _scope.Scope() as stop:
        stop.before_call()
        stop.after_call(answer)
        with pytest.raises(endstop.ConfigError, match="is in use"):
            stop.__enter__()
    with pytest.raises(endstop.ConfigError, match=r"has ended: make a new Scope\(…\)"):
        stop.__enter__()


def test_scope_without_a_model_call_says_so() -> None:
    with _scope.Scope() as stop:
        pass
    assert "no model call was seen: pass the adapter" in stop.outcome.evidence


@pytest.mark.parametrize(
    "ending", ["answer", "exception", "cancel", "limit", "framework", "submitted"]
)
def test_on_end_is_called_once(ending: str) -> None:
    class Framework(_scope.Scope):
        def ended_by(self, problem: BaseException) -> tuple[str, str] | None:
            return ("error_halted", f"rule: {problem}") if isinstance(problem, OSError) else None

    heard: list[endstop.Outcome] = []
    with contextlib.suppress(BaseException), Framework(max_turns=1, on_end=heard.append) as stop:
        stop.before_call()
        if ending == "exception":
            raise ValueError("x")
        if ending == "cancel":
            raise KeyboardInterrupt
        if ending == "framework":
            raise OSError("no")
        stop.after_call(answer)
        if ending == "limit":
            stop.before_call()
        if ending == "submitted":
            stop.submitted({"a": 1})
    assert heard == [stop.outcome]
    expected = {
        "answer": Termination.STOP,
        "exception": Termination.ERROR_DURING_EXECUTION,
        "cancel": Termination.CANCELLED,
        "limit": Termination.ERROR_MAX_TURNS,
        "framework": Termination.ERROR_HALTED,
        "submitted": Termination.SUBMITTED,
    }
    assert stop.outcome.termination == expected[ending]
    assert stop.outcome.deliverable == ({"a": 1} if ending == "submitted" else None)


def test_streamed_text_reaches_the_policy() -> None:
    with _scope.Scope(policy="final_pattern") as stop:
        stop.before_call(streaming=True)
        stop.streamed("The answer: ")
        with pytest.raises(_scope.Stopped):
            stop.streamed("FINAL('42') and more")
    assert (stop.outcome.termination, stop.outcome.answer) == (Termination.SUBMITTED, "42")


def test_scope_must_be_entered_and_tapped() -> None:
    stop = _scope.Scope()
    with pytest.raises(endstop.ConfigError, match="enter the run"):
        stop.before_call()
    with stop:
        stop.before_call()
        with pytest.raises(endstop.ConfigError, match="the tap saw no response"):
            stop.after_call()


def test_smolagents_final_answer_is_the_answer() -> None:
    pytest.importorskip("smolagents", reason="smolagents is not installed")
    smolagents = importlib.import_module("endstop.adapters.smolagents")
    call = ("c1", "final_answer", '{"answer": "42"}')
    with smolagents.Endstop() as stop:
        stop.before_call()
        stop.after_call(lambda: endstop.response(finish="tool_calls", calls=[call]))
    assert (stop.outcome.termination, stop.outcome.deliverable) == (Termination.SUBMITTED, "42")


def test_conversations_of_agents() -> None:
    known = _scope.Conversations()
    assert known.start("a", "a") == "" and known.running
    # One that starts while the first runs has its own, and a second one of the name another.
    assert [known.start("b", "b"), known.start("c", "b")] == ["b#1", "b#2"]
    assert known.end("a") == "" and known.of("b") == "b#1" and not known.knows("a")
    # One that takes over continues the run's own.
    assert known.start("d", "d") == ""
    assert [known.end(one) for one in "dbc"] == ["", "b#1", "b#2"] and not known.running
