"""The versions of the frameworks that the adapters support.

This is the only table: the adapters check it before they import their framework, the extras of the
package have the same ranges, and `bench/python/versions.py` runs the lowest and the highest of each.
"""

from __future__ import annotations

import re
from importlib import metadata

from endstop import VersionError

__all__ = ["SUPPORTED", "check", "require"]

SUPPORTED: dict[str, tuple[tuple[str, str, str], ...]] = {
    "agent_framework": (("agent-framework-core", "1.23", "2"),),
    "autogen": (("autogen-agentchat", "0.7", "0.8"), ("autogen-core", "0.7", "0.8")),
    "claude_sdk": (("claude-agent-sdk", "0.2.80", "0.3"),),
    "crewai": (("crewai", "1.15.3", "2"),),
    "dspy": (("dspy", "3.4", "4"),),
    "google_adk": (("google-adk", "2.13", "3"),),
    "inspect": (("inspect-ai", "0.3.285", "0.4"),),
    "langchain": (("langchain", "1.2", "2"), ("langgraph", "1.0.2", "2")),
    "llama_index": (("llama-index-core", "0.14.25", "0.15"),),
    "openai_agents": (("openai-agents", "0.20", "1"),),
    "pydantic_ai": (("pydantic-ai-slim", "2.0", "3"),),
    "smolagents": (("smolagents", "1.26", "2"),),
    "strands": (("strands-agents", "1.62", "2"),),
}
"""The packages of each adapter: name, lowest supported version, first unsupported version."""


def require(adapter: str) -> None:
    """Raises `VersionError` unless the packages of an adapter have supported versions."""
    for package, lowest, below in SUPPORTED[adapter]:
        check(package, lowest, below)


def check(package: str, lowest: str, below: str) -> None:
    """Raises `VersionError` unless the version of a package is from `lowest` up to `below`."""
    supported = f"the supported versions are {package}>={lowest},<{below}"
    try:
        found = metadata.version(package)
    except metadata.PackageNotFoundError:
        raise VersionError(f"{package} is not installed; {supported}") from None
    if not _number(lowest) <= _number(found) < _number(below):
        raise VersionError(f"{package} {found} is not supported; {supported}")


def _number(version: str) -> tuple[int, ...]:
    """Returns the release numbers of a version, without its suffixes."""
    release = re.match(r"\d+(\.\d+)*", version)
    parts = [int(part) for part in release.group().split(".")] if release else []
    # 1.0 and 1.0.0 are the same version.
    return tuple([*parts, 0, 0, 0][:4])
