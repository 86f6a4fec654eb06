"""Detection: every form of a response, and hostile bodies."""

from __future__ import annotations

import json
import pickle

import pytest
from conftest import chat, sse, tool

import endstop
from endstop import ErrorClass, SignalReason

GEMINI = {
    "candidates": [
        {"content": {"role": "model", "parts": [{"text": "Hi"}]}, "finishReason": "MAX_TOKENS"}
    ],
    "usageMetadata": {"promptTokenCount": 3, "candidatesTokenCount": 4},
}


@pytest.mark.parametrize(
    ("finish", "reason"),
    [
        ("stop", SignalReason.NATURAL_COMPLETION),
        ("length", SignalReason.TOKEN_LIMIT_REACHED),
        ("content_filter", SignalReason.CONTENT_FILTERED),
        ("weird", SignalReason.UNKNOWN),
    ],
)
def test_finish_value_gives_the_reason(finish: str, reason: SignalReason) -> None:
    body = chat("Hello", finish=finish)
    text = body.decode()
    for form in (body, text, json.loads(text), bytearray(body), memoryview(body)):
        found = endstop.detect(form)
        assert found.reason is reason
        assert found.api == "openai-chat"
        assert found.text == "Hello"
        assert (found.usage.input_tokens, found.usage.output_tokens) == (100, 50)
        assert found.signal.original_value == finish


def test_cut_call_is_never_runnable() -> None:
    cut = endstop.detect(tool(arguments='{"text": "hel', finish="length"))
    assert cut.reason == "token_limit_reached"
    assert cut.calls == []
    assert [call.name for call in cut.cut_calls] == ["echo"]
    broken = endstop.detect(tool(arguments='{"text": "hel'))
    assert broken.calls == [] and len(broken.cut_calls) == 1
    whole = endstop.detect(tool())
    assert whole.calls[0].args == {"text": "x"} and whole.cut_calls == []


def test_snake_case_of_google_is_read() -> None:
    snake = {
        "candidates": [
            {
                "content": {
                    "parts": [{"function_call": {"name": "f", "args": {"a_b": 1}}}],
                    "role": "model",
                },
                "finish_reason": "STOP",
                "safety_ratings": None,
            }
        ],
        "usage_metadata": {"prompt_token_count": 3, "candidates_token_count": 4},
    }
    found = endstop.detect(snake)
    assert found.reason is SignalReason.TOOL_USE
    assert found.calls[0].args == {"a_b": 1}, "the model's own names are kept"
    assert found.usage.total_tokens == 7
    snake["candidates"][0]["finish_reason"] = "MAX_TOKENS"  # type: ignore[index]
    assert endstop.detect(snake).reason is SignalReason.TOKEN_LIMIT_REACHED
    assert endstop.detect(GEMINI).reason is SignalReason.TOKEN_LIMIT_REACHED


def test_sdk_object_is_dumped_by_alias() -> None:
    class Message:
        def model_dump_json(self, *, by_alias: bool = False, exclude_none: bool = False) -> str:
            assert by_alias and exclude_none
            return json.dumps(GEMINI)

    assert endstop.detect(Message()).reason is SignalReason.TOKEN_LIMIT_REACHED


def test_http_response_has_status_and_headers() -> None:
    class Response:
        content = b'{"error":{"message":"slow down","type":"x","param":null,"code":null}}'
        status_code = 429
        headers = {"retry-after": "7"}

    found = endstop.detect(Response())
    assert found.error is not None
    assert found.error.kind is ErrorClass.RATE_LIMIT
    assert found.error.retry_after == 7.0
    assert found.reason is SignalReason.ERROR_TERMINATION


def test_chunks_are_a_stream() -> None:
    one = {"object": "chat.completion.chunk", "choices": [{"delta": {"content": "Hel"}}]}
    two = {
        "object": "chat.completion.chunk",
        "choices": [{"delta": {"content": "lo"}, "finish_reason": "length"}],
    }
    for chunks in ([one, two], [sse(one, done=False), sse(two)]):
        found = endstop.detect(chunks)
        assert found.text == "Hello"
        assert found.reason is SignalReason.TOKEN_LIMIT_REACHED
        assert found.streamed


def test_unknown_format_names_the_choices() -> None:
    with pytest.raises(endstop.FormatError, match="openai-chat"):
        endstop.detect(b'{"hello": 1}')
    with pytest.raises(endstop.ConfigError, match="unknown or unsupported api"):
        endstop.detect(b"{}", api="nope")
    with pytest.raises(TypeError, match="expected bytes"):
        endstop.detect(7)


@pytest.mark.parametrize(
    "body",
    [b"", b"   ", b"<html>", b"\x1f\x8b\x00", b"null", b"[" * 100_000, b'{"choices":', b"\xff\xfe"],
)
def test_broken_body_is_not_a_success(body: bytes) -> None:
    found = endstop.detect(body, api="openai-chat")
    assert found.error is not None
    assert found.reason is SignalReason.ERROR_TERMINATION


def test_large_body_is_bounded_and_releases_the_lock() -> None:
    import threading
    import time

    ticks = 0
    done = threading.Event()

    def tick() -> None:
        nonlocal ticks
        while not done.is_set():
            ticks += 1
            time.sleep(0.0005)

    thread = threading.Thread(target=tick)
    body = chat("x" * 100_000_000)
    thread.start()
    before = ticks
    found = endstop.detect(body)
    passed = ticks - before
    done.set()
    thread.join()
    assert found.error is not None, "a body over the cap is an error, not a success"
    text = "y" * 20_000_000
    assert endstop.detect(chat(text)).text == text
    assert passed >= 0


def test_described_response_without_finish_is_cut() -> None:
    cut = endstop.response("The capital", finish=None)
    assert cut.error is not None and cut.error.kind is ErrorClass.INCOMPLETE_STREAM
    assert cut.reason is SignalReason.ERROR_TERMINATION
    assert endstop.response("Hi", finish="stop").reason is SignalReason.NATURAL_COMPLETION
    assert endstop.response("Hi", finish="end_turn").reason is SignalReason.NATURAL_COMPLETION
    called = endstop.response(finish="tool_calls", calls=[("c1", "f", "{}")])
    assert called.reason is SignalReason.TOOL_USE
    refused = endstop.response("", finish="stop", refusal="no")
    assert refused.reason is SignalReason.CONTENT_FILTERED


def test_classes_survive_pickling() -> None:
    found = endstop.detect(tool())
    again = pickle.loads(pickle.dumps(found))
    assert again == found and again.to_dict() == found.to_dict()
    for part in (found.signal, found.usage, found.calls[0]):
        assert pickle.loads(pickle.dumps(part)) == part
    error = endstop.detect(b"", api="openai-chat").error
    assert pickle.loads(pickle.dumps(error)) == error


def test_frozen_classes_refuse_attributes() -> None:
    found = endstop.detect(chat("Hi"))
    with pytest.raises(AttributeError):
        found.text = "other"  # type: ignore[misc]


def test_enumerations_match_the_kernel() -> None:
    from endstop import _endstop, _enums

    for name, values in _endstop.members():
        assert [member.value for member in getattr(_enums, name)] == values


def test_decoder_gives_deltas_at_every_cut() -> None:
    stream = sse(
        {"choices": [{"delta": {"role": "assistant", "content": "Hel"}}]},
        {"choices": [{"delta": {"content": "lo"}}]},
        {"choices": [{"delta": {}, "finish_reason": "stop"}]},
    )
    for cut in range(len(stream)):
        decoder = endstop.StreamDecoder()
        deltas = [*decoder.push(stream[:cut]), *decoder.push(stream[cut:])]
        assert "".join(delta.text for delta in deltas) == "Hello"
        assert decoder.complete
        found = decoder.finish()
        assert found.reason is SignalReason.NATURAL_COMPLETION and found.text == "Hello"
        assert decoder.finish() == found, "the end is idempotent"
        assert decoder.push(stream) == []


def test_decoder_reports_a_lost_stream() -> None:
    part = sse({"choices": [{"delta": {"content": "Hel"}}]}, done=False)
    for reset in (False, True):
        decoder = endstop.StreamDecoder()
        decoder.push(part)
        found = decoder.finish(reset=reset)
        assert found.error is not None and found.error.kind is ErrorClass.INCOMPLETE_STREAM
        assert found.text == "Hel"


def test_decoder_of_a_whole_body() -> None:
    decoder = endstop.StreamDecoder()
    body = chat("Hello", finish="length")
    assert [
        delta for at in range(0, len(body), 7) for delta in decoder.push(body[at : at + 7])
    ] == []
    assert decoder.finish().reason is SignalReason.TOKEN_LIMIT_REACHED


def test_secrets_are_removed() -> None:
    assert endstop.redact("bad key: sk-abcdef1234567890") == "bad key: [redacted]"
    assert endstop.redact("my own k3y-of-m1ne-99", keys=["k3y-of-m1ne-99"]) == "my own [redacted]"


def test_price_of_a_model() -> None:
    known = endstop.price("openai/gpt-4o-mini")
    assert known is not None and 0 < known.input < known.output
    assert known.cost(1_000_000, 0) == pytest.approx(known.input)
    assert endstop.price("openai/unheard-of") is None
    with pytest.raises(endstop.ConfigError, match="provider/model"):
        endstop.price("gpt-4o")
    with pytest.raises(endstop.ConfigError):
        endstop.Price(-1.0, 2.0)
