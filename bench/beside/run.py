#!/usr/bin/env python3
"""Runs the same programs on Endstop, rig, the Vercel AI SDK and pydantic-ai against one server.

The server answers in the format of OpenAI's chat completions, as its scenario says: a complete
answer, one that the token limit cut, a stream that ends without a finish value, and so on. The
table shows the end of what each program prints, and its exit status. See README.md.
"""

import argparse
import contextlib
import http.server
import json
import os
import pathlib
import re
import socket
import struct
import subprocess
import tempfile
import threading
import urllib.error
import urllib.request

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parent.parent
TEXT = "The capital of France is Paris, and it has been so"
HALF_CALL = '{"city": "Par'

# What a response contains: its text, the arguments of its call, and its finish value. `None` as the
# finish value ends the stream without one; "reset" drops the connection instead.
SCENARIOS = {
    "complete": (TEXT + ".", None, "stop"),
    "cut by the token limit": (TEXT, None, "length"),
    "call cut by the token limit": ("", HALF_CALL, "length"),
    "stream without a finish value": (TEXT, None, None),
    "connection dropped": (TEXT, None, "reset"),
    "same call again and again": ("", '{"city": "Paris"}', "tool_calls"),
    "content filter": (TEXT, None, "content_filter"),
    "unknown finish value": (TEXT, None, "weird_reason"),
}


class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def log_message(self, *_):
        pass

    def do_POST(self):
        request = json.loads(self.rfile.read(int(self.headers["content-length"])))
        self.server.requests += 1
        text, arguments, finish = SCENARIOS[self.server.scenario]
        if self.path.endswith("/messages"):
            return self.anthropic(request, text, finish)
        tools = [tool["function"]["name"] for tool in request.get("tools") or []]
        if arguments and not tools:
            text, arguments, finish = TEXT, None, "stop"
        calls = []
        if arguments:
            function = {"name": tools[0], "arguments": arguments}
            calls = [{"index": 0, "id": f"call_{self.server.requests}", "type": "function", "function": function}]
        head = {"id": "r", "created": 1, "model": request["model"]}
        usage = {"prompt_tokens": 100, "completion_tokens": 50, "total_tokens": 150}
        if request.get("stream"):
            self.stream(head, usage, text, calls, finish)
        else:
            message = {"role": "assistant", "content": text or None}
            if calls:
                message["tool_calls"] = [{key: call[key] for key in ("id", "type", "function")} for call in calls]
            choice = {"index": 0, "message": message, "finish_reason": None if finish == "reset" else finish}
            self.whole({**head, "object": "chat.completion", "usage": usage, "choices": [choice]}, finish)

    def whole(self, body, finish):
        body = json.dumps(body).encode()
        self.send_response(200)
        self.send_header("content-type", "application/json")
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body[: len(body) // 2] if finish == "reset" else body)
        self.close_connection = finish == "reset"

    def anthropic(self, request, text, finish):
        """Answers in the format of Anthropic's messages, for the program with images."""
        stop = {"stop": "end_turn", "length": "max_tokens", "content_filter": "refusal"}.get(finish, finish)
        usage = {"input_tokens": 100, "output_tokens": 50}
        message = {"id": "r", "type": "message", "role": "assistant", "model": request["model"], "content": []}
        message |= {"stop_reason": None, "stop_sequence": None, "usage": usage}
        part = {"type": "text", "text": ""}
        if not request.get("stream"):
            part["text"] = text
            return self.whole({**message, "content": [part], "stop_reason": stop}, finish)
        delta = {"type": "text_delta", "text": text}
        events = [{"type": "message_start", "message": message}]
        events += [{"type": "content_block_start", "index": 0, "content_block": part}]
        events += [{"type": "content_block_delta", "index": 0, "delta": delta}]
        events += [{"type": "content_block_stop", "index": 0}]
        if stop is not None:
            ended = {"stop_reason": stop, "stop_sequence": None}
            events += [{"type": "message_delta", "delta": ended, "usage": usage}, {"type": "message_stop"}]
        body = "".join(f"event: {event['type']}\ndata: {json.dumps(event)}\n\n" for event in events).encode()
        self.send_response(200)
        self.send_header("content-type", "text/event-stream")
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def stream(self, head, usage, text, calls, finish):
        self.send_response(200)
        self.send_header("content-type", "text/event-stream")
        self.send_header("transfer-encoding", "chunked")
        self.end_headers()

        def send(data):
            data = f"data: {data}\n\n".encode()
            self.wfile.write(b"%x\r\n%s\r\n" % (len(data), data))

        def chunk(delta, reason=None):
            choice = {"index": 0, "delta": delta, "finish_reason": reason}
            send(json.dumps({**head, "object": "chat.completion.chunk", "choices": [choice]}))

        chunk({"role": "assistant", "content": ""})
        for word in text.split():
            chunk({"content": word + " "})
        if calls:
            chunk({"tool_calls": calls})
        if finish == "reset":
            # No last chunk: the client sees that the connection was closed too early.
            self.close_connection = True
            return
        if finish is not None:
            chunk({}, finish)
            send(json.dumps({**head, "object": "chat.completion.chunk", "choices": [], "usage": usage}))
            send("[DONE]")
        self.wfile.write(b"0\r\n\r\n")


@contextlib.contextmanager
def serving(scenario):
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.scenario, server.requests = scenario, 0
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield server, f"http://127.0.0.1:{server.server_address[1]}/v1"
    finally:
        server.shutdown()
        server.server_close()


def environment(base_url):
    ours = {"OPENAI_API_KEY": "test", "OPENAI_BASE_URL": base_url, "HOME": "/nonexistent"}
    ours |= {"ANTHROPIC_API_KEY": "test", "ANTHROPIC_BASE_URL": base_url.removesuffix("/v1")}
    return {"PATH": os.environ["PATH"], **ours}


def shown(output, width=150):
    lines = [line for line in output.strip().splitlines() if line.strip()]
    text = " / ".join(lines[-2:]).replace("|", "\\|")
    return text if len(text) <= width else text[:width] + "…"


def run(command, scenario, stdin=""):
    with serving(scenario) as (server, base_url):
        done = subprocess.run(
            command, env=environment(base_url), input=stdin, capture_output=True, text=True, timeout=300
        )
        return f"exit {done.returncode}, {server.requests} requests: {shown(done.stdout + done.stderr)}"


def ask(path, scenario, suffix):
    """Starts a service, which prints its address, and posts one message."""
    with serving(scenario) as (_, base_url):
        service = subprocess.Popen([path], env=environment(base_url), stdout=subprocess.PIPE, text=True)
        try:
            address = service.stdout.readline().strip() + suffix
            request = urllib.request.Request(address, data=b"What is the capital?", method="POST")
            try:
                with urllib.request.urlopen(request, timeout=300) as response:
                    return f"status {response.status}: …{response.read().decode().strip()[-150:]}"
            except urllib.error.HTTPError as error:
                return f"status {error.code}: {shown(error.read().decode())}"
        finally:
            service.kill()
            service.wait()


def browse(path, scenario):
    """Starts a service, sends it a task over a web socket, and returns the end of its last message."""
    with serving(scenario) as (server, base_url):
        service = subprocess.Popen([path], env=environment(base_url), stdout=subprocess.PIPE, text=True)
        try:
            host, port = service.stdout.readline().strip().removeprefix("http://").split(":")
            browser = socket.create_connection((host, int(port)), timeout=300)
            key = "Sec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==\r\nSec-WebSocket-Version: 13"
            head = f"GET / HTTP/1.1\r\nHost: {host}\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n{key}\r\n\r\n"
            browser.sendall(head.encode())
            # A short frame of text, masked with zeros.
            browser.sendall(b"\x81\x84\0\0\0\0Why?")
            reader, last = browser.makefile("rb"), ""
            while reader.readline().strip():
                pass
            while len(start := reader.read(2)) == 2 and start[0] & 15 != 8:
                size = {126: ">H", 127: ">Q"}.get(start[1] & 127)
                size = struct.unpack(size, reader.read(struct.calcsize(size)))[0] if size else start[1] & 127
                last = reader.read(size).decode()
            found = re.findall(r'"(?:termination|finish_reason|stop|error)":"[^"]*"', last)
            return f"{server.requests} requests: {', '.join(dict.fromkeys(found))}"
        finally:
            service.kill()
            service.wait()


def agents(programs):
    print("| the provider sends | " + " | ".join(programs) + " |")
    print("|---" * (len(programs) + 1) + "|")
    for scenario in SCENARIOS:
        cells = [run(command, scenario) for command in programs.values()]
        print(f"| {scenario} | " + " | ".join(cells) + " |", flush=True)


PROGRAMS = ["chat_service", "cli_chat", "extract", "research", "branch", "sse"]
PROGRAMS += ["approval_ws", "image_tool", "resume", "own_provider"]


def ten(folders):
    print("| program | scenario | " + " | ".join(folders) + " |\n" + "|---" * (len(folders) + 2) + "|")
    inputs = {"cli_chat": "Hi.\n", "extract": "1 nut\n"}
    for name in PROGRAMS:
        # The provider from nothing calls no server.
        for scenario in ["complete"] if name == "own_provider" else ["stream without a finish value", "cut by the token limit"]:
            cells = []
            for folder in folders.values():
                path = str(folder / name)
                if name == "approval_ws":
                    cells.append(browse(path, scenario))
                elif name in ("image_tool", "resume"):
                    with tempfile.TemporaryDirectory() as own:
                        more = ["stored", "Why?"] if name == "resume" else []
                        first = [own] if name == "image_tool" else [f"{own}/{more.pop(0)}"]
                        cells.append(run([path, *first, *more], scenario))
                elif name in ("chat_service", "sse"):
                    cells.append(ask(path, scenario, "/ada" if name == "chat_service" else "/"))
                else:
                    command = [path, "Why?"] if name == "research" else [path]
                    cells.append(run(command, scenario, inputs.get(name, "")))
            cells = [cell.replace("\n", " / ").replace("|", "\\|") for cell in cells]
            print(f"| {name} | {scenario} | " + " | ".join(cells) + " |", flush=True)


def main():
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--endstop", type=pathlib.Path, default=ROOT / "target/debug", help="folder of our programs")
    options.add_argument("--rig", type=pathlib.Path, default=HERE / "rig/target/debug", help="folder of rig's programs")
    options.add_argument("--python", default="python3", help="a Python that has pydantic-ai")
    options.add_argument("--vercel", type=pathlib.Path, default=HERE / "vercel", help="folder with agent.mjs and node_modules")
    options.add_argument("--ours", action="store_true", help="run the ten programs on Endstop only")
    given = options.parse_args()
    if given.ours:
        return ten({"Endstop": given.endstop})
    agents(
        {
            "Endstop": [str(given.endstop / "weather"), "gpt-4.1-mini"],
            "rig": [str(given.rig / "agent"), "gpt-4.1-mini"],
            "Vercel AI SDK": ["node", str(given.vercel / "agent.mjs"), "gpt-4.1-mini"],
            "pydantic-ai": [given.python, str(HERE / "pydantic_ai/agent.py"), "gpt-4.1-mini"],
        }
    )
    print()
    ten({"Endstop": given.endstop, "rig": given.rig})


if __name__ == "__main__":
    main()
