"""The two functions: `endstop.backtest` and `endstop.audit`."""

from __future__ import annotations

from collections.abc import Mapping
from os import PathLike
from typing import Any, Literal

from endstop._endstop import Audit, AuditReport, Backtest, BacktestReport

__all__ = ["Engine", "audit", "backtest"]

Engine = Literal["local", "ray", "spark", "dask"]


def backtest(
    source: Any,
    policies: Any = "default",
    *,
    engine: Engine = "local",
    dataset: str | None = None,
    column: str | None = None,
    calibrate: float | None = None,
    group_by: str = "auto",
    max_harm: float = 0.01,
    format: str | None = None,
    outcomes: Mapping[str, Any] | str | PathLike[str] | bytes | None = None,
    workers: int | None = None,
) -> BacktestReport:
    """Replays recorded runs under candidate limits and rules: which good runs a stop would have
    cost, and what it would have saved.

    >>> report = endstop.backtest("runs/", "reference")
    >>> report.runs, report.judged
    (100, 100)

    `source` is a file or a folder, an address such as `s3://bucket/runs/*.jsonl` (with fsspec), a
    store of obstore, bytes, an open file, a run as a dict, a table (Arrow, pandas, polars, Spark, Ray
    Data, Dask), or a list of these. In a table each row is a run: as JSON in one column, which `column`
    names if there are several, or with the fields of the run in the columns. A list without anything is
    a ConfigError.

    Each file is a dataset, unless `dataset` names one for all. `workers` bounds the parts that are
    counted at a time; by default there are as many as processors. The other arguments are those of
    `Backtest`. The report is the same for each engine.
    """
    if isinstance(outcomes, Mapping):
        outcomes = dict(outcomes)
    job = Backtest(
        policies,
        calibrate=calibrate,
        group_by=group_by,
        max_harm=max_harm,
        format=format,
        outcomes=outcomes,
    )
    # Here, because the import of threads takes longer than that of the whole package.
    from endstop._recorded._engines import count

    return job.merge(count(job, source, engine, dataset, column, workers))


def audit(
    source: Any,
    *,
    top: int = 10,
    since: str | None = None,
    engine: Engine = "local",
    dataset: str | None = None,
    column: str | None = None,
    format: str | None = None,
    workers: int | None = None,
) -> AuditReport:
    """Audits recorded sessions of agents: how each ended, what its loops cost, which claims the
    record contradicts, and what limits would have saved.

    >>> endstop.audit("runs/").sessions
    100

    The report lists the `top` worst sessions, and leaves out those that ended before `since`. The
    other arguments are those of `backtest`.
    """
    job = Audit(top=top, since=since, format=format)
    # Here, because the import of threads takes longer than that of the whole package.
    from endstop._recorded._engines import count

    return job.merge(count(job, source, engine, dataset, column, workers))
