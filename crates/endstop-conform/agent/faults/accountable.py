"""Level 4: endings that are not accountable."""
import json
import socket

import agent
import model
from agent import Agent, Run
from faults import FAR, mutant
from model import Failed, Ledger, Model


@mutant("L-01", "makes one call more than the limit of turns allows")
def _():
    check = Agent.check_limits

    def generous(self):
        self.run.options.max_turns += 1
        try:
            check(self)
        finally:
            self.run.options.max_turns -= 1

    Agent.check_limits = generous


@mutant("L-01-warn", "has one word for each ending that is not a success")
def _():
    record = Run.record

    def one_word(self, reason, *rest):
        made = record(self, reason, *rest)
        return made if reason == "answered" else {**made, "reason": "stopped"}

    Run.record = one_word
    agent.EXIT_STATUS = {"answered": 0}


@mutant("L-03", "looks at the budget in every fifth turn only")
def _():
    check = Agent.check_limits

    def seldom(self):
        budget = self.run.options.budget
        self.run.options.budget = budget if self.ledger.turns % 5 == 0 else None
        try:
            check(self)
        finally:
            self.run.options.budget = budget

    Agent.check_limits = seldom


@mutant("L-03-own-prices-warn", "reports a cost at prices of its own, and keeps the limit by those of the caller")
def _():
    record = Run.record

    def at_own_prices(self, reason, *rest):
        return {**record(self, reason, *rest), "cost_usd": 0.01}

    Run.record = at_own_prices


@mutant("L-04", "counts tokens that are read from the cache or written to it as free")
def _():
    cost = Ledger.cost
    Ledger.cost = lambda self, prompt, output, read, write: cost(self, prompt - read - write, output, 0, 0)


@mutant("L-05", "takes a call without usage for free")
def _():
    model.CHARACTERS_PER_TOKEN = FAR


@mutant("L-06", "looks at the time only between turns")
def _():
    agent.GRACE = FAR
    Agent.wait = lambda self, command: command.wait(self.run.options.tool_time)


@mutant("L-07", "writes a final record for each limit that is reached, and not for the one that decided")
def _():
    record = Run.record

    def each_limit(self, reason, *rest):
        if reason == "budget" and self.ledger.turns >= self.options.max_turns:
            print(json.dumps(record(self, "max_turns")))
        return record(self, reason, *rest)

    Run.record = each_limit


@mutant("L-09", "reports a limit although the last allowed turn had a whole answer")
def _():
    accepts = Agent.accepts

    def strict(self, answer):
        done = accepts(self, answer)
        self.check_limits()
        return done

    Agent.accepts = strict


@mutant("S-05", "gives a response up after 30 seconds of silence")
def _():
    init = Model.__init__
    Model.__init__ = lambda self, silence, *rest: init(self, min(silence, 30), *rest)


@mutant("S-07", "waits for the end of the connection after the finish value, and then repeats the call")
def _():
    read = Model.read

    def whole(self, reply, sock, response):
        read(self, reply, sock, response)
        sock.settimeout(5)
        try:
            reply.read()
        except socket.timeout:
            raise Failed("connection_lost", "the connection did not end", repeat=True) from None

    Model.read = whole


@mutant("C-03", "ends a run whose calls repeat, whatever their results are")
def _():
    watch = Agent.watch
    Agent.watch = lambda self, turn: watch(self, [(name, arguments) for name, arguments, _ in turn])


@mutant("R-01", "does not wait as long as the provider asks")
def _():
    model.pause = lambda retry_after: 0.0


@mutant("N-04", "does not count the work of sub-agents")
def _():
    init = Agent.__init__

    def apart(self, run, session, depth=0):
        init(self, run, session, depth)
        if depth:
            self.ledger = Ledger(run.ledger.price)

    Agent.__init__ = apart


@mutant("O-01-no-usage", "has a word in place of the usage")
def _():
    record = Run.record
    Run.record = lambda self, reason, *rest: {**record(self, reason, *rest), "usage": "?"}


@mutant("O-01", "writes a line after the final record")
def _():
    report = agent.report

    def talkative(record, as_json):
        status = report(record, as_json)
        print("Goodbye!")
        return status

    agent.report = talkative
