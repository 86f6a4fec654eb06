"""Divides the input into parts, each of which is counted on its own.

A part is small and can be pickled as long as it names its content (a path, an address, an object of a
store); the process that counts it reads the content then.
"""

from __future__ import annotations

import glob
import os
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol, runtime_checkable

from endstop._endstop import run_files
from endstop._errors import ConfigError
from endstop._recorded._rows import (
    ROWS,
    TABLE,
    is_table,
    lines_of_records,
    mapping_rows,
    table_batches,
)

__all__ = ["Job", "Part", "parts"]

EXPECTED = (
    "paths, addresses, bytes, open files, runs as dicts, a store of obstore, or a table of Arrow, "
    "pandas or polars"
)


class Job(Protocol):
    """A backtest or an audit."""

    def tally(
        self,
        part: Any,
        *,
        file: str = ...,
        dataset: str | None = ...,
        folder: str | os.PathLike[str] | None = ...,
    ) -> bytes: ...

    def tally_skipped(self, skipped: str) -> bytes: ...

    def combine(self, parts: list[bytes]) -> bytes: ...


@runtime_checkable
class _File(Protocol):
    def read(self, size: int = ..., /) -> Any: ...


@dataclass(frozen=True)
class Part:
    """A file, or the rows of a table."""

    content: Any
    """A path, bytes, a file object, or what `opened` opens."""
    file: str = "runs.jsonl"
    folder: str | None = None
    dataset: str | None = None

    def tally(self, job: Job) -> bytes:
        """Counts the runs of the part."""
        if isinstance(self.content, _Skipped):
            return job.tally_skipped(self.content.entries)
        content, close = _opened(self.content)
        try:
            return job.tally(content, file=self.file, dataset=self.dataset, folder=self.folder)
        finally:
            if close is not None:
                close()

    def loaded(self) -> Part:
        """Returns the part with the bytes of an open file, which cannot move to another process."""
        if not isinstance(self.content, _File):
            return self
        return Part(self.content.read(), self.file, self.folder, self.dataset)


@dataclass(frozen=True)
class _Address:
    """A file that fsspec opens."""

    url: str


@dataclass(frozen=True)
class _Stored:
    """An object in a store of obstore."""

    store: Any
    path: str


@dataclass(frozen=True)
class _Skipped:
    """The entries of a folder that are not read, as the compiled half describes them."""

    entries: str


def _opened(content: Any) -> tuple[Any, Any]:
    """Opens a content in the process that counts it. Returns it with the function that closes it."""
    if isinstance(content, _Address):
        fsspec = _fsspec()
        file = fsspec.open(content.url, "rb").open()
        return file, file.close
    if isinstance(content, _Stored):
        import obstore

        return obstore.open_reader(content.store, content.path), None
    return content, None


def parts(source: Any, dataset: str | None, column: str | None) -> Iterator[Part]:
    """Divides a source. Parts are made one by one, because a table may be larger than the memory."""
    if isinstance(source, str | os.PathLike):
        yield from _paths(os.fspath(source), dataset)
    elif isinstance(source, bytes | bytearray | memoryview):
        yield Part(bytes(source), dataset=dataset)
    elif isinstance(source, _File):
        name = getattr(source, "name", None) or getattr(source, "path", None)
        file = name if isinstance(name, str) else "runs.jsonl"
        yield Part(source, file=file, dataset=dataset)
    elif is_table(source):
        for batch in table_batches(source, column):
            yield Part(batch, dataset=dataset or TABLE)
    elif type(source).__module__.partition(".")[0] == "obstore" or hasattr(
        source, "list_with_delimiter"
    ):
        yield from _objects(source, dataset)
    elif isinstance(source, Mapping):
        yield from _rows([source], dataset, column)
    elif isinstance(source, Iterable):
        yield from _several(source, dataset, column)
    else:
        kind = type(source).__qualname__
        raise ConfigError(f"invalid `source` of type `{kind}`: expected {EXPECTED}")


def _several(source: Iterable[Any], dataset: str | None, column: str | None) -> Iterator[Part]:
    """Divides a list: runs as dicts, next to sources of every other kind."""
    rows: list[Mapping[str, Any]] = []
    empty = True
    for one in source:
        empty = False
        if isinstance(one, Mapping):
            rows.append(one)
            if len(rows) == ROWS:
                yield from _rows(rows, dataset, column)
                rows = []
        else:
            yield from parts(one, dataset, column)
    if rows:
        yield from _rows(rows, dataset, column)
    if empty:
        raise ConfigError(f"invalid `source`: it is empty; expected {EXPECTED}")


def _rows(rows: list[Mapping[str, Any]], dataset: str | None, column: str | None) -> Iterator[Part]:
    yield Part(lines_of_records(mapping_rows(rows, column)), dataset=dataset or TABLE)


def _paths(path: str, dataset: str | None) -> Iterator[Part]:
    if not path:
        # The current folder, if it were taken for a path.
        raise ConfigError(f"invalid `source`: the path is empty; expected {EXPECTED}")
    if path.lstrip().startswith(("{", "[")) and not Path(path[:200]).exists():
        raise ConfigError(
            "invalid `source`: this text is JSON and not a path; pass bytes, or dicts"
        )
    if "://" in path:
        fsspec = _fsspec()
        filesystem, root = fsspec.core.url_to_fs(path)
        found = (
            sorted(filesystem.glob(root)) if glob.has_magic(root) else sorted(filesystem.find(root))
        )
        if not found:
            raise FileNotFoundError(f"no files at {path}")
        for name in found:
            yield Part(_Address(filesystem.unstrip_protocol(name)), file=name, dataset=dataset)
        return
    local = Path(path).expanduser()
    if local.is_dir():
        files, skipped = run_files(local)
        for file in files:
            yield Part(file, file=str(file), folder=str(local), dataset=dataset)
        if skipped is not None:
            yield Part(_Skipped(skipped))
    elif local.exists():
        yield Part(local, file=str(local), dataset=dataset)
    else:
        # A pattern with an absolute path, which `Path.glob` does not take.
        found = sorted(glob.glob(str(local), recursive=True))  # noqa: PTH207
        if not found:
            raise FileNotFoundError(f"no such file or folder: {path}")
        for name in found:
            yield from _paths(name, dataset)


def _objects(store: Any, dataset: str | None) -> Iterator[Part]:
    import obstore

    # The store lists in its own order, and the first file names problems.
    names = sorted(entry["path"] for batch in obstore.list(store) for entry in batch)
    for name in names:
        yield Part(_Stored(store, name), file=name, dataset=dataset)


def _fsspec() -> Any:
    try:
        import fsspec
    except ImportError:
        raise ConfigError(
            "an address needs fsspec: pip install 'endstop[fsspec]', and the file system of its "
            "scheme, for example s3fs"
        ) from None
    return fsspec
