#!/usr/bin/env python3
"""Tests `endstop run` with two real MCP servers: lists and calls their tools, cancels a call, kills a
server during a call, and checks that no process is left.

    bench/mcp.py target/debug/endstop [FOLDER WITH node_modules]

Without a folder the servers are installed with npm into a temporary one. Without npm the test is
skipped. A script plays the model over HTTP; everything else is real.
"""

import http.server
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time

PACKAGES = ["@modelcontextprotocol/server-filesystem", "@modelcontextprotocol/server-everything"]


class Model(http.server.BaseHTTPRequestHandler):
    """Answers from the script, and stores the requests."""

    script, asked = [], []

    def do_POST(self):
        request = json.loads(self.rfile.read(int(self.headers["content-length"])))
        Model.asked.append(request)
        turn = Model.script[min(len(Model.asked), len(Model.script)) - 1]
        message = {"role": "assistant", "content": turn if isinstance(turn, str) else None}
        if not isinstance(turn, str):
            calls = [{"id": f"c{len(Model.asked)}_{at}", "type": "function",
                      "function": {"name": name, "arguments": json.dumps(arguments)}}
                     for at, (name, arguments) in enumerate(turn)]
            message["tool_calls"] = calls
        finish = "stop" if isinstance(turn, str) else "tool_calls"
        body = json.dumps({"id": "x", "object": "chat.completion", "created": 0, "model": "script",
                           "choices": [{"index": 0, "message": message, "finish_reason": finish}],
                           "usage": {"prompt_tokens": 10, "completion_tokens": 5, "total_tokens": 15}})
        self.send_response(200)
        self.send_header("content-type", "application/json")
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body.encode())

    def log_message(self, *_):
        pass


def alive(word):
    """Returns the processes whose command line contains this word, except this one."""
    found = []
    for pid in filter(str.isdigit, os.listdir("/proc")):
        try:
            line = open(f"/proc/{pid}/cmdline", "rb").read().split(b"\0")
        except OSError:
            continue
        if any(word.encode() in part for part in line) and b"run" not in line:
            found.append((int(pid), b" ".join(line).decode().strip()))
    return found


def main():
    endstop = os.path.abspath(sys.argv[1])
    folder = sys.argv[2] if len(sys.argv) > 2 else None
    if folder is None:
        if shutil.which("npm") is None:
            return print("skipped: there is no npm")
        folder = tempfile.mkdtemp(prefix="endstop-mcp-")
        subprocess.run(["npm", "install", "--silent", "--prefix", folder, *PACKAGES], check=True)
    programs = os.path.join(os.path.abspath(folder), "node_modules", ".bin")
    data = tempfile.mkdtemp(prefix="endstop-mcp-data-")
    open(os.path.join(data, "hello.txt"), "w").write("hello from a file\n")
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Model)
    threading.Thread(target=server.serve_forever, daemon=True).start()

    def run(title, script, during=None):
        Model.script, Model.asked = script, []
        command = [endstop, "run", "--json", "--no-stream", "--journal", "off", "--model", "script",
                   "--base-url", f"http://127.0.0.1:{server.server_port}/v1",
                   "--mcp", f"files={programs}/mcp-server-filesystem {data}",
                   "--mcp", f"every={programs}/mcp-server-everything", "go"]
        print(f"\n== {title}")
        began = time.monotonic()
        process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        events, stopped = [], None
        for line in process.stdout:
            event = json.loads(line)
            events.append(event)
            if event["type"] == "tool_started" and during:
                time.sleep(0.5)
                stopped, during = time.monotonic(), during(process)
        status = process.wait()
        ended = time.monotonic()
        if status == 2:
            print(process.stderr.read())
        for event in events:
            if event["type"] == "tool_finished":
                content = re.sub(r"\s+", " ", event["content"])[:200]
                print(f"  {event['name']} [{event['status']}, {event['duration_ms']} ms] {content}")
        outcome = events[-1] if events else {}
        print(f"  exit {status}: {outcome.get('termination')} in {ended - began:.2f} s", end="")
        print(f", {ended - stopped:.2f} s after the stop" if stopped else "")
        # If endstop itself was killed, it cannot wait for its children, which end shortly after it.
        while (left := alive(programs)) and time.monotonic() - ended < (2 if status < 0 else 0):
            time.sleep(0.005)
        print(f"  processes left {time.monotonic() - ended:.2f} s later: {left or 'none'}")
        return not left

    names = ["files__read_text_file", "files__list_directory", "every__echo"]
    good = run("called", [[(names[1], {"path": data}), (names[0], {"path": f"{data}/hello.txt"}),
                           (names[2], {"message": "naïve"}),
                           (names[0], {"path": "/etc/passwd"})], "done"])
    tools = [tool["function"]["name"] for tool in Model.asked[0]["tools"]]
    print(f"  {len(tools)} tools: {' '.join(tools)}")
    long = next(name for name in tools if "long" in name)

    def interrupt(process):
        process.send_signal(signal.SIGINT)

    def kill(_):
        for pid, line in alive("mcp-server-everything"):
            if line.startswith("node"):
                os.kill(pid, signal.SIGKILL)

    def kill_host(process):
        process.kill()

    slow = [[(long, {"duration": 30, "steps": 30})], "done"]
    good &= run("cancelled in the middle of a call (SIGINT)", slow, interrupt)
    good &= run("the server is killed in the middle of a call", slow[:1] + [[(names[2], {"message": "?"})], "done"], kill)
    good &= run("endstop is killed in the middle of a call (SIGKILL)", slow, kill_host)
    sys.exit(0 if good else 1)


if __name__ == "__main__":
    main()
