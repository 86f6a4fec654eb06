"""The parts that the scripts share: the command line, and the body of the tool."""

import argparse
import importlib.metadata
import os
import subprocess
import sys
from typing import Any, NoReturn

from pydantic import BaseModel

MODEL = "gpt-4o"


class Answer(BaseModel):
    """An answer of the case with a structured answer."""

    answer: str


def options(package: str) -> argparse.Namespace:
    """Reads the command line: the task, a cap on turns, and whether the answer has a structure."""
    parser = argparse.ArgumentParser()
    parser.add_argument("task", nargs="?")
    parser.add_argument("--turns", type=int)
    # Limits of an adapter of Endstop.
    parser.add_argument("--budget", type=float)
    parser.add_argument("--seconds")
    parser.add_argument("--structured", action="store_true")
    # For frameworks that ask for a summary at their cap in any case.
    parser.add_argument("--wrap-up", action="store_true")
    parser.add_argument("--version", action="version", version=importlib.metadata.version(package))
    return parser.parse_args()


def base(variable: str = "OPENAI_BASE_URL") -> str:
    """Returns the address of the provider, for frameworks that do not read the variable."""
    return os.environ[variable]


def shell(command: str) -> str:
    """Run a shell command and return its output."""
    done = subprocess.run(command, shell=True, capture_output=True, text=True)
    return f"{done.stdout}{done.stderr}\nexit status {done.returncode}"


def end(answer: object) -> None:
    """Prints the answer that the framework returned, and exits with 0."""
    print(answer)
    sys.stdout.flush()


def settings(options: argparse.Namespace) -> dict[str, Any]:
    """Returns the settings of an adapter of Endstop: the price of the cases, and the limits."""
    limits = {"max_turns": options.turns, "max_budget_usd": options.budget, "timeout": options.seconds}
    price = "in=3,out=15,cached=0.3,cache_write=3.75"
    return {"price": price} | {name: limit for name, limit in limits.items() if limit is not None}


def end_as(outcome: Any) -> NoReturn:
    """Prints the outcome of an adapter of Endstop, and exits with 0 if it is a success."""
    print(outcome.to_json())
    sys.exit(not outcome.is_success)
