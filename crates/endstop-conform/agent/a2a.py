#!/usr/bin/env python3
"""The agent behind A2A 1.0, in its JSON-RPC binding over HTTP. It prints its address, and serves until it is ended.

The flags are those of `agent.py`. A task is a run, which ends once (sentence 41). A client that waits for a task, or follows its
stream, and leaves ends it: this server keeps no task for a client that is gone. The task of a client that asked for
`returnImmediately` runs until it ends or is cancelled.
"""
import contextlib
import json
import select
import signal
import socket
import sys
import threading
import uuid
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import agent
import flags

# Sentence 40: only a success is completed. The statuses are those of the final record.
STATES = {"success": "TASK_STATE_COMPLETED", "limit": "TASK_STATE_FAILED", "failed": "TASK_STATE_FAILED",
          "stopped": "TASK_STATE_CANCELED"}
UNKNOWN_TASK, NOT_CANCELABLE, INVALID_REQUEST, UNKNOWN_METHOD, INVALID_PARAMS = -32001, -32002, -32600, -32601, -32602
LARGEST = 1 << 20  # bytes of a request
STOP = 10  # seconds that a cancel waits for the end


class Refused(Exception):
    def __init__(self, code, message):
        super().__init__(message)
        self.code = code


class Task:
    """A run as a task."""

    def __init__(self, options, words):
        self.id = uuid.uuid4().hex
        self.state, self.record = "TASK_STATE_WORKING", None
        self.ended = threading.Event()
        self.run = agent.Run(options)
        threading.Thread(target=self.perform, args=(words,), daemon=True).start()

    def perform(self, words):
        self.record = self.run.perform(words)
        self.change(STATES[self.record["status"]])

    def change(self, state):
        self.state = state
        self.ended.set()

    def cancel(self):
        self.run.cancel("interrupted")
        self.ended.wait(STOP)

    def status(self):
        status = {"state": self.state}
        if self.record and self.record["answer"] is None:
            text = f"{self.record['reason']}: {self.record['detail']}"
            status["message"] = {"messageId": f"{self.id}-end", "role": "ROLE_AGENT", "parts": [{"text": text}]}
        return status

    def artifact(self):
        answered = self.record and self.record["answer"] is not None
        return {"artifactId": "answer", "parts": [{"text": self.record["answer"]}]} if answered else None

    def shown(self):
        task = {"id": self.id, "contextId": self.id, "status": self.status()}
        if self.artifact():
            task["artifacts"] = [self.artifact()]
        return task

    def last_updates(self):
        """The answer first, because clients stop reading at a terminal state."""
        place = {"taskId": self.id, "contextId": self.id}
        if self.artifact():
            yield {"artifactUpdate": {**place, "artifact": self.artifact(), "lastChunk": True}}
        yield {"statusUpdate": {**place, "status": self.status()}}


class Server(ThreadingHTTPServer):
    daemon_threads = True

    def __init__(self, options):
        super().__init__(("127.0.0.1", options.port), Handler)
        self.options, self.tasks = options, {}
        self.url = f"http://127.0.0.1:{self.server_port}/"

    def handle_error(self, request, client_address):
        """A client that leaves is not an error of the server."""

    def end(self):
        for task in list(self.tasks.values()):
            if not task.ended.is_set():
                task.cancel()


class Handler(BaseHTTPRequestHandler):
    def log_message(self, *_):
        """The log would be a second place for what clients sent."""

    def do_GET(self):
        if self.path != "/.well-known/agent-card.json":
            return self.send_error(404)
        self.answer({
            "name": "mini", "description": "A small agent that ends well.", "version": "1",
            "supportedInterfaces": [{"url": self.server.url, "protocolBinding": "JSONRPC", "protocolVersion": "1.0"}],
            "capabilities": {"streaming": True, "pushNotifications": False}, "defaultInputModes": ["text/plain"],
            "defaultOutputModes": ["text/plain"], "skills": []})

    def do_POST(self):
        request = {}
        try:
            length = int(self.headers.get("content-length") or 0)
            if not 0 < length <= LARGEST:
                raise Refused(INVALID_REQUEST, f"expected a body of at most {LARGEST} bytes, with its length")
            request = json.loads(self.rfile.read(length))
            method = getattr(self, "on_" + request["method"], None)
            if not method:
                raise Refused(UNKNOWN_METHOD, f"unknown method `{request['method'][:80]}`")
            result = method(request.get("params") or {}, request.get("id"))
        except Refused as refused:
            error = {"code": refused.code, "message": str(refused)}
        except (ValueError, KeyError, TypeError, AttributeError) as wrong:
            error = {"code": INVALID_REQUEST, "message": f"invalid request: {type(wrong).__name__}: {wrong}"}
        else:
            if result is not None:
                self.answer({"jsonrpc": "2.0", "id": request.get("id"), "result": result})
            return
        identity = request.get("id") if isinstance(request, dict) else None
        self.answer({"jsonrpc": "2.0", "id": identity, "error": error})

    def answer(self, value):
        body = json.dumps(value).encode()
        self.send_response(200)
        self.send_header("content-type", "application/json")
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def on_SendMessage(self, params, _id):
        task = self.start(params)
        if not (params.get("configuration") or {}).get("returnImmediately"):
            with self.following(task):
                self.wait(task)
        return {"task": task.shown()}

    def on_SendStreamingMessage(self, params, identity):
        task = self.start(params)
        with self.following(task):
            self.send_response(200)
            self.send_header("content-type", "text/event-stream")
            self.end_headers()
            self.event(identity, {"task": task.shown()})
            self.wait(task)
            for update in task.last_updates():
                self.event(identity, update)

    def on_GetTask(self, params, _id):
        return self.task(params).shown()

    def on_CancelTask(self, params, _id):
        task = self.task(params)
        if task.ended.is_set():
            raise Refused(NOT_CANCELABLE, "the task has ended")
        task.cancel()
        return task.shown()

    def start(self, params):
        message = params["message"]
        if message.get("taskId"):
            raise Refused(INVALID_PARAMS, "message: a task takes no further message; leave `taskId` out")
        task = Task(self.server.options, "\n".join(part["text"] for part in message["parts"] if "text" in part))
        self.server.tasks[task.id] = task
        return task

    def task(self, params):
        task = self.server.tasks.get(str(params["id"]))
        if not task:
            raise Refused(UNKNOWN_TASK, "unknown task")
        return task

    @contextlib.contextmanager
    def following(self, task):
        """Ends a task if its client leaves."""
        try:
            yield
        except OSError:
            task.cancel()
            raise

    def wait(self, task):
        while not task.ended.wait(0.1):
            if select.select([self.connection], [], [], 0)[0] and not self.connection.recv(1, socket.MSG_PEEK):
                raise ConnectionAbortedError("the client has left")

    def event(self, identity, result):
        self.wfile.write(b"data: " + json.dumps({"jsonrpc": "2.0", "id": identity, "result": result}).encode() + b"\n\n")


def main(arguments=None):
    server = Server(flags.parse(arguments, for_task=False)[1])
    for number in (signal.SIGINT, signal.SIGTERM):
        # A thread of its own, because `shutdown` waits for the loop that this handler interrupts.
        signal.signal(number, lambda *_: threading.Thread(target=server.shutdown).start())
    print(server.url, flush=True)
    server.serve_forever()
    server.end()
    return 0


if __name__ == "__main__":
    sys.exit(main())
