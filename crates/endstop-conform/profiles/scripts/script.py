"""The parts that the scripts share: the command line, and the body of the tool."""

import argparse
import importlib.metadata
import os
import subprocess
import sys

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
