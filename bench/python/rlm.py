"""Runs the vectors of RLM Code's policies through `endstop.rlm` and through RLM Code itself.

    python3 bench/python/rlm.py LAB --wheel endstop-*.whl [--out RESULTS.md]

LAB gets a virtual environment. Without the package `rlm-code` the command prints a notice, and runs the
vectors of `endstop.rlm` alone.
"""

from __future__ import annotations

import argparse
import re
import subprocess
import sys
from pathlib import Path

import page

TESTS = Path(__file__).resolve().parents[2] / "crates/endstop-python/tests/test_rlm.py"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("lab", type=Path)
    parser.add_argument("--wheel", type=Path, required=True)
    parser.add_argument("--out", type=Path)
    given = parser.parse_args()
    home = given.lab.resolve() / "rlm"
    python = home / "bin" / "python"
    if not python.exists():
        subprocess.run([sys.executable, "-m", "venv", str(home)], check=True)
    pip = [str(python), "-m", "pip", "install", "-q", "--disable-pip-version-check", "--no-compile"]
    if subprocess.run([*pip, "rlm-code"]).returncode != 0:
        print("rlm-code: skipped, because it could not be installed")
    subprocess.run([*pip, "pytest"], check=True)
    subprocess.run([*pip, "--no-deps", "--force-reinstall", str(given.wheel.resolve())], check=True)
    test = [str(python), "-m", "pytest", "-q", "-s", "-rs", "-p", "no:cacheprovider", str(TESTS)]
    done = subprocess.run(test, cwd=given.lab, stdout=subprocess.PIPE, text=True)
    print(done.stdout)
    code = "from importlib.metadata import version; print(version('rlm-code'))"
    version = subprocess.run([str(python), "-c", code], capture_output=True, text=True).stdout.strip()
    count = re.search(r"(\d+) cases, (\d+) departures", done.stdout)
    passed = re.search(r"(\d+) passed", done.stdout)
    departures = re.findall(r"^\.?([\w-]+): RLM Code (.*), Endstop (.*)$", done.stdout, re.M)
    lines = [
        "# RLM Code's API",
        "",
        "Written by `bench/python/rlm.py`: the conformance vectors through `endstop.rlm` and, next to it, through RLM Code.",
        "",
        f"{passed.group(1) if passed else 0} tests passed.",
    ]
    if count:
        lines[-1] += (
            f" RLM Code {version}: {count.group(1)} cases, {count.group(2)} with another result, each of them in the"
            " [list of departures](../../docs/src/departures.md#rlm-code-termination-policies)."
        )
    if departures:
        lines += ["", "| case | RLM Code | Endstop |", "|---|---|---|"]
        lines += [f"| {case} | `{theirs}` | `{ours}` |" for case, theirs, ours in departures]
    if given.out is not None:
        page.put(given.out, "\n".join([*lines, ""]))
    sys.exit(done.returncode)


if __name__ == "__main__":
    main()
