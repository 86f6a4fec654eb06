"""Agents that differ from the agent of this folder, and are right: the check of their id passes."""
import subprocess

import agent
import model
from agent import Agent, Run
from faults import mutant


@mutant("X-02+updater", "starts a process of its own that is not a tool, and leaves it")
def _():
    perform = Run.perform

    def updating(self, task):
        subprocess.Popen(["sleep", "20"], start_new_session=True, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
                         stderr=subprocess.DEVNULL)
        return perform(self, task)

    Run.perform = updating


@mutant("X-07+no-attempts", "makes no further attempt")
def _():
    Agent.may_repeat = lambda self, failed: False


@mutant("X-07+short-pauses", "ends as failed if a provider names a pause of more than ten seconds")
def _():
    model.LONGEST_WAIT = 10


@mutant("X-07+own-pauses", "waits as long as it thinks fit before a further attempt")
def _():
    model.pause = lambda retry_after: None


@mutant("T-10+asks-without-tools", "asks once without tools after two blank answers")
def _():
    agent.ATTEMPTS = 2
    respond = Agent.respond

    def last_try(self):
        try:
            return respond(self)
        except agent.Ended as ended:
            if ended.reason != "blank" or not self.tools:
                raise
            self.tools = []
            return respond(self)

    Agent.respond = last_try


@mutant("D-01+told", "keeps the calls that a crash interrupted as not known, in other words")
def _():
    import session
    session.LOST = "(interrupted)"
