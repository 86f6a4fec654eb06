#!/usr/bin/env python3
"""Kills `endstop serve` with SIGKILL again and again during a load of runs, and checks what happened.

    python3 bench/serve/crash.py LAB --endstop target/debug/endstop --out bench/serve/CRASH.md

LAB is a folder for the journal and the logs. A scripted model in another process calls the tool `shell` without end, until
the last kill; each command appends a line to a file when it begins and when it ends. Clients start the runs with an
Idempotency-Key and read the events of each, and repeat what a kill has broken off. Everything listens on loopback. A check that
fails ends with status 1. At the end the same checks get faults planted into what was observed, and must find each of them.
"""

import argparse
import collections
import copy
import http.client
import json
import os
import pathlib
import random
import re
import signal
import socket
import subprocess
import sys
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

DEADLINE = 300


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


# The scripted model, as a process of its own.


def serve_model(port, folder):
    """Answers each request by the number of results in it, until the file `enough` exists."""
    folder = pathlib.Path(folder)
    log = open(folder / "model", "a", buffering=1)
    enough, effects = folder / "enough", folder / "effects"

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def log_message(self, *_):
            pass

        def do_POST(self):
            body = self.rfile.read(int(self.headers["content-length"]))
            run = re.search(rb"load-(\d+)", body).group(1).decode()
            done = len(re.findall(rb'"role": ?"tool"', body))
            log.write(f"{run} {done}\n")
            words = ["Step", f" {done}", " of", " the", " work."]
            chunks = [{"choices": [{"index": 0, "delta": {"content": word}}]} for word in words]
            if enough.exists():
                finish = "stop"
            else:
                finish = "tool_calls"
                line = f"echo begin {run} {done} >> {effects}; sleep 0.03; echo end {run} {done} >> {effects}; echo {done}"
                call = {"name": "shell", "arguments": json.dumps({"command": line})}
                call = {"index": 0, "id": f"call_{done}", "type": "function", "function": call}
                chunks.append({"choices": [{"index": 0, "delta": {"tool_calls": [call]}}]})
            chunks.append({"choices": [{"index": 0, "delta": {}, "finish_reason": finish}]})
            chunks.append({"choices": [], "usage": {"prompt_tokens": 10, "completion_tokens": 10}})
            text = "".join(f"data: {json.dumps(chunk)}\n\n" for chunk in chunks) + "data: [DONE]\n\n"
            try:
                self.send_response(200)
                self.send_header("content-type", "text/event-stream")
                self.send_header("content-length", str(len(text)))
                self.end_headers()
                self.wfile.write(text.encode())
            except OSError:
                self.close_connection = True

    class Model(ThreadingHTTPServer):
        request_queue_size = 1024

        def handle_error(self, *_):
            # A client that was killed.
            pass

    Model(("127.0.0.1", port), Handler).serve_forever()


# The server under test.


class Server:
    """An `endstop serve` that is killed and started again at the same address and with the same journal."""

    def __init__(self, endstop, folder, model, running):
        self.folder, self.port, self.endstop, self.running = folder, free_port(), endstop, running
        self.process = None
        (folder / "serve.toml").write_text(
            f"""base_url = "http://127.0.0.1:{model}/v1"
model = "script"
[limits]
max_turns = 100000
max_consecutive_mistakes = "off"
max_unproductive_turns = "off"
[agents.load]
tools = ["shell"]
"""
        )

    def start(self):
        environment = {**os.environ, "XDG_STATE_HOME": str(self.folder), "XDG_CONFIG_HOME": str(self.folder)}
        environment.pop("ENDSTOP_SERVE_TOKEN", None)
        address, running = f"127.0.0.1:{self.port}", str(self.running)
        command = [self.endstop, "serve", "--listen", address, "--journal", "journal.db", "--config", "serve.toml"]
        command += ["--max-running", running, "--grace", "1s", "--json"]
        log = open(self.folder / "serve.log", "a")
        self.process = subprocess.Popen(command, cwd=self.folder, env=environment, stdout=subprocess.PIPE, stderr=log)

    def listening(self):
        """Waits until the server listens; ends the program if the server does not start."""
        if not self.process.stdout.readline():
            sys.exit("serve did not start:\n" + (self.folder / "serve.log").read_text()[-2000:])

    def kill(self):
        self.process.send_signal(signal.SIGKILL)
        self.process.wait()
        self.process.stdout.close()

    def ask(self, method, path, body=None, headers=()):
        """Returns the status and the JSON of the answer; repeats the request until the server answers it."""
        end = time.monotonic() + DEADLINE
        while True:
            connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=DEADLINE)
            try:
                text = json.dumps(body) if body is not None else None
                connection.request(method, path, text, {"content-type": "application/json", **dict(headers)})
                answer = connection.getresponse()
                return answer.status, json.loads(answer.read() or b"null")
            except (OSError, http.client.HTTPException, json.JSONDecodeError):
                if time.monotonic() > end:
                    sys.exit(f"{method} {path}: no answer for {DEADLINE} s")
                time.sleep(0.02)
            finally:
                connection.close()

    def events(self, run, after):
        """Yields the number and the data of each numbered event after one, until the connection ends; at last None."""
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=DEADLINE)
        try:
            connection.request("GET", f"/v1/runs/{run}/events", headers={"last-event-id": str(after)})
            answer = connection.getresponse()
            if answer.status == 204:
                yield None
                return
            number, data = None, None
            for line in answer:
                line = line.rstrip(b"\n")
                if line.startswith(b"id: "):
                    number = int(line[4:])
                elif line.startswith(b"data: "):
                    data = line[6:]
                elif not line:
                    # Only an event that has arrived as a whole counts; the next one starts anew.
                    if number is not None and data is not None:
                        yield number, json.loads(data)
                    number, data = None, None
        except (OSError, http.client.HTTPException):
            return
        finally:
            connection.close()


class Client(threading.Thread):
    """Starts a run, and reads its events to the end, through all kills."""

    def __init__(self, server, name, delay):
        super().__init__(daemon=True)
        self.server, self.name_of_run, self.delay = server, name, delay
        self.run_id, self.stream = None, []

    def run(self):
        time.sleep(self.delay)
        key = [("idempotency-key", f"key-{self.name_of_run}")]
        body = {"agent": "load", "task": f"Do load-{self.name_of_run}."}
        status, run = self.server.ask("POST", "/v1/runs", body, key)
        if status not in (200, 201):
            sys.exit(f"POST /v1/runs: {status} {run}")
        self.run_id = run["run_id"]
        while True:
            after = self.stream[-1][0] if self.stream else 0
            for event in self.server.events(self.run_id, after):
                if event is None:
                    return
                self.stream.append(event)
            if self.stream and self.stream[-1][1]["type"] == "finished":
                return
            time.sleep(0.02)


# The checks.


def essence(event):
    """The parts of an event that a reader acts on."""
    keys = ("type", "turn", "call_id", "name", "text", "status", "attempt", "tool_calls")
    return {key: event[key] for key in keys if key in event}


def results_of(outcome):
    """The results of a run's calls, in order."""
    parts = (part for message in outcome["messages"] for part in message["parts"])
    return [part for part in parts if part["type"] == "tool_result"]


def check(seen):
    """Returns the problems in what was observed, and the figures."""
    problems, figures = [], collections.Counter()
    runs = seen["runs"]
    if len(seen["listed"]) != len(set(seen["listed"])) or set(seen["listed"]) != {run["run_id"] for run in runs.values()}:
        problems.append(f"{len(seen['listed'])} runs are listed for {len(runs)} requests")
    effects = collections.Counter(tuple(line.split()) for line in seen["effects"])
    for what, name, number in effects:
        if what == "begin" and effects["begin", name, number] > 1:
            problems.append(f"run {name}: call {number} began {effects['begin', name, number]} times")
    figures["began"] = sum(count for (what, _, _), count in effects.items() if what == "begin")
    last = collections.defaultdict(int)
    made = collections.Counter(seen["model"])
    for name, number in seen["model"]:
        if number < last[name]:
            problems.append(f"run {name}: model call {number} was repeated after {last[name]}")
        last[name] = max(last[name], number)
    figures["model calls"] = len(seen["model"])
    figures["model calls repeated"] = sum(count - 1 for count in made.values())
    for name, run in runs.items():
        if run["state"] != "ended" or not run["outcome"]:
            problems.append(f"run {name} has no ending: {run['state']}")
            continue
        if run["termination"] != run["outcome"]["termination"]:
            problems.append(f"run {name}: two endings: {run['termination']} and {run['outcome']['termination']}")
        figures[f"ended {run['termination']}"] += 1
        for number, result in enumerate(results_of(run["outcome"])):
            begun, ended = effects["begin", name, str(number)], effects["end", name, str(number)]
            where = f"run {name}: call {number}"
            figures["results"] += 1
            if result["status"] == "ok":
                figures["ok"] += 1
                if (begun, ended) != (1, 1) or not result["content"].startswith(f"{number}\n"):
                    problems.append(f"{where} has a result, began {begun} and ended {ended} times: {result}")
            elif result["started"]:
                figures["may have run"] += 1
                if "may have" not in result["content"]:
                    problems.append(f"{where} started, and its result does not report it: {result}")
            else:
                figures["not started"] += 1
                if begun:
                    problems.append(f"{where} is reported as not started, but began")
        for number in range(len(results_of(run["outcome"])), last[name] + 1):
            if effects["begin", name, str(number)]:
                problems.append(f"run {name}: call {number} began, and has no result")
        told, read = seen["stories"][name], seen["streams"][name]
        numbers = [number for number, _ in read]
        if numbers != list(range(1, len(told) + 1)):
            gaps = sorted(set(range(1, len(told) + 1)) - set(numbers))
            problems.append(f"run {name}: the reader has {len(numbers)} of {len(told)} events, not {gaps[:5]}")
        for (number, event), (_, again) in zip(read, told):
            if essence(event) != essence(again):
                problems.append(f"run {name}: event {number} was {essence(event)}, and is {essence(again)}")
        finished = [number for number, event in read if event["type"] == "finished"]
        if finished != numbers[-1:]:
            problems.append(f"run {name}: the endings are the events {finished} of {len(numbers)}")
        elif read[-1][1]["outcome"]["termination"] != run["termination"]:
            problems.append(f"run {name}: the stream ends as {read[-1][1]['outcome']['termination']}")
        figures["events"] += len(read)
    return problems, figures


def planted(seen):
    """Yields copies of what was observed, each with a fault, and the name of the fault."""

    def with_fault(name, fault):
        changed = copy.deepcopy(seen)
        fault(changed)
        return name, changed

    some = next(iter(seen["runs"]))
    every = [(name, run, number, result) for name, run in seen["runs"].items()
             for number, result in enumerate(results_of(run["outcome"]))]
    started = next(((name, number) for name, _, number, result in every
                    if result["status"] != "ok" and result["started"] and f"begin {name} {number}" in seen["effects"]), None)
    yield with_fault("a call that began twice", lambda it: it["effects"].append(it["effects"][0]))
    done = next(f"end {name} {number}" for name, _, number, result in every if result["status"] == "ok")
    yield with_fault("a result without its effect", lambda it: it["effects"].remove(done))
    yield with_fault("a model call that was repeated later", lambda it: it["model"].append((some, 0)))
    yield with_fault("a run without an ending", lambda it: it["runs"][some].update(state="running"))
    yield with_fault("an ending that was overwritten", lambda it: it["runs"][some].update(termination="cancelled"))
    yield with_fault("a second ending", lambda it: it["streams"][some].append(it["streams"][some][-1]))
    yield with_fault("a lost event", lambda it: it["streams"][some].pop(len(it["streams"][some]) // 2))
    yield with_fault("an event that changed", lambda it: it["streams"][some][3][1].update(type="warning"))
    yield with_fault("a request that started two runs", lambda it: it["listed"].append("another"))
    if started:
        name, number = started

        def hide(it):
            results_of(it["runs"][name]["outcome"])[number]["started"] = False

        yield with_fault("a call that began, and is reported as not started", hide)


# The load, and its page.

PAGE = """# `endstop serve` under kills

Written by `bench/serve/crash.py`; see there for the command. {about}

The runs call `shell` without end until the last kill. Each command appends to a file when it begins and when it ends. Each client
repeats its request with the same key until it has a run, reads the events of the run by `Last-Event-ID` over all kills, and at the
end reads all of them again from the journal. A call that was in progress at a kill is reported to the model as one that may have
run; it is not made again.

"""


def written(path):
    """The number of lines in a file, which may not exist yet."""
    return path.read_bytes().count(b"\n") if path.exists() else 0


def perform(lab, endstop, runs, kills, seed):
    """Starts the runs, kills the server, and returns what was observed."""
    chance = random.Random(seed)
    folder = lab / f"crash-{os.getpid()}"
    folder.mkdir(parents=True)
    model_port = free_port()
    model = subprocess.Popen([sys.executable, __file__, "--model", str(model_port), str(folder)])
    server = Server(endstop, folder, model_port, runs)
    began = time.monotonic()
    # The requests come while the first half of the kills happens.
    clients = [Client(server, str(name), chance.uniform(0, kills * 0.15)) for name in range(runs)]
    early = 0
    try:
        for client in clients:
            client.start()
        for _ in range(kills):
            server.start()
            if chance.random() < 0.25:
                # While it starts, or takes over its runs.
                early += 1
                time.sleep(chance.uniform(0, 0.3))
            else:
                server.listening()
                # After some progress, so that a slow machine is not killed before it has made any.
                lines, end = written(folder / "effects") + chance.randrange(2 * runs), time.monotonic() + 10
                while written(folder / "effects") < lines and time.monotonic() < end:
                    time.sleep(0.005)
                time.sleep(chance.uniform(0, 0.05))
            server.kill()
        server.start()
        server.listening()
        while any(client.run_id is None for client in clients):
            time.sleep(0.05)
        (folder / "enough").touch()
        end = time.monotonic() + DEADLINE
        for client in clients:
            client.join(max(0.0, end - time.monotonic()))
        by_name = {client.name_of_run: client for client in clients}
        ask = lambda path: server.ask("GET", path)[1]
        stories = {}
        for name, client in by_name.items():
            stories[name] = [event for event in server.events(client.run_id, 0) if event]
        listed, before = [], ""
        while before is not None:
            page = ask(f"/v1/runs?limit=200{before and '&before=' + before}")
            listed += [run["run_id"] for run in page["runs"]]
            before = page["next"]
        seen = {
            "runs": {name: ask(f"/v1/runs/{client.run_id}") for name, client in by_name.items()},
            "listed": listed,
            "streams": {name: list(client.stream) for name, client in by_name.items()},
            "stories": stories,
            "effects": (folder / "effects").read_text().splitlines(),
            "model": [(name, int(number)) for name, number in map(str.split, (folder / "model").read_text().splitlines())],
        }
        return folder, seen, {"early": early, "seconds": time.monotonic() - began}
    finally:
        server.kill()
        model.kill()
        model.wait()


def table(seen, figures, about, runs, kills, faults):
    """Returns the table of the figures, in Markdown."""
    endings = [f"{count} × `{name[6:]}`" for name, count in sorted(figures.items()) if name.startswith("ended ")]
    rows = [
        ("runs at once", runs),
        ("kill -9", f"{kills}, of which {about['early']} while the server started"),
        ("endings", ", ".join(endings)),
        ("runs without an ending, or with two", "0, 0"),
        ("tool calls that began", figures["began"]),
        ("results: complete, may have run, not started",
         f"{figures['ok']}, {figures['may have run']}, {figures['not started']}"),
        ("tool calls that ran twice", 0),
        ("model calls, of which repeated because their turn was lost",
         f"{figures['model calls']}, {figures['model calls repeated']}"),
        ("model calls repeated although their turn was stored", 0),
        ("lifecycle events that readers got", figures["events"]),
        ("events that were lost, doubled or changed", "0, 0, 0"),
        ("faults planted into these observations, and found by the checks", f"{faults}, {faults}"),
        ("duration", f"{about['seconds']:.0f} s"),
    ]
    return "| figure | value |\n|---|---|\n" + "".join(f"| {name} | {value} |\n" for name, value in rows)


def measured(lab, endstop, runs, kills, seed):
    """Performs the load; returns the table, or None if a check failed."""
    folder, seen, about = perform(lab, endstop, runs, kills, seed)
    problems, figures = check(seen)
    for problem in problems[:20]:
        print("FAILED", problem)
    if problems:
        (folder / "seen.json").write_text(json.dumps(seen))
        print(f"{len(problems)} problems; the observations are in {folder / 'seen.json'}")
        return None
    faults = 0
    for name, changed in planted(seen):
        found = check(changed)[0]
        print(("ok     " if found else "FAILED ") + f"planted: {name}: {(found or ['not found'])[0]}")
        if not found:
            return None
        faults += 1
    return table(seen, figures, about, runs, kills, faults)


def main():
    if sys.argv[1:2] == ["--model"]:
        serve_model(int(sys.argv[2]), sys.argv[3])
        return
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("lab", type=pathlib.Path)
    parser.add_argument("--endstop", required=True, type=pathlib.Path)
    parser.add_argument("--runs", type=int, default=50)
    parser.add_argument("--kills", type=int, default=100)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--about", default=f"{os.cpu_count()} cores.", help="the conditions of the measurement")
    parser.add_argument("--out", type=pathlib.Path, help="a file for the page")
    args = parser.parse_args()
    found = measured(args.lab.resolve(), args.endstop.resolve(), args.runs, args.kills, args.seed)
    if not found:
        sys.exit(1)
    print(found)
    if args.out:
        args.out.write_text(PAGE.format(about=args.about) + found)


if __name__ == "__main__":
    main()
