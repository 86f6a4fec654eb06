"""The code of the book's pages compiles, and its names of this package exist."""

from __future__ import annotations

import ast
import importlib.util
import re
from pathlib import Path

import pytest

import endstop

DOCS = Path(__file__).parents[3] / "docs" / "src"
PAGES = [DOCS / "python.md", *sorted((DOCS / "python").glob("*.md"))]


def blocks(page: Path) -> list[str]:
    code = re.findall(r"^```python\n(.*?)^```", page.read_text(), re.M | re.S)
    # An ellipsis stands for values of the reader, also among keywords.
    return [
        block.replace(", …)", ")").replace("[…]", "[]").replace("(…)", "()").replace("…", "...")
        for block in code
    ]


def names(source: str) -> set[str]:
    """Returns the public names that a module defines."""
    tree = ast.parse(source)
    return {node.name for node in tree.body if isinstance(node, ast.ClassDef | ast.FunctionDef)}


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_code_of_pages_compiles(page: Path) -> None:
    found = blocks(page)
    assert found, "a page without code"
    for block in found:
        compile(block, str(page), "exec", flags=ast.PyCF_ALLOW_TOP_LEVEL_AWAIT)
        for node in ast.walk(ast.parse(block)):
            if not isinstance(node, ast.ImportFrom) or not (node.module or "").startswith(
                "endstop"
            ):
                continue
            if node.module == "endstop":
                assert all(hasattr(endstop, alias.name) for alias in node.names)
                continue
            # Without the framework the adapter cannot be imported, so that its source is read.
            spec = importlib.util.find_spec(str(node.module))
            assert spec is not None and spec.origin is not None, node.module
            public = names(Path(spec.origin).read_text())
            assert {alias.name for alias in node.names} <= public


def test_each_adapter_has_a_page() -> None:
    from endstop.adapters._versions import SUPPORTED

    pages = {page.stem for page in PAGES}
    assert {name.replace("_", "-") for name in SUPPORTED} <= pages


def test_summary_lists_the_pages() -> None:
    summary = (DOCS / "SUMMARY.md").read_text()
    assert all(f"(python/{page.name})" in summary for page in PAGES[1:])
