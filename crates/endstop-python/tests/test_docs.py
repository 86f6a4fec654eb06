"""The programs of the book and of the docstrings run as printed, against a scripted model, and pass mypy.

A page is one program: its blocks run in their order, with `await` outside of functions, as in a notebook.
A page about a framework is only compiled if the framework is not installed.
"""

from __future__ import annotations

import ast
import asyncio
import doctest
import importlib.util
import inspect
import os
import pkgutil
import subprocess
import sys
import textwrap
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from conftest import Model
from test_backtest import lines

import endstop

ROOT = Path(__file__).parents[3]
DOCS = ROOT / "docs" / "src"
PAGES = [DOCS / "python.md", *sorted((DOCS / "python").glob("*.md"))]
# Programs whose model cannot be a scripted one from outside.
OWN_MODEL = {
    "claude-sdk": "the program `claude` needs a login",
    "dspy": "an engine has the address of its provider",
}
PRINTED = [*PAGES, ROOT / "crates" / "endstop-python" / "README.md"]


def program(page: Path) -> str:
    """Returns the program of a page, with blank lines for its text, so that errors name its lines."""
    kept, inside = [], False
    for line in page.read_text().splitlines():
        if line.startswith("```"):
            inside = line == "```python"
            line = ""
        kept.append(line if inside else "")
    return "\n".join(kept) + "\n"


def missing(source: str) -> list[str]:
    """Returns the packages that a program imports and that are not installed."""
    found = set()
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            found.add(node.module)
    return sorted(name for name in found if not available(name))


def available(module: str) -> bool:
    try:
        if module.startswith("endstop.adapters."):
            importlib.import_module(module)
        return importlib.util.find_spec(module) is not None
    except ImportError:
        return False


def needs_asyncio(source: str) -> bool:
    try:
        compile(source, "page", "exec")
    except SyntaxError:
        return True
    return False


@pytest.fixture
def desk(tmp_path: Path, model: Model, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A folder with what programs of the book read, and the address of the model."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", str(tmp_path))
    for name in ("OPENAI_BASE_URL", "OPENAI_API_BASE"):
        monkeypatch.setenv(name, f"{model.url}/v1")
    monkeypatch.setenv("OPENAI_API_KEY", "sk-test")
    monkeypatch.setenv("GOOGLE_GEMINI_BASE_URL", model.url)
    monkeypatch.setenv("GOOGLE_API_KEY", "test")
    monkeypatch.setenv("OPENAI_AGENTS_DISABLE_TRACING", "1")
    monkeypatch.setenv("CREWAI_DISABLE_TELEMETRY", "true")
    (tmp_path / "notes.txt").write_text("Buy milk.")
    (tmp_path / "runs").mkdir()
    for name, numbers in {"a": range(60), "b": range(60, 80), "c": range(80, 100)}.items():
        (tmp_path / "runs" / f"{name}.jsonl").write_bytes(lines(numbers))
    yield tmp_path


@pytest.mark.parametrize("page", PRINTED, ids=lambda page: f"{page.parent.name}-{page.stem}")
def test_program_of_a_page_runs(page: Path, desk: Path) -> None:
    source = program(page)
    assert source.strip(), "a page without code"
    code = compile(source, str(page), "exec", flags=ast.PyCF_ALLOW_TOP_LEVEL_AWAIT)
    if absent := missing(source):
        pytest.skip(f"{', '.join(absent)} is not installed")
    if page.stem in OWN_MODEL:
        pytest.skip(OWN_MODEL[page.stem])
    names: dict[str, Any] = {"__name__": "__page__"}
    running = eval(code, names)
    if inspect.iscoroutine(running):
        asyncio.run(running)


@pytest.mark.parametrize("page", PRINTED, ids=lambda page: f"{page.parent.name}-{page.stem}")
def test_program_of_a_page_passes_mypy(page: Path, tmp_path: Path) -> None:
    pytest.importorskip("mypy")
    source = program(page)
    if absent := missing(source):
        pytest.skip(f"{', '.join(absent)} is not installed")
    if needs_asyncio(source):
        source = f"async def page() -> None:\n{textwrap.indent(source, '    ')}"
    (tmp_path / "page.py").write_text(source)
    # Some frameworks have no types.
    options = ["--strict", "--no-incremental", "--disable-error-code", "import-untyped"]
    command = [sys.executable, "-m", "mypy", *options, "page.py"]
    done = subprocess.run(command, capture_output=True, text=True, cwd=tmp_path, env={**os.environ})
    assert done.returncode == 0, done.stdout + done.stderr


def documented() -> Iterator[tuple[str, str]]:
    """Returns the docstrings with examples, of this package without its adapters."""
    modules = [endstop]
    for found in pkgutil.walk_packages(endstop.__path__, "endstop."):
        if not found.name.startswith("endstop.adapters."):
            modules.append(importlib.import_module(found.name))
    seen: set[str] = set()
    for module in modules:
        for name, owner in [("", module), *vars(module).items()]:
            if not (getattr(owner, "__module__", None) or "endstop").startswith("endstop"):
                continue  # Imported from another library.
            for path, one in [(name, owner), *members(name, owner)]:
                text = one.__doc__ if isinstance(one.__doc__, str) else ""
                if ">>> " in text and text not in seen:
                    seen.add(text)
                    yield f"{module.__name__}.{path}", text


def members(name: str, owner: object) -> list[tuple[str, object]]:
    if not inspect.isclass(owner):
        return []
    return [(f"{name}.{key}", one) for key, one in vars(owner).items()]


@pytest.mark.parametrize(
    ("name", "text"), [*documented()], ids=lambda value: value.partition("\n")[0][:40]
)
def test_examples_of_docstrings_run(name: str, text: str, desk: Path) -> None:
    names = {"endstop": endstop, "Termination": endstop.Termination}
    test = doctest.DocTestParser().get_doctest(text, names, name, None, None)
    imported = missing("\n".join(example.source for example in test.examples))
    if imported:
        pytest.skip(f"{', '.join(imported)} is not installed")
    said: list[str] = []
    runner = doctest.DocTestRunner(optionflags=doctest.ELLIPSIS)
    runner.run(test, out=said.append)
    assert runner.summarize(verbose=False).failed == 0, "".join(said)


def test_each_adapter_has_a_page() -> None:
    from endstop.adapters._versions import SUPPORTED

    pages = {page.stem for page in PAGES}
    assert {name.replace("_", "-") for name in SUPPORTED} <= pages


def test_summary_lists_the_pages() -> None:
    summary = (DOCS / "SUMMARY.md").read_text()
    assert all(f"(python/{page.name})" in summary for page in PAGES[1:])
