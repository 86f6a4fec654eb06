"""Reads the rows of tables as lines of JSON."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from endstop._errors import ConfigError

__all__ = [
    "ROWS",
    "TABLE",
    "is_table",
    "lines_of_records",
    "mapping_rows",
    "table_batches",
    "text_column",
]

ROWS = 4_096
"""Rows of a part. The report does not depend on it."""

TABLE = "table"
"""The dataset of rows. They have no file, and a dataset must not depend on how they were divided."""

NAMES = ("run", "trajectory", "line", "json", "record", "text", "value")
"""Columns that hold runs as JSON, if a table has several columns and `column` is not given."""


def is_table(source: Any) -> bool:
    """Returns True for a table of Arrow, pandas or polars, or of another library that speaks Arrow."""
    library = type(source).__module__.partition(".")[0]
    return library in ("pandas", "polars", "pyarrow") or hasattr(source, "__arrow_c_stream__")


def table_batches(table: Any, column: str | None) -> Iterator[bytes]:
    """Returns the rows of a table as batches of lines."""
    library = type(table).__module__.partition(".")[0]
    if library == "polars":
        table = table.collect() if hasattr(table, "collect") else table
        yield from _frame(table, list(table.columns), column, lambda part: part.to_dicts())
    elif library == "pandas":
        yield from _frame(
            table,
            [str(name) for name in table.columns],
            column,
            lambda part: part.to_dict("records"),
        )
    else:
        yield from _arrow(table, column)


def _frame(frame: Any, names: list[str], column: str | None, records: Any) -> Iterator[bytes]:
    name = text_column(names, column)
    for at in range(0, len(frame), ROWS):
        part = frame[at : at + ROWS]
        rows = records(part) if name is None else part[name].to_list()
        yield lines_of_records(rows)


def _arrow(source: Any, column: str | None) -> Iterator[bytes]:
    import pyarrow as pa

    if hasattr(source, "to_batches"):
        batches = source.to_batches()
    elif isinstance(source, pa.RecordBatch):
        batches = [source]
    elif isinstance(source, pa.RecordBatchReader):
        batches = source
    else:
        batches = pa.RecordBatchReader.from_stream(source)
    for batch in batches:
        name = text_column(batch.schema.names, column)
        for at in range(0, batch.num_rows, ROWS):
            part = batch.slice(at, ROWS)
            yield lines_of_records(part.to_pylist()) if name is None else _column(part.column(name))


def _column(values: Any) -> bytes:
    """Joins a column of text without making a Python object of each value."""
    import pyarrow as pa
    import pyarrow.compute as pc

    if not (pa.types.is_string(values.type) or pa.types.is_large_string(values.type)):
        return lines_of_records(values.to_pylist())
    values = values.drop_null()
    if len(values) == 0:
        return b""
    values = values.cast(pa.large_string())
    # A run with line breaks in its JSON would be several lines.
    values = pc.replace_substring_regex(values, pattern="[\r\n]", replacement=" ")
    one = pa.LargeListArray.from_arrays(pa.array([0, len(values)], pa.int64()), values)
    return bytes(pc.binary_join(one, pa.scalar("\n", pa.large_string()))[0].as_buffer())


def text_column(names: list[str], column: str | None) -> str | None:
    """Returns the column that holds runs as JSON; None if the columns are the fields of a run."""
    if column is not None:
        if column not in names:
            raise ConfigError(f"no column `{column}`; the table has {', '.join(names)}")
        return column
    if len(names) == 1:
        return names[0]
    return next((name for name in NAMES if name in names), None)


def mapping_rows(rows: Iterable[Mapping[str, Any]], column: str | None) -> Iterator[Any]:
    """Returns the runs in rows that are dicts: the row itself, or what it has in a column."""
    for row in rows:
        if column is None:
            yield dict(row)
        else:
            # No column is guessed, because a run may have a field of any name.
            name = text_column([str(name) for name in row], column)
            yield row[str(name)]


def lines_of_records(records: Iterable[Any]) -> bytes:
    """Writes runs as lines: text and bytes as they are, other values as JSON."""
    lines = []
    for record in records:
        if record is None:
            continue
        if isinstance(record, bytes):
            line = record
        elif isinstance(record, str):
            line = record.encode()
        else:
            line = json.dumps(record, default=str).encode()
        # In JSON, a line break is only ever a space between values.
        lines.append(line.replace(b"\n", b" ").replace(b"\r", b" "))
    return b"\n".join(lines)
