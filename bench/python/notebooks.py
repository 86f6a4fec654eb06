"""Executes the notebooks of the book, cell by cell, and shows what each last line gives.

    LAB/clean/bin/python bench/python/notebooks.py

It needs only the wheel: no notebook server, no network. A cell that raises fails the command.
"""

from __future__ import annotations

import ast
import json
import sys
from pathlib import Path
from typing import Any

FOLDER = Path(__file__).resolve().parents[2] / "docs" / "notebooks"


def execute(cell: str, place: str, names: dict[str, Any]) -> Any:
    """Runs a cell, and returns the value of its last line as a notebook shows it."""
    tree = ast.parse(cell, place)
    last = tree.body.pop() if tree.body and isinstance(tree.body[-1], ast.Expr) else None
    exec(compile(tree, place, "exec"), names)
    if not isinstance(last, ast.Expr):
        return None
    value = eval(compile(ast.Expression(last.value), place, "eval"), names)
    # A notebook prefers the HTML of a value.
    page = getattr(value, "_repr_html_", None)
    assert page is None or "<" in page(), place
    return value


def main() -> None:
    notebooks = sorted(FOLDER.glob("*.ipynb"))
    if not notebooks:
        sys.exit(f"no notebooks in {FOLDER}")
    for path in notebooks:
        names: dict[str, Any] = {"__name__": "__main__"}
        cells = json.loads(path.read_text())["cells"]
        code = ["".join(cell["source"]) for cell in cells if cell["cell_type"] == "code"]
        for number, cell in enumerate(code, 1):
            value = execute(cell, f"{path.name}, cell {number}", names)
            if value is not None:
                print(f"{path.name}, cell {number}: {value!r}")
        print(f"{path.name}: {len(code)} cells")


if __name__ == "__main__":
    main()
