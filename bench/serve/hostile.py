#!/usr/bin/env python3
"""Sends hostile requests to a real `endstop serve` through raw sockets, and looks for planted secrets in what it writes.

    python3 bench/serve/hostile.py LAB --endstop target/debug/endstop --out bench/serve/HOSTILE.md

LAB is a folder for the servers' files. Two servers are started on loopback: one with tokens, one without. Each attempt has the
statuses that it may get (0 is a connection that was closed without an answer); after each the server must answer `/healthz`, and at
the end no attempt may have started a run. A planted secret is in the environment, a token file, a task, and the output of a tool; it
must be in no answer, metric, page or log, and the script checks that the model has got it, so that there was something to find. Only
Python's standard library is used. A check that fails ends with status 1.
"""

import argparse
import base64
import gzip
import http.client
import json
import os
import pathlib
import signal
import socket
import subprocess
import sys
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

DEADLINE = 120
# The time after which a request that does not arrive is given up, as the book states, and what a busy machine may add.
SLOWEST, SLACK = 30, 30
ALL, BOUND = "token-of-everything-0123456789", "token-of-the-bound-agent-0123456789"
PLANTED = {
    "OPENAI_API_KEY": "sk-proj-plantedplantedplantedplanted0123456789",
    "DEPLOY_TOKEN": "dp_planted_7f3a9c1e5b2d8046_deploy",
}
# A credential of a known format, which is in no variable.
IN_TASK = "ghp_" + "pLaNtEd0123456789abcdefghijklmnopqrs"[:36]
SECRETS = [*PLANTED.values(), IN_TASK, ALL, BOUND]
REFUSED = {400, 401, 403, 404, 405, 408, 413, 414, 415, 421, 422, 431, 501, 505}


class Model(ThreadingHTTPServer):
    """Calls `shell` with a command that prints a secret, and then answers with it."""

    def __init__(self):
        self.got = []
        super().__init__(("127.0.0.1", 0), Answers)
        threading.Thread(target=self.serve_forever, daemon=True).start()


class Answers(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def log_message(self, *_):
        pass

    def do_POST(self):
        body = self.rfile.read(int(self.headers["content-length"])).decode()
        self.server.got.append(body)
        done = '"role":"tool"' in body.replace(": ", ":")
        said = f"The key is {PLANTED['DEPLOY_TOKEN']}, and {IN_TASK}."
        chunks = [{"choices": [{"index": 0, "delta": {"content": said[at : at + 7]}}]} for at in range(0, len(said), 7)]
        if not done:
            call = {"name": "shell", "arguments": json.dumps({"command": f"echo {PLANTED['DEPLOY_TOKEN']} {IN_TASK}"})}
            chunks.append({"choices": [{"index": 0, "delta": {"tool_calls": [{"index": 0, "id": "c1", "type": "function", "function": call}]}}]})
        chunks.append({"choices": [{"index": 0, "delta": {}, "finish_reason": "stop" if done else "tool_calls"}]})
        chunks.append({"choices": [], "usage": {"prompt_tokens": 10, "completion_tokens": 10}})
        text = "".join(f"data: {json.dumps(chunk)}\n\n" for chunk in chunks) + "data: [DONE]\n\n"
        self.send_response(200)
        self.send_header("content-type", "text/event-stream")
        self.send_header("content-length", str(len(text)))
        self.end_headers()
        self.wfile.write(text.encode())


class Server:
    """A running `endstop serve`, whose output goes to a log."""

    def __init__(self, endstop, folder, model, tokens):
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "serve.toml").write_text(
            f'base_url = "http://127.0.0.1:{model.server_port}/v1"\nmodel = "script"\n'
            '[agents.leaky]\ntools = ["shell"]\n[agents.bound]\ntools = []\n'
        )
        (folder / "tokens.toml").write_text(
            f'[tokens.all]\ntoken = "{ALL}"\n[tokens.bound]\ntoken = "{BOUND}"\nagents = ["bound"]\n'
        )
        env = {**os.environ, **PLANTED, "XDG_STATE_HOME": str(folder), "XDG_CONFIG_HOME": str(folder)}
        env.pop("ENDSTOP_SERVE_TOKEN", None)
        args = [endstop, "serve", "--listen", "127.0.0.1:0", "--journal", "journal.db", "--config", "serve.toml", "--json"]
        if tokens:
            args += ["--token-file", "tokens.toml"]
        self.folder, self.token = folder, ALL if tokens else None
        self.log = open(folder / "serve.log", "w")
        self.process = subprocess.Popen(args, cwd=folder, env=env, stdout=subprocess.PIPE, stderr=self.log)
        self.first = self.process.stdout.readline()
        if not self.first:
            sys.exit("serve did not start:\n" + (folder / "serve.log").read_text()[-2000:])
        self.host = json.loads(self.first)["address"]
        self.port = int(self.host.rsplit(":", 1)[1])

    def ask(self, method, path, body=None, headers=(), token=None):
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=DEADLINE)
        try:
            token = token or self.token
            given = {"authorization": f"Bearer {token}"} if token else {}
            if body is not None:
                given["content-type"] = "application/json"
            connection.request(method, path, None if body is None else json.dumps(body), {**given, **dict(headers)})
            answer = connection.getresponse()
            return answer.status, answer.read()
        finally:
            connection.close()

    def lives(self):
        return self.process.poll() is None and self.ask("GET", "/healthz")[0] == 200

    def runs(self):
        return json.loads(self.ask("GET", "/v1/runs?limit=200")[1])["runs"]

    def peak(self):
        """The largest memory that the process had, in MiB."""
        lines = pathlib.Path(f"/proc/{self.process.pid}/status").read_text().splitlines()
        return next((int(line.split()[1]) >> 10 for line in lines if line.startswith("VmHWM")), 0)

    def stop(self):
        self.process.send_signal(signal.SIGTERM)
        rest = self.process.communicate(timeout=DEADLINE)[0]
        self.log.close()
        return (self.first + rest).decode(errors="replace") + (self.folder / "serve.log").read_text(errors="replace")


def raw(server, data, most=1 << 20):
    """Sends bytes, or the parts of an iterator, until the server closes; returns the status and the whole answer."""
    parts = [data] if isinstance(data, bytes) else data
    got = b""
    with socket.create_connection(("127.0.0.1", server.port), timeout=SLOWEST + SLACK) as connection:
        try:
            for part in parts:
                connection.sendall(part)
        except OSError:
            pass  # The server has closed; its answer may be there.
        try:
            while len(got) < most and (part := connection.recv(65536)):
                got += part
        except TimeoutError:
            return "open", got
        except OSError:
            pass
    words = got.split(b" ", 2)
    return int(words[1]) if got.startswith(b"HTTP/1.1 ") and len(words) > 2 else 0, got


def request(server, line, headers=(), body=b"", host=None, token=True, close=True):
    """A request as bytes; `headers` are lines. Its host and its token are right unless others are given."""
    lines = [line + " HTTP/1.1"]
    if host is not False:
        lines.append(f"host: {host or server.host}")
    if token and server.token:
        lines.append(f"authorization: Bearer {server.token if token is True else token}")
    if close:
        lines.append("connection: close")
    lines += headers
    return "\r\n".join(lines).encode() + b"\r\n\r\n" + body


def post(server, headers=(), body=b"", path="/v1/runs", **more):
    lines = ["content-type: application/json", f"content-length: {len(body)}", *headers]
    return request(server, f"POST {path}", lines, body, **more)


TASK = b'{"agent":"leaky","task":"hidden"}'


def attempts(closed, open_):
    """Yields the group, the name, the server, the bytes, and the statuses that are right."""
    for what, line in (
        ("no token", None), ("a wrong token", "Bearer wrong-token-wrong-token"), ("a part of it", f"Bearer {ALL[:-1]}"),
        ("one byte more", f"Bearer {ALL}x"), ("an empty one", "Bearer "), ("as Basic", "Basic " + base64.b64encode(f"x:{ALL}".encode()).decode()),
        ("without its scheme", ALL), ("a cookie", None), ("1 MB", "Bearer " + "x" * 1_000_000),
    ):
        headers = [f"authorization: {line}"] if line else ([f"cookie: token={ALL}"] if what == "a cookie" else [])
        right = {401, 431, 400, 0} if what == "1 MB" else {401}
        yield "token", what, closed, post(closed, headers, TASK, token=False), right
        if what != "1 MB":
            yield "token", what + ", /metrics", closed, request(closed, "GET /metrics", headers, token=False), {401}
    two = [f"authorization: Bearer {ALL}", f"authorization: Bearer {BOUND}"]
    yield "token", "two headers", closed, post(closed, two, TASK, token=False), {400, 401}
    yield "token", "an agent of another token", closed, post(closed, body=TASK, token=BOUND), {404}

    for name in ("token", "access_token", "x", "%74oken", "after"):
        yield "token in the URL", f"{name}=", closed, request(closed, f"GET /v1/runs?{name}={ALL}"), {400}
    yield "token in the URL", "of the page", open_, request(open_, "GET /?token=x"), {400}
    yield "token in the URL", "user@host", open_, request(open_, f"GET http://user:{ALL}@{open_.host}/v1/runs"), REFUSED

    for line in (
        "origin: http://evil.example", "origin: null", "origin: http://localhost:1", f"origin: http://{open_.host}.evil.example",
        "origin: file://", "sec-fetch-site: cross-site", "sec-fetch-site: same-site",
    ):
        yield "cross-origin", line.replace(open_.host, "HOST"), open_, post(open_, [line], TASK), {403}
        yield "cross-origin", "GET, " + line.replace(open_.host, "HOST"), open_, request(open_, "GET /v1/runs", [line]), {403}
    for kind in ("text/plain", "application/x-www-form-urlencoded", "multipart/form-data", "application/jsonx", ""):
        headers = [f"content-type: {kind}", f"content-length: {len(TASK)}"]
        yield "cross-origin", f"a form: {kind or 'no type'}", open_, request(open_, "POST /v1/runs", headers, TASK), {415}
    asks = ["origin: http://evil.example", "access-control-request-method: POST"]
    yield "cross-origin", "a preflight", open_, request(open_, "OPTIONS /v1/runs", asks), {403, 405}

    for host in ("evil.example", f"evil.example:{open_.port}", f"127.0.0.1.evil.example:{open_.port}", f"localhost.evil.example:{open_.port}", "127.0.0.1@evil.example", "[::2]", "0.0.0.0", "192.168.0.1"):
        yield "DNS rebinding", f"host: {host}".replace(str(open_.port), "PORT"), open_, post(open_, body=TASK, host=host), {421, 400}
    yield "DNS rebinding", "another name in the URL", open_, request(open_, "GET http://evil.example/v1/runs"), {421, 400}
    yield "DNS rebinding", "X-Forwarded-Host", open_, request(open_, "GET /v1/runs", ["x-forwarded-host: 127.0.0.1"], host="evil.example"), {421}

    hidden = post(open_, body=TASK)
    for what, lines, body in (
        ("a length and chunks", ["content-length: 4", "transfer-encoding: chunked"], b"0\r\n\r\n"),
        ("chunks and a length", ["transfer-encoding: chunked", "content-length: 4"], b"0\r\n\r\n"),
        ("two lengths", ["content-length: 4", "content-length: 5"], b"0\r\n\r\n"),
        ("a list of lengths", ["content-length: 4, 5"], b"0\r\n\r\n"),
        ("length +4", ["content-length: +4"], b"0\r\n\r\n"),
        ("length -1", ["content-length: -1"], b""),
        ("length 0x4", ["content-length: 0x4"], b"0\r\n\r\n"),
        ("a length of 30 digits", ["content-length: " + "9" * 30], b""),
        ("an unknown encoding", ["transfer-encoding: xchunked"], b"0\r\n\r\n"),
        ("chunked, identity", ["transfer-encoding: chunked, identity"], b"0\r\n\r\n"),
        ("chunked twice", ["transfer-encoding: chunked", "transfer-encoding: chunked"], b"0\r\n\r\n"),
        ("a space before the colon", ["content-length : 4"], b"0\r\n\r\n"),
        ("a folded line", ["x: y", " content-length: 4"], b"0\r\n\r\n"),
        ("a folded encoding", ["transfer-encoding:", " chunked"], b"0\r\n\r\n"),
        ("chunked, chunked", ["transfer-encoding: chunked, chunked"], b"0\r\n\r\n"),
        ("gzip, chunked", ["transfer-encoding: gzip, chunked"], b"0\r\n\r\n"),
        # A bare LF is not here: it may end a line (RFC 9112, 2.2), and does.
        ("a bare CR", ["x: y\rcontent-length: 4"], b"0\r\n\r\n"),
        ("a NUL", ["x: y\0z"], b""),
        ("a chunk of 2^68 bytes", ["transfer-encoding: chunked"], b"fffffffffffffffff\r\nx\r\n0\r\n\r\n"),
        ("a chunk with a sign", ["transfer-encoding: chunked"], b"+1\r\nx\r\n0\r\n\r\n"),
        ("a chunk without its end", ["transfer-encoding: chunked"], b"1\r\nxx0\r\n\r\n"),
        ("a chunk extension of 1 MB", ["transfer-encoding: chunked"], b"1;" + b"x" * 1_000_000 + b"\r\nx\r\n0\r\n\r\n"),
    ):
        lines = ["content-type: application/json", *lines]
        first = request(open_, "POST /v1/runs", lines, body, close=False)
        yield "smuggling", what, open_, first + hidden, {400, 413, 0}
    yield "smuggling", "two hosts", open_, post(open_, ["host: evil.example"], TASK), {400, 421}
    yield "smuggling", "two hosts, the wrong one first", open_, post(open_, [f"host: {open_.host}"], TASK, host="evil.example"), {400, 421}
    yield "smuggling", "no host", open_, post(open_, body=TASK, host=False), {400, 421}
    yield "smuggling", "HTTP/1.0 without a host", open_, b"GET /v1/runs HTTP/1.0\r\n\r\n", {400, 421, 0}
    yield "smuggling", "HTTP/0.9", open_, b"GET /v1/runs\r\n\r\n", {400, 0}
    yield "smuggling", "HTTP/2 by prior knowledge", open_, b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + b"\0\0\0\4\0\0\0\0\0", {400, 505, 0}
    yield "smuggling", "an upgrade to h2c", open_, post(open_, ["connection: upgrade", "upgrade: h2c", "http2-settings: AAMAAABkAAQAAP__"], b"{}"), {400}
    yield "smuggling", "CONNECT", open_, request(open_, f"CONNECT {open_.host}", host="evil.example"), REFUSED
    yield "smuggling", "TRACE", closed, request(closed, "TRACE /v1/runs"), {405}
    yield "smuggling", "10,000 headers", open_, request(open_, "GET /v1/runs", ["x: y"] * 10_000), {400, 431, 0}
    yield "smuggling", "a header of 8 MB", open_, request(open_, "GET /v1/runs", ["x: " + "y" * (8 << 20)]), {400, 431, 0}
    yield "smuggling", "a path of 1 MB", open_, request(open_, "GET /v1/runs/" + "a" * (1 << 20)), {400, 404, 414, 431, 0}

    for path in (
        "/../../etc/passwd", "/v1/runs/../../../etc/passwd", "/v1/runs/%2e%2e%2f%2e%2e%2fetc%2fpasswd", "/v1/runs/..%2f..%2fjournal.db",
        "/%252e%252e%252fetc%252fpasswd", "/..%5c..%5cetc%5cpasswd", "/v1/runs/%c0%ae%c0%ae%c0%afetc", "/v1/runs/%00", "/v1/runs/a%00b",
        "//etc/passwd", "/page.js/../../journal.db", "/journal.db", "/serve.toml", "/tokens.toml", "/.%2e/tokens.toml",
        "/v1/runs/'%20OR%201=1%20--", "/v1/runs/%", "/v1/runs/" + "%41" * 5_000,
    ):
        yield "path traversal", path if len(path) < 60 else path[:40] + "…", open_, request(open_, f"GET {path}"), {400, 404, 414}
    for what in ("events", "branch", "cancel"):
        method = "GET" if what == "events" else "POST"
        body = b'{"turn":0}' if what == "branch" else b"{}"
        path = f"/v1/runs/%2e%2e%2f%2e%2e%2fjournal/{what}"
        lines = ["content-type: application/json", f"content-length: {len(body)}"] if method == "POST" else []
        yield "path traversal", path, open_, request(open_, f"{method} {path}", lines, body if lines else b""), {400, 404}

    announced = ["content-type: application/json", f"content-length: {1 << 30}"]
    yield "oversized", "1 GB announced, nothing sent", open_, request(open_, "POST /v1/runs", announced), {413}
    megabyte = b"x" * (1 << 20)
    yield "oversized", "1 GB sent", open_, _parts(request(open_, "POST /v1/runs", announced), megabyte, 1024), {413, 0}
    chunks = request(open_, "POST /v1/runs", ["content-type: application/json", "transfer-encoding: chunked"])
    yield "oversized", "1 GB in chunks", open_, _parts(chunks, b"100000\r\n" + megabyte + b"\r\n", 1024), {413, 0}
    yield "oversized", "1 GB of heads", open_, _parts(request(open_, "GET /v1/runs")[:-2], b"x: " + megabyte + b"\r\n", 1024), {400, 431, 0}
    small = gzip.compress(b'{"agent":"leaky","task":"' + b"x" * (64 << 20) + b'"}')
    yield "oversized", "64 MB in gzip", open_, post(open_, ["content-encoding: gzip"], small), {400, 415}
    yield "oversized", "nothing, in JSON", open_, post(open_), {400}

    for what, body in (
        ("100,000 levels", b'{"agent":"leaky","task":"x","limits":' + b'{"a":' * 100_000), ("a list of 500,000", b'{"agent":"leaky","task":"x","limits":{"a":[' + b"0," * 400_000 + b"0]}}"),
        ("200 levels, closed", b'{"agent":"leaky","task":"x","limits":{"a":' + b"[" * 200 + b"]" * 200 + b"}}"), ("a key twice", b'{"agent":"leaky","agent":"bound","task":"x"}'),
        ("1e999999", b'{"agent":"leaky","task":"x","limits":{"max_turns":1e999999}}'), ("NaN", b'{"agent":"leaky","task":"x","limits":{"max_turns":NaN}}'),
        ("not UTF-8", b'{"agent":"leaky","task":"\xff\xfe"}'), ("half a surrogate", b'{"agent":"leaky","task":"\\ud800"}'), ("another type", b'["leaky"]'),
        ("an origin", b'{"agent":"leaky","task":"x","origin":{"run":"y","turn":0}}'), ("a model", b'{"agent":"leaky","task":"x","model":"y"}'), ("a raised limit", b'{"agent":"leaky","task":"x","limits":{"max_turns":100000000}}'),
    ):
        yield "JSON", what, open_, post(open_, body=body), {400, 422}
    yield "JSON", "a key of 10 kB", open_, post(open_, ["idempotency-key: " + "k" * 10_000], TASK), {400}
    yield "JSON", "two keys", open_, post(open_, ["idempotency-key: a", "idempotency-key: b"], TASK), {400}


def _parts(head, part, count):
    yield head
    for _ in range(count):
        yield part


def slow(server, name, begin, drip):
    """Opens 100 connections that send a byte each second; returns when the last of them was closed."""
    connections = [socket.create_connection(("127.0.0.1", server.port)) for _ in range(100)]
    began, longest, statuses, asked = time.monotonic(), 0.0, set(), 0.0
    for connection in connections:
        connection.sendall(begin)
        connection.setblocking(False)
    last = began
    while connections and time.monotonic() - began < SLOWEST + SLACK:
        before = time.monotonic()
        if not server.lives():
            return name, "dead", "", False
        asked = max(asked, time.monotonic() - before)
        drips = time.monotonic() - last >= 1
        last = time.monotonic() if drips else last
        for connection in list(connections):
            try:
                if drips:
                    connection.sendall(drip)
                got = connection.recv(4096)
                statuses.add(int(got.split(b" ", 2)[1]) if got.startswith(b"HTTP/1.1 ") else 0)
            except BlockingIOError:
                continue
            except OSError:
                statuses.add(0)
            longest = time.monotonic() - began
            connection.close()
            connections.remove(connection)
        time.sleep(0.05)
    for connection in connections:
        connection.close()
    good = not connections and statuses <= {0, 400, 408, 503} and asked < 10
    detail = f"closed after {longest:.0f} s at the latest, other requests {asked * 1000:.0f} ms at most" if not connections else f"{len(connections)} are open"
    return name, "/".join(map(str, sorted(statuses))), detail, good


def leaks(server, model):
    """Performs a run whose task, tool and answer contain secrets, and returns where they are found again."""
    status, text = server.ask("POST", "/v1/runs", {"agent": "leaky", "task": f"Use {IN_TASK} and {PLANTED['DEPLOY_TOKEN']}."})
    run = json.loads(text)["run_id"]
    places = {"the answer to the start": text}
    places["the events"] = server.ask("GET", f"/v1/runs/{run}/events")[1]
    end = time.monotonic() + DEADLINE
    while json.loads(server.ask("GET", f"/v1/runs/{run}")[1])["state"] != "ended" and time.monotonic() < end:
        time.sleep(0.05)
    for name, path in (
        ("the outcome", f"/v1/runs/{run}"), ("the list", "/v1/runs"), ("/metrics", "/metrics"), ("the events, read again", f"/v1/runs/{run}/events"),
        ("the page", "/"), ("its script", "/page.js"), ("its style", "/page.css"), ("the agents", "/v1/agents"), ("OpenAPI", "/v1/openapi.json"),
        ("the A2A card", "/a2a/leaky/.well-known/agent-card.json"), ("/readyz", "/readyz"),
    ):
        places[name] = server.ask("GET", path)[1]
    for name, headers in (("a refused token", {"authorization": f"Bearer {ALL[:-1]}"}), ("an error", {"last-event-id": ALL})):
        places[name] = server.ask("GET", f"/v1/runs/{run}/events", headers=headers)[1]
    places["a refused URL"] = server.ask("GET", f"/v1/runs?token={ALL}")[1]
    heard = any(PLANTED["DEPLOY_TOKEN"] in body and '"role":"tool"' in body.replace(": ", ":") for body in model.got)
    return places, heard, json.loads(places["the outcome"])["termination"]


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("lab", type=pathlib.Path)
    parser.add_argument("--endstop", type=pathlib.Path, required=True)
    parser.add_argument("--out", type=pathlib.Path)
    arguments = parser.parse_args()
    lab = arguments.lab.resolve() / f"hostile-{os.getpid()}"
    model = Model()
    closed, open_ = (Server(arguments.endstop.resolve(), lab / name, model, name == "closed") for name in ("closed", "open"))
    rows, failed = [], []

    def row(group, name, got, good, detail=""):
        rows.append((group, name, got, detail))
        print(f"{'good' if good else 'FAILED'}  {group}: {name}  {got}  {detail}", flush=True)
        if not good:
            failed.append(f"{group}: {name}")

    for group, name, server, data, right in attempts(closed, open_):
        status, answer = raw(server, data)
        served = answer.count(b"HTTP/1.1 2")
        secret = any(secret.encode() in answer for secret in SECRETS)
        file = b"root:" in answer or b"[tokens" in answer or b"SQLite format" in answer
        cors = b"access-control-allow" in answer.lower()
        lives = server.lives()
        detail = "; ".join(what for what, found in (("a second request was served", served), ("contains a secret", secret), ("contains a file", file), ("allows other origins", cors), ("the server is gone", not lives)) if found)
        row(group, name, status, status in right and not detail, detail)
    head = f"POST /v1/runs HTTP/1.1\r\nhost: {open_.host}\r\ncontent-type: application/json\r\n"
    for name, begin, drip in (
        ("100 connections that send nothing", b"", b""), ("100 heads, a byte a second", head[:20].encode(), b"x"), ("100 heads, a line a second", head.encode(), b"x: y\r\n"),
        ("100 bodies, a byte a second", (head + "content-length: 1000\r\n\r\n{").encode(), b" "), ("100 bodies in chunks of a byte", (head + "transfer-encoding: chunked\r\n\r\n").encode(), b"1\r\n \r\n"),
    ):
        name, got, detail, good = slow(open_, name, begin, drip)
        row("slow", name, got, good, detail)
    for server in (closed, open_):
        runs = server.runs()
        row("afterwards", f"runs that were started, {'with' if server.token else 'without'} tokens", len(runs), not runs, runs[:1] or "")
        row("afterwards", f"largest memory, {'with' if server.token else 'without'} tokens", f"{server.peak()} MiB", server.peak() < 512)
    places, heard, termination = leaks(closed, model)
    row("secrets", "the model got the output of the tool, with a secret", heard, heard and termination == "stop", termination)
    for server in (closed, open_):
        places[f"the log and the output, {'with' if server.token else 'without'} tokens"] = server.stop().encode()
    for file in sorted(file for file in (lab / "closed").rglob("journal.db*") if file.is_file()):
        places[f"the file {file.name}"] = file.read_bytes()
    for name, text in places.items():
        found = [secret[:6] + "…" for secret in SECRETS if secret.encode() in text]
        row("secrets", name, f"{len(text)} bytes", not found and (len(text) > 0 or "log" in name or "file" in name), f"contains {found}" if found else "")
    if arguments.out:
        write(arguments.out, rows)
    print(f"{len(failed)} checks failed: {failed}" if failed else f"all {len(rows)} checks are good")
    sys.exit(1 if failed else 0)


def write(out, rows):
    text = "# Hostile requests to `endstop serve`\n\nWritten by `bench/serve/hostile.py`; see there for the command. 0 is a connection that was closed without an answer. After each\n"
    text += "attempt the server answered `/healthz`.\n"
    group = None
    for of, name, got, detail in rows:
        if of != group:
            title = {"slow": "statuses", "afterwards": "figure", "secrets": "checked"}.get(of, "status")
            text += f"\n| {of} | {title} |\n|---|---|\n"
            group = of
        name = name.replace("|", "\\|")
        text += f"| {name} | {got}{': ' + str(detail) if detail else ''} |\n"
    out.write_text(text)


if __name__ == "__main__":
    main()
