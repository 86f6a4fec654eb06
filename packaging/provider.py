"""A provider on the loopback interface that plays the recorded responses, and a client that calls it."""
import base64
import gzip
import json
import sys
import threading
import time
import urllib.error
import urllib.request
from concurrent.futures import ThreadPoolExecutor
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
# The formats that clients of guard use most: the path of a call, and the name of the variable with the base URL.
PATHS = {
    "openai-chat": ("OPENAI_BASE_URL", "/v1", "/chat/completions"),
    "openai-responses": ("OPENAI_BASE_URL", "/v1", "/responses"),
    "anthropic-messages": ("ANTHROPIC_BASE_URL", "", "/v1/messages"),
}
PAUSE = 0.002  # between the chunks of a stream, so that each arrives alone
WORD = "The quick brown fox jumps over the lazy dog. "


def recorded(api):
    lines = gzip.decompress((ROOT / "testdata/recordings" / f"{api}.jsonl.gz").read_bytes()).splitlines()
    for one in map(json.loads, lines):
        if one["status"] < 400:
            body = one["body"]
            one["body"] = body.encode() if one["body_encoding"] == "utf-8" else base64.b64decode(body)
            yield one


class Server(ThreadingHTTPServer):
    """Plays recorded responses: that with the number of the header `x-number`. A model `loop-N` calls a tool N
    times, and then answers."""

    daemon_threads = True

    def __init__(self):
        self.bodies = {path: list(recorded(api)) for api, (_, _, path) in PATHS.items()}
        super().__init__(("127.0.0.1", 0), Handler)
        threading.Thread(target=self.serve_forever, daemon=True).start()

    def bases(self):
        """The base URL of each format, by its variable."""
        return {variable: f"http://127.0.0.1:{self.server_address[1]}{prefix}" for variable, prefix, _ in PATHS.values()}

    def handle_error(self, request, client_address):
        """Clients may close connections early."""


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True

    def log_message(self, *args):
        pass

    def do_POST(self):
        asked = json.loads(self.rfile.read(int(self.headers["content-length"])))
        model = asked.get("model", "")
        if model.startswith("loop-"):
            done = sum(message["role"] == "tool" for message in asked["messages"])
            self.send(*loop(done, int(model[5:]), asked.get("stream")))
            return
        path = next(path for path in self.server.bodies if self.path.endswith(path))
        bodies = self.server.bodies[path]
        one = bodies[int(self.headers["x-number"]) % len(bodies)]
        self.send(one["body"], one["streaming"])

    def send(self, body, streaming):
        self.send_response(200)
        self.send_header("content-type", "text/event-stream" if streaming else "application/json")
        if not streaming:
            self.send_header("content-length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)
            return
        self.send_header("transfer-encoding", "chunked")
        self.end_headers()
        for event in body.split(b"\n\n"):
            event += b"\n\n"
            self.wfile.write(b"%x\r\n%s\r\n" % (len(event), event))
            time.sleep(PAUSE)
        self.wfile.write(b"0\r\n\r\n")


def loop(done, turns, streaming):
    """Returns the response of a turn of a scripted run."""
    usage = {"prompt_tokens": 100 + 40 * done, "completion_tokens": 20, "total_tokens": 120 + 40 * done}
    head = {"id": f"chatcmpl-{done}", "created": 1, "model": "gpt-4o-mini"}
    finish = "tool_calls" if done < turns else "stop"
    call = {"name": "shell", "arguments": json.dumps({"command": f"echo {done}"})}
    calls = [{"index": 0, "id": f"call_{done}", "type": "function", "function": call}]
    if not streaming:
        message = {"role": "assistant", "content": None, "tool_calls": calls} if done < turns else {
            "role": "assistant", "content": WORD}
        choice = {"index": 0, "message": message, "finish_reason": finish}
        return json.dumps({**head, "object": "chat.completion", "choices": [choice], "usage": usage}).encode(), False
    deltas = [{"tool_calls": calls}] if done < turns else [{"content": word} for word in (WORD * 20).split(" ")]
    choices = [{"index": 0, "delta": {"role": "assistant", "content": ""}, "finish_reason": None}]
    choices += [{"index": 0, "delta": delta, "finish_reason": None} for delta in deltas]
    choices += [{"index": 0, "delta": {}, "finish_reason": finish}]
    events = [{**head, "object": "chat.completion.chunk", "choices": [choice]} for choice in choices]
    events.append({**head, "object": "chat.completion.chunk", "choices": [], "usage": usage})
    lines = [f"data: {json.dumps(event)}" for event in events]
    return "\n\n".join([*lines, "data: [DONE]"]).encode(), True


def call_all(bases):
    """Calls each recorded response, in conversations that grow. `bases` has the base URLs by their variables."""
    # A proxy of the environment does not reach this machine's loopback interface.
    direct = urllib.request.build_opener(urllib.request.ProxyHandler({}))

    def conversation(api, first):
        variable, _, path = PATHS[api]
        messages = [{"role": "user", "content": f"{first}: " + WORD * 200}]
        for number in range(first, first + 20):
            key = "input" if api == "openai-responses" else "messages"
            body = json.dumps({"model": "gpt-4o-mini", "max_tokens": 4096, "stream": True, key: messages})
            headers = {"content-type": "application/json", "authorization": "Bearer x", "x-number": str(number)}
            request = urllib.request.Request(bases[variable] + path, body.encode(), headers)
            try:
                with direct.open(request) as response:
                    response.read()
            except (urllib.error.URLError, ConnectionError) as error:
                print(f"{api} {number}: {error}", file=sys.stderr)
            messages += [{"role": "assistant", "content": WORD * 20}, {"role": "user", "content": WORD * 5}]

    with ThreadPoolExecutor(16) as pool:
        jobs = [pool.submit(conversation, api, first) for api in PATHS for first in range(0, 120, 10)]
        for job in jobs:
            job.result()
