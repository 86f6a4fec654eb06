"""Level 3: endings that are not clean."""
import json
import os
import signal
import time

import agent
from agent import Agent, Run
from endings import Stop
from faults import FAR, Unsupervised, mutant, repaired
from model import Failed, Model
from session import Session
from tools import Command


def deaf():
    """Notices a stop after the response, and not while one arrives."""
    exchange = Model.exchange

    def undisturbed(self, body, response):
        stop, self.stop = self.stop, Stop()
        try:
            exchange(self, body, response)
        finally:
            self.stop = stop

    Model.exchange = undisturbed
    agent.GRACE = FAR


@mutant("X-01", "notices SIGINT only when the response has ended")
def _():
    deaf()


@mutant("X-04", "runs the calls of a response that arrives after the stop")
def _():
    deaf()
    run_call = Agent.run_call

    def busy(self, entry, name, arguments):
        self.stop, stop = Stop(), self.stop
        try:
            return run_call(self, entry, name, arguments)
        finally:
            self.stop = stop

    Agent.run_call = busy


@mutant("X-02", "leaves the processes of a tool behind when it is interrupted")
def _():
    agent.Command = Unsupervised


@mutant("X-03", "ends the processes of a tool only if it can: after SIGKILL they remain")
def _():
    class Group(Unsupervised):
        def end(self):
            try:
                os.killpg(self.process.pid, signal.SIGKILL)
            except OSError:
                pass

    agent.Command = Group


@mutant("X-05", "leaves the calls that a stop interrupted without results")
def _():
    Session.close_calls = lambda self, started: None


@mutant("X-07", "sleeps through a pause before the next attempt, whatever happens in it")
def _():
    def asleep(self, seconds):
        time.sleep(seconds)
        self.check()

    Stop.wait = asleep
    agent.GRACE = FAR


@mutant("C-04", "leaves a failed call without a result")
def _():
    answer_call = Agent.answer_call
    Agent.answer_call = lambda self, entry, result: (
        None if "[exit status" in result else answer_call(self, entry, result))


@mutant("C-07", "keeps calls by their ids: of two with one id only the last is run")
def _():
    run_calls = Agent.run_calls

    def by_id(self, response):
        response.calls = list({call["id"]: call for call in response.calls}.values())
        return run_calls(self, response)

    Agent.run_calls = by_id


@mutant("S-02", "runs the calls that arrived before the connection was lost, and then repeats the request")
def _():
    attempt = Model.attempt

    def eager(self, body):
        try:
            return attempt(self, body)
        except Failed as failed:
            for call in failed.response.calls if failed.response else []:
                arguments = repaired(call["arguments"])
                if isinstance(arguments, dict) and isinstance(arguments.get("command"), str):
                    Command(arguments["command"]).wait(5)
            raise

    Model.attempt = eager


@mutant("D-01", "runs the calls again that a crash interrupted")
def _():
    perform = Run.perform

    def repeating(self, task):
        entries = {call["id"]: call for message in self.session.messages for call in message.get("tool_calls", [])}
        for entry in self.session.unknown:
            Command(json.loads(entries[entry]["function"]["arguments"]).get("command", "")).wait(5)
        self.unknown = []
        return perform(self, task)

    Run.perform = repeating
