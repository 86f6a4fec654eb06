#!/usr/bin/env python3
"""Two `endstop serve --restate` over a real Restate server: the API from any of them, also under kills.

    cargo build -p endstop-restate --features engine --example chaos_worker
    cargo build -p endstop-cli --features restate,otlp
    python3 bench/restate/serve.py LAB --worker target/debug/examples/chaos_worker --endstop target/debug/endstop

The last part, alone with `--only-spans`, receives the spans of an `endstop worker` that is killed. It needs the Python
package `opentelemetry-proto`.

LAB is a folder for the Restate server, which is installed from npm, and for the data. Without npm, or if it
cannot be installed, the script prints a notice and ends with status 0. Everything listens on loopback. A
check that fails ends with status 1.
"""
import argparse
import collections
import concurrent.futures
import http.client
import json
import os
import pathlib
import random
import signal
import subprocess
import sys
import threading
import time

import run as durable

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "deploy"))
import monitoring

AGENTS = """model = "openai/script"
[agents.steps]
limits = { max_turns = 1000 }
[agents.asks]
limits = { max_turns = 1000 }
"""
FAILED = []


def check(name, good, detail=""):
    print(f"{'good' if good else 'FAILED'}  {name}" + (f"  {detail}" if detail or not good else ""), flush=True)
    if not good:
        FAILED.append(name)


class Serve:
    """One `endstop serve --restate`, which can be killed and started again."""

    def __init__(self, lab, endstop, name):
        self.lab, self.endstop, self.name = lab, endstop, name
        self.port = durable.free_port()
        self.config = lab.folder / "serve.toml"
        self.config.write_text(AGENTS)
        self.process = None

    def start(self):
        log = open(self.lab.folder / f"serve-{self.name}.log", "a")
        command = [
            self.endstop, "serve", "--listen", f"127.0.0.1:{self.port}", "--config", self.config,
            "--restate", f"http://127.0.0.1:{self.lab.ports['ingress']}", "--store", self.lab.folder / "store",
        ]
        environment = {name: value for name, value in os.environ.items() if not name.startswith("ENDSTOP_")}
        environment["HOME"] = str(self.lab.folder)
        self.process = subprocess.Popen(command, cwd=self.lab.folder, stdout=log, stderr=log, env=environment)
        end = time.time() + 60
        while True:
            try:
                if durable.request(self.port, "GET", "/v1/agents", timeout=5)[0] == 200:
                    return
            except (OSError, http.client.HTTPException):
                pass
            if time.time() > end or self.process.poll() is not None:
                sys.exit((self.lab.folder / f"serve-{self.name}.log").read_text()[-2000:])
            time.sleep(0.05)

    def kill(self):
        self.process.kill()
        self.process.wait()

    def ask(self, method, path, body=None, key=None, timeout=60):
        """Returns the status, the headers and the JSON of the answer."""
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=timeout)
        try:
            headers = dict(durable.JSON) if body is not None else {}
            if key:
                headers["Idempotency-Key"] = key
            connection.request(method, path, None if body is None else json.dumps(body), headers)
            answer = connection.getresponse()
            text = answer.read()
            return answer.status, answer.headers, json.loads(text) if text[:1] in (b"{", b"[") else text
        finally:
            connection.close()

    def begin(self, agent, key=None, **script):
        return self.ask("POST", "/v1/runs", {"agent": agent, "task": json.dumps(script)}, key)

    def get(self, run):
        return self.ask("GET", f"/v1/runs/{run}")[2]

    def events(self, run, after=0, until=None, timeout=120):
        """Reads numbered events until the stream ends, or until one of this kind."""
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=timeout)
        events = []
        try:
            connection.request("GET", f"/v1/runs/{run}/events", headers={"Last-Event-ID": str(after)})
            answer = connection.getresponse()
            event = {}
            while line := answer.readline():
                line = line.decode().rstrip("\n")
                name, _, value = line.partition(": ")
                if name in ("id", "event", "data"):
                    event[name] = value
                elif not line and "data" in event:
                    events.append((int(event["id"]), event["event"], json.loads(event["data"])))
                    if until and event["event"] == until:
                        break
                    event = {}
        except (OSError, http.client.HTTPException):
            pass  # The server was killed; the caller connects again.
        finally:
            connection.close()
        return events


def until(what, test, seconds=60):
    end = time.time() + seconds
    while time.time() < end:
        try:
            if value := test():
                return value
        except (OSError, http.client.HTTPException):
            pass
        time.sleep(0.05)
    check(what, False, f"not within {seconds} s")
    return None


def api(lab, one, other):
    """The operations, each from another server than the one before."""
    status, _, run = one.begin("steps", "k1", steps=3, ms=20, bytes=30_000)
    check("a run is started", status == 201, run)
    status, headers, again = other.begin("steps", "k1", steps=3, ms=20, bytes=30_000)
    same = status == 200 and again["run_id"] == run["run_id"] and headers["Idempotent-Replayed"] == "true"
    check("another server knows its key", same, again)
    status, _, answer = other.begin("steps", "k1", steps=4)
    check("the key of another request is refused", status == 422 and answer["error"]["code"] == "key_reused")
    events = other.events(run["run_id"])
    numbers = [number for number, _, _ in events]
    check("events are complete", numbers == list(range(1, len(events) + 1)) and events[-1][1] == "finished", len(events))
    middle = len(events) // 2
    check("events resume at another server", one.events(run["run_id"], middle) == events[middle:])
    shown = one.get(run["run_id"])
    check("the outcome is there", shown["state"] == "ended" and shown["outcome"]["termination"] == "stop", shown["evidence"])
    status, _, _ = one.ask("GET", f"/v1/runs/{run['run_id']}/events?after={len(events)}")
    check("nothing follows the end", status == 204, status)

    for how, ending in (("cancel", "cancelled"), ("terminate", "terminated")):
        run = one.begin("steps", steps=1, ms=60_000)[2]["run_id"]
        other.events(run, until="tool_started")
        began = time.time()
        status, _, shown = other.ask("POST", f"/v1/runs/{run}/{how}", {})
        check(f"{how} is accepted", status == 202 and shown["stopping"], shown)
        last = one.events(run)[-1][2]
        took = time.time() - began
        check(f"{how} ends the run within a step", last["outcome"]["termination"] == ending and took < 30, f"{took:.2f} s")
        check(f"a second {how} changes nothing", one.ask("POST", f"/v1/runs/{run}/{how}", {})[0] == 200)

    run = one.begin("asks", steps=1, ms=1)[2]["run_id"]
    asked = other.events(run, until="approval_requested")[-1][2]
    parked = until("the run is parked", lambda: (shown := one.get(run))["state"] == "parked" and shown)
    check("a run that asks is parked", parked and parked["approvals"] == 1)
    body = {"request_id": asked["request_id"], "decision": "allow"}
    status, _, _ = other.ask("POST", f"/v1/runs/{run}/answer", body)
    check("the answer is accepted", status == 200, status)
    ended = one.events(run)[-1][2]
    check("the answered run ends", ended["outcome"]["termination"] == "stop", ended["outcome"]["termination"])
    check("a late answer is refused", one.ask("POST", f"/v1/runs/{run}/answer", body)[0] == 409)

    letters(lab, one, other)
    arguments(lab, one, other)
    branches(lab, one, other)

    call = {
        "jsonrpc": "2.0", "id": 1, "method": "SendMessage",
        "params": {"message": {"messageId": "m1", "role": "ROLE_USER", "parts": [{"text": '{"steps": 1}'}]}},
    }
    task = other.ask("POST", "/a2a/steps", call)[2]["result"]["task"]
    check("A2A: the task is completed", task["status"]["state"] == "TASK_STATE_COMPLETED", task["status"])
    call = {"jsonrpc": "2.0", "id": 2, "method": "GetTask", "params": {"id": task["id"]}}
    check("A2A: another server has it", one.ask("POST", "/a2a/steps", call)[2]["result"]["id"] == task["id"])

    runs = one.ask("GET", "/v1/runs?limit=2")[2]
    older = other.ask("GET", f"/v1/runs?limit=2&before={runs['next']}")[2]
    ids = [run["run_id"] for run in runs["runs"] + older["runs"]]
    check("pages of the list follow each other", len(set(ids)) == 4, ids)
    listed = other.ask("GET", "/v1/runs?category=success&state=ended")[2]["runs"]
    check("the list is filtered", listed and all(run["termination"] == "stop" for run in listed), len(listed))
    metrics = one.ask("GET", "/metrics")[2].decode()
    check("metrics count the store", 'runs_ended_total{agent="steps",termination="cancelled"} 1' in metrics)
    check("the page is served", b"<html" in one.ask("GET", "/")[2].lower())


def letters(lab, one, other):
    """Messages and limits of a run that works, whose workers are killed."""
    run = one.begin("steps", steps=20, ms=1_500)[2]["run_id"]
    early = other.ask("POST", f"/v1/runs/{run}/say", {"text": "Too early."})[0]
    check("a message before the first step is refused or taken", early in (202, 503), early)
    other.events(run, until="tool_started")
    began = time.time()
    status = other.ask("POST", f"/v1/runs/{run}/say", {"text": "Only the tests."})[0]
    check("a message is taken within a step", status == 202, f"{time.time() - began:.2f} s")
    began = time.time()
    status = one.ask("POST", f"/v1/runs/{run}/limits", {"limits": {"max_turns": 4}})[0]
    check("a lower limit is taken within a step", status == 202, f"{time.time() - began:.2f} s")
    status, _, answer = other.ask("POST", f"/v1/runs/{run}/limits", {"limits": {"max_turns": 5}})
    check("a higher limit is refused", status == 422 and "max_turns" in answer["error"]["message"], answer)
    status = other.ask("POST", f"/v1/runs/{run}/say", {"text": "  "})[0]
    check("a blank message is refused", status == 422, status)
    for number in range(len(lab.workers)):
        lab.kill_worker(number)
    # Sent while no worker may be there: the engine has it until one is.
    status = one.ask("POST", f"/v1/runs/{run}/say", {"text": "After the kill."})[0]
    check("a message is taken during a kill", status == 202, status)
    events = one.events(run)
    outcome = events[-1][2]["outcome"]
    check("the lower limit outlives the workers", outcome["termination"] == "error_max_turns" and outcome["turns"] == 4, outcome["termination"])
    texts = [event["text"] for _, kind, event in events if kind == "message_injected"]
    check("each message is read once", sorted(text for text in texts if "early" not in text) == ["After the kill.", "Only the tests."], texts)
    status = other.ask("POST", f"/v1/runs/{run}/say", {"text": "Too late."})[0]
    check("a message to an ended run is refused", status == 409, status)

    run = one.begin("asks", steps=1, ms=1)[2]["run_id"]
    other.events(run, until="approval_requested")
    until("the run is parked", lambda: one.get(run)["state"] == "parked")
    status, _, answer = other.ask("POST", f"/v1/runs/{run}/say", {"text": "Hello?"})
    check("a message to a parked run is refused", status == 409 and answer["error"]["code"] == "parked", answer)
    one.ask("POST", f"/v1/runs/{run}/cancel", {})
    one.events(run)


def begun(lab, run):
    """The numbers of the calls of the tool that a run has started, in their order."""
    return [number for _, _, what, of, number in lab.lines() if (what, of) == ("begin", run)]


def arguments(lab, one, other):
    """Approvals with other arguments, and workers that are killed right after the answer."""
    for dies in (False, True):
        when = "while workers die" if dies else "calmly"
        run = one.begin("asks", steps=1, ms=300)[2]["run_id"]
        asked = other.events(run, until="approval_requested")[-1][2]
        until("the run is parked", lambda: one.get(run)["state"] == "parked")
        body = {"request_id": asked["request_id"], "decision": "allow", "arguments": {"number": 70, "deep": [[{"x": "}"}]]}}
        status, _, answer = other.ask("POST", f"/v1/runs/{run}/answer", body)
        check(f"arguments, {when}: the answer is accepted", status == 200, answer)
        if dies:
            for number in range(len(lab.workers)):
                lab.kill_worker(number)
        status, _, answer = one.ask("POST", f"/v1/runs/{run}/answer", {**body, "arguments": {"number": 71}})
        check(f"arguments, {when}: only the first answer counts", status == 409, status)
        events = one.events(run)
        ended = events[-1][2]["outcome"]["termination"]
        changed = [event for _, kind, event in events if kind == "tool_call_changed"]
        good = len(changed) == 1 and json.loads(changed[0]["after"])["number"] == 70
        check(f"arguments, {when}: the change is an event", good and ended == "stop", (ended, changed))
        # A call that had started when its worker died is not repeated.
        calls = begun(lab, run)
        check(f"arguments, {when}: the call runs once, with them", calls == ["70"] or (dies and not calls), calls)
        decided = [event for _, kind, event in events if kind == "decided"]
        check(f"arguments, {when}: the decision is an event", len(decided) == 1 and "approve_changed" in decided[0]["decision"], decided)


def branches(lab, one, other):
    """Branches of runs that have ended and that work, also while workers die."""
    first = one.begin("steps", steps=6, ms=10, bytes=9_000)[2]["run_id"]
    one.events(first)
    at = {"turn": 3, "message": "Mind the tests.", "limits": {"max_turns": 100}}
    path = f"/v1/runs/{first}/branch"
    status, headers, made = other.ask("POST", path, at, "b1")
    branch = made["run_id"]
    check("branch: it is a run", status == 201 and headers["Location"] == f"/v1/runs/{branch}", made)
    check("branch: it names its place", made["branched_from"] == {"run_id": first, "turn": 3}, made.get("branched_from"))
    status, headers, again = one.ask("POST", path, at, "b1")
    check("branch: another server knows its key", status == 200 and again["run_id"] == branch, again)
    status, _, answer = one.ask("POST", path, {**at, "turn": 2}, "b1")
    check("branch: the key of another branch is refused", status == 422 and answer["error"]["code"] == "key_reused", answer)
    events = other.events(branch)
    outcome = events[-1][2]["outcome"]
    from_ = outcome["branched_from"]
    check("branch: the outcome", outcome["termination"] == "stop" and (from_["run_id"], from_["turn"]) == (first, 3), from_)
    check("branch: no call of the other run is repeated", begun(lab, branch) == ["3", "4", "5"], begun(lab, branch))
    check("branch: it pays for itself only", outcome["turns"] == 4 and from_["cost_usd"] > 0, outcome["turns"])
    check("branch: the other run is unchanged", one.get(first)["outcome"]["turns"] == 7)
    for what, body, says in (
        ("a turn that is not there", {"turn": 99}, "no complete turn 99"),
        ("its answer without a message", {"turn": 7}, "set `message`"),
        ("a blank message", {"turn": 1, "message": " "}, "is blank"),
        ("a higher limit", {"turn": 1, "limits": {"max_turns": 1001}}, "max_turns"),
    ):
        status, _, answer = one.ask("POST", path, body)
        check(f"branch: {what} is refused", status == 422 and says in answer["error"]["message"], answer)
    for run in ("unknown", "..%2f..%2findex", "%2e%2e"):
        status, _, _ = one.ask("POST", f"/v1/runs/{run}/branch", {"turn": 0})
        check(f"branch: there is no run {run}", status == 404, status)

    # By hand at the engine, which has no tokens: an agent does not get the conversation of another one.
    for name, agent, run in (("another-agent", "asks", first), ("a-path", "steps", "../index"), ("itself", "steps", "itself")):
        body = {"agent": agent, "task": '{"steps": 1}', "origin": {"run": run, "turn": 1}}
        _, report = durable.patiently(lab.ports["ingress"], "POST", f"/EndstopLedger/{name}/start", body)
        good = report["termination"] == "error_during_execution" and "origin" in report["outcome"]["decided_by"]["evidence"]
        check(f"branch: {name} is refused by the worker", good, report["outcome"]["decided_by"])

    # A run that works, a branch of it, and a branch of the branch, whose workers die several times.
    works = one.begin("steps", steps=8, ms=700)[2]["run_id"]
    seen = 0
    while seen < 3:
        seen = sum(kind == "tool_finished" for _, kind, _ in one.events(works, until="tool_finished"))
        seen = max(seen, one.get(works)["turns"] or 0)
        time.sleep(0.05)
    status, _, made = other.ask("POST", f"/v1/runs/{works}/branch", {"turn": 2, "message": "In another way."})
    check("branch: of a run that works", status == 201, made)
    for _ in range(3):
        time.sleep(0.8)
        for number in range(len(lab.workers)):
            lab.kill_worker(number)
    events = one.events(made["run_id"])
    outcome = events[-1][2]["outcome"]
    numbers = [number for number, _, _ in events]
    good = outcome["termination"] == "stop" and outcome["branched_from"]["run_id"] == works and numbers == list(range(1, len(events) + 1))
    check("branch: it survives its workers", good, outcome["decided_by"])
    calls = begun(lab, made["run_id"])
    check("branch: no call is repeated", len(set(calls)) == len(calls) and not set(calls) & {"0", "1"}, calls)
    ended = one.events(works)[-1][2]["outcome"]
    check("branch: the other run ends undisturbed", ended["termination"] == "stop", ended["termination"])
    status, _, third = one.ask("POST", f"/v1/runs/{made['run_id']}/branch", {"turn": 1})
    outcome = other.events(third["run_id"])[-1][2]["outcome"]
    check("branch: of a branch", outcome["branched_from"]["run_id"] == made["run_id"] and outcome["termination"] == "stop", outcome["decided_by"])


def failures(lab, one, other):
    """A Restate server that is slow, down and restarted; servers that are killed."""
    run = one.begin("steps", steps=40, ms=50)[2]["run_id"]
    seen = one.events(run, until="tool_finished")
    one.kill()
    one.start()
    rest = one.events(run, seen[-1][0])
    check("events resume after a kill of serve", seen + rest == other.events(run), len(seen) + len(rest))

    lab.server.send_signal(signal.SIGSTOP)
    began = time.time()
    status, headers, answer = one.begin("steps", "slow", steps=2)
    took = time.time() - began
    check("slow: 503", status == 503 and answer["error"]["code"] == "unavailable", f"{took:.1f} s: {answer}")
    check("slow: Retry-After", headers["Retry-After"] is not None)
    check("slow: the list is there", other.ask("GET", "/v1/runs")[0] == 200)
    lab.server.send_signal(signal.SIGCONT)
    started = until("slow: the request is repeated", lambda: (made := other.begin("steps", "slow", steps=2))[0] in (200, 201) and made)
    ended = other.events(started[2]["run_id"])[-1][2]
    check("slow: the repeated request starts the run", ended["outcome"]["termination"] == "stop")

    # Stopped between the check of the engine and the start: what was sent is not confirmed.
    lab.server.kill()
    lab.server.wait()
    status, headers, answer = one.begin("steps", "down", steps=2)
    check("down: 503", status == 503 and headers["Retry-After"] is not None, answer)
    check("down: not ready", one.ask("GET", "/readyz")[0] == 503 and one.ask("GET", "/healthz")[0] == 200)
    check("down: cancel", one.ask("POST", f"/v1/runs/{run}/cancel", {})[0] == 200, "a run that has ended")
    check("down: events", other.events(run) == seen + rest)
    lab.start_server()
    started = until("restarted: the request is repeated", lambda: (made := other.begin("steps", "down", steps=2))[0] in (200, 201) and made)
    ended = one.events(started[2]["run_id"])[-1][2]
    check("restarted: the run ends", ended["outcome"]["termination"] == "stop")


def chaos(lab, serves, runs, kills, seed):
    """Requests that are repeated until they are accepted, while everything is killed."""
    accepted, over, killed = {}, threading.Event(), collections.Counter()
    randomly = random.Random(seed)
    choices = [random.Random(f"{seed}-{number}") for number in range(runs)]

    def begin(number):
        while True:
            try:
                status, _, answer = choices[number].choice(serves).begin("steps", f"chaos-{number}", steps=5, ms=20, bytes=100)
                if status in (200, 201):
                    return number, answer["run_id"]
                if status != 503:
                    return number, f"status {status}: {answer}"
            except (OSError, http.client.HTTPException, ValueError):
                pass
            time.sleep(0.1)

    def break_things():
        for _ in range(kills):
            time.sleep(randomly.uniform(0.1, 1.0))
            what = randomly.choice(["server", "serve", "worker", "slow"])
            killed[what] += 1
            if what == "server":
                lab.kill_server()
            elif what == "serve":
                serve = randomly.choice(serves)
                serve.kill()
                serve.start()
            elif what == "worker":
                lab.kill_worker(randomly.randrange(len(lab.workers)))
            else:
                lab.server.send_signal(signal.SIGSTOP)
                time.sleep(randomly.uniform(0.1, 12))
                lab.server.send_signal(signal.SIGCONT)
        over.set()

    breaking = threading.Thread(target=break_things)
    breaking.start()
    with concurrent.futures.ThreadPoolExecutor(8) as pool:
        for number, run in pool.map(begin, range(runs)):
            accepted[number] = run
    breaking.join()
    wrong = [run for run in accepted.values() if run.startswith("status")]
    check(f"chaos: {runs} keys are accepted ({dict(killed)})", not wrong and len(set(accepted.values())) == runs, wrong[:2])
    ends = {run: until(f"chaos: {run} ends", lambda run=run: (shown := serves[0].get(run))["state"] == "ended" and shown, 300) for run in accepted.values()}
    endings = collections.Counter(shown["termination"] for shown in ends.values() if shown)
    check("chaos: each run ended", endings["stop"] == runs, dict(endings))
    # A run that a client got no answer for must have performed nothing: each key did its steps once.
    begins = collections.Counter()
    for _, _, what, run, number in lab.lines():
        if what == "model" and number == "0":
            begins[run] += 1
    withdrawn = [path.parent.name for path in (lab.folder / "store" / "runs").glob("*/decision.json") if "withdrawn" in path.read_text()]
    check("chaos: withdrawn requests performed nothing", not any(begins[run] for run in withdrawn), f"{len(withdrawn)} withdrawn")
    counts = durable.repeated(lab, list(accepted.values()))
    check("chaos: no stored step was repeated", counts["tools"] - counts["lost"] <= 0 and counts["turns"] == 0, {name: counts[name] for name in ("tools", "turns", "lost", "steps")})
    streams = [serves[1].events(run) for run in list(accepted.values())[:20]]
    whole = all([number for number, _, _ in events] == list(range(1, len(events) + 1)) and events[-1][1] == "finished" for events in streams)
    check("chaos: events have no gap", whole)


class Model(monitoring.Provider):
    """Answers each call, but the first one only when it is released."""

    asked, released = threading.Event(), threading.Event()

    def do_POST(self):
        body = json.loads(self.rfile.read(int(self.headers["content-length"])))
        if "hold" in json.dumps(body["messages"]) and not self.released.is_set():
            self.asked.set()
            self.released.wait(60)
        message = {"role": "assistant", "content": "done"}
        usage = {"prompt_tokens": 1000, "completion_tokens": 100, "total_tokens": 1100}
        choice = {"index": 0, "message": message, "finish_reason": "stop"}
        answer = json.dumps({"id": "c", "object": "chat.completion", "model": "gpt-4o", "choices": [choice], "usage": usage})
        try:
            self.send_response(200)
            self.send_header("content-type", "application/json")
            self.send_header("content-length", str(len(answer)))
            self.end_headers()
            self.wfile.write(answer.encode())
        except OSError:
            pass  # The worker of the call was killed.


class Workers(durable.Lab):
    """The same with `endstop worker`, which reports by OTLP."""

    def start_worker(self, joins=False):
        command = [
            self.worker_path, "worker", "--config", self.folder / "agents.toml", "--store", self.folder / "store",
            "--restate", f"http://127.0.0.1:{self.ports['ingress']}", "--listen", f"127.0.0.1:{self.ports['worker']}",
        ]
        if joins:
            command += ["--admin", f"http://127.0.0.1:{self.ports['admin']}"]
        kept = {name: value for name, value in os.environ.items() if not name.startswith(("ENDSTOP_", "OTEL_"))}
        environment = kept | {"HOME": str(self.folder), "OPENAI_API_KEY": "x"} | self.reports
        log = open(self.folder / "workers.log", "a")
        self.workers.append(subprocess.Popen(command, cwd=self.folder, stdout=log, stderr=log, env=environment))


def spans(arguments, server):
    """Each run of a worker has one span with its ending, in the trace of its caller, also after a kill of the worker."""
    if monitoring.ExportTraceServiceRequest is None:
        print("skipped: the package opentelemetry-proto is not installed")
        return
    with monitoring.serving(Model) as model, monitoring.serving(monitoring.Collector) as collector:
        lab = Workers(arguments.lab, server, arguments.endstop.resolve())
        lab.reports = monitoring.reports(collector, "endstop-worker")
        agents = f'model = "openai/gpt-4o"\nbase_url = "http://127.0.0.1:{model}/v1"\nstream = false\n[agents.a]\n'
        (lab.folder / "agents.toml").write_text(agents)
        serve = Serve(lab, arguments.endstop.resolve(), "spans")
        serve.config.write_text(agents)
        try:
            lab.start(1)
            serve.start()
            places = {}

            def begin(number, task):
                body = {"agent": "a", "task": task}
                headers = durable.JSON | {"traceparent": monitoring.place(number)}
                connection = http.client.HTTPConnection("127.0.0.1", serve.port, timeout=60)
                connection.request("POST", "/v1/runs", json.dumps(body), headers)
                run = json.loads(connection.getresponse().read())["run_id"]
                places[run] = monitoring.place(number)
                return run

            begin(1, "hold")
            check("spans: a call is in flight", Model.asked.wait(60))
            lab.kill_worker(0)
            Model.released.set()
            with concurrent.futures.ThreadPoolExecutor(8) as pool:
                list(pool.map(lambda number: begin(number, "work"), range(2, arguments.runs + 2)))
            own = {"agent": "a", "task": "work", "traceparent": monitoring.place(1_000_000)}
            durable.patiently(lab.ports["ingress"], "POST", "/EndstopLedger/direct/start/send", own)
            # Another place in a trace is no other request.
            again = own | {"traceparent": monitoring.place(1_000_001)}
            status, report = durable.request(lab.ports["ingress"], "POST", "/EndstopLedger/direct/start", again)
            check("spans: the request is repeated", status == 200, "" if status == 200 else report)
            places["direct"] = monitoring.place(1_000_000)
            for run in places:
                until(f"spans: {run} ends", lambda run=run: lab.report(run), 120)
            endings = collections.Counter(lab.report(run)["termination"] for run in places)
            check("spans: the runs end", endings == {"stop": len(places)}, dict(endings))
            expected = {run: [("stop", place)] for run, place in places.items()}
            found = lambda: {run: list(monitoring.Collector.runs.get(run, [])) for run in places}
            until("spans: they come", lambda: all(found().values()), 30)
            wrong = {run: one for run, one in found().items() if one != expected[run]}
            check("spans: one for each run, below its caller", not wrong, list(wrong.items())[:3] or f"{len(places)} runs, one killed")
            calls = monitoring.Collector.spans["endstop-worker", "chat"]
            check("spans: of calls", calls >= len(places), calls)
        finally:
            if serve.process and serve.process.poll() is None:
                serve.kill()
            lab.stop()


def served(arguments, server):
    """The API over a worker that performs scripts."""
    lab = durable.Lab(arguments.lab, server, arguments.worker.resolve())
    serves = [Serve(lab, arguments.endstop.resolve(), name) for name in ("one", "other")]
    try:
        lab.start(2)
        for serve in serves:
            serve.start()
        api(lab, *serves)
        failures(lab, *serves)
        chaos(lab, serves, arguments.runs, arguments.kills, arguments.seed)
    finally:
        for serve in serves:
            if serve.process and serve.process.poll() is None:
                serve.kill()
        lab.stop()


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("lab", type=pathlib.Path)
    parser.add_argument("--worker", type=pathlib.Path)
    parser.add_argument("--endstop", type=pathlib.Path, required=True)
    parser.add_argument("--runs", type=int, default=40)
    parser.add_argument("--kills", type=int, default=12)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--only-spans", action="store_true")
    arguments = parser.parse_args()
    arguments.lab.mkdir(parents=True, exist_ok=True)
    arguments.lab = arguments.lab.resolve()
    server = durable.install(arguments.lab)
    if server is None:
        return
    if not arguments.only_spans:
        served(arguments, server)
    spans(arguments, server)
    print(f"{len(FAILED)} checks failed" if FAILED else "all checks are good")
    sys.exit(1 if FAILED else 0)


if __name__ == "__main__":
    main()
