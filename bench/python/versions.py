"""Runs the adapters with the lowest supported version of each framework, and `endstop.detect` with
the objects of the lowest SDKs.

    python3 bench/python/versions.py LAB --wheel endstop-*.whl [--only langchain sdk]

The versions come from the table of the package. Each gets a virtual environment in LAB; what cannot be
installed is skipped with a notice. The command fails if a run ends otherwise than with the newest.
"""

from __future__ import annotations

import argparse
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import run

HERE = Path(__file__).resolve().parent
PACKAGE = HERE.parents[1] / "crates" / "endstop-python"
SDKS = ["openai==1.40.0", "httpx<0.28", "anthropic==0.40.0", "google-genai==1.0.0", "pytest"]
"""The lowest SDKs whose objects `detect` is tested with. This `openai` needs an older httpx."""
CHOSEN = ["openai_agents", "langchain", "pydantic_ai", "strands", "smolagents", "sdk"]
SCENARIOS = ["stop", "length", "lengthtool", "cut", "loop"]


def lowest(name: str) -> list[str]:
    """Returns the packages of a framework, with the lowest supported version of those in the table."""
    table = (PACKAGE / "python/endstop/adapters/_versions.py").read_text()
    row = re.search(rf'^    "{name}": (.*),$', table, re.M)
    assert row is not None, name
    found = re.findall(r'\("([\w-]+)", "([\d.]+)", "[\d.]+"\)', row.group(1))
    pinned = {package: version for package, version in found}
    chosen = []
    for given in run.FRAMEWORKS[name]:
        package, extra = re.match(r"([\w-]+)(\[[\w,]+\])?", given).groups()  # type: ignore[union-attr]
        version = pinned.pop(package, None)
        # `~=` takes the first releases of the line, because some first releases were withdrawn.
        chosen.append(f"{package}{extra or ''}=={version}.*" if version else given)
    return chosen + [f"{package}=={version}.*" for package, version in pinned.items()]


def install(home: Path, packages: list[str], wheel: Path) -> Path | None:
    python = home / "bin" / "python"
    if not python.exists():
        subprocess.run([sys.executable, "-m", "venv", str(home)], check=True)
    pip = [str(python), "-m", "pip", "install", "-q", "--disable-pip-version-check"]
    if subprocess.run([*pip, *packages]).returncode != 0:
        print(f"{home.name}: skipped, because it could not be installed: {' '.join(packages)}")
        return None
    subprocess.run([*pip, "--no-deps", "--force-reinstall", str(wheel)], check=True)
    return python


def wrong(row: dict[str, Any]) -> bool:
    expected = run.EXPECTED.get(row["scenario"])
    return bool(row["cut_bodies"]) or row["ending"] == "stop" and row["scenario"] != "stop" or (
        expected is not None and row["ending"] != expected
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("lab", type=Path)
    parser.add_argument("--wheel", type=Path, required=True)
    parser.add_argument("--only", nargs="*", default=CHOSEN)
    parser.add_argument("--seconds", type=int, default=10)
    given = parser.parse_args()
    given.lab.mkdir(parents=True, exist_ok=True)
    failed = 0
    for name in given.only:
        packages = SDKS if name == "sdk" else lowest(name)
        python = install(given.lab.resolve() / name, packages, given.wheel.resolve())
        if python is None:
            continue
        shown = run.versions(python, [re.split(r"[=<>]", package)[0] for package in packages])
        if name == "sdk":
            tests = [str(PACKAGE / "tests" / "test_sdk.py"), "-q", "-p", "no:cacheprovider"]
            done = subprocess.run([str(python), "-m", "pytest", *tests], cwd=given.lab)
            failed += done.returncode != 0
            print(f"{shown}: {'ok' if done.returncode == 0 else 'FAILED'}")
            continue
        rows = [
            row
            for row in run.measure(python, name, SCENARIOS, given.seconds, only_guarded=True)
            if row["guarded"]
        ]
        bad = [row for row in rows if wrong(row)]
        failed += bool(bad) or not rows
        print(f"{shown}: {len(rows)} runs, {len(bad)} wrong")
        for row in bad:
            print(f"  {row['mode']} {row['scenario']}: {row['ending']} {row.get('evidence', '')}")
    if failed:
        sys.exit(f"{failed} of the lowest versions do not work")


if __name__ == "__main__":
    main()
