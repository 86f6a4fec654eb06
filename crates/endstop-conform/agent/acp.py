#!/usr/bin/env python3
"""The agent behind the Agent Client Protocol, version 1: JSON-RPC, a message a line, over standard input and output.

The flags are those of `agent.py`. A prompt is a run, which ends once: its answer is the terminal event, and nothing follows it
(sentence 41). The person of the client is not asked for permissions; `deploy` is declined.
"""
import json
import os
import sys
import threading

import agent
import flags
from session import Session

# Sentence 40: only a success is `end_turn`, and only a refusal of the model is `refusal`. Other failures are errors.
STOP_REASONS = {
    "answered": "end_turn", "max_turns": "max_turn_requests", "budget": "max_turn_requests", "max_time": "max_turn_requests",
    "loop": "max_turn_requests", "output_limit": "max_tokens", "refused": "refusal", "interrupted": "cancelled",
}
INVALID_REQUEST, UNKNOWN_METHOD, INVALID_PARAMS, INTERNAL = -32600, -32601, -32602, -32603
_writing = threading.Lock()


def send(**message):
    with _writing:
        try:
            print(json.dumps({"jsonrpc": "2.0", **message}), flush=True)
        except BrokenPipeError:
            # The client has left; its input ends, too, and that cancels the runs.
            os.dup2(os.open(os.devnull, os.O_WRONLY), 1)


class Refused(Exception):
    def __init__(self, code, message):
        super().__init__(message)
        self.code = code


class Open:
    """A session of the protocol, with the run of its prompt if there is one."""

    def __init__(self, name):
        self.name, self.session = name, Session()
        self.run = self.prompt = self.thread = None


class Server:
    def __init__(self, options):
        self.options, self.sessions, self.folder = options, {}, None

    def serve(self, lines):
        for line in lines:
            request = {}
            try:
                request = json.loads(line)
                method = getattr(self, "on_" + request["method"].replace("/", "_"), None)
                if not method:
                    raise Refused(UNKNOWN_METHOD, f"unknown method `{request['method'][:80]}`")
                result = method(request.get("params") or {}, request.get("id"))
            except Refused as refused:
                self.refuse(request, refused.code, str(refused))
            except (ValueError, KeyError, TypeError, AttributeError) as error:
                self.refuse(request, INVALID_REQUEST, f"invalid message: {type(error).__name__}: {error}")
            else:
                if result is not None and "id" in request:
                    send(id=request["id"], result=result)
        # The client has left: nothing may continue without it.
        running = [session for session in self.sessions.values() if session.run]
        for session in running:
            self.cancel(session)
        for session in running:
            session.thread.join()

    def refuse(self, request, code, message):
        if not isinstance(request, dict) or "id" in request or "method" not in request:
            send(id=request.get("id") if isinstance(request, dict) else None, error={"code": code, "message": message})

    def on_initialize(self, _params, _id):
        return {"protocolVersion": 1, "agentCapabilities": {"loadSession": False}, "authMethods": [],
                "agentInfo": {"name": "mini", "version": "1"}}

    def on_session_new(self, params, _id):
        if self.folder not in (None, params["cwd"]):
            raise Refused(INVALID_PARAMS, f"cwd: the sessions of this agent share one folder, which is {self.folder}")
        try:
            os.chdir(params["cwd"])
        except OSError as error:
            raise Refused(INVALID_PARAMS, f"cwd: {error}") from None
        self.folder = params["cwd"]
        session = Open(f"session-{len(self.sessions) + 1}")
        self.sessions[session.name] = session
        return {"sessionId": session.name}

    def on_session_prompt(self, params, identity):
        session = self.open(params)
        if session.run:
            raise Refused(INVALID_REQUEST, "a prompt of this session is still running")
        task = "\n".join(block["text"] for block in params["prompt"] if block["type"] == "text")
        # Before the next message is read, so that a cancel which follows finds the run.
        session.run, session.prompt = agent.Run(self.options, session.session), identity
        session.thread = threading.Thread(target=self.prompt, args=(session, task))
        session.thread.start()

    def on_session_cancel(self, params, _id):
        session = self.open(params)
        if session.run:
            self.cancel(session)

    def open(self, params):
        try:
            return self.sessions[params["sessionId"]]
        except (KeyError, TypeError):
            raise Refused(INVALID_PARAMS, "unknown sessionId") from None

    def cancel(self, session):
        session.run.cancel("interrupted")

    def prompt(self, session, task):
        record, identity = session.run.perform(task), session.prompt
        if record["answer"] is not None:
            content = {"type": "text", "text": record["answer"]}
            send(method="session/update", params={"sessionId": session.name,
                                                  "update": {"sessionUpdate": "agent_message_chunk", "content": content}})
        session.run = None
        facts = {key: value for key, value in record.items() if key not in ("type", "answer")}
        stop_reason = STOP_REASONS.get(record["reason"])
        if stop_reason:
            send(id=identity, result={"stopReason": stop_reason, "_meta": {"mini": facts}})
        else:
            send(id=identity, error={"code": INTERNAL, "message": f"{record['reason']}: {record['detail']}", "data": facts})


def main(arguments=None):
    Server(flags.parse(arguments, for_task=False)[1]).serve(sys.stdin)
    return 0


if __name__ == "__main__":
    sys.exit(main())
