"""Runs frameworks of Node over the scripted server, without and with Endstop's adapter, and writes a
table of their endings.

    crates/endstop-node/check
    python3 bench/node/run.py LAB --packages target/node/pack --out bench/node/RESULTS.md

LAB gets a project for each framework. A framework that cannot be installed is skipped. The server and
the scenarios are those of `bench/python`.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import os
import shutil
import subprocess
import sys
import time
import urllib.request
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
PYTHON = HERE.parent / "python"
# The table of Python imports its neighbour.
sys.path.append(str(PYTHON))
SPEC = importlib.util.spec_from_file_location("bench_python", PYTHON / "run.py")
assert SPEC is not None and SPEC.loader is not None
PEER = importlib.util.module_from_spec(SPEC)
SPEC.loader.exec_module(PEER)

PEER.MEANING.update(turns="the same, with two turns", budget="the same, with 0.2 cents")
PEER.EXPECTED["turns"] = ["error_max_turns"]

# Framework: the script, its way, and the packages; the first one names the section.
FRAMEWORKS = {
    "ai7": ("ai_sdk", "tap", ["ai@7", "@ai-sdk/openai@4", "zod"]),
    "ai6": ("ai_sdk", "tap", ["ai@6", "@ai-sdk/openai@3", "zod"]),
    "ai5": ("ai_sdk", "tap", ["ai@5", "@ai-sdk/openai@2", "zod"]),
    "ai7-no-tap": ("ai_sdk", "report", ["ai@7", "@ai-sdk/openai@4", "zod"]),
    "ai5-no-tap": ("ai_sdk", "report", ["ai@5", "@ai-sdk/openai@2", "zod"]),
    "ai7-middleware": ("ai_sdk", "middleware", ["ai@7", "@ai-sdk/openai@4", "zod"]),
    "openai_agents": ("openai_agents", "chat", ["@openai/agents", "openai", "zod"]),
    "langchain": ("langchain", "tap", ["langchain@1", "@langchain/openai@1", "@langchain/core@1", "@langchain/langgraph@1", "zod"]),
    "mastra": ("mastra", "tap", ["@mastra/core@1", "@ai-sdk/openai", "zod"]),
}
WAYS = {"report": ", without the tap", "middleware": ", by `wrapLanguageModel`, without the tap"}
QUIET = ["--ignore-scripts", "--no-audit", "--no-fund", "--no-update-notifier", "--loglevel=error"]


def install(lab: Path, packages: list[str], own: Path) -> Path | None:
    """Returns the project with these packages."""
    home = lab / "-".join(packages[0].strip("@").replace("/", "-").split("@"))
    if not (home / "package.json").exists():
        home.mkdir(parents=True)
        (home / "package.json").write_text('{"private": true, "type": "module"}')
    tarballs = [str(path) for path in sorted(own.glob("*.tgz"))]
    if subprocess.run(["npm", "install", "--prefix", home, *QUIET, *packages, *tarballs]).returncode:
        print(f"{packages[0]}: skipped, because it could not be installed")
        return None
    for folder in ("frameworks", "features"):
        shutil.copytree(HERE / folder, home / folder, dirs_exist_ok=True)
    return home


def version(home: Path, package: str) -> str:
    name = package[0] + package[1:].split("@")[0]
    manifest = json.loads((home / "node_modules" / name / "package.json").read_text())
    return f"{name} {manifest['version']}"


def measure(home: Path, script: str, how: str, scenarios: list[str], seconds: int) -> list[dict[str, Any]]:
    port = PEER.free_port()
    environment = {**os.environ, "MOCK_PORT": str(port), "LIMIT": str(seconds), "HOW": how}
    server = subprocess.Popen([sys.executable, str(PYTHON / "server.py")], env=environment)
    try:
        for _ in range(200):
            try:
                urllib.request.urlopen(f"http://127.0.0.1:{port}/stats", timeout=5).close()
                break
            except OSError:
                time.sleep(0.05)
        command = ["node", f"frameworks/run_{script}.mjs", *scenarios]
        done = subprocess.run(command, env=environment, stdout=subprocess.PIPE, text=True, cwd=home)
        return [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]
    finally:
        server.kill()
        server.wait()


def is_wrong(row: dict[str, Any]) -> bool:
    """What the adapters promise: no cut body, and an ending that is right for the response."""
    return row["cut_bodies"] > 0 or row["ending"] not in PEER.EXPECTED[row["scenario"]]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("lab", type=Path)
    parser.add_argument("--packages", type=Path, required=True)
    parser.add_argument("--only", nargs="*", default=list(FRAMEWORKS), choices=FRAMEWORKS)
    parser.add_argument("--scenarios", nargs="*", default=[])
    parser.add_argument("--seconds", type=int, default=8, help="until a run counts as still running")
    parser.add_argument("--out", type=Path)
    given = parser.parse_args()
    node = subprocess.run(["node", "--version"], capture_output=True, text=True).stdout.strip()
    page = [
        "# Frameworks of Node without and with their adapters",
        "",
        f"Written by `bench/node/run.py`, with Node {node}. Each cell has the ending and the model calls made. Without the adapter,",
        "`returned` means that the framework reported a result like any other, with the finish reason in brackets if it has one;",
        "loops have the bound of 20 steps that an application would set. `cut` counts the tool bodies that ran with cut arguments.",
        "With the adapter, the ending is that of the outcome, whether the framework returned or threw.",
    ]
    wrong = 0
    for name in given.only:
        script, how, packages = FRAMEWORKS[name]
        home = install(given.lab.resolve(), packages, given.packages.resolve())
        if home is None:
            continue
        rows = measure(home, script, how, given.scenarios, given.seconds)
        title = ", ".join(version(home, package) for package in packages if package != "zod")
        page += ["", f"## {title}{WAYS.get(how, '')}", "", PEER.table(rows)]
        bad = [row for row in rows if row["guarded"] and is_wrong(row)]
        # A refusal is a blank answer for a model that does not report it.
        bad = [row for row in bad if not (how == "report" and row["scenario"] == "refusal" and row["ending"] == "error_no_progress")]
        wrong += len(bad)
        for row in bad:
            print(f"{name}: {row['mode']} {row['scenario']} ended as {row['ending']}", file=sys.stderr)
        print(f"{name}: {len(rows)} runs", flush=True)
    text = "\n".join([*page, ""])
    if given.out is not None:
        given.out.write_text(text)
    if wrong:
        sys.exit(f"{wrong} runs with an adapter did not end as they should")


if __name__ == "__main__":
    main()
