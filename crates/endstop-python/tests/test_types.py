"""The types of the package: what type checkers accept, and the names that arguments take."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path
from typing import get_args, get_type_hints

import pytest

import endstop
from endstop import _types

PROGRAM = Path(__file__).parent / "typed.py"


def wrong() -> list[int]:
    lines = PROGRAM.read_text().splitlines()
    return [number for number, line in enumerate(lines, 1) if line.endswith("# wrong")]


def test_mypy_rejects_wrong_programs() -> None:
    pytest.importorskip("mypy")
    command = [sys.executable, "-m", "mypy", "--strict", "--no-incremental", "--hide-error-context"]
    done = subprocess.run([*command, str(PROGRAM)], capture_output=True, text=True)
    found = re.findall(r"typed\.py:(\d+): error: ", done.stdout)
    assert sorted({int(line) for line in found}) == wrong(), done.stdout + done.stderr


def test_pyright_rejects_wrong_programs() -> None:
    pytest.importorskip("pyright")
    command = [sys.executable, "-m", "pyright", "--outputjson", "--pythonpath", sys.executable]
    done = subprocess.run([*command, str(PROGRAM)], capture_output=True, text=True)
    if not done.stdout.startswith("{"):
        pytest.skip("pyright could not be started")
    found = json.loads(done.stdout)["generalDiagnostics"]
    errors = {one["range"]["start"]["line"] + 1 for one in found if one["severity"] == "error"}
    assert sorted(errors) == wrong(), done.stdout


def test_types_have_the_names_of_the_kernel() -> None:
    # A time also has a name in milliseconds.
    names = {name for name in get_type_hints(_types.Limits) if not name.endswith("_ms")}
    assert names == {*endstop.limit_names()}
    strings = [one for one in get_args(_types.ErrorKind) if one is not endstop.ErrorClass]
    assert [*get_args(strings[0])] == [*endstop.ErrorClass]
    with endstop.Run() as run:
        for kind in get_args(_types.DeltaKind):
            assert run.delta("x", kind=kind)
        run.turn({"choices": [{"message": {"content": "Hi"}, "finish_reason": "stop"}]})
        for kind in endstop.ErrorClass:
            run.failed("x", kind=kind)
