#!/usr/bin/env python3
"""Runs the field cases: responses, sessions and loops that people have reported, with the right result.

    python3 testdata/fieldcases/run.py --bin target/debug/endstop [ID…]

Prints a line for each case, and exits with 1 if one differs from its `want`. A case with `judge` is not
decided yet: its difference is shown and does not count. README.md describes the fields.
"""

import base64
import http.server
import json
import os
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

HERE = Path(__file__).resolve().parent


class Server(http.server.ThreadingHTTPServer):
    """Answers the requests with the steps of a case, in order; the last step repeats."""

    daemon_threads = True

    def __init__(self, steps):
        super().__init__(("127.0.0.1", 0), Handler)
        self.steps, self.requests, self.lock = steps, [], threading.Lock()
        threading.Thread(target=self.serve_forever, daemon=True).start()

    def handle_error(self, request, client_address):
        """The client may hang up at any time."""


class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def log_message(self, *args):
        pass

    def do_POST(self):
        body = self.rfile.read(int(self.headers.get("content-length", 0)))
        try:
            body = json.loads(body)
        except ValueError:
            body = None
        with self.server.lock:
            number = len(self.server.requests)
            self.server.requests.append(body)
        step = self.server.steps[min(number, len(self.server.steps) - 1)]
        # `a%d` in a chunk becomes an argument that differs in each response.
        chunks = [c.replace("a%d", f"a{number}") if isinstance(c, str) else c for c in step["parts"]]
        headers = {"content-type": "text/event-stream", **step.get("headers", {})}
        streams = step.get("stream", True)
        if streams:
            headers["transfer-encoding"] = "chunked"
        else:
            headers["content-length"] = str(sum(len(chunk.encode()) for chunk in chunks))
        self.send_response(step.get("status", 200))
        for name, value in headers.items():
            self.send_header(name, value)
        self.end_headers()
        for chunk in chunks:
            if isinstance(chunk, str):
                self.write(chunk.encode("utf-8", "surrogatepass"), streams)
                continue
            until = time.monotonic() + chunk["ping"]
            while time.monotonic() < until:
                self.write(chunk.get("data", ": ping\n\n").encode(), streams)
                time.sleep(1)
        if streams:
            self.wfile.write(b"0\r\n\r\n")

    def write(self, data, chunked):
        if data:
            self.wfile.write(b"%x\r\n%s\r\n" % (len(data), data) if chunked else data)
            self.wfile.flush()


def environment(folder, **more):
    return {"PATH": os.environ["PATH"], "HOME": folder, "NO_COLOR": "1", **more}


def detect(program, case, folder):
    command = [program, "detect", "--api", case["api"], "--status", str(case.get("status", 200))]
    for header in case.get("headers") or []:
        command += ["--header", header]
    body = case["body"].encode("utf-8", "surrogatepass")
    told = json.loads(subprocess.run(command, input=body, capture_output=True).stdout.splitlines()[0])
    signal, error, usage = told["signal"], told.get("error") or {}, told["usage"]
    return {
        "reason": signal["reason"],
        "text": told["turn"]["text"],
        "calls": [[call["name"], call["arguments"]] for call in told["turn"]["tool_calls"]],
        "error_class": error.get("class"),
        "retry_after_ms": error.get("retry_after_ms"),
        "invalid": bool(signal["provider_specific"]["metadata"].get("invalid_args")),
        **{name: usage[name] for name in ("input_tokens", "output_tokens", "cached_input_tokens")},
    }


def simulate(program, case, folder):
    scenario = json.dumps(case["scenario"]).encode()
    done = subprocess.run([program, "simulate", "-"], input=scenario, capture_output=True)
    told = json.loads(done.stdout)
    return {
        "termination": told["termination"],
        "turns": told["turns"],
        "tool_calls": told["tool_calls"],
        "text": told["last_text"],
    }


def audit(program, case, folder):
    sessions = Path(folder) / "sessions"
    for name, content in case["files"].items():
        path = sessions / name
        path.parent.mkdir(parents=True, exist_ok=True)
        data = content.encode() if isinstance(content, str) else base64.b64decode(content["base64"])
        path.write_bytes(data)
    command = [program, "audit", "--json", str(sessions)]
    done = subprocess.run(command, capture_output=True, env=environment(folder))
    try:
        told = json.loads(done.stdout)
    except ValueError:
        # No session was found.
        return {"sessions": 0, "problems": len(case["files"])}
    spent = told["spent"]
    return {
        "sessions": told["sessions"],
        "ended": "+".join(told["ended"]) if told["ended"] else None,
        "turns": spent["turns"],
        "calls": told["calls"],
        "in": spent["input_tokens"],
        "out": spent["output_tokens"],
        "usd": spent["usd"],
        "silent": spent["silent_turns"],
        "problems": sum(problem["count"] for problem in told["problems"].values()),
    }


def live(program, case, folder):
    """Runs the agent, or another one behind `guard`, against a server that plays the steps."""
    server = Server(case["steps"])
    address = f"http://127.0.0.1:{server.server_port}"
    arguments = [a.replace("{HERE}", str(HERE)).replace("{PY}", sys.executable) for a in case["args"]]
    try:
        if case["via"] == "run":
            api = case.get("api")
            base = address if api == "anthropic-messages" else f"{address}/v1"
            command = [program, "run", "--json", "--journal", "off", "--base-url", base, "--model", "m"]
            command += ["--dir", folder] + (["--api", api] if api else []) + arguments + ["Do it."]
            variables = environment(folder)
        else:
            command = [program, "guard", "--json", "--journal", "off", "--grace", "2s", *arguments]
            command += ["--", sys.executable, str(HERE / "agent.py")]
            keys = {"OPENAI_BASE_URL": f"{address}/v1", "OPENAI_API_KEY": "k"}
            variables = environment(folder, **keys)
        done = subprocess.run(command, capture_output=True, env=variables, cwd=folder, timeout=90)
        lines = [line for line in done.stdout.decode().splitlines() if line.startswith("{")]
        told = json.loads(lines[-1])
        return {
            "termination": told["termination"],
            "requests": server.requests,
            "turns": told["turns"],
            "tool_calls": told["tool_calls"],
            "text": told["last_text"],
            "cost_usd": told["cost_usd"],
            "cost_unknown": told["cost_unknown"],
        }
    finally:
        server.shutdown()
        server.server_close()


VIA = {"detect": detect, "simulate": simulate, "audit": audit, "run": live, "guard": live}


def one_of(wanted, value):
    return value in wanted if isinstance(wanted, list) else value == wanted


# How each key of `want` is compared. `got` is the result, `wanted` the value of the key.
COMPARED = {
    "any": lambda got, wanted: any(fits(want, got) for want in wanted),
    "not_termination": lambda got, wanted: not one_of(wanted, got["termination"]),
    "not_ended": lambda got, wanted: not one_of(wanted, got["ended"]),
    "calls": lambda got, wanted: got["calls"] == wanted,
    "calls_any": lambda got, wanted: got["calls"] in wanted or got["invalid"],
    # Belongs to `calls_any`.
    "invalid_ok": lambda got, wanted: True,
    "blank": lambda got, wanted: not got["text"].strip() and not got["calls"],
    "max_requests": lambda got, wanted: len(got["requests"]) <= wanted,
    "requests_valid": lambda got, wanted: all(valid(request) for request in got["requests"]),
    "cost_usd": lambda got, wanted: abs(got["cost_usd"] - wanted) < 1e-7,
    "usd": lambda got, wanted: abs(got["usd"] - wanted) < 1e-7,
    "cost_usd_max": lambda got, wanted: got["cost_usd"] <= wanted,
    "cost_usd_min": lambda got, wanted: got["cost_usd"] >= wanted,
    "cost_unknown_or_min": lambda got, wanted: got["cost_unknown"] or got["cost_usd"] >= wanted,
}


def valid(request):
    """True for a body of UTF-8 JSON without halves of characters."""
    try:
        json.dumps(request, ensure_ascii=False).encode()
    except UnicodeError:
        return False
    return request is not None


def fits(want, got):
    for key, wanted in want.items():
        compare = COMPARED.get(key, lambda got, wanted, key=key: one_of(wanted, got[key]))
        if not compare(got, wanted):
            return False
    return True


def shown(case, got):
    keys = [key for key in got if key in case["want"] or key in ("reason", "termination", "ended")]
    return ", ".join(f"{key} {str(got[key])[:90]}" for key in keys)


def main():
    arguments = sys.argv[1:]
    program = "endstop"
    if "--bin" in arguments:
        at = arguments.index("--bin")
        program = os.path.abspath(arguments[at + 1])
        del arguments[at : at + 2]
    cases = [json.loads(line) for line in (HERE / "cases.jsonl").read_text().splitlines()]
    known = {case["id"] for case in cases}
    unknown = [name for name in arguments if name not in known]
    if unknown:
        sys.exit(f"there is no case {', '.join(unknown)}")
    counts = {"right": 0, "open": 0, "wrong": 0}
    for case in cases:
        if arguments and case["id"] not in arguments:
            continue
        with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
            try:
                got = VIA[case["via"]](program, case, folder)
                right, told = fits(case["want"], got), shown(case, got)
            except Exception as error:  # One that crashes must not hide the others.
                right, told = False, f"{type(error).__name__}: {error}"
        verdict = "right" if right else "open" if "judge" in case else "wrong"
        counts[verdict] += 1
        print(f"{case['id']:5} {verdict:6} {told}", flush=True)
    print(", ".join(f"{count} {verdict}" for verdict, count in counts.items()))
    return 1 if counts["wrong"] else 0


if __name__ == "__main__":
    sys.exit(main())
