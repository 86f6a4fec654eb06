"""Fills `_endstop.pyi` in: the properties of the lists of fields that all bindings share, and the
docstrings, which are those of the compiled module. The signatures of functions are written by hand,
and stubtest compares them.

    python scripts/stub.py python/endstop/_endstop.pyi          # fails if the file is another one
    python scripts/stub.py python/endstop/_endstop.pyi --write
"""

import ast
import difflib
import inspect
import json
import subprocess
import sys
import textwrap
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from endstop import _endstop

WIDTH = 100
TYPES = {
    "flag": "bool",
    "text": "str",
    "small": "int",
    "count": "int",
    "tokens": "int",
    "usd": "float",
    "dict": "dict[str, Any]",
    "value": "Any",
    "calls": "list[Call]",
    "shared calls": "tuple[Call, ...]",
    "object DecidedBy": "dict[str, str]",
}
"""The types of kinds, see `endstop_guest::fields`."""

FIELDS = {name: dict(rows) for name, rows in _endstop.fields()}


def type_of(kind: str) -> str:
    known = TYPES.get(kind)
    if known is not None:
        return known
    word, _, rest = kind.partition(" ")
    match word:
        case "maybe":
            inner = type_of(rest)
            return inner if inner == "Any" else f"{inner} | None"
        case "time":
            return "float"
        case "one" | "object":
            return rest
        case "many":
            return f"list[{rest}]"
        case "only":
            return str(json.loads(rest))
    raise ValueError(f"unknown kind `{kind}`")


def docstring(thing: Any, indent: str) -> list[str]:
    """Returns the lines of a docstring, wrapped but for its examples."""
    lines: list[str] = []
    for paragraph in inspect.cleandoc(thing.__doc__).replace("\\", "\\\\").split("\n\n"):
        if not paragraph.startswith(">>>"):
            # Three columns, for the quotes.
            paragraph = textwrap.fill(" ".join(paragraph.split()), WIDTH - len(indent) - 3)
        lines += ["", *paragraph.split("\n")] if lines else paragraph.split("\n")
    lines[0] = f'"""{lines[0]}'
    if len(lines) == 1:
        lines[0] += '"""'
    else:
        lines.append('"""')
    return [f"{indent}{line}".rstrip() for line in lines]


def properties(name: str, runtime: Any) -> list[str]:
    lines = []
    for field, kind in FIELDS[name].items():
        lines += ["    @property", f"    def {field}(self) -> {type_of(kind)}:"]
        lines += docstring(getattr(runtime, field), " " * 8)
    return lines


def is_property(node: ast.stmt) -> bool:
    return isinstance(node, ast.FunctionDef) and any(
        isinstance(one, ast.Name) and one.id == "property" for one in node.decorator_list
    )


def with_doc(
    source: list[str], node: ast.FunctionDef | ast.ClassDef, thing: Any
) -> Iterator[tuple[int, int, list[str]]]:
    """Yields the edit that gives a function or a class its docstring: lines from, to, and the new ones."""
    if not thing.__doc__:
        # A member without code of its own.
        return
    first = node.body[0]
    indent = " " * (node.col_offset + 4)
    if isinstance(first, ast.Expr) and isinstance(first.value, ast.Constant):
        if isinstance(first.value.value, str):
            yield first.lineno - 1, first.end_lineno or first.lineno, docstring(thing, indent)
        else:
            # `...` after the signature, on its line.
            head = source[first.lineno - 1][: first.col_offset].rstrip()
            yield first.lineno - 1, first.lineno, [head, *docstring(thing, indent)]


def edits(source: list[str]) -> Iterator[tuple[int, int, list[str]]]:
    for node in ast.parse("\n".join(source)).body:
        if isinstance(node, ast.FunctionDef):
            yield from with_doc(source, node, getattr(_endstop, node.name))
        if not isinstance(node, ast.ClassDef):
            continue
        runtime = getattr(_endstop, node.name)
        yield from with_doc(source, node, runtime)
        generated = [one for one in node.body if is_property(one)] if node.name in FIELDS else []
        if generated:
            start = generated[0].decorator_list[0].lineno - 1  # type: ignore[attr-defined]
            yield start, generated[-1].end_lineno or 0, properties(node.name, runtime)
        for one in node.body:
            if isinstance(one, ast.FunctionDef) and one not in generated and one.name[0] != "_":
                yield from with_doc(source, one, getattr(runtime, one.name))


def main(path: str, *flags: str) -> None:
    before = Path(path).read_text()
    lines = before.split("\n")
    for start, end, new in sorted(edits(lines), reverse=True):
        lines[start:end] = new
    ruff = [sys.executable, "-m", "ruff", "format", "--quiet", "--stdin-filename", path, "-"]
    done = subprocess.run(ruff, input="\n".join(lines), text=True, capture_output=True, check=True)
    after = done.stdout
    if "--write" in flags:
        Path(path).write_text(after)
    elif after != before:
        sys.stdout.writelines(
            difflib.unified_diff(before.splitlines(True), after.splitlines(True), path)
        )
        sys.exit(f"{path} is not what the module says: run check --write")


main(*sys.argv[1:])
