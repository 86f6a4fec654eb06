"""Runs Python frameworks over the scripted server, without and with Endstop's adapter, and writes a
table of their endings.

    python3 bench/python/run.py LAB --wheel target/python/wheel/endstop-*.whl --out RESULTS.md

LAB gets a virtual environment for each framework. A framework that cannot be installed is skipped.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import socket
import subprocess
import sys
import time
import urllib.request
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
FRAMEWORKS = {
    "openai_agents": ["openai-agents>=0.20,<1"],
    "langchain": ["langchain>=1.2,<2", "langchain-openai"],
    "pydantic_ai": ["pydantic-ai-slim[openai]>=2,<3"],
    "autogen": ["autogen-agentchat>=0.7,<0.8", "autogen-ext[openai]>=0.7,<0.8"],
    "crewai": ["crewai>=1.15,<2"],
    "llama_index": ["llama-index-core>=0.14.25,<0.15", "llama-index-llms-openai-like>=0.8,<0.9"],
    "google_adk": ["google-adk>=2.13,<3"],
    "smolagents": ["smolagents[openai]>=1.26,<2"],
    "strands": ["strands-agents[openai]>=1.62,<2"],
    "agent_framework": ["agent-framework-core>=1.23,<2", "agent-framework-openai>=1.17,<2"],
    "inspect": ["inspect-ai>=0.3.285,<0.4", "openai"],
    "dspy": ["dspy>=3.4,<4"],
    "claude_sdk": ["claude-agent-sdk>=0.2.80,<0.3"],
}
MEANING = {
    "stop": "a whole answer",
    "length": "an answer that the token limit cut",
    "lengthtool": "a tool call that the token limit cut",
    "cuttool": "a tool call, and no finish value",
    "filter": "an answer that a filter cut",
    "refusal": "a refusal",
    "cut": "an answer, and no finish value",
    "reset": "the same, and the connection breaks",
    "unknown": "an unknown finish value",
    "empty": "a blank answer",
    "loop": "the same call for ever",
    "parallel": "two tool calls in one response, then an answer",
    "budget": "other calls without end, under a budget of $0.50",
    "concurrent": "stop, length, loop and filter at once",
}


EXPECTED = {
    "stop": "stop",
    "length": "error_output_truncated",
    "lengthtool": "error_output_truncated",
    "filter": "error_content_filtered",
    "refusal": "error_content_filtered",
    "loop": "error_no_progress",
    "parallel": "stop",
    "budget": "error_max_budget_usd",
    "concurrent": "stop + error_output_truncated + error_no_progress + error_content_filtered",
}


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def install(lab: Path, name: str, wheel: Path) -> Path | None:
    """Returns the interpreter of a framework's environment."""
    home = lab / name
    python = home / "bin" / "python"
    if not python.exists():
        subprocess.run([sys.executable, "-m", "venv", str(home)], check=True)
    pip = [str(python), "-m", "pip", "install", "-q", "--disable-pip-version-check"]
    done = subprocess.run([*pip, *FRAMEWORKS[name]])
    if done.returncode != 0:
        print(f"{name}: skipped, because it could not be installed")
        return None
    subprocess.run([*pip, "--no-deps", "--force-reinstall", str(wheel)], check=True)
    return python


def versions(python: Path, packages: list[str]) -> str:
    names = [package.split(">=")[0].split("[")[0] for package in packages]
    code = "import sys; from importlib.metadata import version as v; print(*map(v, sys.argv[1:]))"
    found = subprocess.run([python, "-c", code, *names], capture_output=True, text=True).stdout
    return ", ".join(f"{name} {v}" for name, v in zip(names, found.split(), strict=False))


def measure(
    python: Path, name: str, scenarios: list[str], seconds: int, *, only_guarded: bool = False
) -> list[dict[str, Any]]:
    port = free_port()
    environment = {**os.environ, "MOCK_PORT": str(port), "LIMIT": str(seconds)}
    if only_guarded:
        environment["ONLY_GUARDED"] = "1"
    server = subprocess.Popen([sys.executable, str(HERE / "server.py")], env=environment)
    try:
        for _ in range(200):
            try:
                urllib.request.urlopen(f"http://127.0.0.1:{port}/stats", timeout=5).close()
                break
            except OSError:
                time.sleep(0.05)
        script = HERE / "frameworks" / f"run_{name}.py"
        done = subprocess.run(
            [str(python), str(script), *scenarios],
            env=environment,
            stdout=subprocess.PIPE,
            text=True,
        )
        return [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]
    finally:
        server.kill()
        server.wait()


def cell(row: dict[str, Any] | None) -> str:
    if row is None:
        return "-"
    cut = f", **{row['cut_bodies']} cut**" if row["cut_bodies"] else ""
    return f"{row.get('ending', '?')}, {row['calls']}{cut}"


def written(name: str) -> str:
    """Returns how many lines a user writes for an adapter: those of its example which mention it."""
    adapters = HERE.parents[1] / "crates/endstop-python/python/endstop/adapters"
    example = (adapters / f"{name}.py").read_text().split("```")[1]
    # The names that the example binds to the adapter.
    mine = re.compile(r"[Ee]ndstop|\bstop\b|\bhooks\b|\bguard(ed)?\b|\bplugin\b")
    lines = [line for line in example.splitlines() if mine.search(line.partition("#")[0])]
    return f"Lines that the user writes: {len(lines)}."


def table(rows: list[dict[str, Any]]) -> str:
    """Returns the rows of a framework as a table: ending, calls, tool bodies with cut arguments."""
    by = {(row["scenario"], row["mode"], row["guarded"]): row for row in rows}
    lines = [
        "| the server sends | plain | plain, adapter | streamed | streamed, adapter |",
        "|---|---|---|---|---|",
    ]
    for scenario, meaning in MEANING.items():
        cells = [
            cell(by.get((scenario, mode, guarded)))
            for mode in ("plain", "stream")
            for guarded in (False, True)
        ]
        if cells != ["-"] * 4:
            lines.append(f"| {meaning} | {' | '.join(cells)} |")
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("lab", type=Path)
    parser.add_argument("--wheel", type=Path, required=True)
    parser.add_argument("--only", nargs="*", default=list(FRAMEWORKS), choices=FRAMEWORKS)
    parser.add_argument("--scenarios", nargs="*", default=[])
    parser.add_argument(
        "--seconds", type=int, default=10, help="until a run counts as still running"
    )
    parser.add_argument("--out", type=Path)
    given = parser.parse_args()
    given.lab.mkdir(parents=True, exist_ok=True)
    page = [
        "# Frameworks without and with their adapters",
        "",
        "Written by `bench/python/run.py`. Each cell has the ending and the model calls made. Without the adapter,",
        "`returned` means that the framework reported a result like any other. `cut` counts the tool bodies that ran",
        f"with cut arguments. `still running` is after {given.seconds} s; such runs are shown with the calls until then.",
    ]
    wrong = 0
    for name in given.only:
        python = install(given.lab.resolve(), name, given.wheel.resolve())
        if python is None:
            continue
        rows = measure(python, name, given.scenarios, given.seconds)
        page += ["", f"## {versions(python, FRAMEWORKS[name])}", "", written(name), "", table(rows)]
        guarded = [row for row in rows if row["guarded"]]
        # What the adapters promise: no cut body, every run typed, and only a whole answer a success.
        wrong += sum(
            row["cut_bodies"] > 0
            or row["ending"].startswith(("raised", "still"))
            or row["scenario"] not in ("stop", "parallel", "concurrent")
            and row["ending"] == "stop"
            or row["scenario"] in EXPECTED
            and row["ending"] != EXPECTED[row["scenario"]]
            for row in guarded
        )
        print(f"{name}: {len(rows)} runs")
    text = "\n".join([*page, ""])
    if given.out is not None:
        given.out.write_text(text)
    print(text)
    if wrong:
        sys.exit(f"{wrong} runs with an adapter did not end as they should")


if __name__ == "__main__":
    main()
