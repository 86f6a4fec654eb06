"""Backtests and audits: parts in any order, sources of each kind, and what is refused."""

from __future__ import annotations

import copy
import io
import json
import os
import pickle
import random
import subprocess
import sys
import types
from pathlib import Path
from typing import Any

import pytest

import endstop
from endstop._recorded import _engines, _parts, _rows


def run(number: int, success: bool | None = None, turns: int = 6) -> dict[str, Any]:
    """Returns a recorded run: a good one makes other calls, a failed one repeats itself."""
    good = number % 2 == 0 if success is None else success

    def step(turn: int) -> dict[str, Any]:
        path = f"{number}/{turn}" if good else "same"
        return {
            "role": "agent",
            "text": f"Step {turn} of {number}." if good else "Again.",
            "tool_calls": [{"name": "read", "arguments": {"path": path}}],
            "tool_results": [{"content": path, "is_error": False}],
        }

    return {
        "schema": "neutral-traj/1",
        "run_id": f"run-{number}",
        "task_id": f"task/{number // 2}",
        "model": "gpt-4o-mini",
        "outcome": {"success": good},
        "steps": [step(turn) for turn in range(turns)],
    }


def lines(numbers: range) -> bytes:
    return b"\n".join(json.dumps(run(number)).encode() for number in numbers) + b"\n"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "runs" / "deep").mkdir(parents=True)
    (tmp_path / "runs" / "a.jsonl").write_bytes(lines(range(40)))
    (tmp_path / "runs" / "deep" / "b.jsonl").write_bytes(lines(range(40, 60)))
    (tmp_path / "runs" / "LICENSE").write_text("not a run")
    return tmp_path / "runs"


def test_report_has_figures_and_page(folder: Path) -> None:
    report = endstop.backtest(folder, "reference")
    assert (report.runs, report.judged, report.datasets) == (60, 60, ["a", "b"])
    assert report.recommended is not None
    assert report.strength in ("set", "try")
    known = report.to_dict()
    assert json.loads(report.to_json()) == known
    assert known["recommended"]["name"] == report.recommended
    assert known["census"]["runs"] == 60
    assert known["figures"] == report.figures
    assert report.to_html().startswith("<!doctype html>")
    assert report._repr_html_().startswith("<iframe sandbox srcdoc=")
    assert report.recommended in str(report)
    assert report.recommended in repr(report)
    assert "watch" in report.to_toml()
    assert report.problems == {}


@pytest.mark.parametrize("kind", ["backtest", "audit"])
def test_division_and_order_do_not_change_report(kind: str) -> None:
    job: Any = endstop.Backtest("reference") if kind == "backtest" else endstop.Audit(top=5)
    whole = job.merge([job.tally(lines(range(30)), dataset="all")])
    for seed in range(8):
        chance = random.Random(seed)
        cuts = sorted(chance.sample(range(1, 30), chance.randrange(1, 12)))
        bounds = [0, *cuts, 30]
        parts = [
            job.tally(lines(range(low, high)), dataset="all")
            for low, high in zip(bounds, bounds[1:], strict=False)
        ]
        chance.shuffle(parts)
        middle = chance.randrange(1, len(parts))
        nested = [job.combine(parts[:middle]), job.combine(parts[middle:])]
        for one in (parts, nested):
            assert job.merge(one).to_json() == whole.to_json()
            assert job.merge(one).to_html() == whole.to_html()


def test_sources_of_each_kind_agree(folder: Path) -> None:
    report = endstop.backtest(folder, dataset="all").to_json()
    files = sorted(folder.rglob("*.jsonl"))
    for source in (
        str(folder),
        files,
        str(folder / "**" / "*.jsonl"),
        [path.read_bytes() for path in files],
        [path.open("rb") for path in files],
        (io.BytesIO(path.read_bytes()) for path in files),
    ):
        # The folder also has a file that is not a run, which only the walk of a folder skips.
        again = endstop.backtest(source, dataset="all")
        expected = json.loads(report)
        if source != str(folder):
            expected["census"]["passed_over"] = 0
        assert again.to_dict() == expected


def test_packed_file_object_is_unpacked() -> None:
    import gzip

    packed = io.BytesIO(gzip.compress(lines(range(20))))
    packed.name = "runs.jsonl.gz"
    assert endstop.backtest(packed).datasets == ["runs"]


def test_file_object_errors_are_raised() -> None:
    class Broken(io.RawIOBase):
        def read(self, size: int = -1) -> bytes:
            raise ConnectionError("the network is gone")

    with pytest.raises(ConnectionError, match="the network is gone"):
        endstop.backtest(Broken())
    with pytest.raises(TypeError, match='mode "rb"'):
        endstop.backtest(io.StringIO("text"))


def test_unreadable_records_are_counted() -> None:
    broken = lines(range(4)) + b'{"schema":"neutral-traj/1","run_id":\n'
    report = endstop.backtest(broken)
    assert report.runs == 4
    assert sum(problem["count"] for problem in report.problems.values()) == 1


def test_other_settings_are_refused() -> None:
    part = lines(range(4))
    one, other = endstop.Backtest("reference"), endstop.Backtest(["repeat_call"])
    with pytest.raises(endstop.MergeError, match="candidate"):
        one.merge([one.tally(part), other.tally(part)])
    with pytest.raises(endstop.MergeError, match="other settings"):
        endstop.Audit(top=3).merge([endstop.Audit(top=4).tally(part)])
    with pytest.raises(endstop.MergeError, match="format"):
        one.merge([endstop.Audit().tally(part)])


def test_other_version_is_refused() -> None:
    job = endstop.Backtest("reference")
    counts = job.tally(lines(range(4)))
    mine = f'"endstop":"{endstop.__version__}"'.encode()
    assert mine in counts
    with pytest.raises(endstop.MergeError, match=r"endstop 0\.0\.1"):
        job.merge([counts, counts.replace(mine, b'"endstop":"0.0.1"')])
    for damaged in (b"", b"{}", counts[:-20], counts[:50]):
        with pytest.raises(endstop.MergeError):
            job.merge([damaged])


@pytest.mark.parametrize(
    ("policies", "options", "said"),
    [
        ("nothing", {}, "nothing"),
        ([], {}, "expected default"),
        ([{"name": "x"}], {}, "candidate 1"),
        (["repeat_call", "repeat_call"], {}, "duplicate name"),
        ("default", {"calibrate": 1.5}, "calibrate"),
        ("default", {"max_harm": -0.1}, "max_harm"),
        ("default", {"format": "nothing"}, "unknown format"),
        ("default", {"outcomes": {"run-1": "yes"}}, "outcomes"),
    ],
)
def test_invalid_arguments_are_named(policies: Any, options: dict[str, Any], said: str) -> None:
    with pytest.raises(endstop.ConfigError, match=said):
        endstop.Backtest(policies, **options)


def test_python_policy_cannot_be_backtested() -> None:
    @endstop.policy("mine")
    def mine(step: endstop.Step, context: endstop.Context) -> None:
        return None

    with pytest.raises(endstop.ConfigError, match="`mine` is Python code"):
        endstop.Backtest([mine])
    assert endstop.Backtest([endstop.FINAL]).candidates == ["final_pattern"]


def test_jobs_and_reports_are_pickled() -> None:
    job = endstop.Backtest(
        [{"name": "tight", "limits": {"max_turns": 3}}, "repeat_call"],
        max_harm=0.2,
        outcomes={"run-1": True},
    )
    copy = pickle.loads(pickle.dumps(job))
    assert copy.candidates == job.candidates == ["tight", "repeat_call(3)"]
    part = lines(range(8))
    assert copy.tally(part) == job.tally(part)
    report = job.merge([job.tally(part)])
    assert pickle.loads(pickle.dumps(report)).to_json() == report.to_json()
    audit = endstop.Audit(top=2, since="2020-01-01")
    sessions = audit.merge([audit.tally(part)])
    assert pickle.loads(pickle.dumps(sessions)).to_json() == sessions.to_json()


def test_outcomes_override_recordings() -> None:
    outcomes = {f"run-{number}": False for number in range(10)}
    report = endstop.backtest(lines(range(10)), outcomes=outcomes)
    assert report.figures["datasets"][0]["succeeded"] == 0


def test_counts_continue_a_report(folder: Path) -> None:
    job = endstop.Backtest("reference")
    first = job.merge([job.tally(folder / "a.jsonl")])
    both = job.merge([first.counts, job.tally(folder / "deep" / "b.jsonl")])
    assert (
        both.to_json() == endstop.backtest(sorted(folder.rglob("*.jsonl")), "reference").to_json()
    )


def test_audit_reports_sessions(folder: Path) -> None:
    report = endstop.audit(folder, top=3)
    assert report.sessions == 60
    assert len(report.worst) == 3
    assert sum(report.ended.values()) == 60
    assert report.to_dict()["type"] == "audit"
    assert report.to_html().startswith("<!doctype html>")
    assert "60 sessions" in str(report)


def test_audit_names_what_it_did_not_use(folder: Path) -> None:
    (folder / ".git").mkdir()
    (folder / "deep" / "c.jsonl").write_bytes(lines(range(60, 62)) + b'{"schema":"neutral-traj/1",')
    session = Path(__file__).parents[2] / "endstop-trajectory/fixtures/pi/cut_streams.jsonl"
    (folder / "late.jsonl").write_bytes(session.read_bytes())
    report = endstop.audit(folder)
    # The license is found by its name, the folder by the walk.
    skipped = {name for one in report.skipped_for.values() for name in one["first"]}
    assert skipped == {str(folder / "LICENSE"), str(folder / ".git")}
    (half,) = report.problems["half_record"]["first"]
    assert half.startswith(f"{folder / 'deep' / 'c.jsonl'}:3: ")
    assert report.notes and all("late.jsonl" in str(one["first"]) for one in report.notes.values())
    known = report.to_dict()
    assert (known["skipped"], known["files"]) == (2, 4)
    assert known["notes"] == report.notes and known["skipped_for"] == report.skipped_for
    assert pickle.loads(pickle.dumps(report)).to_json() == report.to_json()
    backwards = endstop.audit(sorted(folder.rglob("*.json*"), reverse=True)).to_dict()
    assert backwards["notes"] == known["notes"] and backwards["problems"] == known["problems"]


def test_audit_is_that_of_the_command(folder: Path) -> None:
    """`ENDSTOP_CLI` is the path of the command, `ENDSTOP_RUNS` that of a folder of recordings."""
    command, runs = os.environ.get("ENDSTOP_CLI"), os.environ.get("ENDSTOP_RUNS", str(folder))
    if command is None:
        pytest.skip("ENDSTOP_CLI is not set")
    done = subprocess.run([command, "audit", runs, "--json"], capture_output=True)
    assert endstop.audit(runs).to_dict() == json.loads(done.stdout)


def test_since_must_be_a_time() -> None:
    with pytest.raises(endstop.ConfigError, match="since"):
        endstop.Audit(since="yesterday")


def test_missing_path_and_source_are_errors(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match="nothing-here"):
        endstop.backtest(tmp_path / "nothing-here")
    with pytest.raises(endstop.ConfigError, match="type `int`"):
        endstop.backtest(3)
    with pytest.raises(endstop.ConfigError, match="unknown engine"):
        endstop.backtest(b"", engine="dark")  # type: ignore[arg-type]
    with pytest.raises(endstop.ConfigError, match="workers"):
        endstop.backtest(b"", workers=0)


@pytest.mark.parametrize("engine", ["ray", "spark", "dask"])
def test_missing_engine_names_its_extra(engine: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    def missing(name: str) -> None:
        raise ImportError(f"no module named {name!r}")

    monkeypatch.setattr(_engines, "import_module", missing)
    with pytest.raises(endstop.VersionError, match=rf"endstop\[{engine}\]"):
        endstop.backtest(lines(range(2)), engine=engine)


def test_counts_held_at_a_time_are_few() -> None:
    job = endstop.Backtest("default")
    part = _parts.Part(lines(range(2)), dataset="all")
    held: list[int] = []

    class Counting:
        def tally(self, *given: Any, **options: Any) -> bytes:
            return job.tally(*given, **options)

        def combine(self, parts: list[bytes]) -> bytes:
            held.append(len(parts))
            return job.combine(parts)

    found = (part for _ in range(100))
    counts = _engines._merged(Counting(), _engines._local(Counting(), found, 2))
    assert len(counts) <= _engines.AT_ONCE
    assert max(held) <= _engines.AT_ONCE
    assert job.merge(counts).runs == 200


def test_rows_of_records_are_lines() -> None:
    spaced = json.dumps(run(1), indent=2)
    text = _rows.lines_of_records([run(0), spaced, None, spaced.encode()])
    assert endstop.backtest(text).runs == 3
    assert _rows.text_column(["id", "trajectory"], None) == "trajectory"
    assert _rows.text_column(["run_id", "steps"], None) is None
    with pytest.raises(endstop.ConfigError, match="no column `x`"):
        _rows.text_column(["a", "b"], "x")


def test_import_does_not_load_engines() -> None:
    code = (
        "import sys, endstop; "
        "sys.exit(any(name in sys.modules for name in ('concurrent.futures', 'glob', 'ray')))"
    )
    assert subprocess.run([sys.executable, "-c", code]).returncode == 0


@pytest.mark.parametrize("kind", ["backtest", "audit"])
def test_rows_as_dicts_are_runs(kind: str) -> None:
    report: Any = endstop.backtest if kind == "backtest" else endstop.audit
    rows = [run(number) for number in range(30)]
    expected = report(lines(range(30)), dataset="table").to_json()
    for source in (
        rows,
        tuple(rows),
        iter(rows),
        [types.MappingProxyType(row) for row in rows],
        [rows[:10], rows[10:]],
        [lines(range(7)), *rows[7:20], lines(range(20, 30))],
    ):
        assert report(source, dataset="table").to_json() == expected
    assert report(rows).to_json() == expected
    assert report([{"id": 1, "run": row} for row in rows], column="run").to_json() == expected
    assert report([{"run": json.dumps(row)} for row in rows], column="run").to_json() == expected
    assert report(rows[0]).to_json() == report(lines(range(1)), dataset="table").to_json()
    with pytest.raises(endstop.ConfigError, match="no column `json`"):
        report(rows, column="json")
    # A row that is not a run is in the report.
    assert report([{"a": 1}]).problems


@pytest.mark.parametrize("source", ["", [], (), iter([]), [[]], [""]])
def test_empty_source_says_what_to_pass(source: Any, tmp_path: Path, monkeypatch: Any) -> None:
    monkeypatch.chdir(tmp_path)
    for report in (endstop.backtest, endstop.audit):
        with pytest.raises(endstop.ConfigError, match="empty; expected paths, addresses, bytes"):
            report(copy.copy(source))


def test_text_of_a_run_is_not_a_path() -> None:
    text = json.dumps(run(0))
    for source in (text, [text], "[1]"):
        with pytest.raises(endstop.ConfigError, match="JSON and not a path; pass bytes, or dicts"):
            endstop.backtest(source)
    with pytest.raises(FileNotFoundError):
        endstop.backtest("missing.jsonl")
    for wrong in (3, None, [None], object()):
        with pytest.raises(endstop.ConfigError, match="expected paths, addresses, bytes"):
            endstop.backtest(wrong)
