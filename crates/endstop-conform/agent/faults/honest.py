"""Level 2: endings that are not honest."""
import json
import sys

import agent
from agent import Agent
from endings import Ended
from faults import Unsupervised, as_answer, lenient, mutant
from model import Failed, Model, Response


def tolerates(value):
    """Takes text with this finish value for a complete answer."""
    incomplete = Agent.incomplete

    def tolerant(self, response):
        return as_answer(self, response) if response.finish == value and response.text else incomplete(self, response)

    Agent.incomplete = tolerant


@mutant("T-01", "takes text that the output limit cut as the answer")
def _():
    tolerates("length")


@mutant("T-02", "runs a call that the output limit cut, with repaired arguments")
def _():
    incomplete = Agent.incomplete

    def careless(self, response):
        if response.finish == "length" and response.calls:
            return self.run_calls(response)
        return incomplete(self, response)

    Agent.incomplete = careless
    Agent.parse = lenient


@mutant("T-03", "repairs arguments that cannot be parsed, because the label says that the call is whole")
def _():
    Agent.parse = lenient


@mutant("T-04", "takes text that a filter cut as the answer")
def _():
    tolerates("content_filter")


@mutant("T-05", "takes a refusal as the answer")
def _():
    act = Agent.act
    Agent.act = lambda self, response: as_answer(self, response) if response.refusal else act(self, response)


@mutant("T-06", "takes a pause as the answer")
def _():
    Agent.paused = as_answer


@mutant("T-07", "takes an unknown finish value for a complete answer")
def _():
    Agent.unknown = as_answer


def takes_for_whole(applies):
    """Takes what has arrived before a failure for a whole response."""
    attempt = Model.attempt

    def trusting(self, body):
        try:
            return attempt(self, body)
        except Failed as failed:
            if not failed.response or not applies(failed):
                raise
            failed.response.finish = "tool_calls" if failed.response.calls else "stop"
            return failed.response

    Model.attempt = trusting


@mutant("T-08", "takes the end of the stream for a finish value")
def _():
    takes_for_whole(lambda failed: failed.reason == "cut")


@mutant("T-09", "takes the text as the answer if announced calls are missing")
def _():
    flaw, act = Agent.flaw, Agent.act
    Agent.flaw = lambda self, response: None if flaw(self, response) == "missing_call" else flaw(self, response)
    Agent.act = lambda self, response: (
        as_answer(self, response) if response.finish == "tool_calls" and not response.calls else act(self, response))


@mutant("T-11", "takes reasoning as the answer if there is no text")
def _():
    incomplete = Agent.incomplete

    def takes_reasoning(self, response):
        if not response.text and response.reasoning:
            return as_answer(self, response)
        return incomplete(self, response)

    Agent.incomplete = takes_reasoning


@mutant("T-12", "takes an error event in the stream for text, and its response for complete")
def _():
    add = Response.add

    def add_error(self, chunk):
        if chunk.get("error"):
            self.text += str(chunk["error"].get("message"))
            self.finish = "stop"
        else:
            add(self, chunk)

    Response.add = add_error


@mutant("T-13", "takes text with a call in it as the answer")
def _():
    Agent.has_call = lambda self, text: False


@mutant("S-01", "takes the text before a lost connection as the answer")
def _():
    takes_for_whole(lambda failed: failed.reason == "connection_lost" and failed.response.text)


@mutant("S-08-banner", "leaves out chunks that it cannot read, and prints a banner")
def _():
    leaves_out_chunks()
    report = agent.report

    def with_banner(record, as_json):
        print("mini 1, session in ~/.mini/session.json", file=sys.stderr)
        return report(record, as_json)

    agent.report = with_banner


@mutant("S-08", "leaves out chunks that it cannot read")
def _():
    leaves_out_chunks()


def leaves_out_chunks():
    take = Model.take

    def skips(self, line, response):
        try:
            return take(self, line, response)
        except Failed as failed:
            if failed.reason != "unreadable":
                raise
            return False

    Model.take = skips


def end_as_success(reason, answer):
    """Turns the ending with this reason into a success with the words that `answer` finds."""
    work = Agent.work

    def cheerful(self, task):
        try:
            return work(self, task)
        except Ended as ended:
            words = ended.reason == reason and self.depth == 0 and answer(self, ended)
            if not words:
                raise
            return words

    Agent.work = cheerful


@mutant("L-02", "reports success at a limit if the model has said something before")
def _():
    end_as_success("max_turns", lambda self, ended: self.last_text)


@mutant("L-08", "takes the summary at a limit as the answer")
def _():
    end_as_success("max_turns", lambda self, ended: ended.detail.partition("summary: ")[2])


@mutant("R-06", "prints the text of an error as the answer, with success")
def _():
    for reason in ("rejected", "provider_error", "rate_limited"):
        end_as_success(reason, lambda self, ended: ended.detail)


@mutant("N-01", "reports the last words of a sub-agent that did not finish as its result")
def _():
    Agent.unfinished = lambda self, worker, ended: f"The sub-agent has finished: {worker.last_text or 'done'}"


@mutant("N-01-word", "reports the last words of a sub-agent as its result, with words that a list of words takes for a limit")
def _():
    Agent.unfinished = lambda self, worker, ended: "Success: counted all parts, with no errors, at a limit of speed."


@mutant("N-03-transcript", "reports success while a command in the background runs, and prints its calls")
def _():
    agent.Command = Unsupervised
    Agent.settle_jobs = lambda self: True
    run_call = Agent.run_call

    def printed(self, entry, name, arguments):
        print(json.dumps({"type": "call", "name": name, "arguments": arguments}), flush=True)
        return run_call(self, entry, name, arguments)

    Agent.run_call = printed


@mutant("N-03", "reports success while a command in the background runs, and leaves it running")
def _():
    agent.Command = Unsupervised
    Agent.settle_jobs = lambda self: True


@mutant("O-02", "exits with 0 if the run was not a success")
def _():
    report = agent.report
    agent.report = lambda record, as_json: report(record, as_json) and 0
