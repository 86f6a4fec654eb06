"""Runs each adapter with the lowest and the highest supported version of its framework that install,
and `endstop.detect` with objects and streams of the lowest and the newest SDKs.

    python3 bench/python/versions.py LAB --wheel endstop-*.whl [--only langchain sdk] [--out RESULTS.md]

The ranges come from the table of the package. Each version gets a virtual environment in LAB, the highest
the one of `run.py`; what cannot be installed is skipped with a notice. For the version before the lowest,
the adapter must raise an error that names the range. The command fails if a run ends otherwise than
expected, or if an object of an SDK differs from the bytes.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import page
import run

HERE = Path(__file__).resolve().parent
PACKAGE = HERE.parents[1] / "crates" / "endstop-python"
SDKS = {
    # This `openai` needs an older httpx.
    "openai": ("openai", "1.40.0", ["httpx<0.28"]),
    "anthropic": ("anthropic", "0.40.0", ["httpx<0.28"]),
    # In 1.0.0 a stream with tools, and without automatic calls, has no chunks.
    "google": ("google-genai", "1.1.0", []),
}
"""The SDKs whose objects `detect` reads: package, lowest version that is tested, what it needs."""
NEEDS = {
    # Its servers in the process fail with the next version of this package, which it does not exclude.
    "claude_sdk": ["mcp<2"],
    # Later ones of the same range import what this langgraph lacks.
    "langchain": ["langgraph-prebuilt==1.0.2"],
}
"""What the lowest version of a framework needs in addition to its own requirements."""
SCENARIOS = ["stop", "length", "lengthtool", "cut", "loop", "parallel", "budget", "cases"]
Number = tuple[int, ...]


def supported(name: str) -> list[tuple[str, str, str]]:
    """Returns the packages of an adapter: name, lowest version, first unsupported version."""
    table = (PACKAGE / "python/endstop/adapters/_versions.py").read_text()
    row = re.search(rf'^    "{name}": (.*),$', table, re.M)
    assert row is not None, name
    return re.findall(r'\("([\w-]+)", "([\d.]+)", "([\d.]+)"\)', row.group(1))


def number(version: str) -> Number:
    return tuple([*(int(part) for part in version.split(".")), 0, 0, 0][:4])


def released(package: str) -> list[str]:
    """Returns the versions of a package that this interpreter can install, without early ones."""
    pip = [sys.executable, "-m", "pip", "index", "versions", package, "--disable-pip-version-check"]
    done = subprocess.run(pip, capture_output=True, text=True)
    found = re.search(r"^Available versions: (.*)$", done.stdout, re.M)
    versions = found.group(1).split(", ") if found else []
    return sorted((one for one in versions if re.fullmatch(r"[\d.]+", one)), key=number)


def lowest(name: str) -> list[str]:
    """Returns the packages of a framework, with the first supported releases of those in the table."""
    pinned = {}
    for package, low, below in supported(name):
        within = [one for one in released(package) if number(low) <= number(one) < number(below)]
        if within:
            pinned[package] = within[0]
    chosen = []
    for given in run.FRAMEWORKS[name]:
        package, extra = re.match(r"([\w-]+)(\[[\w,]+\])?", given).groups()  # type: ignore[union-attr]
        version = pinned.pop(package, None)
        chosen.append(f"{package}{extra or ''}=={version}" if version else given)
    chosen += [f"{package}=={version}" for package, version in pinned.items()]
    return chosen + NEEDS.get(name, [])


def install(home: Path, packages: list[str], wheel: Path) -> Path | None:
    python = home / "bin" / "python"
    if not python.exists():
        subprocess.run([sys.executable, "-m", "venv", str(home)], check=True)
    pip = [str(python), "-m", "pip", "install", "-q", "--disable-pip-version-check", "--no-compile"]
    if subprocess.run([*pip, *packages]).returncode != 0:
        print(f"{home.name}: skipped, because it could not be installed: {' '.join(packages)}")
        return None
    subprocess.run([*pip, "--no-deps", "--force-reinstall", str(wheel)], check=True)
    return python


def refused(lab: Path, name: str, wheel: Path) -> str:
    """Returns how the adapter takes the newest version before the lowest: `VersionError` with the
    range is right. Without the dependencies, because the version is checked before the import."""
    package, low, below = supported(name)[0]
    before = [one for one in released(package) if number(one) < number(low)]
    if not before:
        return "there is no version before it"
    home = lab / f"{name}-before"
    shutil.rmtree(home, ignore_errors=True)
    pip = [sys.executable, "-m", "pip", "install", "-q", "--disable-pip-version-check", "--no-compile", "--no-deps"]
    done = subprocess.run([*pip, "--target", str(home), f"{package}=={before[-1]}", str(wheel)])
    if done.returncode != 0:
        return f"{before[-1]} could not be installed"
    code = f"import endstop.adapters.{name}"
    environment = {**os.environ, "PYTHONPATH": str(home)}
    done = subprocess.run(
        [sys.executable, "-S", "-c", code], env=environment, capture_output=True, text=True
    )
    shutil.rmtree(home)
    message = f"{package} {before[-1]} is not supported; the supported versions are {package}>={low},<{below}"
    if done.returncode == 0 or message not in done.stderr:
        return f"{before[-1]}: NOT REFUSED: {done.stderr[-200:]}"
    return f"{before[-1]}: `VersionError` with the range"


def adapter(lab: Path, name: str, wheel: Path, seconds: int) -> dict[str, Any]:
    """Runs an adapter with both versions. Returns a row."""
    row: dict[str, Any] = {"name": name, "refused": refused(lab, name, wheel), "wrong": []}
    row["wrong"] += [row["refused"]] if "NOT REFUSED" in row["refused"] else []
    for which in ("lowest", "highest"):
        packages = lowest(name) if which == "lowest" else run.FRAMEWORKS[name]
        home = lab / (f"{name}-lowest" if which == "lowest" else name)
        python = install(home, packages, wheel)
        if python is None:
            row[which] = "not installed"
            continue
        names = [re.split(r"[=<>]", package)[0] for package in packages]
        shown = run.versions(python, names)
        found = run.measure(python, name, SCENARIOS, seconds, only_guarded=True)
        rows = [one for one in found if one["guarded"]]
        problems = [(one, why) for one in rows if (why := run.wrong(one))]
        row["wrong"] += [
            f"{shown}, {one['mode']} {one['scenario']}: {one['ending']}: {why}" for one, why in problems
        ]
        if not rows:
            row["wrong"].append(f"{shown}: no run")
        row[which] = f"{shown}: {len(rows)} runs, {len(problems)} wrong"
        print(row[which], flush=True)
        if which == "lowest":
            shutil.rmtree(home)
    return row


def sdk(lab: Path, name: str, wheel: Path) -> list[dict[str, Any]]:
    """Compares the objects of an SDK with the bytes. Returns a row for each version."""
    package, low, needs = SDKS[name]
    rows = []
    for which, packages in (("lowest", [f"{package}=={low}", *needs]), ("newest", [package])):
        python = install(lab / f"sdk-{name}-{which}", packages, wheel)
        if python is None:
            continue
        with run.serving() as port:
            done = subprocess.run(
                [str(python), str(HERE / "sdks.py"), name],
                env={**os.environ, "MOCK_PORT": str(port)},
                stdout=subprocess.PIPE,
                text=True,
            )
        lines = [line for line in done.stdout.splitlines() if line.startswith("{")]
        failed = {"case": "all", "raised": "no output"}
        row = {"sdk": package, "version": which, "cases": 0, "different": [failed]}
        row = json.loads(lines[-1]) if lines else row
        rows.append(row)
        print(f"{package} {row['version']}: {row['cases']} cases, {len(row['different'])} differ")
        for one in row["different"]:
            print(f"  {json.dumps(one)}")
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("lab", type=Path)
    parser.add_argument("--wheel", type=Path, required=True)
    parser.add_argument("--only", nargs="*", default=[*run.FRAMEWORKS, "sdk"])
    parser.add_argument("--seconds", type=int, default=10)
    parser.add_argument("--out", type=Path)
    given = parser.parse_args()
    given.lab.mkdir(parents=True, exist_ok=True)
    lab, wheel = given.lab.resolve(), given.wheel.resolve()
    store = lab / "versions.json"
    known = json.loads(store.read_text()) if store.exists() else {}
    failed = 0
    for name in given.only:
        if name == "sdk":
            rows = [row for one in SDKS for row in sdk(lab, one, wheel)]
            failed += sum(bool(row["different"]) for row in rows)
            known[name] = rows
        else:
            known[name] = adapter(lab, name, wheel, given.seconds)
            failed += bool(known[name]["wrong"])
            for problem in known[name]["wrong"]:
                print(f"  {problem}")
        store.write_text(json.dumps(known))
    text = written_page(known)
    print(text)
    if given.out is not None:
        page.put(given.out, text)
    if failed:
        sys.exit(f"{failed} adapters or SDKs do not work as expected")


def written_page(known: dict[str, Any]) -> str:
    lines = [
        "# The lowest and the highest versions",
        "",
        "Written by `bench/python/versions.py`: each adapter with the first supported release that installs and with the",
        f"newest one, over the scenarios {', '.join(f'`{one}`' for one in SCENARIOS)}, plain and streamed. A run is wrong if it",
        "ends otherwise than expected, runs a tool with cut arguments, or has other tokens than the server sent. The last",
        "column is the newest release before the range.",
        "",
        "| adapter | lowest | highest | before it |",
        "|---|---|---|---|",
    ]
    for name in run.FRAMEWORKS:
        if row := known.get(name):
            lines.append(f"| {name} | {row['lowest']} | {row['highest']} | {row['refused']} |")
    lines += [
        "",
        "`detect` over the objects and the streams of SDKs, compared with the bytes of the same response:",
        "",
        "| SDK | responses | differ |",
        "|---|--:|---|",
    ]
    for row in known.get("sdk", []):
        different = ", ".join(f"{one['case']}" for one in row["different"]) or "none"
        lines.append(f"| {row['sdk']} {row['version']} | {row['cases']} | {different} |")
    return "\n".join([*lines, ""])


if __name__ == "__main__":
    main()
