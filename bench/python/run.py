"""Runs Python frameworks over the scripted server, without and with Endstop's adapter, and writes a
table of their endings.

    python3 bench/python/run.py LAB --wheel target/python/wheel/endstop-*.whl --out RESULTS.md

LAB gets a virtual environment for each framework, and the rows of its last run; the tables are written
from all of them. A framework that cannot be installed is skipped.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import socket
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import page

HERE = Path(__file__).resolve().parent
# Until a framework whose runs do not end is killed. Its table then lacks the rest.
MOST_SECONDS = 1500
FRAMEWORKS = {
    "openai_agents": ["openai-agents>=0.20,<1"],
    "langchain": ["langchain>=1.2,<2", "langchain-openai", "langgraph-checkpoint-sqlite"],
    "pydantic_ai": ["pydantic-ai-slim[openai]>=2,<3"],
    "autogen": ["autogen-agentchat>=0.7,<0.8", "autogen-ext[openai]>=0.7,<0.8"],
    "crewai": ["crewai>=1.15.3,<2"],
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
    "denied": "HTTP 400",
    "loop": "the same call for ever",
    "parallel": "two tool calls in one response, then an answer",
    "budget": "other calls without end, under a budget of $0.50",
    "concurrent": "stop, length, loop and filter at once",
}


EXPECTED = {
    "stop": ["stop"],
    "length": ["error_output_truncated"],
    "lengthtool": ["error_output_truncated"],
    # A framework ends with the broken call, or shows it to the model until that has made three.
    "cuttool": ["error_during_execution", "error_consecutive_mistakes"],
    "filter": ["error_content_filtered"],
    "refusal": ["error_content_filtered"],
    "cut": ["error_during_execution"],
    "reset": ["error_during_execution"],
    "unknown": ["error_during_execution"],
    "empty": ["error_no_progress"],
    "denied": ["error_provider_rejected"],
    "loop": ["error_no_progress"],
    "parallel": ["stop"],
    "budget": ["error_max_budget_usd"],
    "concurrent": ["stop + error_output_truncated + error_no_progress + error_content_filtered"],
}
"""The endings of each scenario that are right under an adapter."""
NOTES = {
    "google_adk": "Gemini's format marks no refusal.",
    "inspect": "Inspect does not stream, and runs one evaluation at a time.",
    "dspy": "A `ReAct` program. Its responses are texts that name the tool, so that a cut one is repaired and its tool runs.",
    "claude_sdk": "Its own command over the messages API; it streams always. It may begin one more call before it is stopped.",
}
BOOKED = ("stop", "length", "parallel", "budget", "loop")
"""The scenarios whose responses all have the usage of the server."""
LEFT = ("parallel_cut",)
"""The cases whose end leaves the streams of other agents."""
OTHER_USAGE = ("claude_sdk",)
"""Frameworks that also make calls which are not turns of the run."""


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
    # Python compiles what a run imports; compiling all of it takes longer than the run.
    pip = [str(python), "-m", "pip", "install", "-q", "--disable-pip-version-check", "--no-compile"]
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


@contextmanager
def serving() -> Iterator[int]:
    """Runs the scripted server. Gives its port."""
    port = free_port()
    environment = {**os.environ, "MOCK_PORT": str(port)}
    server = subprocess.Popen([sys.executable, str(HERE / "server.py")], env=environment)
    try:
        for _ in range(200):
            try:
                urllib.request.urlopen(f"http://127.0.0.1:{port}/stats", timeout=5).close()
                break
            except OSError:
                time.sleep(0.05)
        yield port
    finally:
        server.kill()
        server.wait()


def measure(
    python: Path, name: str, scenarios: list[str], seconds: int, *, only_guarded: bool = False
) -> list[dict[str, Any]]:
    with serving() as port:
        environment = {**os.environ, "MOCK_PORT": str(port), "LIMIT": str(seconds)}
        if only_guarded:
            environment["ONLY_GUARDED"] = "1"
        script = [str(python), str(HERE / "frameworks" / f"run_{name}.py")]
        # A framework's first run imports the rest of it, which takes seconds after an installation.
        first = environment | {"LIMIT": "120", "ONLY_GUARDED": "1"}
        subprocess.run([*script, "stop"], env=first, stdout=subprocess.DEVNULL)
        with tempfile.TemporaryFile("w+") as rows:
            # A framework may block its own clock, so that a run is never "still running".
            with suppress(subprocess.TimeoutExpired):
                subprocess.run(
                    [*script, *scenarios], env=environment, stdout=rows, timeout=MOST_SECONDS
                )
            rows.seek(0)
            return [json.loads(line) for line in rows if line.startswith("{") and line.endswith("}\n")]


def wrong(row: dict[str, Any]) -> str | None:
    """Returns what an adapter promised and did not do: no cut body, a typed ending, success only for a
    whole answer, and the usage that the server sent, also in streams."""
    scenario, ending = row["scenario"], row["ending"]
    if row["cut_bodies"]:
        return "a tool ran with cut arguments"
    if row["mode"] == "case":
        return wrong_case(row)
    if ending not in EXPECTED[scenario]:
        return f"expected {' or '.join(EXPECTED[scenario])}"
    if scenario in BOOKED and row["framework"] not in OTHER_USAGE:
        # Each response of these scenarios has the same usage.
        expected = 150 * row["calls"]
        if row["tokens"] != expected:
            return f"{row['tokens']} tokens instead of {expected}"
    return None


def wrong_case(row: dict[str, Any]) -> str | None:
    """Returns what is wrong with a case: its ending, or its calls and dollars against the server's."""
    if row["ending"] != row["expected"]:
        return f"expected {row['expected']}"
    if row["booked"] != row["calls"]:
        return f"{row['booked']} calls instead of {row['calls']}"
    if abs(row["usd"] - row["bill_usd"]) > 1e-9 and not row["left"] and not within_bounds(row):
        return f"${row['usd']} instead of ${row['bill_usd']}"
    return None


def within_bounds(row: dict[str, Any]) -> bool:
    """Whether the bill of streams that were left is between what the run saw and its upper bound: the server may have
    sent the rest before it noticed. `None` is a bound that is not known."""
    upper = row["upper_usd"]
    left = row["ending"] == "cancelled" or row["scenario"] in LEFT
    return left and row["usd"] <= row["bill_usd"] <= (float("inf") if upper is None else upper + 1e-9)


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
    lab = given.lab.resolve()
    failed = 0
    for name in given.only:
        python = install(lab, name, given.wheel.resolve())
        if python is None:
            continue
        rows = measure(python, name, given.scenarios, given.seconds)
        problems = [(row, why) for row in rows if row["guarded"] and (why := wrong(row))]
        for row, why in problems:
            print(f"{name}, {row['mode']} {row['scenario']}: {row['ending']}: {why}")
        failed += len(problems) + (not any(row["guarded"] for row in rows))
        print(f"{name}: {len(rows)} runs")
        if not given.scenarios:
            known = {"heading": versions(python, FRAMEWORKS[name]), "rows": rows}
            (lab / f"{name}.json").write_text(json.dumps(known | {"seconds": given.seconds}))
    text = written_page(lab)
    if given.out is not None:
        page.put(given.out, text)
    print(text)
    if failed:
        sys.exit(f"{failed} runs with an adapter did not end as they should")


def written_page(lab: Path) -> str:
    """Returns the tables of all frameworks that were run in a lab."""
    ran = [name for name in FRAMEWORKS if (lab / f"{name}.json").exists()]
    known = {name: json.loads((lab / f"{name}.json").read_text()) for name in ran}
    lines = [
        "# Frameworks without and with their adapters",
        "",
        "Written by `bench/python/run.py`. Each cell has the ending and the model calls made. Without the adapter,",
        "`returned` means that the framework reported a result like any other. `cut` counts the tool bodies that ran",
        "with cut arguments. A run that did not end in time is shown with its calls until then.",
    ]
    for name, one in known.items():
        lines += ["", f"## {one['heading']}", "", written(name)]
        if any(row["ending"] == "still running" for row in one["rows"]):
            lines[-1] += f" `still running` is after {one['seconds']} s."
        if name in NOTES:
            lines += ["", NOTES[name]]
        lines += ["", table(one["rows"])]
    lines += cases(known)
    lines += [
        "",
        "## Budget, parallel tools, a connection that breaks",
        "",
        "With the adapters: ending, model calls, tool bodies that ran, tokens in the outcome. The budget is $0.50, and a",
        "call of the server costs $0.20. A response whose connection breaks has no usage, so that it is estimated.",
        "",
        "| framework | mode | two calls in one response | budget | connection breaks |",
        "|---|---|---|---|---|",
    ]
    for name, one in known.items():
        for mode in ("plain", "stream"):
            by = {row["scenario"]: row for row in one["rows"] if row["guarded"] and row["mode"] == mode}
            if by:
                cells = [usage(by.get(scenario)) for scenario in ("parallel", "budget", "reset")]
                lines.append(f"| {one['heading'].partition(',')[0]} | {mode} | {' | '.join(cells)} |")
    lines += ["", "LlamaIndex itself runs one of two calls that come in one chunk of a stream, also without the adapter."]
    return "\n".join([*lines, ""])


def cases(known: dict[str, Any]) -> list[str]:
    """Returns the lines about what programs do with a framework and its adapter."""
    lines = [
        "",
        "## What programs do",
        "",
        "With the adapters: structured answers, approvals, sub-agents, cuts behind a raising SDK, cancels. The model calls",
        "are those on the wire and those in the outcome, the dollars those that the server bills and those in the outcome.",
        "A stream that is left has no bill.",
        "",
        "| framework | case | ending | calls | in the outcome | bill | in the outcome |",
        "|---|---|---|--:|--:|--:|--:|",
    ]
    for one in known.values():
        for row in one["rows"]:
            if row["mode"] != "case":
                continue
            bill = "-" if row["left"] else f"{row['bill_usd']:.2f}"
            cells = [row["scenario"].replace("_", " "), row["ending"], row["calls"], row.get("booked", "-"), bill]
            usd = f"{row['usd']:.3f}" if "usd" in row else "-"
            framework = one["heading"].partition(",")[0]
            lines.append(f"| {framework} | {' | '.join(map(str, cells))} | {usd} |")
    return lines


def usage(row: dict[str, Any] | None) -> str:
    if row is None:
        return "-"
    return f"{row['ending']}, {row['calls']}, {row['bodies']}, {row.get('tokens', '?')}"


if __name__ == "__main__":
    main()
