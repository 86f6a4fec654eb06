"""A model provider on the loopback interface that speaks four formats, for real clients.

    with Provider({"turns": 3}) as provider:
        provider.base        # http://127.0.0.1:PORT
        provider.requests    # what arrived, with bodies

Which turn a request is on is read off its history (the number of tool results), so parallel clients
and retries cannot confuse it. Ids of calls are made from the history, too: two runs of the same
program get the same answers.

A scenario has these keys:

    turns     turns before the final text; the default is 3
    command   the shell command of each turn: a text, in which `{n}` is the turn, or a list
    hang      the turn whose stream stops in the middle, and stays open
    tools     `False` for a program that offers none, so that each of its calls is a turn
    hangs     the number of streams that do so; the default is all of that turn
    subs      the number of sub-agents that the first turn starts
    tool      [name, arguments] of the first turn, if the client has this tool
    usage     [turn, input tokens] from this turn on, until the history is compacted: a large prompt
              drives compaction
    input     input tokens of a call; the default is 1000
    cached    [tokens written to a cache, tokens read from it] of a call, in addition, in the format of Anthropic
    cut       "length" or "stop": the arguments of the first tool call end in the middle, with this reason
    text      the final text
    end       the shell command of a last turn before it, for a program that ends by a command
"""
import hashlib
import json
import subprocess
import threading
import time
import zlib
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import formats
from compare import masked

SUB = "SUBTASK"
# In the first message of Claude Code after a compaction.
COMPACTED = "session is being continued from a previous conversation"
SHELLS = ["Bash", "bash", "exec_command", "shell_command", "shell", "local_shell", "run_shell_command"]
AGENTS = ["Agent", "Task", "task", "agent", "spawn_agent", "invoke_agent", "generalist", "codebase_investigator"]


class Quiet(ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 256

    def handle_error(self, request, client_address):
        """Clients close connections early; that is not a fault of the provider."""


class Provider:
    def __init__(self, scenario, zstd=None):
        self.scenario = scenario
        self.zstd = zstd  # a Python with `zstandard`, for bodies of codex
        self.requests = []
        self.hangs = 0
        self.closed = threading.Event()
        outer = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"
            disable_nagle_algorithm = True

            def do_POST(self):
                outer.post(self)

            def do_GET(self):
                outer.get(self)

            do_HEAD = do_GET

            def log_message(self, *_):
                pass

        self.http = Quiet(("127.0.0.1", 0), Handler)
        self.base = f"http://127.0.0.1:{self.http.server_port}"

    def __enter__(self):
        threading.Thread(target=self.http.serve_forever, daemon=True).start()
        return self

    def __exit__(self, *_):
        self.closed.set()
        self.http.shutdown()
        self.http.server_close()

    def calls(self):
        return [request for request in self.requests if request["format"]]

    def note(self, handler, raw, body, name, plan):
        self.requests.append({
            "at": time.monotonic(), "method": handler.command, "path": handler.path, "raw": raw, "body": body,
            "headers": [(key.lower(), value) for key, value in handler.headers.items()],
            "format": name, "kind": plan and plan["kind"], "turn": plan and plan["turn"],
        })

    def get(self, handler):
        upgrade = handler.headers.get("upgrade", "").lower() == "websocket"
        self.note(handler, b"", None, None, None)
        if upgrade:
            return send(handler, 426, {"error": {"message": "no websocket"}}, {"connection": "close"})
        if handler.path.split("?")[0].rstrip("/").endswith("/models"):
            names = ["gpt-5.1", "gpt-5.1-codex", "gpt-4o", "claude-sonnet-4-5", "mock-model"]
            data = [{"id": name, "object": "model", "type": "model", "display_name": name} for name in names]
            return send(handler, 200, {"object": "list", "data": data, "models": [], "has_more": False})
        send(handler, 404, {"error": {"message": "not here", "type": "not_found_error"}})

    def post(self, handler):
        raw = handler.rfile.read(int(handler.headers.get("content-length", 0)))
        try:
            body = json.loads(self.plain(raw, handler.headers.get("content-encoding", "")))
        except ValueError:
            body = None
        path = handler.path.split("?")[0]
        name = formats.of_path(path)
        if name is None or not isinstance(body, dict):
            self.note(handler, raw, body, None, None)
            if path.endswith("/count_tokens") or path.endswith(":countTokens"):
                return send(handler, 200, {"input_tokens": 1000, "totalTokens": 1000})
            return send(handler, 404, {"error": {"message": "not here", "type": "not_found_error"}})
        plan = self.plan(name, body)
        plan["model"] = body.get("model") or path.split("/models/")[-1].split(":")[0]
        self.note(handler, raw, body, name, plan)
        streamed = body.get("stream") or "streamGenerateContent" in path
        if not streamed:
            if plan["hang"]:
                return self.closed.wait(600)
            return send(handler, 200, formats.whole(name, plan))
        events = formats.events(name, plan, body, "alt=sse" in handler.path)
        self.stream(handler, events, plan["hang"])

    def stream(self, handler, events, hang):
        handler.send_response(200)
        handler.send_header("content-type", "text/event-stream; charset=utf-8")
        handler.send_header("transfer-encoding", "chunked")
        handler.end_headers()
        try:
            for event in events[: len(events) // 2] if hang else events:
                handler.wfile.write(b"%x\r\n%s\r\n" % (len(event), event))
                handler.wfile.flush()
            if hang:
                self.closed.wait(600)
            handler.wfile.write(b"0\r\n\r\n")
        except OSError:
            # A client that closes early is not an error here.
            handler.close_connection = True

    def plain(self, raw, encoding):
        if encoding == "gzip":
            return zlib.decompress(raw, 47)
        if encoding == "zstd" and self.zstd:
            program = "import sys,zstandard; d=zstandard.ZstdDecompressor().decompressobj(); " \
                      "sys.stdout.buffer.write(d.decompress(sys.stdin.buffer.read()))"
            return subprocess.run([self.zstd, "-c", program], input=raw, capture_output=True).stdout
        return raw

    def plan(self, name, body):
        """Decides what the model says: texts, tool calls, and the reason of the end."""
        scenario = self.scenario
        history = formats.history(name, body)
        turn, tools, prompt = history["results"], history["tools"], history["prompt"]
        sub = SUB in prompt
        plan = {"kind": "sub" if sub else "main", "turn": turn, "text": "", "calls": [], "hang": False, "cut": None,
                "id": digest(prompt, turn), "input": scenario.get("input", 1000),
                "cached": scenario.get("cached", [0, 0])}
        if turn >= scenario.get("usage", [10 ** 9])[0] and COMPACTED not in json.dumps(body.get("messages")):
            plan["input"] = scenario["usage"][1]
        if not tools and scenario.get("tools", True):
            plan.update(kind="other", text=formats.other(body))
            return plan
        plan["hang"] = scenario.get("hang") == turn and self.hangs < scenario.get("hangs", 10 ** 9)
        self.hangs += plan["hang"]
        if not tools:
            plan["text"] = scenario.get("text", "All done: the task is complete.")
            return plan
        if turn == 0 and not sub:
            calls = self.first(tools, plan["id"])
            if calls:
                plan["calls"] = calls
                return plan
        turns = 2 if sub else scenario.get("turns", 3)
        # One step after the sub-agents were started, so that they have time to work.
        done = turn > scenario.get("subs", 0) > 0 and not sub
        command = scenario.get("end") if turn == turns - 1 else self.command(turn) if turn < turns - 1 else None
        call = shell(tools, command, plan["id"]) if command and not done else None
        if call:
            plan.update(text=f"Step {turn + 1}.", calls=[call])
            if turn == 0:
                plan["cut"] = scenario.get("cut")
        else:
            plan["text"] = scenario.get("text", "All done: the task is complete.")
        return plan

    def command(self, turn):
        command = self.scenario.get("command", "echo step-{n}")
        if isinstance(command, list):
            command = command[min(turn, len(command) - 1)]
        return command.replace("{n}", str(turn + 1))

    def first(self, tools, mark):
        wanted = self.scenario.get("tool")
        if wanted and wanted[0] in tools:
            return [(f"call_{mark}t", wanted[0], wanted[1])]
        calls = [agent(tools, index, mark) for index in range(self.scenario.get("subs", 0))]
        return [call for call in calls if call]


def digest(prompt, turn):
    # Copilot CLI begins its prompt with the time.
    return hashlib.sha256(f"{masked(prompt)[:200]}{turn}".encode()).hexdigest()[:18]


def shell(tools, command, mark):
    """The call that runs a command, in the words of the client's own tool."""
    name = next((known for known in SHELLS if known in tools), None)
    if name is None:
        # A client without a shell: the first tool that takes a string.
        name = next(iter(tools))
        wanted = tools[name].get("required") or list(tools[name].get("properties", {}))[:1]
        return (f"call_{mark}", name, {key: command for key in wanted})
    fields = tools[name].get("properties", {})
    key = next((key for key in ("command", "cmd") if key in fields), None) or next(iter(fields), "command")
    value = ["bash", "-lc", command] if fields.get(key, {}).get("type") == "array" else command
    arguments = {key: value}
    if "description" in fields:
        arguments["description"] = "run a step"
    if "is_background" in fields:
        arguments["is_background"] = False
    return (f"call_{mark}", name, arguments)


def agent(tools, index, mark):
    """The call that starts a sub-agent, if the client has such a tool."""
    name = next((known for known in tools if known.split("\x1f")[-1] in AGENTS), None)
    if name is None:
        return None
    arguments = {}
    fields = tools[name].get("properties", {})
    for key in fields:
        if key in ("prompt", "message", "task", "objective", "instructions", "query", "request"):
            arguments[key] = f"{SUB}-{index}: echo hello from {index} with the shell and report what it said"
        elif key == "description":
            arguments[key] = f"sub task {index}"
        elif key == "subagent_type":
            arguments[key] = "general" if name == "task" else "general-purpose"
        elif key == "agent_name":
            arguments[key] = "generalist"
        elif key == "task_name":
            arguments[key] = f"sub_{index}"
        elif key in tools[name].get("required", []):
            arguments[key] = "x"
    return (f"call_{mark}{index}", name, arguments)


def send(handler, status, body, headers=()):
    data = json.dumps(body).encode()
    handler.send_response(status)
    handler.send_header("content-type", "application/json")
    handler.send_header("content-length", str(len(data)))
    for key, value in dict(headers).items():
        handler.send_header(key, value)
    handler.end_headers()
    if handler.command != "HEAD":
        handler.wfile.write(data)
