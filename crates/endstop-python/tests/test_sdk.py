"""Objects and streams of the providers' SDKs, if they are installed, compared with the bytes they came
from. Streams come from a server on a real socket."""

from __future__ import annotations

import asyncio
import base64
import binascii
import json
import struct
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from conftest import Server, chat, sse, tool

import endstop

BODIES = [
    chat("Hello"),
    chat("Hel", finish="length"),
    tool(),
    tool(arguments='{"te', finish="length"),
]


def same(found: Any, raw: bytes) -> None:
    """Compares an object with the bytes, in all that the command prints."""
    assert endstop.detect(found).to_dict() == endstop.detect(raw).to_dict()


@pytest.mark.parametrize("raw", BODIES)
def test_openai_chat(raw: bytes) -> None:
    types = pytest.importorskip("openai.types.chat")
    body = {"id": "r1", "created": 1, **json.loads(raw)}
    body["usage"]["total_tokens"] = 150
    same(types.ChatCompletion.model_validate(body), raw)


@pytest.mark.parametrize("finish", ["stop", "length", None])
def test_openai_chunks(finish: str | None) -> None:
    types = pytest.importorskip("openai.types.chat")
    events = [
        {"choices": [{"index": 0, "delta": {"role": "assistant", "content": "Hel"}}]},
        {"choices": [{"index": 0, "delta": {"content": "lo"}, "finish_reason": finish}]},
    ]
    whole = [
        {"id": "r", "created": 1, "model": "m", "object": "chat.completion.chunk", **event}
        for event in events
    ]
    found = endstop.detect([types.ChatCompletionChunk.model_validate(event) for event in whole])
    assert found.text == "Hello"
    expected = {"stop": "natural_completion", "length": "token_limit_reached"}
    assert found.reason == expected.get(finish or "", "error_termination")


@pytest.mark.parametrize("reason", ["end_turn", "max_tokens", "tool_use", "refusal"])
def test_anthropic_message(reason: str) -> None:
    types = pytest.importorskip("anthropic.types")
    content: list[dict[str, Any]] = [{"type": "text", "text": "Hello"}]
    if reason == "tool_use":
        content.append({"type": "tool_use", "id": "t1", "name": "f", "input": {"a_b": 1}})
    body = {
        "id": "m1",
        "type": "message",
        "role": "assistant",
        "model": "claude-3-haiku",
        "content": content,
        "stop_reason": reason,
        "stop_sequence": None,
        "usage": {"input_tokens": 3, "output_tokens": 4},
    }
    same(types.Message.model_validate(body), json.dumps(body).encode())


@pytest.mark.parametrize("reason", ["STOP", "MAX_TOKENS", "SAFETY"])
def test_google_response(reason: str) -> None:
    types = pytest.importorskip("google.genai.types")
    part = {"functionCall": {"name": "f", "args": {"a_b": 1}}}
    body = {
        "candidates": [
            {"content": {"role": "model", "parts": [part]}, "finishReason": reason, "index": 0}
        ],
        "usageMetadata": {"promptTokenCount": 3, "candidatesTokenCount": 4},
        "modelVersion": "gemini-2.5-flash",
    }
    found = types.GenerateContentResponse.model_validate(body)
    same(found, json.dumps(body).encode())
    # The form with the names of Python, as `model_dump()` writes it.
    same(found.model_dump(), json.dumps(body).encode())


CHUNKS = [
    {"choices": [{"index": 0, "delta": {"role": "assistant", "content": "Hel"}}]},
    {"choices": [{"index": 0, "delta": {"content": "lo"}, "finish_reason": "length"}]},
]
CHAT_STREAM = sse(
    *(
        {"id": "r", "created": 1, "model": "m", "object": "chat.completion.chunk", **c}
        for c in CHUNKS
    )
)
CUT = endstop.SignalReason.TOKEN_LIMIT_REACHED


def cut(found: endstop.Detection, *, text: str = "Hello") -> None:
    assert (found.reason, found.text) == (CUT, text)


def events(*events: dict[str, Any]) -> bytes:
    """Returns a stream whose events have names."""
    return b"".join(
        f"event: {event['type']}\ndata: {json.dumps(event)}\n\n".encode() for event in events
    )


ANTHROPIC_STREAM = events(
    {
        "type": "message_start",
        "message": {
            "id": "m",
            "type": "message",
            "role": "assistant",
            "model": "claude-3-haiku",
            "content": [],
            "stop_reason": None,
            "stop_sequence": None,
            "usage": {"input_tokens": 3, "output_tokens": 1},
        },
    },
    {"type": "content_block_start", "index": 0, "content_block": {"type": "text", "text": ""}},
    {"type": "content_block_delta", "index": 0, "delta": {"type": "text_delta", "text": "Hello"}},
    {"type": "content_block_stop", "index": 0},
    {
        "type": "message_delta",
        "delta": {"stop_reason": "max_tokens", "stop_sequence": None},
        "usage": {"output_tokens": 4},
    },
    {"type": "message_stop"},
)


def test_openai_live_stream(server: Server) -> None:
    openai = pytest.importorskip("openai")
    client = openai.OpenAI(api_key="k", base_url=server.url, max_retries=0)
    ask: Any = {"model": "m", "messages": []}
    server.say(*[CHAT_STREAM] * 5)
    cut(endstop.detect(client.chat.completions.create(**ask, stream=True)))
    with endstop.Run() as run:
        run.go()
        assert run.turn(client.chat.completions.create(**ask, stream=True)).text == "Hello"
    assert run.finished().termination == "error_output_truncated"
    # The manager must be entered; its stream has events of the SDK's own, and may be read in part.
    manager = client.chat.completions.stream(**ask)
    with pytest.raises(TypeError, match="with … as stream"):
        endstop.detect(manager)
    with manager as stream:
        next(stream)
        cut(endstop.detect(stream))
        cut(endstop.detect(stream.current_completion_snapshot))
    with client.chat.completions.with_streaming_response.create(**ask, stream=True) as response:
        cut(endstop.detect(response.iter_bytes()))
    raw = client.chat.completions.with_raw_response.create(**ask, stream=True)
    cut(endstop.detect(raw.parse()))
    server.say(chat("Hi"))
    raw = client.chat.completions.with_raw_response.create(**ask)
    assert endstop.detect(raw.http_response).text == "Hi"


def test_openai_stream_of_asyncio(server: Server) -> None:
    openai = pytest.importorskip("openai")

    async def main() -> None:
        client = openai.AsyncOpenAI(api_key="k", base_url=server.url, max_retries=0)
        ask: Any = {"model": "m", "messages": [], "stream": True}
        server.say(CHAT_STREAM)
        pending = client.chat.completions.create(**ask)
        with pytest.raises(TypeError, match="await"):
            endstop.detect(pending)
        stream = await pending
        with pytest.raises(TypeError, match=r"\[chunk async for chunk in stream\]"):
            endstop.detect(stream)
        cut(endstop.detect([chunk async for chunk in stream]))

    asyncio.run(main())


def test_openai_responses_live_stream(server: Server) -> None:
    openai = pytest.importorskip("openai")
    client = openai.OpenAI(api_key="k", base_url=server.url, max_retries=0)
    item = {
        "id": "msg_1",
        "type": "message",
        "role": "assistant",
        "status": "incomplete",
        "content": [{"type": "output_text", "text": "Hello", "annotations": []}],
    }
    response = {
        "id": "resp_1",
        "object": "response",
        "created_at": 1,
        "model": "gpt-5",
        "status": "incomplete",
        "incomplete_details": {"reason": "max_output_tokens"},
        "output": [item],
        "parallel_tool_calls": True,
        "tool_choice": "auto",
        "tools": [],
    }
    begun = {**response, "status": "in_progress", "incomplete_details": None, "output": []}
    stream = events(
        {"type": "response.created", "sequence_number": 0, "response": begun},
        {
            "type": "response.output_item.added",
            "sequence_number": 1,
            "output_index": 0,
            "item": {**item, "content": []},
        },
        {
            "type": "response.content_part.added",
            "sequence_number": 2,
            "item_id": "msg_1",
            "output_index": 0,
            "content_index": 0,
            "part": {"type": "output_text", "text": "", "annotations": []},
        },
        {
            "type": "response.output_text.delta",
            "sequence_number": 3,
            "item_id": "msg_1",
            "output_index": 0,
            "content_index": 0,
            "delta": "Hello",
            "logprobs": [],
        },
        {"type": "response.incomplete", "sequence_number": 4, "response": response},
    )
    server.say(stream, stream, json.dumps(response).encode())
    ask: Any = {"model": "gpt-5", "input": "Hi"}
    cut(endstop.detect(client.responses.create(**ask, stream=True)))
    with client.responses.stream(**ask) as helper:
        cut(endstop.detect(helper))
    whole = client.responses.create(**ask)
    cut(endstop.detect(whole))
    for part, name in [(whole.output[0], "a message"), (whole.output, "a message")]:
        with pytest.raises(endstop.FormatError, match=name):
            endstop.detect(part)


def test_anthropic_live_stream(server: Server) -> None:
    anthropic = pytest.importorskip("anthropic")
    client = anthropic.Anthropic(api_key="k", base_url=server.url, max_retries=0)
    ask: Any = {"model": "claude-3-haiku", "max_tokens": 4, "messages": []}
    server.say(*[ANTHROPIC_STREAM] * 4)
    cut(endstop.detect(client.messages.create(**ask, stream=True)))
    with pytest.raises(TypeError, match="with … as stream"):
        endstop.detect(client.messages.stream(**ask))
    with client.messages.stream(**ask) as stream:
        cut(endstop.detect(stream))
    with client.messages.stream(**ask) as stream:
        assert "".join(stream.text_stream) == "Hello"
        cut(endstop.detect(stream))
        message = stream.get_final_message()
    for part, name in [
        (message.content, "a block of content"),
        (message.content[0], "a block of content"),
        (message.usage, "token usage"),
        ({"role": message.role, "content": message.content}, "a message"),
    ]:
        with pytest.raises(endstop.FormatError, match=name):
            endstop.detect(part)

    async def main() -> None:
        client = anthropic.AsyncAnthropic(api_key="k", base_url=server.url, max_retries=0)
        manager = client.messages.stream(**ask)
        with pytest.raises(TypeError, match="with … as stream"):
            endstop.detect(manager)
        async with manager as stream:
            with pytest.raises(TypeError, match="asyncio"):
                endstop.detect(stream)
            cut(endstop.detect(await stream.get_final_message()))

    asyncio.run(main())


def test_google_live_stream(server: Server) -> None:
    genai = pytest.importorskip("google.genai")
    client = genai.Client(api_key="k", http_options={"base_url": server.url})
    part = {"candidates": [{"content": {"role": "model", "parts": [{"text": "Hel"}]}}]}
    last: dict[str, Any] = {
        "candidates": [
            {"content": {"role": "model", "parts": [{"text": "lo"}]}, "finishReason": "MAX_TOKENS"}
        ],
        "usageMetadata": {"promptTokenCount": 3, "candidatesTokenCount": 4},
    }
    server.say(sse(part, last, done=False), json.dumps(last).encode())
    cut(
        endstop.detect(
            client.models.generate_content_stream(model="gemini-2.5-flash", contents="Hi")
        )
    )
    found = client.models.generate_content(model="gemini-2.5-flash", contents="Hi")
    cut(endstop.detect(found), text="lo")
    for half, name in [
        (found.candidates[0], "a candidate"),
        (found.candidates[0].content, "a message"),
    ]:
        with pytest.raises(endstop.FormatError, match=name):
            endstop.detect(half)


def test_openai_parts_are_named() -> None:
    types = pytest.importorskip("openai.types.chat")
    body = {"id": "r1", "created": 1, **json.loads(tool())}
    body["usage"]["total_tokens"] = 150
    found = types.ChatCompletion.model_validate(body)
    choice = found.choices[0]
    for part, name in [
        (choice, "a choice"),
        (found.choices, "a choice"),
        (choice.model_dump(), "a choice"),
        (choice.message, "a message"),
        (choice.message.tool_calls[0], "a tool call"),
        (found.usage, "token usage"),
    ]:
        with pytest.raises(endstop.FormatError, match=f"this is {name}, and not a whole response"):
            endstop.detect(part)


def test_langchain_messages_are_named() -> None:
    messages = pytest.importorskip("langchain_core.messages")
    made = messages.AIMessage(
        "Hi",
        usage_metadata={"input_tokens": 1, "output_tokens": 2, "total_tokens": 3},
        response_metadata={"finish_reason": "stop"},
    )
    for message in (made, [made], made.model_dump(), messages.AIMessageChunk("Hi"), made.to_json()):
        with pytest.raises(endstop.FormatError, match="a message of LangChain"):
            endstop.detect(message)


def frame(kind: str, payload: dict[str, Any]) -> bytes:
    """Returns a frame of Amazon's event stream."""
    headers = b""
    for name, value in [
        (":event-type", kind),
        (":message-type", "event"),
        (":content-type", "application/json"),
    ]:
        headers += (
            bytes([len(name)])
            + name.encode()
            + b"\x07"
            + struct.pack(">H", len(value))
            + value.encode()
        )
    body = json.dumps(payload).encode()
    start = struct.pack(">II", 16 + len(headers) + len(body), len(headers))
    whole = start + struct.pack(">I", binascii.crc32(start)) + headers + body
    return whole + struct.pack(">I", binascii.crc32(whole))


def test_boto3_live_streams(server: Server) -> None:
    boto3 = pytest.importorskip("boto3")
    client = boto3.client(
        "bedrock-runtime",
        region_name="us-east-1",
        endpoint_url=server.url,
        aws_access_key_id="k",
        aws_secret_access_key="s",
    )
    kind = "application/vnd.amazon.eventstream"
    converse = b"".join(
        [
            frame("messageStart", {"role": "assistant"}),
            frame("contentBlockDelta", {"contentBlockIndex": 0, "delta": {"text": "Hello"}}),
            frame("messageStop", {"stopReason": "max_tokens"}),
        ]
    )
    server.say(converse, converse, kind=kind)
    ask: Any = {"modelId": "m", "messages": [{"role": "user", "content": [{"text": "Hi"}]}]}
    cut(endstop.detect(client.converse_stream(**ask)))
    cut(endstop.detect(client.converse_stream(**ask)["stream"]))
    data = [line[6:] for line in ANTHROPIC_STREAM.splitlines() if line.startswith(b"data: ")]
    chunks = [frame("chunk", {"bytes": base64.b64encode(event).decode()}) for event in data]
    server.say(b"".join(chunks), kind=kind)
    found = client.invoke_model_with_response_stream(modelId="anthropic.claude", body=b"{}")
    cut(endstop.detect(found))
    message = {
        "type": "message",
        "role": "assistant",
        "model": "m",
        "stop_reason": "max_tokens",
        "content": [{"type": "text", "text": "Hello"}],
        "usage": {},
    }
    server.say(json.dumps(message).encode())
    cut(endstop.detect(client.invoke_model(modelId="anthropic.claude", body=b"{}")))
    plain = {
        "output": {"message": {"role": "assistant", "content": [{"text": "Hello"}]}},
        "stopReason": "max_tokens",
        "usage": {"inputTokens": 1, "outputTokens": 1, "totalTokens": 2},
        "metrics": {"latencyMs": 1},
    }
    server.say(json.dumps(plain).encode())
    found = client.converse(**ask)
    cut(endstop.detect(found))
    with pytest.raises(endstop.FormatError, match="a message"):
        endstop.detect(found["output"]["message"])


def test_urllib_response(server: Server) -> None:
    server.say(CHAT_STREAM, chat("Hi"))
    for text in ("Hello", "Hi"):
        with urllib.request.urlopen(server.url, data=b"{}") as response:
            assert endstop.detect(response).text == text
    server.say(b'{"error":{"message":"m","type":"t","param":null,"code":null}}', status=429)
    with pytest.raises(urllib.request.HTTPError) as raised:
        urllib.request.urlopen(server.url, data=b"{}")
    # This exception is a response as well; a run classes it.
    with pytest.raises(TypeError, match=r"run.failed\(…\)"):
        endstop.detect(raised.value)
    raised.value.close()


@contextmanager
def opened(server: Server, library: str) -> Iterator[Any]:
    """Opens a response of an HTTP client without reading its body."""
    client = pytest.importorskip(library)
    if library == "requests":
        with client.post(server.url, data=b"{}", stream=True) as response:
            yield response
    else:
        with client.stream("POST", server.url, content=b"{}") as response:
            yield response


@pytest.mark.parametrize("library", ["httpx", "requests"])
def test_unread_response_is_read(server: Server, library: str) -> None:
    server.say(CHAT_STREAM)
    with opened(server, library) as response:
        cut(endstop.detect(response))
    server.say(b"", status=503)
    with opened(server, library) as response:
        found = endstop.detect(response)
    assert found.error is not None and found.error.status == 503
    server.say(b"")
    with opened(server, library) as response:
        found = endstop.detect(response)
    assert found.error is not None and not found.complete


def test_unread_response_of_asyncio_names_the_fix(server: Server) -> None:
    httpx = pytest.importorskip("httpx")

    async def main() -> None:
        async with (
            httpx.AsyncClient() as client,
            client.stream("POST", server.url, content=b"{}") as response,
        ):
            with pytest.raises(TypeError, match=r"await response.aread\(\)"):
                endstop.detect(response)
            with pytest.raises(TypeError, match="async for"):
                endstop.detect(response.aiter_bytes())
            await response.aread()
            cut(endstop.detect(response))

    server.say(CHAT_STREAM)
    asyncio.run(main())
