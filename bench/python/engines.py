"""Backtests and audits with each engine: the same report, byte for byte, and its costs.

    python3 bench/python/engines.py LAB DATA --wheel endstop-*.whl [--copies 20] [--out RESULTS.md]

DATA is a folder of recorded runs. They are copied with other ids into LAB, because a real set is
larger. LAB gets a virtual environment with the engines; one that cannot be installed is skipped with
a notice. The checks: each engine and each kind of table gives the report of one thread, a worker of
Ray that is killed changes nothing, and the memory of the driver does not grow with the data. `--engines` and `--sources` select rows; with
`--title` they become a part of the page of their own.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import resource
import shutil
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import page

PACKAGES = {
    "ray": ["ray[data]>=2.40,<3"],
    "spark": ["pyspark>=4,<5"],
    "dask": ["dask[dataframe,distributed]>=2024.8"],
    "tables": ["pyarrow", "pandas", "polars"],
    "storage": ["fsspec", "obstore"],
}
QUIET = {
    "RAY_DEDUP_LOGS": "0",
    "RAY_USAGE_STATS_ENABLED": "0",
    "PYSPARK_PYTHON": "{python}",
    "PYSPARK_DRIVER_PYTHON": "{python}",
    "SPARK_LOCAL_IP": "127.0.0.1",
    "DO_NOT_TRACK": "1",
}


def install(lab: Path, wheel: Path) -> Path:
    """Returns the interpreter of the environment with what could be installed."""
    home = lab / "environment"
    python = home / "bin" / "python"
    if not python.exists():
        subprocess.run([sys.executable, "-m", "venv", str(home)], check=True)
    pip = [str(python), "-m", "pip", "install", "-q", "--disable-pip-version-check", "--no-compile"]
    for name, packages in PACKAGES.items():
        if subprocess.run([*pip, *packages]).returncode != 0:
            print(f"{name}: skipped, because it could not be installed")
    subprocess.run([*pip, "--no-deps", "--force-reinstall", str(wheel)], check=True)
    return python


def make(data: Path, into: Path, copies: int) -> None:
    """Writes the runs of a folder `copies` times, with distinct ids, 8 MB a file."""
    if into.exists():
        return
    into.mkdir(parents=True)
    partial = into.with_suffix(".partial")
    shutil.rmtree(partial, ignore_errors=True)
    partial.mkdir()
    number = 0
    held: list[bytes] = []
    size = 0

    def flush() -> None:
        nonlocal number, held, size
        if held:
            (partial / f"part-{number:04}.jsonl").write_bytes(b"".join(held))
            number, held, size = number + 1, [], 0

    for copy in range(copies):
        for file in sorted(data.glob("*.jsonl.zst")):
            unpacked = subprocess.run(["zstd", "-dc", str(file)], capture_output=True, check=True)
            for line in unpacked.stdout.splitlines(keepends=True):
                # The id is the only member that must differ; the rest stays as it was recorded.
                held.append(line.replace(b'"run_id":"', b'"run_id":"%d-' % copy, 1))
                size += len(line)
                if size > 8_000_000:
                    flush()
    flush()
    into.rmdir()
    partial.rename(into)


def digest(report: Any) -> str:
    return hashlib.sha256(report.to_json().encode()).hexdigest()[:12]


def column(files: list[Path]) -> Any:
    """Reads lines as an Arrow table."""
    import pyarrow as pa

    lines = [line for file in files for line in file.read_text().splitlines()]
    return pa.table({"run": pa.array(lines, pa.large_string())})


def spark_table(files: list[Path]) -> Any:
    from pyspark.sql import SparkSession

    session = SparkSession.builder.getOrCreate()
    return session.read.text([str(file) for file in files])


def ray_table(files: list[Path]) -> Any:
    import ray

    return ray.data.from_arrow(column(files))


def dask_table(files: list[Path]) -> Any:
    import dask.dataframe as frame

    return frame.from_pandas(column(files).to_pandas(), npartitions=5)


def polars_table(files: list[Path]) -> Any:
    import polars

    return polars.from_arrow(column(files))


def addresses(files: list[Path]) -> Any:
    return [f"file://{file}" for file in files]


def store(files: list[Path]) -> Any:
    from obstore.store import LocalStore

    return LocalStore(str(files[0].parent))


SOURCES: dict[str, Callable[[list[Path]], Any]] = {
    "paths": lambda files: files,
    "open files": lambda files: [file.open("rb") for file in files],
    "fsspec": addresses,
    "obstore": store,
    "Arrow": column,
    "pandas": lambda files: column(files).to_pandas(),
    "polars": polars_table,
    "Spark table": spark_table,
    "Ray Data": ray_table,
    "Dask table": dask_table,
}
ENGINES = {"Spark table": "spark", "Ray Data": "ray", "Dask table": "dask"}


def start(engine: str) -> None:
    """Starts an engine, whose start is measured on its own."""
    if engine == "ray":
        import ray

        ray.init(num_cpus=2, include_dashboard=False, log_to_driver=False, logging_level="ERROR")
    elif engine == "spark":
        from pyspark.sql import SparkSession

        builder = SparkSession.builder.master("local[2]")
        builder = builder.config("spark.ui.enabled", "false")
        builder = builder.config("spark.ui.showConsoleProgress", "false")
        builder.getOrCreate().sparkContext.setLogLevel("ERROR")
    elif engine == "dask":
        from dask.distributed import Client

        Client(n_workers=1, threads_per_worker=2, processes=False, dashboard_address=None)


def task(given: argparse.Namespace) -> None:
    """Runs one backtest in this process, and prints its row."""
    import endstop

    files = sorted(given.data.glob("*.jsonl"))[: given.files]
    source_name = given.task
    engine = given.engine
    began = time.perf_counter()
    start(engine)
    started = time.perf_counter() - began
    killed = kill_a_worker() if given.kill else None
    source = SOURCES[source_name](files)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    began = time.perf_counter()
    options: dict[str, Any] = {"engine": engine, "dataset": "all", "workers": 2}
    report = endstop.backtest(source, "reference", **options)
    seconds = time.perf_counter() - began
    row = {
        "runs": report.runs,
        "digest": digest(report),
        "seconds": round(seconds, 2),
        "start": round(started, 2),
        "grown_mb": round((resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) / 1024),
        "killed": killed() if killed else 0,
        "jvm_mb": jvm_mb() if engine == "spark" else 0,
    }
    if not given.kill and given.audit:
        source = SOURCES[source_name](files)
        row["audit"] = digest(endstop.audit(source, **options))
    print(json.dumps(row), flush=True)


def jvm_mb() -> int:
    """Returns the most memory that the driver's Java process had, without that of its workers."""
    from pyspark import SparkContext

    status = Path(f"/proc/{SparkContext._gateway.proc.pid}/status").read_text()
    peak = next(line for line in status.splitlines() if line.startswith("VmHWM:"))
    return int(peak.split()[1]) // 1024


def kill_a_worker() -> Callable[[], int]:
    """Kills workers of Ray that are counting, until the first kill succeeds. Returns the count."""
    import signal
    import threading

    done = threading.Event()
    count = 0

    def watch() -> None:
        nonlocal count
        while not done.is_set() and count == 0:
            for process in Path("/proc").glob("[0-9]*"):
                try:
                    name = (process / "cmdline").read_bytes()
                except OSError:
                    continue
                # Ray shows the running task as the title of the process.
                if name.startswith(b"ray::_tally"):
                    os.kill(int(process.name), signal.SIGKILL)
                    count += 1
                    break
            done.wait(0.005)

    thread = threading.Thread(target=watch, daemon=True)
    thread.start()

    def finish() -> int:
        done.set()
        thread.join()
        return count

    return finish


def one(python: Path, data: Path, source: str, engine: str, *more: str) -> dict[str, Any] | None:
    environment = {key: value.format(python=python) for key, value in QUIET.items()}
    done = subprocess.run(
        [str(python), __file__, "-", str(data), "--task", source, "--engine", engine, *more],
        env={**os.environ, **environment},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    lines = [line for line in done.stdout.splitlines() if line.startswith("{")]
    if done.returncode != 0 or not lines:
        missing = "No module named" in done.stderr or "VersionError" in done.stderr
        print(f"{engine}, {source}: {'skipped' if missing else 'FAILED'}")
        if not missing:
            print(done.stderr[-3000:])
            return {"failed": True}
        return None
    row: dict[str, Any] = json.loads(lines[-1])
    return row


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("lab", type=Path)
    parser.add_argument("data", type=Path)
    parser.add_argument("--wheel", type=Path)
    parser.add_argument("--copies", type=int, default=20, help="20 are 940 MB, 213 are 10 GB")
    parser.add_argument("--engines", nargs="*", default=["local", "ray", "spark", "dask"])
    parser.add_argument("--sources", nargs="*", default=list(SOURCES), choices=SOURCES)
    parser.add_argument("--title", default="Backtests with each engine")
    parser.add_argument("--no-audit", action="store_true", help="only backtests")
    parser.add_argument("--out", type=Path)
    parser.add_argument("--python", type=Path, help="an environment that has the engines")
    parser.add_argument("--keep", action="store_true", help="leave the copied runs in LAB")
    parser.add_argument("--task", choices=SOURCES, help=argparse.SUPPRESS)
    parser.add_argument("--engine", default="local", help=argparse.SUPPRESS)
    parser.add_argument("--files", type=int, default=1_000_000, help=argparse.SUPPRESS)
    parser.add_argument("--kill", action="store_true", help=argparse.SUPPRESS)
    parser.add_argument("--audit", action="store_true", help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.task:
        task(given)
        return
    given.lab.mkdir(parents=True, exist_ok=True)
    lab = given.lab.resolve()
    python = given.python or install(lab, given.wheel.resolve())
    runs = lab / "runs"
    make(given.data, runs, given.copies)
    size = sum(file.stat().st_size for file in runs.iterdir())
    plans = [("paths", engine) for engine in given.engines]
    plans += [(source, ENGINES.get(source, "local")) for source in given.sources if source != "paths"]
    audit = [] if given.no_audit else ["--audit"]
    lines = [
        f"# {given.title}",
        "",
        f"Written by `bench/python/engines.py`: {size / 1e6:,.0f} MB of recorded runs in "
        f"{len(list(runs.iterdir()))} files, 55 candidates, two processors.",
        "Seconds without the start of the engine; the growth of the driver's memory; the first digits",
        "of the SHA-256 of the report.",
        "",
        "| source | engine | runs | seconds | start | driver grows by | report | audit |",
        "|---|---|--:|--:|--:|--:|---|---|",
    ]
    digests: set[str] = set()
    audits: set[str] = set()
    failed = 0
    rows = [(source, engine, one(python, runs, source, engine, *audit)) for source, engine in plans]
    if "ray" in given.engines:
        rows.append(("paths, a worker killed", "ray", one(python, runs, "paths", "ray", "--kill")))
    for source, engine, row in rows:
        if row is None:
            continue
        if "failed" in row:
            failed += 1
            continue
        digests.add(row["digest"])
        audits |= {row["audit"]} if "audit" in row else set()
        name = f"{source} ({row['killed']})" if row["killed"] else source
        jvm = f", Java {row['jvm_mb']} MB" if row.get("jvm_mb") else ""
        lines.append(
            f"| {name} | {engine} | {row['runs']:,} | {row['seconds']} | {row['start']} | "
            f"{row['grown_mb']} MB{jvm} | {row['digest']} | {row.get('audit', '')} |"
        )
    tenth = max(len(list(runs.iterdir())) // 10, 1)
    small = one(python, runs, "paths", "local", "--files", str(tenth))
    if small and "grown_mb" in small:
        lines += ["", f"With a tenth of the files, the driver grows by {small['grown_mb']} MB."]
    text = "\n".join([*lines, ""])
    print(text)
    if given.out:
        page.put(given.out, text)
    if not given.keep:
        shutil.rmtree(runs)
    if failed or len(digests) > 1 or len(audits) > 1:
        sys.exit(f"{failed} failed, {len(digests)} reports and {len(audits)} audits instead of one")


if __name__ == "__main__":
    main()
