#!/usr/bin/env python3
"""Drives an agent of `endstop serve` with the official A2A client, whose types reject what the protocol does not have.

    python3 -m venv target/a2a && target/a2a/bin/pip install a2a-sdk
    target/a2a/bin/python bench/serve/a2a_client.py --endstop target/debug/endstop

Sends a task and streams one, waits for an approval and gives it, and cancels. Without the client it prints a notice and
succeeds.
"""

import argparse
import asyncio
import json
import os
import subprocess
import sys
import tempfile
import uuid

TOKEN = "a2a-check-0123456789abcdef"
DEADLINE = 120

try:
    import httpx
    from a2a.client import ClientConfig
    from a2a.client.client_factory import create_client
    from a2a.client.errors import A2AClientError
    from a2a.types.a2a_pb2 import (
        CancelTaskRequest,
        GetTaskRequest,
        Message,
        Part,
        Role,
        SendMessageRequest,
        TaskState,
    )
except ImportError as missing:
    print(f"skipped: {missing}; pip install a2a-sdk")
    sys.exit(0)


def message(text, task_id=""):
    parts = [Part(text=text)]
    sent = Message(message_id=str(uuid.uuid4()), role=Role.ROLE_USER, parts=parts, task_id=task_id)
    return SendMessageRequest(message=sent)


def name(state):
    return TaskState.Name(state)


async def last_state(stream):
    """Reads a stream to its end, and returns the task's id, its states and its artifacts."""
    task_id, states, artifacts = "", [], []
    async for event in stream:
        if event.HasField("task"):
            task_id = event.task.id
            states.append(name(event.task.status.state))
            artifacts += [part.text for artifact in event.task.artifacts for part in artifact.parts]
        elif event.HasField("status_update"):
            states.append(name(event.status_update.status.state))
        elif event.HasField("artifact_update"):
            artifacts += [part.text for part in event.artifact_update.artifact.parts]
    return task_id, states, artifacts


async def check(url):
    headers = {"authorization": f"Bearer {TOKEN}"}
    async with httpx.AsyncClient(headers=headers, timeout=DEADLINE) as http:
        for streaming in (False, True):
            config = ClientConfig(streaming=streaming, httpx_client=http)
            client = await create_client(f"{url}/a2a/demo", config)
            kind = "streamed" if streaming else "plain"

            _, states, artifacts = await last_state(client.send_message(message("fix")))
            assert states[-1] == "TASK_STATE_COMPLETED" and artifacts, (states, artifacts)
            print(f"{kind}: fix → {states[-1]}, {len(artifacts)} artifact")

            _, states, artifacts = await last_state(client.send_message(message("loop")))
            assert states[-1] == "TASK_STATE_FAILED" and not artifacts, (states, artifacts)
            print(f"{kind}: loop → {states[-1]}, {len(artifacts)} artifacts")

            task, states, _ = await last_state(client.send_message(message("approve")))
            assert states[-1] == "TASK_STATE_INPUT_REQUIRED", states
            allowed = 0
            while states[-1] == "TASK_STATE_INPUT_REQUIRED":
                _, states, _ = await last_state(client.send_message(message("allow", task)))
                allowed += 1
            assert states[-1] == "TASK_STATE_COMPLETED", states
            print(f"{kind}: approve → TASK_STATE_INPUT_REQUIRED, allowed {allowed} times → {states[-1]}")

            task, _, _ = await last_state(client.send_message(message("approve")))
            cancelled = await client.cancel_task(CancelTaskRequest(id=task))
            assert name(cancelled.status.state) == "TASK_STATE_CANCELED", cancelled
            again = await client.get_task(GetTaskRequest(id=task))
            assert again.status.state == cancelled.status.state
            print(f"{kind}: cancel → {name(again.status.state)}")
            try:
                await client.cancel_task(CancelTaskRequest(id=task))
                raise SystemExit("an ended task was cancelled")
            except A2AClientError as refused:
                print(f"{kind}: cancel again → {type(refused).__name__}")
            except Exception as refused:  # noqa: BLE001 - the client has one class for each error
                assert "NotCancelable" in type(refused).__name__, refused
                print(f"{kind}: cancel again → {type(refused).__name__}")


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--endstop", default="target/debug/endstop")
    args = parser.parse_args()
    endstop = os.path.abspath(args.endstop)
    with tempfile.TemporaryDirectory() as folder:
        env = {**os.environ, "XDG_STATE_HOME": folder, "XDG_CONFIG_HOME": folder, "ENDSTOP_SERVE_TOKEN": TOKEN}
        command = [endstop, "serve", "--listen", "127.0.0.1:0", "--journal", "journal.db", "--grace", "100ms", "--json"]
        server = subprocess.Popen(command, cwd=folder, env=env, stdout=subprocess.PIPE)
        try:
            url = "http://" + json.loads(server.stdout.readline())["address"]
            asyncio.run(check(url))
        finally:
            server.terminate()
            server.wait(DEADLINE)


if __name__ == "__main__":
    main()
