"""Faults of the agent, one for each check: a file for each level, as in `src/checks`. This file has what they share."""
import json
import subprocess

import agent
import flags
from tools import Command

FAR = 10 ** 6  # a bound that is not reached, also as seconds of a socket
MUTANTS = {}  # by id: what it does wrong, the function that changes the agent, and the program


def mutant(name, what, program=agent):
    def add(change):
        MUTANTS[name] = (what, change, program)
        return change
    return add


def without_turn_limit():
    """The documented limit of turns would bound what the fault leaves unbounded."""
    flags.DEFAULT_TURNS = FAR


def as_answer(self, response):
    """Takes what has arrived as the answer."""
    self.session.say("assistant", response.text)
    return response.text or response.reasoning or response.refusal


def repaired(text):
    """Closes what is open in arguments that were cut, as lenient parsers do."""
    for end in ("", '"}', "}", '"]}', "]}"):
        try:
            return json.loads((text or "{}") + end)
        except ValueError:
            continue
    return None


def lenient(self, call):
    arguments = repaired(call["arguments"])
    return call["id"], call["name"], arguments if isinstance(arguments, dict) else None


class Unsupervised(Command):
    """A command that is a plain child process."""

    ENVIRONMENT = None  # that of the agent

    def _start(self, text, stdin):
        self._lifeline = None
        return subprocess.Popen(["/bin/sh", "-c", text], stdin=stdin, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                                start_new_session=True, env=self.ENVIRONMENT)
