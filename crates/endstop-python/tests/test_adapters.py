"""What the adapters share, and their errors. The adapters themselves run in `bench/python`."""

from __future__ import annotations

import importlib
import importlib.util
import json
import sys
import tomllib
from importlib import metadata
from pathlib import Path

import pytest

import endstop
from endstop import Run, Termination
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
        stop._entered()._add(broken())
        raise gone
    assert stop.outcome.usage.output_tokens == 8
    assert stop.outcome.termination == Termination.ERROR_DURING_EXECUTION


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
    assert (stop.outcome.termination, stop.outcome.answer) == (Termination.STOP, "42")
