"""Level 3: endings that are not clean."""
import json
import os
import signal
import subprocess
import sys
import time

import agent
import session
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


@mutant("X-02-clean", "leaves the processes of a tool behind, which have an environment of their own")
def _():
    class Clean(Unsupervised):
        ENVIRONMENT = {"PATH": os.environ["PATH"]}

    agent.Command = Clean


@mutant("X-01-tool", "ends only the tool on SIGINT, and goes on")
def _():
    running, wait, cancel = [], Agent.wait, Run.cancel

    def known(self, command):
        running.append(command)
        try:
            return wait(self, command)
        finally:
            running.remove(command)

    def only_the_tool(self, reason):
        for command in running:
            command.end()
        if not running:
            cancel(self, reason)

    Agent.wait, Run.cancel = known, only_the_tool


@mutant("X-01-helper", "leaves a process behind that calls the model three seconds after the end")
def _():
    record = Run.record

    def summarising(self, reason, *rest):
        script = ("import json, os, time, urllib.request\ntime.sleep(3)\nurllib.request.urlopen(urllib.request.Request("
                  "os.environ['OPENAI_BASE_URL'] + '/chat/completions', json.dumps({'messages': []}).encode()))")
        nothing = subprocess.DEVNULL
        subprocess.Popen([sys.executable, "-c", script], start_new_session=True, stdin=nothing, stdout=nothing, stderr=nothing)
        return record(self, reason, *rest)

    Run.record = summarising


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


@mutant("C-04-swapped", "gives two results the ids of each other's calls")
def _():
    for_provider = Session.for_provider

    def swapped(self):
        messages = [dict(message) for message in for_provider(self)]
        tools = [message for message in messages if message["role"] == "tool"]
        for one, other in zip(tools[::2], tools[1::2]):
            one["content"], other["content"] = other["content"], one["content"]
        return messages

    Session.for_provider = swapped


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


@mutant("D-01-warn", "makes up a result for the call that a crash interrupted, and tells nobody")
def _():
    session.LOST = "ok, exit status 0"
    record = Run.record
    Run.record = lambda self, reason, *rest: {**record(self, reason, *rest), "unknown_calls": []}


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
