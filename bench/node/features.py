"""Runs the features of frameworks of Node under Endstop's adapters, in the lowest and the highest supported
version, and writes a table of what was booked.

    crates/endstop-node/check
    python3 bench/node/features.py LAB --packages target/node/pack --out bench/node/FEATURES.md

A framework that cannot be installed is skipped.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
sys.path.append(str(HERE))
from run import install  # noqa: E402

ZOD = "zod@4"
LANGCHAIN = ["@langchain/openai@1", "@langchain/core@1", "@langchain/langgraph@1", ZOD]
# The script, its way, and the packages of a section.
SECTIONS = [
    ("ai_sdk", "chat", ["ai@7", "@ai-sdk/openai@4", "express@5", ZOD]),
    ("ai_sdk", "responses", ["ai@7", "@ai-sdk/openai@4", "express@5", ZOD]),
    ("ai_sdk", "chat", ["ai@7.0.0", "@ai-sdk/openai@4.0.0", "express@5", ZOD]),
    ("ai_sdk", "chat", ["ai@6", "@ai-sdk/openai@3", "express@5", ZOD]),
    ("ai_sdk", "chat", ["ai@6.0.0", "@ai-sdk/openai@3.0.0", "express@5", ZOD]),
    ("ai_sdk", "chat", ["ai@5", "@ai-sdk/openai@2", "express@5", ZOD]),
    ("openai_agents", "chat", ["@openai/agents", "openai", ZOD]),
    ("openai_agents", "responses", ["@openai/agents", "openai", ZOD]),
    ("openai_agents", "chat", ["@openai/agents@0.11.0", "openai", ZOD]),
    ("langchain", "chat", ["langchain@1", *LANGCHAIN]),
    ("langchain", "chat", ["langchain@1.2.20", *LANGCHAIN]),
    ("mastra", "chat", ["@mastra/core@1", "@ai-sdk/openai@3", ZOD]),
    ("mastra", "chat", ["@mastra/core@1.0.4", "@ai-sdk/openai@3", ZOD]),
]


def faults(row: dict[str, Any]) -> list[str]:
    """What the adapters promise of each scenario."""
    found = []
    if row["ending"] != row["expect"]:
        found.append(f"ended as {row['ending']}")
    if row["booked"] is not None and row["booked"] != row["requests"]:
        found.append(f"booked {row['booked']} of {row['requests']} calls")
    # The provider bills a response that was left in the middle, and how much of it is unknown.
    if row["cost"] is not None and not row["isOpen"] and abs(row["cost"] - row["billed"]) > 1e-9:
        found.append(f"booked ${row['cost']} of ${row['billed']}")
    if row["isOpen"] and not row.get("unknown"):
        found.append("a cost that nobody knows is not marked")
    if row["cut"]:
        found.append(f"{row['cut']} tool bodies ran with cut arguments")
    return found


def cell(row: dict[str, Any] | None) -> str:
    if row is None:
        return ""
    wrong = faults(row)
    calls = f"{row['requests']}"
    return f"**{'; '.join(wrong)}**" if wrong else f"{row['ending']}, {calls}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("lab", type=Path)
    parser.add_argument("--packages", type=Path, required=True)
    parser.add_argument("--only", nargs="*", help="names of scripts, for example ai_sdk")
    parser.add_argument("--out", type=Path)
    given = parser.parse_args()
    found: dict[str, list[tuple[str, list[dict[str, Any]]]]] = {}
    wrong = runs = 0
    for script, how, packages in SECTIONS:
        if given.only and script not in given.only:
            continue
        home = install(given.lab.resolve(), packages, given.packages.resolve())
        if home is None:
            continue
        command = ["node", f"features/run_{script}.mjs"]
        done = subprocess.run(command, env={**os.environ, "HOW": how}, stdout=subprocess.PIPE, text=True, cwd=home)
        rows = [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]
        title = rows[0]["framework"] if rows else f"{packages[0]}: nothing ran"
        found.setdefault(script, []).append((title, rows))
        runs += len(rows)
        for row in rows:
            for fault in faults(row):
                wrong += 1
                print(f"{title}: {row['scenario']}: {fault}", file=sys.stderr)
        print(f"{title}: {len(rows)} scenarios", flush=True)
    page = [
        "# What the adapters of Node book of each feature",
        "",
        "Written by `bench/node/features.py`. Each cell has the ending and the model calls on the wire. The calls that were booked are as",
        "many, the cost is that of the server's bill within a billionth of a dollar, and no tool body ran with cut arguments; a cell",
        "that differs says how. A run that ends in the middle of a response (a timeout, a caller who leaves) has an unknown part in its",
        "cost. `parked` runs wait for a person, and have no ending.",
    ]
    for sections in found.values():
        names = list(dict.fromkeys(row["scenario"] for _, rows in sections for row in rows))
        page += ["", "| scenario | " + " | ".join(title for title, _ in sections) + " |", "|---" * (len(sections) + 1) + "|"]
        for name in names:
            cells = [cell(next((row for row in rows if row["scenario"] == name), None)) for _, rows in sections]
            page.append(f"| {name} | " + " | ".join(cells) + " |")
    if given.out is not None:
        given.out.write_text("\n".join([*page, ""]))
    print(f"{runs} scenarios, {wrong} faults")
    if wrong:
        sys.exit(1)


if __name__ == "__main__":
    main()
