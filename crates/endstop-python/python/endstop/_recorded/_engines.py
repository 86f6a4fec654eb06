"""Counts parts in threads of this process, or with Ray, Spark or Dask.

Each engine runs `Part.tally` on parts, and this process merges the counts. It holds the counts of a few
parts at a time, so that its memory is bounded however many parts there are.
"""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from importlib import import_module
from typing import Any

from endstop._errors import ConfigError, VersionError
from endstop._recorded._parts import Job, Part, parts
from endstop._recorded._rows import TABLE, lines_of_records, text_column

__all__ = ["count"]

AT_ONCE = 16
"""Counts that are held before they are merged into one."""


def count(
    job: Job,
    source: Any,
    engine: str,
    dataset: str | None,
    column: str | None,
    workers: int | None,
) -> list[bytes]:
    """Counts a source with an engine. Returns merged counts."""
    engines: dict[str, Callable[..., Iterator[bytes]]] = {
        "local": _local,
        "ray": _ray,
        "spark": _spark,
        "dask": _dask,
    }
    if engine not in engines:
        raise ConfigError(f"unknown engine `{engine}`; expected one of {', '.join(engines)}")
    if workers is not None and workers < 1:
        raise ConfigError(f"invalid `workers` {workers}: expected 1 or more")
    library = type(source).__module__.partition(".")[0]
    own = {"pyspark": "spark", "ray": "ray", "dask": "dask"}.get(library)
    if own is not None:
        # A table of an engine stays there.
        if engine not in ("local", own):
            raise ConfigError(f"a table of {own} is counted by {own}, not by engine={engine!r}")
        return _merged(job, _TABLES[own](job, source, dataset or TABLE, column))
    found = parts(source, dataset, column)
    return _merged(job, engines[engine](job, found, workers or os.cpu_count() or 1))


def _merged(job: Job, counts: Iterable[bytes]) -> list[bytes]:
    held: list[bytes] = []
    for one in counts:
        held.append(one)
        if len(held) == AT_ONCE:
            held = [job.combine(held)]
    return held


def _local(job: Job, found: Iterator[Part], workers: int) -> Iterator[bytes]:
    # The compiled half releases the interpreter lock, so that threads are enough.
    with ThreadPoolExecutor(workers) as pool:
        yield from _ahead(found, 2 * workers, lambda part: pool.submit(part.tally, job).result)


def _ahead(
    found: Iterator[Part], most: int, start: Callable[[Part], Callable[[], bytes]]
) -> Iterator[bytes]:
    """Starts parts, and waits for the oldest one if there are too many."""
    started: deque[Callable[[], bytes]] = deque()
    for part in found:
        started.append(start(part))
        if len(started) >= most:
            yield started.popleft()()
    while started:
        yield started.popleft()()


def _ray(job: Job, found: Iterator[Part], workers: int) -> Iterator[bytes]:
    ray = _require("ray", "ray")
    if not ray.is_initialized():
        ray.init(include_dashboard=False, log_to_driver=False, logging_level="ERROR")
    shared = ray.put(job)
    # A worker that dies does not lose the part: Ray starts the task again.
    tally = ray.remote(max_retries=3)(_tally)
    most = max(2 * int(ray.cluster_resources().get("CPU", workers)), 2)
    running: list[Any] = []
    for part in found:
        running.append(tally.remote(part.loaded(), shared))
        if len(running) >= most:
            done, running = ray.wait(running)
            yield ray.get(done[0])
    while running:
        done, running = ray.wait(running)
        yield ray.get(done[0])


def _tally(part: Part, job: Job) -> bytes:
    return part.tally(job)


def _spark(job: Job, found: Iterator[Part], workers: int) -> Iterator[bytes]:
    sql = _require("pyspark.sql", "spark")
    session = sql.SparkSession.builder.getOrCreate()
    context = session.sparkContext
    # Some parts at a time: Spark writes them into the job, and content of a table is in the part.
    most = max(4 * context.defaultParallelism, 16)
    batch: list[Part] = []

    def run() -> Iterator[bytes]:
        counts = context.parallelize(batch, len(batch)).map(lambda part: part.tally(job))
        yield from (bytes(one) for one in counts.collect())

    for part in found:
        batch.append(part.loaded())
        if len(batch) == most:
            yield from run()
            batch = []
    if batch:
        yield from run()


def _dask(job: Job, found: Iterator[Part], workers: int) -> Iterator[bytes]:
    distributed = _require("dask.distributed", "dask")
    try:
        client, own = distributed.get_client(), False
    except ValueError:
        client = distributed.Client(
            n_workers=1, threads_per_worker=workers, processes=False, dashboard_address=None
        )
        own = True
    try:
        yield from _ahead(
            found,
            2 * max(sum(client.nthreads().values()), 1),
            lambda part: client.submit(_tally, part.loaded(), job, pure=False).result,
        )
    finally:
        if own:
            client.close()


def _spark_table(job: Job, table: Any, dataset: str, column: str | None) -> Iterator[bytes]:
    name = text_column(list(table.columns), column)

    def tally(batches: Iterator[Any]) -> Iterator[Any]:
        import pyarrow as pa

        from endstop._recorded._rows import table_batches

        held: list[bytes] = []
        for batch in batches:
            for lines in table_batches(batch, name):
                held.append(Part(lines, dataset=dataset).tally(job))
            if len(held) >= AT_ONCE:
                held = [job.combine(held)]
        if held:
            yield pa.RecordBatch.from_pydict({"counts": [job.combine(held)]})

    rows = table if name is None else table.select(name)
    for row in rows.mapInArrow(tally, "counts binary").toLocalIterator():
        yield bytes(row.counts)


def _ray_table(job: Job, table: Any, dataset: str, column: str | None) -> Iterator[bytes]:
    def tally(batch: Any) -> dict[str, list[bytes]]:
        from endstop._recorded._rows import table_batches

        counts = [Part(lines, dataset=dataset).tally(job) for lines in table_batches(batch, column)]
        return {"counts": [job.combine(counts)] if counts else []}

    counted = table.map_batches(tally, batch_format="pyarrow", batch_size=None)
    for row in counted.iter_rows():
        yield row["counts"]


def _dask_table(job: Job, table: Any, dataset: str, column: str | None) -> Iterator[bytes]:
    dask = _require("dask", "dask")
    name = text_column([str(one) for one in table.columns], column)

    def tally(frame: Any) -> bytes:
        rows = frame.to_dict("records") if name is None else frame[name].tolist()
        return Part(lines_of_records(rows), dataset=dataset).tally(job)

    started = [dask.delayed(tally)(one) for one in table.to_delayed()]
    for at in range(0, len(started), AT_ONCE):
        yield from dask.compute(*started[at : at + AT_ONCE])


_TABLES: dict[str, Callable[..., Iterator[bytes]]] = {
    "spark": _spark_table,
    "ray": _ray_table,
    "dask": _dask_table,
}


def _require(module: str, extra: str) -> Any:
    try:
        return import_module(module)
    except ImportError as missing:
        raise VersionError(
            f"engine={extra!r} needs a package that is not installed ({missing}); "
            f"install it with: pip install 'endstop[{extra}]'"
        ) from None
