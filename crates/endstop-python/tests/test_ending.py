"""The report of an ending: the logger `endstop`, and the current span of OpenTelemetry."""

from __future__ import annotations

import logging
import subprocess
import sys
import threading
from typing import Any

import pytest
from conftest import chat, tool

import endstop
from endstop import Run


def records(caplog: pytest.LogCaptureFixture) -> list[logging.LogRecord]:
    return [record for record in caplog.records if record.name == "endstop"]


def ended(response: Any = None, **limits: Any) -> endstop.Outcome:
    with Run(model="openai/gpt-4o", **limits) as run:
        if run.go() and response is not None:
            run.turn(response)
    return run.finished()


def test_success_is_one_line(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    ended(chat("my answer"))
    (record,) = records(caplog)
    assert record.levelno == logging.INFO
    assert record.getMessage() == "run ended: stop (success), 1 turns, $0.000045"
    # For handlers that write fields.
    assert vars(record)["endstop_termination"] == "stop"
    assert vars(record)["endstop_cost_usd"] == pytest.approx(0.000045)
    assert "error_type" not in vars(record)


@pytest.mark.parametrize(
    ("response", "limits", "ending"),
    [
        (chat("Hel", finish="length"), {}, "error_output_truncated"),
        (tool(), {"max_turns": 1}, "error_during_execution"),
        (None, {"max_turns": 0}, "error_max_turns"),
        (chat("no", finish="content_filter"), {}, "error_content_filtered"),
        (b"", {}, "error_during_execution"),
    ],
)
def test_failure_is_a_warning(
    caplog: pytest.LogCaptureFixture, response: Any, limits: Any, ending: str
) -> None:
    caplog.set_level(logging.DEBUG)
    assert ended(response, **limits).termination == ending
    (record,) = records(caplog)
    assert record.levelno == logging.WARNING and ending in record.getMessage()
    assert vars(record)["error_type"] == ending


def test_stop_by_the_program_is_not_a_warning(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    run = Run()
    run.cancel()
    Run().terminate()
    with pytest.raises(KeyboardInterrupt), Run():
        raise KeyboardInterrupt
    assert [record.levelno for record in records(caplog)] == [logging.INFO] * 3
    # Once for each run, whatever it is asked later.
    run.cancel()
    run.close()
    assert run.outcome and not run.go()
    assert len(records(caplog)) == 3


def test_report_has_no_content(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    key = "sk-abcdef1234567890abcdef"

    @endstop.policy("mine")
    def mine(step: endstop.Step, context: endstop.Context) -> endstop.Verdict:
        return endstop.Verdict.stop("the secret answer", evidence="the secret reason")

    with Run(policy=mine, task="the secret task") as run:
        run.go()
        run.turn(chat("the secret text"))
    with pytest.raises(ValueError), Run():
        raise ValueError(f"the secret {key}")
    Run().fault("hook", f"the secret {key}")
    assert len(records(caplog)) == 3
    for record in records(caplog):
        for value in [record.getMessage(), *vars(record).values()]:
            assert "secret" not in str(value) and key not in str(value)


def test_parked_run_is_reported_when_it_ends(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    run = Run()
    run.go()
    call = run.turn(tool()).calls[0]
    text = run.park()
    assert run.outcome is None and records(caplog) == []
    again = Run.resume(text)
    again.result(call, "x")
    again.go()
    again.turn(chat("Hi"))
    again.close()
    assert [vars(record)["endstop_turns"] for record in records(caplog)] == [2]


def test_stop_from_another_thread_is_reported_once(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    runs = [Run() for _ in range(50)]
    for run in runs:
        threads = [threading.Thread(target=stop) for stop in (run.cancel, run.close, run.terminate)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert run.outcome
    assert len(records(caplog)) == len(runs)


def test_handler_may_use_the_run_and_may_fail(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[endstop.Outcome | None] = []
    run = Run()

    class Handler(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            seen.append(run.outcome)
            raise OSError("the disk is full")

    problems: list[Any] = []
    monkeypatch.setattr(sys, "unraisablehook", problems.append)
    logger = logging.getLogger("endstop")
    handler = Handler()
    logger.addHandler(handler)
    logger.setLevel(logging.INFO)
    try:
        outcome = run.close()
    finally:
        logger.removeHandler(handler)
        logger.setLevel(logging.NOTSET)
    assert seen == [outcome] and len(problems) == 1


def test_program_without_logging_prints_nothing() -> None:
    """Neither without the module nor without a handler, with which Python prints warnings."""
    for first in ("", "import logging; "):
        code = f"{first}import endstop, sys; endstop.Run().close(False); print('logging' in sys.modules)"
        done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
        assert (done.stdout.strip(), done.stderr) == (str(bool(first)), "")


def test_current_span_has_the_ending() -> None:
    sdk = pytest.importorskip("opentelemetry.sdk.trace")
    export = pytest.importorskip("opentelemetry.sdk.trace.export.in_memory_span_exporter")
    simple = pytest.importorskip("opentelemetry.sdk.trace.export")
    exporter = export.InMemorySpanExporter()
    provider = sdk.TracerProvider()
    provider.add_span_processor(simple.SimpleSpanProcessor(exporter))
    tracer = provider.get_tracer("test")
    with tracer.start_as_current_span("good"):
        ended(chat("Hi"))
    with tracer.start_as_current_span("cut"):
        ended(chat("Hel", finish="length", model="unheard-of"))
    with tracer.start_as_current_span("none"):
        Run().go()
    ended(chat("Hi"))
    good, cut, none = exporter.get_finished_spans()
    assert dict(good.attributes) == {
        "endstop.termination": "stop",
        "endstop.category": "success",
        "endstop.decided_by": "turn:natural_completion",
        "endstop.turns": 1,
        "endstop.model_calls": 1,
        "endstop.tool_calls": 0,
        "endstop.cost_usd": pytest.approx(0.000045),
    }
    assert cut.attributes["error.type"] == "error_output_truncated"
    assert not none.attributes


def test_attributes_have_the_names_of_the_exported_spans() -> None:
    from pathlib import Path

    from endstop._ending import attributes

    spans = Path(__file__).parents[2] / "endstop" / "src" / "telemetry" / "spans.rs"
    source = spans.read_text()
    unknown = Run()
    unknown.go()
    unknown.turn(chat("Hi", model="unheard-of", finish="length"))
    for outcome in (ended(chat("Hi")), ended(chat("Hel", finish="length")), unknown.close()):
        for name in attributes(outcome):
            assert f'"{name}"' in source
