#!/usr/bin/env python3
"""Durable runs on a real Restate server: kills workers and the server, and checks what happened.

    cargo build --release -p endstop-restate --features engine --example chaos_worker
    python3 bench/restate/run.py LAB --worker target/release/examples/chaos_worker --out bench/restate/RESULTS.md

LAB is a folder for the server, which is installed from npm, and for the data. Without npm, or if the
server cannot be installed, the script prints a notice and ends with status 0. Everything listens on
loopback. A check that fails ends with status 1.
"""
import argparse
import collections
import concurrent.futures
import http.client
import json
import os
import pathlib
import random
import shutil
import signal
import socket
import subprocess
import sys
import time

PACKAGE = "@restatedev/restate-server@1.7"
JSON = {"content-type": "application/json"}
# The ceiling of each run of the agent `shared`; see examples/chaos_worker.rs.
RUN_USD = 0.05


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def request(port, method, path, body=None, timeout=120):
    """Returns the status and the JSON of the answer."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=timeout)
    try:
        if body is None:
            connection.request(method, path)
        else:
            connection.request(method, path, json.dumps(body), JSON)
        answer = connection.getresponse()
        text = answer.read()
        return answer.status, json.loads(text) if text else None
    finally:
        connection.close()


def patiently(port, method, path, body=None, for_seconds=120):
    """Repeats a request until the server answers it; the server may be down."""
    end = time.time() + for_seconds
    while True:
        try:
            status, answer = request(port, method, path, body)
            if status < 500:
                return status, answer
            problem = f"status {status}: {answer}"
        except (OSError, http.client.HTTPException) as error:
            problem = repr(error)
        if time.time() > end:
            sys.exit(f"{path}: no answer for {for_seconds} s: {problem}")
        time.sleep(0.1)


def install(lab):
    """Installs the server from npm; returns its path, or None with a notice."""
    found = list(lab.glob("node_modules/@restatedev/restate-server-*/bin/restate-server"))
    if not found and shutil.which("npm"):
        # Without its scripts, one of which reports the installation.
        command = ["npm", "install", "--ignore-scripts", "--no-fund", "--no-audit", PACKAGE]
        subprocess.run(command, cwd=lab, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, check=False)
        found = list(lab.glob("node_modules/@restatedev/restate-server-*/bin/restate-server"))
    if not found:
        print(f"skipped: {PACKAGE} cannot be installed from npm")
        return None
    return found[0].resolve()


class Lab:
    """A server and its workers, as processes that can be killed and started again."""

    def __init__(self, lab, server, worker, budget=None):
        self.folder = lab / f"run-{os.getpid()}-{random.randrange(10**6)}"
        self.folder.mkdir()
        self.server_path, self.worker_path = server, worker
        self.ports = {name: free_port() for name in ("ingress", "admin", "node", "worker")}
        self.effects = self.folder / "effects"
        self.budget = budget
        self.server = None
        self.workers = []
        (self.folder / "restate.toml").write_text(
            f"""disable-telemetry = true
listen-mode = "tcp"
bind-ip = "127.0.0.1"
advertised-host = "127.0.0.1"
bind-port = {self.ports["node"]}
base-dir = "{self.folder / "data"}"
rocksdb-total-memory-size = "256 MB"
default-num-partitions = 4
[ingress]
bind-port = {self.ports["ingress"]}
[admin]
bind-port = {self.ports["admin"]}
"""
        )

    def start_server(self):
        log = open(self.folder / "server.log", "a")
        environment = dict(os.environ, DO_NOT_TRACK="1")
        command = [self.server_path, "-c", self.folder / "restate.toml"]
        self.server = subprocess.Popen(command, cwd=self.folder, stdout=log, stderr=log, env=environment)

    def start_worker(self, joins=False):
        environment = dict(
            os.environ,
            EFFECTS=str(self.effects),
            STORE=str(self.folder / "store"),
            INGRESS=f"http://127.0.0.1:{self.ports['ingress']}",
            LISTEN=f"127.0.0.1:{self.ports['worker']}",
        )
        if joins:
            environment["ADMIN"] = f"http://127.0.0.1:{self.ports['admin']}"
        if self.budget is not None:
            environment["BUDGET_USD"] = str(self.budget)
        log = open(self.folder / "workers.log", "a")
        self.workers.append(subprocess.Popen([self.worker_path], stdout=log, stderr=log, env=environment))

    def start(self, workers):
        self.start_server()
        patiently(self.ports["admin"], "GET", "/health")
        self.start_worker(joins=True)
        end = time.time() + 60
        while True:
            status, answer = patiently(self.ports["admin"], "GET", "/services")
            if status == 200 and "EndstopLedger" in json.dumps(answer):
                break
            if time.time() > end or self.workers[0].poll() is not None:
                sys.exit((self.folder / "workers.log").read_text()[-2000:])
            time.sleep(0.1)
        for _ in range(workers - 1):
            self.start_worker()
        time.sleep(0.5)

    def kill_worker(self, number):
        worker = self.workers.pop(number)
        worker.kill()
        worker.wait()
        self.start_worker()

    def kill_server(self):
        self.server.kill()
        self.server.wait()
        self.start_server()

    def stop(self):
        for process in [*self.workers, self.server]:
            process.send_signal(signal.SIGKILL)
            process.wait()

    def begin(self, run, agent, **script):
        body = {"agent": agent, "task": json.dumps(script)}
        # A repeated request finds the run of the first one.
        return patiently(self.ports["ingress"], "POST", f"/EndstopLedger/{run}/start/send", body)

    def report(self, run):
        return patiently(self.ports["ingress"], "POST", f"/EndstopLedger/{run}/report")[1]

    def reports(self, runs, for_seconds=600):
        """Waits until all runs have a report."""
        reports, end = {}, time.time() + for_seconds
        while len(reports) < len(runs):
            for run in runs:
                if run not in reports and (report := self.report(run)):
                    reports[run] = report
            if time.time() > end:
                missing = sorted(set(runs) - set(reports))
                print(f"without an ending after {for_seconds} s: {missing[:10]} ({len(missing)})")
                break
            time.sleep(0.2)
        return reports

    def stop_run(self, run, how):
        return request(self.ports["ingress"], "POST", f"/EndstopRun/{run}/stop", how)

    def lines(self):
        """The effects log: (microseconds, pid, what, run, number)."""
        for line in self.effects.read_text().splitlines():
            at, pid, what, run, number = line.split()
            yield int(at), int(pid), what, run, number

    def steps(self, run):
        """The steps of a run in the store, with the newest file of each number."""
        newest = {}
        for path in (self.folder / "store" / "runs" / run).glob("[0-9]*.json"):
            number = int(path.name.split("-")[0])
            if number not in newest or newest[number].stat().st_mtime <= path.stat().st_mtime:
                newest[number] = path
        return [json.loads(newest[number].read_text()) for number in sorted(newest)]


def repeated(lab, runs):
    """Counts what was done again although the engine had its result, and what was lost with a worker."""
    began, models, workers = collections.Counter(), collections.defaultdict(list), collections.Counter()
    for at, pid, what, run, number in lab.lines():
        if what == "begin":
            began[run, number] += 1
            workers[pid] += 1
        elif what == "model":
            models[run, number].append(at)
    tools = sum(count - 1 for count in began.values())
    turns_again, lost, steps = 0, 0, 0
    for run in runs:
        turn = 0
        for step in lab.steps(run):
            steps += 1
            for record in step.get("records", []):
                if record["name"] == "resumed":
                    lost += len(json.loads(record["event"]).get("lost", []))
                if record["name"] != "turn_ended":
                    continue
                # Calls of the model for this turn that began after its result was known.
                known = record["wall_ms"] * 1000 + 1000
                turns_again += sum(at > known for at in models[run, str(turn)])
                turn += 1
    calls = sum(len(times) for times in models.values())
    return {"tools": tools, "turns": turns_again, "lost": lost, "steps": steps, "calls": calls, "workers": workers}


def chaos(arguments, server, rows):
    """Runs under random kills of workers and of the server."""
    ceiling = arguments.runs * RUN_USD
    lab = Lab(arguments.lab, server, arguments.worker, budget=ceiling)
    lab.start(arguments.workers)
    runs = [f"c{number}" for number in range(arguments.runs)]
    began = time.time()
    killed = collections.Counter()
    try:
        with concurrent.futures.ThreadPoolExecutor(8) as pool:
            script = {"steps": arguments.steps, "ms": arguments.ms, "bytes": 200}
            started = [pool.submit(lab.begin, run, "shared", **script) for run in runs]
            randomly = random.Random(arguments.seed)
            for _ in range(arguments.kills):
                time.sleep(randomly.uniform(0.2, 2 * arguments.between))
                if randomly.random() < arguments.server_share:
                    lab.kill_server()
                    killed["server"] += 1
                else:
                    lab.kill_worker(randomly.randrange(len(lab.workers)))
                    killed["worker"] += 1
            for start in started:
                start.result()
        reports = lab.reports(runs)
        seconds = time.time() - began
        endings = collections.Counter(report["termination"] for report in reports.values())
        counts = repeated(lab, runs)
        endless = len(runs) - len(reports)
        cost = sum(report["outcome"]["cost_usd"] for report in reports.values())
        time.sleep(1)
        balance = patiently(lab.ports["ingress"], "POST", "/EndstopBudget/bench/balance")[1]
        spent = balance["spent"] / 1e9
        twice = sum(
            sum((step.get("end") or {}).get("state") == "ended" for step in lab.steps(run)) != 1 for run in runs
        )
        rows += [
            ("runs × calls of a tool", f"{arguments.runs} × {arguments.steps}"),
            ("workers", arguments.workers),
            ("kill -9", ", ".join(f"{count} × {what}" for what, count in sorted(killed.items()))),
            ("endings", ", ".join(f"{count} × `{name}`" for name, count in sorted(endings.items()))),
            ("runs without an ending, or with two", f"{endless}, {twice}"),
            ("tool calls that ran twice", counts["tools"]),
            ("model calls repeated although their turn was stored", counts["turns"]),
            ("calls in progress that were lost with a process", counts["lost"]),
            ("stored steps", counts["steps"]),
            ("workers that ran calls, and the share of the busiest", share(counts["workers"])),
            ("shared budget: ceiling, spent, open reservations", f"{ceiling:.2f}, {spent:.6f} USD, {len(balance['reserved'])}"),
            ("sum of the reports' costs", f"{cost:.6f} USD"),
            ("duration", f"{seconds:.1f} s"),
        ]
        success = endings.get("stop", 0) == len(runs)
        whole = endless == 0 and twice == 0 and counts["tools"] == 0 and counts["turns"] == 0
        return whole and success and spent <= ceiling and not balance["reserved"]
    finally:
        lab.stop()


def share(workers):
    total = sum(workers.values())
    return f"{len(workers)}, {100 * max(workers.values()) / total:.0f} %" if total else "none"


def percentile(values, share_of):
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(share_of * len(ordered)))] if ordered else float("nan")


def stops(arguments, server, rows):
    """Cancels, terminates and kills of runs in the middle of a call of 60 s."""
    lab = Lab(arguments.lab, server, arguments.worker)
    lab.start(2)
    good = True
    try:
        for how, expected in (("cancel", "cancelled"), ("terminate", "terminated")):
            runs = [f"{how}{number}" for number in range(arguments.stops)]
            asked = {}
            for run in runs:
                lab.begin(run, "steps", steps=3, ms=100)
            lab.reports(runs)
            runs = [f"s{run}" for run in runs]
            for run in runs:
                lab.begin(run, "steps", steps=3, ms=60_000)
            waiting, end = set(runs), time.time() + 60
            while waiting and time.time() < end:
                waiting -= {run for _, _, what, run, _ in lab.lines() if what == "model"}
                time.sleep(0.1)
            ended = {}
            for run in runs:
                asked[run] = time.time()
                lab.stop_run(run, how)
                while not (report := lab.report(run)):
                    time.sleep(0.002)
                ended[run] = time.time(), report["termination"]
            times = [1000 * (ended[run][0] - asked[run]) for run in runs]
            good &= all(ended[run][1] == expected for run in runs)
            rows.append(
                (
                    f"{how}: {len(runs)} runs, from the request to the report in the ledger, p50 and p99",
                    f"{percentile(times, 0.5):.0f} ms, {percentile(times, 0.99):.0f} ms",
                )
            )
        for how, expected in (("kill", "terminated"), ("cancel", "cancelled")):
            endings = collections.Counter()
            for number in range(10):
                run = f"admin-{how}{number}"
                body = {"agent": "steps", "task": json.dumps({"steps": 3, "ms": 600})}
                _, sent = request(lab.ports["ingress"], "POST", f"/EndstopRun/{run}/run/send", body)
                time.sleep(0.3)
                request(lab.ports["admin"], "PATCH", f"/invocations/{sent['invocationId']}/{how}")
                reports = lab.reports([run], 60)
                endings[reports[run]["termination"] if run in reports else "none"] += 1
            good &= set(endings) == {expected}
            rows.append(
                (
                    f"the engine's administrator: {how}, 10 runs",
                    ", ".join(f"{count} × `{name}`" for name, count in endings.items()),
                )
            )
        return good
    finally:
        lab.stop()


def budget(arguments, server, rows):
    """Twice as many runs at once as a shared budget has ceilings for."""
    places = 10
    lab = Lab(arguments.lab, server, arguments.worker, budget=places * RUN_USD)
    lab.start(2)
    try:
        runs = [f"b{number}" for number in range(2 * places)]
        with concurrent.futures.ThreadPoolExecutor(len(runs)) as pool:
            list(pool.map(lambda run: lab.begin(run, "shared", steps=5, ms=500), runs))
        reports = lab.reports(runs, 120)
        endings = collections.Counter(report["termination"] for report in reports.values())
        time.sleep(1)
        balance = patiently(lab.ports["ingress"], "POST", "/EndstopBudget/bench/balance")[1]
        rows += [
            (f"ceiling {places * RUN_USD:.2f} USD, {len(runs)} runs that reserve {RUN_USD} USD each", ", ".join(f"{count} × `{name}`" for name, count in sorted(endings.items()))),
            ("spent, open reservations", f"{balance['spent'] / 1e9:.6f} USD, {len(balance['reserved'])}"),
        ]
        return endings == {"stop": places, "error_max_budget_usd": places} and not balance["reserved"]
    finally:
        lab.stop()


def drain(arguments, server, rows):
    """SIGTERM of one of two workers during runs of 2 s; the worker has a grace of 5 s."""
    lab = Lab(arguments.lab, server, arguments.worker)
    lab.start(2)
    try:
        runs = [f"d{number}" for number in range(20)]
        for run in runs:
            lab.begin(run, "steps", steps=4, ms=200)
        time.sleep(0.7)
        began = time.time()
        lab.workers[0].send_signal(signal.SIGTERM)
        reports = lab.reports(runs, 120)
        endings = collections.Counter(report["termination"] for report in reports.values())
        status = lab.workers[0].wait(30)
        seconds = time.time() - began
        counts = repeated(lab, runs)
        rows += [
            ("endings of 20 runs", ", ".join(f"{count} × `{name}`" for name, count in sorted(endings.items()))),
            ("calls that were lost, tool calls that ran twice", f"{counts['lost']}, {counts['tools']}"),
            ("exit status of the worker, after", f"{status}, {seconds:.1f} s"),
        ]
        return endings == {"stop": len(runs)} and counts["lost"] == 0 and counts["tools"] == 0 and status == 0
    finally:
        lab.stop()


def speed(arguments, server, rows):
    """Steps each second with 1, 2 and 4 workers, without any waiting."""
    for workers in (1, 2, 4):
        lab = Lab(arguments.lab, server, arguments.worker)
        lab.start(workers)
        try:
            runs = [f"f{number}" for number in range(arguments.speed_runs)]
            began = time.time()
            with concurrent.futures.ThreadPoolExecutor(8) as pool:
                list(pool.map(lambda run: lab.begin(run, "steps", steps=20, ms=0, bytes=200), runs))
            reports = lab.reports(runs)
            seconds = time.time() - began
            counts = repeated(lab, runs)
            rows.append(
                (
                    f"{len(reports)} runs of 20 calls, {workers} worker{'s' if workers > 1 else ''}: steps/s; "
                    "workers that ran calls, and the share of the busiest",
                    f"{counts['steps'] / seconds:.0f}; {share(counts['workers'])}",
                )
            )
        finally:
            lab.stop()
    return True


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("lab", type=pathlib.Path)
    parser.add_argument("--worker", type=pathlib.Path, required=True)
    parser.add_argument("--out", type=pathlib.Path)
    parser.add_argument("--only", choices=["chaos", "stops", "budget", "drain", "speed"])
    parser.add_argument("--runs", type=int, default=200)
    parser.add_argument("--steps", type=int, default=20)
    parser.add_argument("--ms", type=int, default=200, help="milliseconds of each call of the model and of the tool")
    parser.add_argument("--kills", type=int, default=60)
    parser.add_argument("--between", type=float, default=1.0, help="mean seconds between two kills")
    parser.add_argument("--server-share", type=float, default=0.2)
    parser.add_argument("--workers", type=int, default=3)
    parser.add_argument("--stops", type=int, default=50)
    parser.add_argument("--speed-runs", type=int, default=200)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--note", default="", help="the machine and the build, for the head of the table")
    arguments = parser.parse_args()
    arguments.lab.mkdir(parents=True, exist_ok=True)
    arguments.lab = arguments.lab.resolve()
    arguments.worker = arguments.worker.resolve()
    server = install(arguments.lab)
    if server is None:
        return 0
    good, tables = True, []
    for part in (chaos, stops, budget, drain, speed):
        if arguments.only in (None, part.__name__):
            rows = []
            good &= part(arguments, server, rows)
            tables.append((part.__doc__, rows))
    text = "".join(
        f"\n{title}\n\n| figure | value |\n|---|---|\n" + "".join(f"| {name} | {value} |\n" for name, value in rows)
        for title, rows in tables
    )
    print(text)
    if arguments.out:
        head = f"# Durable runs on a real Restate server\n\nWritten by `bench/restate/run.py`; see there for the command. {arguments.note}\n"
        arguments.out.write_text(head + text)
    print("good" if good else "FAILED")
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
