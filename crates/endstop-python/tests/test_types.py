"""The types of the package: what type checkers accept, and that the stub says what the module says.

python tests/test_types.py      # writes the docstrings of the compiled module into the stub
"""

from __future__ import annotations

import ast
import inspect
import json
import re
import subprocess
import sys
import textwrap
from pathlib import Path
from typing import Any, get_args, get_type_hints

import pytest

import endstop
from endstop import _endstop, _types

PROGRAM = Path(__file__).parent / "typed.py"
STUB = Path(__file__).parents[1] / "python" / "endstop" / "_endstop.pyi"


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
    assert {*get_type_hints(_types.Limits)} - {"timeout_ms"} == {*endstop.limit_names()}
    strings = [one for one in get_args(_types.ErrorKind) if one is not endstop.ErrorClass]
    assert [*get_args(strings[0])] == [*endstop.ErrorClass]
    with endstop.Run() as run:
        for kind in get_args(_types.DeltaKind):
            assert run.delta("x", kind=kind)
        run.turn({"choices": [{"message": {"content": "Hi"}, "finish_reason": "stop"}]})
        for kind in endstop.ErrorClass:
            run.failed("x", kind=kind)


def documented(stub: str) -> str:
    """Returns a stub with the docstrings of the compiled module."""
    lines = stub.splitlines()
    spans = []
    for owner, node in nodes(ast.parse(stub).body, _endstop):
        text = owner.__doc__ if isinstance(node, ast.ClassDef) else documentation(owner)
        first = node.body[0]
        if not text or not isinstance(first, ast.Expr) or not isinstance(first.value, ast.Constant):
            continue
        if isinstance(first.value.value, str):
            spans.append((first.lineno, first.end_lineno or first.lineno, first.col_offset, text))
    for begin, end, column, text in reversed(spans):
        lines[begin - 1 : end] = quoted(text, " " * column)
    return "\n".join(lines) + "\n"


def nodes(body: list[ast.stmt], owner: object) -> Any:
    for node in body:
        if isinstance(node, ast.ClassDef | ast.FunctionDef):
            found = inspect.getattr_static(owner, node.name, None)
            if found is None:
                continue
            yield getattr(found, "__func__", found), node
            if isinstance(node, ast.ClassDef):
                yield from nodes(node.body, found)


def documentation(of: object) -> str | None:
    return None if (of.__doc__ or "").startswith(("Return", "Implement")) else of.__doc__


def quoted(text: str, indent: str) -> list[str]:
    lines = inspect.cleandoc(text).replace("\\", "\\\\").splitlines()
    end = '"""' if len(lines) == 1 else ""
    first, *rest = [f'"""{lines[0]}{end}', *lines[1:]]
    if not end:
        rest.append('"""')
    return [indent + first, *(textwrap.indent(line, indent) for line in rest)]


def test_stub_has_the_docstrings_of_the_module() -> None:
    assert documented(STUB.read_text()) == STUB.read_text(), f"run python {__file__}"


if __name__ == "__main__":
    STUB.write_text(documented(STUB.read_text()))
