"""The page of results. Each command writes its own parts of it and leaves the others as they are."""

from __future__ import annotations

from pathlib import Path


def put(path: Path, part: str) -> None:
    """Replaces the part of a page that has the same heading of the first level, or appends it."""
    heading = part.partition("\n")[0]
    if not heading.startswith("# "):
        raise ValueError(f"invalid part of a page: expected a heading of the first level, found {heading!r}")
    parts = parts_of(path.read_text()) if path.exists() else []
    part = part.strip("\n")
    if heading in (headings := [one.partition("\n")[0] for one in parts]):
        parts[headings.index(heading)] = part
    else:
        parts.append(part)
    path.write_text("\n\n".join(parts) + "\n")


def parts_of(text: str) -> list[str]:
    """Splits a page at its headings of the first level."""
    parts: list[list[str]] = []
    for line in text.splitlines():
        if line.startswith("# ") or not parts:
            parts.append([])
        parts[-1].append(line)
    return ["\n".join(part).strip("\n") for part in parts]
