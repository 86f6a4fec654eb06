"""Feeds objects and streams of a provider's SDK to `endstop.detect`, and compares what it says with the
bytes that the scripted server sends.

    LAB/openai-lowest/bin/python bench/python/sdks.py openai

`versions.py` runs it with the lowest and the newest versions. MOCK_PORT is the port of `server.py`. Prints
a JSON line: the version, the cases, and those that differ.
"""

from __future__ import annotations

import importlib.metadata
import json
import os
import sys
import urllib.request
import warnings
from collections.abc import Callable, Iterator
from typing import Any

import endstop

warnings.filterwarnings("ignore")
ROOT = f"http://127.0.0.1:{os.environ.get('MOCK_PORT', '8099')}"
SCENARIOS = "stop length lengthtool cuttool filter refusal cut unknown empty loop parallel".split()
TOOL = {"type": "object", "properties": {"text": {"type": "string"}}}
Case = tuple[str, str, Callable[[], Any], str, dict[str, Any]]
"""The API, the mode, the SDK's call, and the path and the body of the same request."""


def fetched(path: str, body: dict[str, Any]) -> bytes:
    request = urllib.request.Request(ROOT + path, json.dumps(body).encode(), method="POST")
    with urllib.request.urlopen(request, timeout=20) as answer:
        return bytes(answer.read())


def reset() -> None:
    """Lets the server count from 1 again, so that it gives the same ids."""
    urllib.request.urlopen(ROOT + "/reset", timeout=20).close()


def openai(model: str) -> Iterator[Case]:
    import openai

    client = openai.OpenAI(base_url=ROOT + "/v1", api_key="x", max_retries=0)
    chat: dict[str, Any] = {
        "model": model,
        "messages": [{"role": "user", "content": "go"}],
        "tools": [{"type": "function", "function": {"name": "echo", "parameters": TOOL}}],
    }
    streamed = chat | {"stream": True, "stream_options": {"include_usage": True}}
    create = client.chat.completions.create
    yield "chat", "plain", lambda: create(**chat), "/v1/chat/completions", chat
    yield "chat", "stream", lambda: list(create(**streamed)), "/v1/chat/completions", streamed
    if not hasattr(client, "responses"):
        return
    tool = {"type": "function", "name": "echo", "parameters": TOOL, "strict": False}
    asked: dict[str, Any] = {"model": model, "input": "go", "tools": [tool]}
    streamed = asked | {"stream": True}
    respond = client.responses.create
    yield "Responses", "plain", lambda: respond(**asked), "/v1/responses", asked
    yield "Responses", "stream", lambda: list(respond(**streamed)), "/v1/responses", streamed


def anthropic(model: str) -> Iterator[Case]:
    import anthropic

    client = anthropic.Anthropic(base_url=ROOT, api_key="x", max_retries=0)
    asked: dict[str, Any] = {
        "model": model,
        "max_tokens": 100,
        "messages": [{"role": "user", "content": "go"}],
        "tools": [{"name": "echo", "input_schema": TOOL}],
    }
    streamed = asked | {"stream": True}
    create = client.messages.create
    yield "messages", "plain", lambda: create(**asked), "/v1/messages", asked
    yield "messages", "stream", lambda: list(create(**streamed)), "/v1/messages", streamed


def google(model: str) -> Iterator[Case]:
    from google import genai

    client = genai.Client(api_key="x", http_options={"base_url": ROOT})
    declared = {"name": "echo", "parameters": {"type": "OBJECT", "properties": {"text": {"type": "STRING"}}}}
    asked: dict[str, Any] = {
        "model": model,
        "contents": "go",
        "config": {
            "tools": [{"function_declarations": [declared]}],
            "automatic_function_calling": {"disable": True},
        },
    }
    body = {"contents": [{"parts": [{"text": "go"}]}], "tools": [{"functionDeclarations": [declared]}]}
    path = f"/v1beta/models/{model}:"
    models = client.models
    yield "Gemini", "plain", lambda: models.generate_content(**asked), path + "generateContent", body
    stream = models.generate_content_stream
    yield "Gemini", "stream", lambda: list(stream(**asked)), path + "streamGenerateContent", body


SDKS = {"openai": (openai, "openai"), "anthropic": (anthropic, "anthropic"), "google": (google, "google-genai")}


def facts(found: endstop.Detection) -> dict[str, Any]:
    known = found.to_dict()
    # An SDK closes its stream as the server does; only the bytes have the mark of the end.
    known.pop("complete", None)
    return known


def main() -> None:
    cases, package = SDKS[sys.argv[1]]
    count, different = 0, []
    for scenario in SCENARIOS:
        for api, mode, call, path, body in cases("m-" + scenario):
            count += 1
            name = f"{api} {mode} {scenario}"
            reset()
            raw = endstop.detect(fetched(path, body))
            reset()
            try:
                found = endstop.detect(call())
            except Exception as problem:
                # The SDK itself rejects the response, so that there is no object.
                different.append({"case": name, "raised": f"{type(problem).__name__}: {problem}"[:200]})
                continue
            own, sent = facts(found), facts(raw)
            if own != sent:
                names = [key for key in sent | own if own.get(key) != sent.get(key)]
                detail = {key: [own.get(key), sent.get(key)] for key in names}
                different.append({"case": name, "differs": detail})
    version = importlib.metadata.version(package)
    print(json.dumps({"sdk": package, "version": version, "cases": count, "different": different}))


if __name__ == "__main__":
    main()
