#!/usr/bin/env python3
"""A small agent that ends as `docs/src/spec/how-a-run-ends.md` asks.

Comments name the sentence that a line is for, if that is not obvious. `model.py` has a call and its bounds, `tools.py` the tools,
`supervise.py` the program that ends a command's processes, `session.py` the history, `endings.py` the list of reasons, and
`flags.py` the command line.
"""
import contextlib
import copy
import json
import os
import queue
import re
import select
import signal
import sys
import tempfile
import threading
import time

import flags
from endings import EXIT_STATUS, REASONS, Ended, Stop
from model import MAX_TOKENS, Failed, Ledger, Model, counted
from session import Session
from tools import TOOLS, Command, problem

ATTEMPTS = 4  # calls for one response, with those that failed or were blank
BACKOFF = 0.5  # seconds before the second attempt, doubled for each further one
COMPACTIONS = 2
INVALID_TURNS = 3  # turns in a row with calls that cannot be run
REPETITIONS = 5  # of a turn, or of a cycle of two or three turns, with the same results
PAUSES = 3
REPAIRS = 2  # of a structured answer
VETOES = 3
SUB_TURNS = 10  # the own limit of a sub-agent; sub-agents have no `task`, so that their depth is one
PERSON = 60  # seconds that a person has for a permission
GRACE = 1.5  # seconds that the work has to end after a stop

SYSTEM = "You are an agent. Use the tools to do the task, and answer when it is done."
COMPLETE = {"stop", "tool_calls", "function_call"}
INCOMPLETE = {"length": "output_limit", "content_filter": "filtered"}
# Calls that a server did not parse stand in the text.
CALL_MARKS = ("<tool_call", "<function_call", "<function=", "<invoke name=", "<TOOLCALL", "<|tool_call", "<|channel|>commentary",
              "[TOOL_CALLS]", "[TOOL_REQUEST]", "functools[", "```tool_code")
CALL_OBJECT = re.compile(r'"name"\s*:\s*"(%s)"' % "|".join(tool["function"]["name"] for tool in TOOLS))

CUT_CALL = "Not run: the arguments are not a JSON object; they may have been cut."
SUMMARISE = "This is the last turn. Say what is done and what is not. No tool can be called."
REMOVED = "[Earlier turns were removed because the conversation had become too long.]"


class Agent:
    """One conversation of a run: that of its task, or that of a sub-agent. It shares the run's limits, ledger and stop."""

    def __init__(self, run, session, depth=0):
        self.run, self.session, self.depth = run, session, depth
        self.model, self.stop, self.ledger = run.model, run.stop, run.ledger
        self.tools = [tool for tool in TOOLS if depth == 0 or tool["function"]["name"] != "task"]
        self.schema = run.schema if depth == 0 else None
        self.hook = run.options.stop_hook if depth == 0 else None
        self.jobs, self.turns, self.last_text = [], [], ""
        self.own_turns = self.invalid = self.pauses = self.repairs = self.vetoes = self.compactions = 0

    def work(self, task):
        """Returns the answer, or raises `Ended`. Either way nothing runs and the history is valid afterwards."""
        if task:
            self.session.say("user", task)
        try:
            while True:
                self.wrap_up()
                answer = self.act(self.respond())
                if answer is not None and self.accepts(answer):
                    return answer
        finally:
            self.end_jobs()
            self.session.close_calls("The run was stopped while this call ran. It was ended.")

    # Calls of the model

    def check_limits(self):
        """Before each call, so that a limit is exact and a whole answer in the last allowed turn counts (sentences 35 and 37)."""
        self.stop.check()
        limits, ledger = self.run.options, self.ledger
        if limits.budget is not None and ledger.spent >= limits.budget:
            raise Ended("budget", f"{ledger.spent:.6f} of {limits.budget:g} USD")
        if ledger.turns >= limits.max_turns:
            raise Ended("max_turns", f"{limits.max_turns} turns")
        if self.depth and self.own_turns >= SUB_TURNS:
            raise Ended("max_turns", f"{SUB_TURNS} turns of a sub-agent")

    def wrap_up(self):
        """Uses the last allowed turn for a summary, if that is wanted. It is not an answer (sentence 20), and no call more."""
        limits = self.run.options
        if limits.wrap_up and not self.depth and 0 < self.ledger.turns == limits.max_turns - 1:
            self.tools = []
            self.session.say("user", SUMMARISE)
            raise Ended("max_turns", f"{limits.max_turns} turns; summary: {self.respond().text}")

    def respond(self):
        """Returns a whole response that says something. Attempts and their pauses are bounded (sentences 2, 8, 16)."""
        for attempt in range(1, ATTEMPTS + 1):
            self.check_limits()
            self.collect_jobs()
            try:
                response = self.call()
                reason, detail = self.flaw(response), f"in {attempt} responses"
                if reason is None:
                    return response
            except Failed as failed:
                reason, detail = failed.reason, failed.detail
                if not self.may_repeat(failed):
                    raise Ended(reason, detail) from None
                if attempt < ATTEMPTS:
                    self.stop.wait(BACKOFF * 2 ** (attempt - 1) if failed.wait is None else failed.wait)
        raise Ended(reason, detail)

    def call(self):
        body = self.model.body([{"role": "system", "content": SYSTEM}] + self.session.for_provider(), self.tools, self.schema)
        try:
            response = self.model.attempt(body)
        except Failed as failed:
            if failed.response:
                self.charge(body, failed.response)  # what was sent before the loss may be billed
            raise
        self.ledger.turns += 1
        self.own_turns += 1
        self.charge(body, response)
        return response

    def charge(self, body, response):
        self.ledger.charge(body, response)
        self.session.write(used=self.run.used())

    def may_repeat(self, failed):
        return self.compact() if failed.reason == "context_too_long" else failed.repeat

    def compact(self):
        """Removes all but the task and the last turn; returns whether that made the history shorter (sentence 9)."""
        messages = self.session.messages
        turns = [index for index, message in enumerate(messages) if message["role"] == "assistant"]
        self.compactions += 1
        if self.compactions > COMPACTIONS or not turns:
            return False
        tail = [{**message, "content": message["content"][:2000]} if message["role"] == "tool" else message
                for message in messages[turns[-1]:]]
        shorter = [messages[0], {"role": "user", "content": REMOVED}] + tail
        if len(json.dumps(shorter)) >= len(json.dumps(messages)):
            return False
        self.session.messages = shorter
        return True

    def flaw(self, response):
        """Names what a complete response lacks to be one that can be used; the call is repeated then."""
        if response.finish not in COMPLETE or response.calls or response.refusal:
            return None
        if response.finish != "stop":
            return "missing_call"  # sentence 18
        return None if response.text.strip() else "blank"  # sentences 2 and 19

    # What a response means

    def act(self, response):
        """Returns the answer of a response, or None if the run continues."""
        finish, self.last_text = response.finish, response.text or self.last_text
        if response.refusal:
            raise Ended("refused", response.refusal[:300], finish)
        if finish in INCOMPLETE:
            return self.incomplete(response)
        if finish == "pause_turn":
            return self.paused(response)
        if finish not in COMPLETE:
            return self.unknown(response)
        if response.calls:
            return self.run_calls(response)
        if self.has_call(response.text):
            raise Ended("call_in_text", "the answer contains a call of a tool, which was not run", finish)  # sentence 18
        self.session.say("assistant", response.text)
        return response.text

    def incomplete(self, response):
        raise Ended(INCOMPLETE[response.finish], finish=response.finish)

    def unknown(self, response):
        raise Ended("unknown_finish", f"the provider's word is {response.finish[:80]!r}", response.finish)

    def paused(self, response):
        self.pauses += 1
        if self.pauses > PAUSES:
            raise Ended("paused", f"after {PAUSES} continuations", response.finish)
        if response.text:
            self.session.say("assistant", response.text)

    def has_call(self, text):
        return any(mark in text for mark in CALL_MARKS) or bool(CALL_OBJECT.search(text)) and '"arguments"' in text

    def accepts(self, answer):
        """Checks what has to hold for a success beyond a whole response; False continues the run."""
        if self.schema is not None:
            invalid = self.invalid_answer(answer)
            if invalid:
                self.repairs += 1
                if self.repairs > REPAIRS:
                    raise Ended("invalid_answer", f"after {REPAIRS} repairs: {invalid}")
                self.session.say("user", f"The answer must be JSON that matches the schema: {invalid}.")
                return False
        if not self.settle_jobs():
            return False
        if self.hook and not self.hook_accepts(answer):
            return False
        if self.run.declined:
            # Sentence 13: the model may think that it is done without what was declined; the task needed it.
            raise Ended("permission_declined", ", ".join(self.run.declined))
        return True

    def invalid_answer(self, answer):
        try:
            return problem(json.loads(answer), self.schema)
        except (ValueError, RecursionError) as error:
            return str(error)

    def hook_accepts(self, answer):
        """Runs the stop hook with the answer as its input; exit status 2 vetoes the stop, a bounded number of times."""
        with tempfile.TemporaryFile() as words:
            words.write(answer.encode("utf-8", "replace"))
            words.seek(0)
            hook = Command(self.hook, stdin=words)
            if not self.wait(hook):
                raise Ended("stop_hook", "the hook did not end in time")
        if hook.process.returncode != 2:
            return True
        self.vetoes += 1
        if self.vetoes > VETOES:
            raise Ended("stop_hook", f"vetoed {self.vetoes} times")
        self.session.say("user", "The stop hook does not accept the answer: " + hook.output())
        return False

    # Calls of tools

    def run_calls(self, response):
        calls = [self.parse(call) for call in response.calls]
        if any(arguments is None for _, _, arguments in calls) and self.at_cap(response):
            # Sentence 17: the label says `tool_calls`, and the output ended at its cap: the arguments were cut.
            raise Ended("output_limit", "a call was cut at the output cap", response.finish)
        entries = self.enter(response, calls)
        answer, turn, failures = None, [], 0
        for (_, name, arguments), entry in zip(calls, entries):
            invalid = self.invalid_call(name, arguments)
            if invalid:
                result, failures = invalid, failures + 1
            elif answer is not None:
                result = "Not run: the run has an answer."
            else:
                result = self.run_call(entry, name, arguments)
                answer = arguments["answer"] if name == "finish" else None
            self.answer_call(entry, result)
            turn.append((name, json.dumps(arguments), result))
        self.invalid = self.invalid + 1 if failures else 0
        if self.invalid >= INVALID_TURNS:
            raise Ended("invalid_calls", f"in {self.invalid} turns in a row")
        self.watch(turn)
        return answer

    def parse(self, call):
        try:
            arguments = json.loads(call["arguments"] or "{}")
        except (ValueError, RecursionError):
            arguments = None
        return call["id"], call["name"], arguments if isinstance(arguments, dict) else None

    def at_cap(self, response):
        counts = counted(response.usage)
        return counts is not None and counts[1] >= MAX_TOKENS

    def enter(self, response, calls):
        """Records the calls under ids that are theirs alone, so that no result reaches another call (sentence 30)."""
        taken, entries = self.session.ids(), []
        for number, (identity, name, arguments) in enumerate(calls):
            while not identity or identity in taken:
                identity = f"{identity or 'call'}_{len(taken) + number}"
            taken.add(identity)
            # A provider may refuse a history with arguments that are not JSON.
            function = {"name": name, "arguments": json.dumps(arguments or {})}
            entries.append({"id": identity, "type": "function", "function": function})
        self.session.say("assistant", response.text or None, tool_calls=entries)
        return [entry["id"] for entry in entries]

    def invalid_call(self, name, arguments):
        found = [tool["function"]["parameters"] for tool in self.tools if tool["function"]["name"] == name]
        if not found:
            return f"Not run: there is no tool `{name[:80]}`."
        if arguments is None:
            return CUT_CALL
        invalid = problem(arguments, found[0], "the call")
        if not invalid and name == "finish" and not arguments["answer"].strip():
            invalid = "the answer must not be blank"  # sentence 2
        return invalid and f"Not run: {invalid}."

    def run_call(self, entry, name, arguments):
        self.stop.check()  # a call that arrives after the stop is not started (sentence 28)
        self.session.start(entry)
        try:
            return getattr(self, f"tool_{name}")(**arguments)
        except (OSError, ValueError) as error:
            return f"error: {error}"

    def answer_call(self, entry, result):
        self.session.say("tool", result, tool_call_id=entry)

    def watch(self, turn):
        """Ends a run that repeats itself. The results belong to the turn: a poll whose result changes makes progress."""
        self.turns = (self.turns + [turn])[-3 * REPETITIONS:]
        for period in (1, 2, 3):
            recent = self.turns[-period * REPETITIONS:]
            if len(recent) == period * REPETITIONS and recent[period:] == recent[:-period]:
                raise Ended("loop", f"{REPETITIONS} times the same {period} turns")

    def tool_shell(self, command, background=False):
        if background:
            self.jobs.append(Command(command))
            return "Started in the background. Its output arrives when it has ended."
        running = Command(command)
        ended = self.wait(running)
        return running.result() if ended else f"{running.output()}\nerror: ended after {self.run.options.tool_time:g} s."

    def wait(self, command):
        """Waits for a command within its time; it has ended afterwards in any case (sentences 7, 27 and 35)."""
        try:
            with self.stop.waking(command.end):
                return command.wait(self.run.options.tool_time)
        finally:
            command.end()
            command.wait(2)

    def tool_task(self, prompt):
        worker = Agent(self.run, Session(), self.depth + 1)
        try:
            return worker.work(prompt)
        except Ended as ended:
            self.check_limits()  # what ends the run ends the parent as well
            return self.unfinished(worker, ended)

    def unfinished(self, worker, ended):
        return f"The sub-agent did not finish: {ended}. Its last words, which are not a result: {worker.last_text or '(none)'}"

    def tool_finish(self, answer):
        return "The run ends with this answer."

    def tool_deploy(self, target):
        if not self.permitted(f"Deploy to {target!r}?"):
            self.run.declined.append(f"deploy {target}")
            return "Declined: this needs the permission of a person, and no person gave it. Do not try again."
        with open("deployed", "a", encoding="utf-8") as deployed:
            deployed.write(target + "\n")
        return "Deployed."

    def permitted(self, question):
        """Asks the person at the terminal, if there is one, and does not wait for ever (sentence 13)."""
        if not sys.stdin or not sys.stdin.isatty():
            return False
        print(f"{question} [y/N] ", end="", file=sys.stderr, flush=True)
        until = time.monotonic() + PERSON
        while time.monotonic() < until:
            if select.select([sys.stdin], [], [], 0.2)[0]:
                return sys.stdin.readline().strip().lower() == "y"
            self.stop.check()
        return False

    # Commands in the background

    def collect_jobs(self):
        """Hands the output of jobs that have ended to the model."""
        for job in [job for job in self.jobs if job.wait(0)]:
            self.jobs.remove(job)
            self.session.say("user", f"The background command `{job.text}` has ended:\n{job.result()}")

    def settle_jobs(self):
        """Returns whether no command of the run is left. An answer that was given before their end is asked for again (sentence 23)."""
        if not self.jobs:
            return True
        with contextlib.ExitStack() as waking:
            for job in self.jobs:
                waking.enter_context(self.stop.waking(job.end))
            until = time.monotonic() + self.run.options.tool_time
            late = [job.text for job in self.jobs if not job.wait(max(0, until - time.monotonic()))]
        if late:
            self.run.open += late
            raise Ended("unfinished_work", f"ended after {self.run.options.tool_time:g} s: {', '.join(late)}")
        return False

    def end_jobs(self):
        for job in self.jobs:
            job.end()
        for job in self.jobs:
            job.wait(2)


class Run:
    """A run with its limits, from the task to the one final record."""

    def __init__(self, options, session=None):
        self.options = options = copy.copy(options)
        self.session = session or Session(options.resume)
        limits = ("max_turns", "budget", "price", "max_time")
        for name in limits:  # limits hold over a crash: those of the session count unless others are given
            if getattr(options, name) is None:
                setattr(options, name, self.session.limits.get(name))
        self.session.write(limits={name: getattr(options, name) for name in limits})
        if options.max_turns is None:
            options.max_turns = flags.DEFAULT_TURNS
        if options.budget is not None and options.price is None:
            raise ValueError("invalid --budget: a budget needs prices; set --price, for example 3,15,0.3,3.75")
        self.schema = flags.read_schema(options.schema) if options.schema else None
        self.stop, self.ledger = Stop(), Ledger(options.price)
        self.model = Model(options.silence, self.stop)
        self.started = time.monotonic()
        self.earlier = self.session.used.get("seconds", 0)
        if self.session.used:
            self.ledger.load(self.session.used)
        self.open, self.declined, self.unknown = [], [], self.session.unknown
        self.events = queue.SimpleQueue()  # `put` is safe in a signal handler

    def cancel(self, reason):
        self.events.put(reason)

    def used(self):
        return {**self.ledger.dump(), "seconds": self.earlier + time.monotonic() - self.started}

    def perform(self, task):
        """Works on the task, and returns the final record. The work has a thread of its own, so that nothing it does can delay
        a stop or the limit of time; the first event decides, and its consequences do not (sentences 26, 34 and 35)."""
        outcome = []

        def work():
            try:
                outcome.append(("answered", "", None, Agent(self, self.session).work(task)))
            except Ended as ended:
                outcome.append((ended.reason, ended.detail, ended.finish, None))
            except Exception as error:  # a fault of this program is an ending, too
                outcome.append(("internal_error", f"{type(error).__name__}: {error}", None, None))
            self.events.put("done")

        worker = threading.Thread(target=work, daemon=True)
        worker.start()
        try:
            left = None if self.options.max_time is None else max(0, self.options.max_time - self.earlier)
            event = self.events.get(timeout=left)
        except queue.Empty:
            event = "max_time"
        if event != "done":
            self.stop.request(event)
            worker.join(GRACE)
            return self.record(event)
        return self.record(*outcome[0])

    def record(self, reason, detail="", finish=None, answer=None):
        """The final record. A cost that is not known is null, and the estimate stands next to it (sentence 38)."""
        ledger = self.ledger
        return {"type": "result", "status": REASONS[reason], "reason": reason, "detail": detail, "answer": answer, "finish": finish,
                "turns": ledger.turns, "usage": ledger.tokens, "cost_usd": ledger.spent if ledger.known else None,
                "estimated_usd": ledger.spent if ledger.price else None, "open": self.open, "declined": self.declined,
                "unknown_calls": self.unknown}


def main(arguments=None):
    parser, options = flags.parse(arguments)
    try:
        run = Run(options)
        last = run.session.messages[-1:]
        if not options.task and (not last or last[0]["role"] == "assistant"):
            raise ValueError(f"nothing to resume: the run in {options.resume} has ended; add a TASK")
    except (OSError, ValueError) as error:
        parser.error(str(error))
    for number, reason in ((signal.SIGINT, "interrupted"), (signal.SIGTERM, "terminated")):
        signal.signal(number, lambda *_, reason=reason: run.cancel(reason))
    return report(run.perform(options.task), options.json)


def report(record, as_json):
    """Writes the verdict once; the record, the words and the exit status are made from one reason (sentence 24)."""
    sys.stdout.reconfigure(errors="backslashreplace")  # a model can send half of a character
    try:
        if as_json:
            print(json.dumps(record), flush=True)
        elif record["status"] == "success":
            print(record["answer"], flush=True)  # text of an error is never here (sentence 21)
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)  # so that the interpreter does not report it at its exit
        return 1
    if record["status"] != "success":
        # The words of a provider must not control the terminal.
        detail = "".join(each if each.isprintable() else " " for each in record["detail"])
        print(f"ended: {record['reason']}" + (f" ({detail})" if detail else ""), file=sys.stderr)
    for call in record["unknown_calls"]:
        print(f"call {call} had started before the crash; its result is not known, and it was not repeated", file=sys.stderr)
    return EXIT_STATUS.get(record["reason"], 1)


if __name__ == "__main__":
    sys.exit(main())
