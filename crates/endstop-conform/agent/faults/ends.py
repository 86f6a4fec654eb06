"""Level 1: runs that do not end."""
import threading

import agent
import model
from agent import Agent
from faults import FAR, mutant, without_turn_limit
from model import Failed, Model
from tools import Command


@mutant("T-10", "repeats the call for ever after blank answers")
def _():
    agent.ATTEMPTS = FAR
    agent.BACKOFF = 0
    without_turn_limit()


@mutant("S-03", "waits for ever after the head of a response")
def _():
    unbounded(lambda self: True)


@mutant("S-03-hedged", "makes a second call next to one that does not answer, and waits for both for ever")
def _():
    unbounded(lambda self: True)
    model.WHOLE = FAR
    exchange = Model.exchange

    def hedged(self, body, response):
        def second():
            connection = self.connect()
            connection.sock.settimeout(None)
            connection.request("POST", (self.url.path or "/v1") + "/chat/completions", body, self.headers())
            connection.getresponse().read()

        timer = threading.Timer(2, second)
        timer.daemon = True
        timer.start()
        exchange(self, body, response)
        timer.cancel()

    Model.exchange = hedged


@mutant("S-04", "takes pings for signs of life")
def _():
    Model.alive = lambda self, response, size: True
    model.WHOLE = FAR


@mutant("S-06", "lets a response reason for ever")
def _():
    model.WHOLE, model.CHARACTERS = FAR, float("inf")


def unbounded(applies):
    """Models wait for ever for the next byte, in the agents that `applies` names."""
    work = Agent.work

    def patient(self, task):
        if applies(self):
            self.model = Model(FAR, self.stop)
        return work(self, task)

    Agent.work = patient
    model.WHOLE = 1


@mutant("C-01", "has no rule for repeated turns, and no limit of turns")
def _():
    Agent.watch = lambda self, turn: None
    without_turn_limit()


@mutant("C-02", "compares a turn only with the one before it, and has no limit of turns")
def _():
    watch = Agent.watch

    def only_the_last(self, turn):
        if self.turns and turn != self.turns[-1]:
            self.turns = []
        watch(self, turn)

    Agent.watch = only_the_last
    without_turn_limit()


@mutant("C-05", "answers invalid calls for ever")
def _():
    agent.INVALID_TURNS = FAR
    Agent.watch = lambda self, turn: None
    without_turn_limit()


@mutant("C-06", "waits for ever for a command")
def _():
    wait = Command.wait
    Command.wait = lambda self, seconds: wait(self, None if seconds > 2 else seconds)


@mutant("C-06-warn", "answers a hung command with a success")
def _():
    agent.Command.output = lambda self: "ok, done, exit status 0"
    tool = Agent.tool_shell
    Agent.tool_shell = lambda self, command, background=False: (
        "ok, done, exit status 0" if "ended after" in tool(self, command, background) else "ok")


@mutant("R-02", "repeats for ever while the provider limits its rate")
def _():
    repeat_for_ever("rate_limited")


@mutant("R-03", "repeats for ever while the provider fails")
def _():
    repeat_for_ever("provider_error")


@mutant("R-04", "repeats calls that are refused for the key, the bill or the quota")
def _():
    repeat_for_ever("rejected")


def repeat_for_ever(reason):
    call = Agent.call

    def persistent(self):
        while True:
            try:
                return call(self)
            except Failed as failed:
                if failed.reason != reason:
                    raise
                self.stop.wait(0.2)

    Agent.call = persistent


@mutant("R-05", "shortens the history and calls again for ever")
def _():
    def compact(self):
        self.session.messages = self.session.messages[:1]
        return True

    Agent.compact = compact
    agent.ATTEMPTS, agent.BACKOFF = FAR, 0


@mutant("R-07", "asks for a valid answer for ever")
def _():
    agent.REPAIRS = FAR
    without_turn_limit()


@mutant("X-06", "obeys the veto of the stop hook for ever")
def _():
    agent.VETOES = FAR
    without_turn_limit()


@mutant("N-02", "waits for ever for the model of a sub-agent")
def _():
    unbounded(lambda self: self.depth > 0)


@mutant("A-01", "reports success although the call that the task needed was declined")
def _():
    accepts = Agent.accepts

    def forgetful(self, answer):
        self.run.declined = []
        return accepts(self, answer)

    Agent.accepts = forgetful
