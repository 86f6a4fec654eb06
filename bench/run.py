#!/usr/bin/env python3
"""Runs the floor client and `bench-peer` alternately, and prints medians and ratios.

    run.py PERF_BIN [--bin DIR] [--reps N] [--pin SERVER,CLIENT] [--out FILE] [ITEM ...]

PERF_BIN is the folder of the built `mockllm` (the scripted model server) and `rawclient` (the floor:
a bare keep-alive client). DIR is the folder of `bench-peer` and `endstop` (target/release).
Items: turns shares tokens cancel cold many suspended cli. Without an item, all of them run.
"""
import argparse
import json
import os
import signal
import socket
import statistics
import subprocess
import sys
import time

HERE = os.path.dirname(os.path.abspath(__file__))
PARSER = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
PARSER.add_argument("perf_bin")
PARSER.add_argument("items", nargs="*")
PARSER.add_argument("--bin", default=os.path.join(HERE, "..", "target", "release"))
PARSER.add_argument("--reps", type=int, default=7)
PARSER.add_argument("--pin", help="the processors that the server and the clients are held to, as 0,0 or 0,1")
PARSER.add_argument("--out", help="append every measurement to this file, a line of JSON each")
ARGS = PARSER.parse_intermixed_args()
RAW = os.path.join(ARGS.perf_bin, "rawclient")
PEER = os.path.join(ARGS.bin, "bench-peer")
CLI = os.path.join(ARGS.bin, "endstop")
PIN = [int(cpu) for cpu in ARGS.pin.split(",")] if ARGS.pin else None

# name: (field, [(label, program, arguments)...]); ratios are relative to the first entry of each list.
PLAN = {
    "turns": ("cpu_us_turn", [
        ("raw, 50 turns", RAW, "a 50 15"),
        ("raw, 200 turns", RAW, "a 200 5"),
        ("endstop, 10 turns", PEER, "a 10 31"),
        ("endstop, 50 turns", PEER, "a 50 15"),
        ("endstop, 200 turns", PEER, "a 200 5"),
        ("endstop, 50 turns streamed", PEER, "a 50 15 stream"),
    ]),
    "shares": ("cpu_us_turn", [
        ("raw, 50 turns", RAW, "a 50 15"),
        ("kernel + wire, 50 turns", PEER, "k 50 31"),
        ("kernel + wire, 200 turns", PEER, "k 200 9"),
        ("kernel + wire, 50 turns streamed", PEER, "k 50 31 stream"),
        ("HTTP client alone, 50 turns", PEER, "h 50 15"),
        ("HTTP client alone, 50 turns streamed", PEER, "h 50 15 stream"),
    ]),
    "tokens": ("cpu_us_tok", [
        ("raw, 200,000 tokens", RAW, "c 200000"),
        ("endstop", PEER, "c 200000"),
        ("endstop, deltas read", PEER, "c 200000 events"),
    ]),
    "cancel": ("close_ms", [
        ("raw, a drop", RAW, "d slow-20000-1 50 100"),
        ("endstop, 100 cancels", PEER, "d slow-20000-1 50 100"),
    ]),
    "cold": ("spawn_to_first_ms", [("raw", RAW, "e"), ("endstop, library", PEER, "e")]),
    "many": ("cpu_us_turn", [
        ("raw, 1000 runs x 10 turns, 256 at once", RAW, "b 1000 10 256"),
        ("endstop", PEER, "b 1000 10 256"),
    ]),
    "suspended": ("kb_per_run", [("raw, 1000 runs", RAW, "f 1000"), ("HTTP client alone", PEER, "g 1000"), ("endstop", PEER, "f 1000")]),
    "cli": ("wall_ms", [
        ("an empty process (/bin/true)", "/bin/true", None),
        ("endstop --version", CLI, "--version"),
        ("endstop run, one turn", CLI, "run"),
    ]),
}
# Fewer repetitions for items that take long or repeat internally.
FEWER = {"cancel": 3, "suspended": 3, "many": 3}
ALSO = ("closed", "still_open", "close_ms_p99", "close_ms_max", "new_connections", "lost_chars", "run_end_ms", "ok")


def free_port():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


held = f"server, clients on processors {ARGS.pin}" if PIN else "not pinned"


def hold(which):
    """Returns a function that pins a child process to its processor before it starts."""
    return (lambda: os.sched_setaffinity(0, {PIN[which]})) if PIN else None


class Mock:
    def __enter__(self):
        self.port = free_port()
        self.process = subprocess.Popen(
            [os.path.join(ARGS.perf_bin, "mockllm"), f"127.0.0.1:{self.port}"],
            stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, preexec_fn=hold(0))
        for _ in range(200):
            try:
                socket.create_connection(("127.0.0.1", self.port), 1).close()
                return self
            except OSError:
                time.sleep(0.02)
        sys.exit("the mock server did not start")

    def __exit__(self, *_):
        self.process.send_signal(signal.SIGTERM)
        self.process.wait()


def once(program, words, port):
    env = dict(os.environ, MOCK_PORT=str(port), OPENAI_API_KEY="x", NO_COLOR="1")
    if program in (CLI, "/bin/true"):
        command = [program] + (words.split() if words else [])
        if words == "run":
            command += ["--model", "openai/loop-1", "--base-url", f"http://127.0.0.1:{port}/v1", "go"]
        began = time.perf_counter()
        done = subprocess.run(command, env=env, cwd="/", capture_output=True, preexec_fn=hold(1))
        result = {"wall_ms": (time.perf_counter() - began) * 1e3}
    else:
        env["SPAWN_NS"] = str(time.monotonic_ns())
        done = subprocess.run([program] + words.split(), env=env, capture_output=True, preexec_fn=hold(1))
        result = json.loads(done.stdout.splitlines()[-1]) if done.returncode == 0 else {}
    if done.returncode != 0:
        sys.exit(f"{program} {words}: status {done.returncode}: {done.stderr.decode()[-400:]}")
    return result


def main():
    for name in ARGS.items or PLAN:
        field, rows = PLAN[name]
        got = {label: [] for label, _, _ in rows}
        reps = min(ARGS.reps, FEWER.get(name, ARGS.reps)) * (5 if name in ("cli", "cold") else 1)
        for rep in range(reps):
            with Mock() as mock:
                for label, program, words in rows:
                    result = once(program, words, mock.port)
                    got[label].append(result)
                    if ARGS.out:
                        line = {"plan": name, "label": label, "rep": rep, "load": os.getloadavg()[0], **result}
                        with open(ARGS.out, "a") as out:
                            out.write(json.dumps(line) + "\n")
        print(f"\n### {name}: {field} ({reps} repeats, {held}, load {os.getloadavg()[0]:.1f})\n")
        print("| what | median | least | ratio of medians | ratio of least | also |\n|---|---:|---:|---:|---:|---|")
        first = [r[field] for r in got[rows[0][0]]]
        for label, _, _ in rows:
            values = [r[field] for r in got[label]]
            also = []
            for key in ALSO:
                if key in got[label][0]:
                    seen = [r[key] for r in got[label] if r[key] is not None]
                    worst = f"{max(seen):.3f}".rstrip("0").rstrip(".") if seen else "-"
                    also.append(f"{key} {worst}" if min(seen, default=0) == max(seen, default=0)
                                else f"{key} {statistics.median(seen):.3f} (most {worst})")
            print(f"| {label} | {statistics.median(values):.3f} | {min(values):.3f} | "
                  f"{statistics.median(values) / statistics.median(first):.2f} | {min(values) / min(first):.2f} | {'; '.join(also)} |",
                  flush=True)


main()
