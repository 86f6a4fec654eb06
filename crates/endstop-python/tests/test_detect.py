"""Detection: every form of a response, and hostile bodies."""

from __future__ import annotations

import collections
import io
import json
import pickle
from collections.abc import AsyncIterator, Iterator
from typing import Any

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


def test_list_of_responses_is_refused() -> None:
    for whole in (json.loads(chat("Hi")), chat("Hi"), chat("Hi").decode()):
        with pytest.raises(endstop.FormatError, match="a list of several responses"):
            endstop.detect([whole, whole])
        with endstop.Run() as run:
            run.ask()
            with pytest.raises(endstop.FormatError, match="a list of several responses"):
                run.turn([whole, whole])
    assert endstop.detect([json.loads(chat("Hi"))]).text == "Hi"


def test_one_event_is_not_a_response() -> None:
    event = {"object": "chat.completion.chunk", "choices": [{"delta": {"content": "Hi"}}]}
    for form in (event, json.dumps(event)):
        with pytest.raises(endstop.FormatError, match="one event of a stream"):
            endstop.detect(form)
    # A list is a stream, which was cut here.
    found = endstop.detect([event])
    assert found.text == "Hi" and not found.complete and found.error is not None


def test_fields_are_those_of_the_shared_lists() -> None:
    found = endstop.detect(chat("Hi"))
    with endstop.Run() as run:
        run.ask()
        turn = run.turn(chat("Hi"))
    refused = endstop.detect(b'{"error":{"message":"no"}}', api="openai-chat", status=401)
    values = [found, found.usage, found.signal, turn, run.outcome, refused.error]
    values += [endstop.Price(1, 2), endstop.Verdict.proceed()]
    rows = dict(endstop._endstop.fields())
    assert {*rows} == {type(value).__name__ for value in values}
    for value in values:
        shown = {name for name in dir(type(value)) if name[0] != "_"}
        # A value has the fields of its list, and methods, and nothing else.
        fields = {name for name in shown if not callable(getattr(type(value), name))}
        assert fields == {name for name, _ in rows[type(value).__name__]}
        for name in fields:
            getattr(value, name)


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


async def answer() -> bytes:
    return chat("Hi")


class Task:
    """What `await` takes, and that is not a coroutine."""

    def __await__(self) -> Iterator[None]:
        yield

    def __str__(self) -> str:
        return "a task"


@pytest.mark.parametrize("make", [answer, Task])
def test_forgotten_await_is_refused(make: Any) -> None:
    with endstop.Run() as run:
        run.go()
        call = run.turn(tool()).calls[0]
        pending = make()
        for use in (
            lambda: endstop.detect(pending),
            lambda: endstop.detect([pending]),
            lambda: endstop.detect({"choices": pending}),
            lambda: endstop.detect(chat("Hi"), request=pending),
            lambda: endstop.StreamDecoder(request=pending),
            lambda: run.turn(pending),
            lambda: run.result(call, pending),
            lambda: run.result(call, {"rows": [pending]}),
            lambda: run.result(call, "x", variables={"a": pending}),
            lambda: run.observe(metrics={"a": pending}),
            lambda: run.failed(pending),
            lambda: endstop.Verdict.stop("x", deliverable=pending),
            lambda: run.spent(pending),
            lambda: run.call("other").turn(pending),
            lambda: run.call("other").failed(pending),
            lambda: run.close(ended="submitted", deliverable=pending),
            lambda: endstop.Run(variables={"a": pending}),
        ):
            with pytest.raises(TypeError, match="it was not awaited; pass `await …`"):
                use()
        # Nothing was recorded, so that the program can repeat it with the value.
        assert run.result(call, "x")
        if hasattr(pending, "close"):
            pending.close()
    assert run.finished().messages[-1]["role"] == "tool"


def test_exception_is_not_a_response() -> None:
    for problem in (ValueError("x"), KeyboardInterrupt(), TimeoutError()):
        with pytest.raises(
            TypeError, match=r"pass the exception of a model call to run.failed\(…\)"
        ):
            endstop.detect(problem)


@pytest.mark.parametrize("empty", [b"", "", "  \n", bytearray(), [], iter(()), [b""]])
def test_empty_body_says_what_to_pass(empty: Any) -> None:
    with pytest.raises(endstop.FormatError, match="the body is empty; give the body"):
        endstop.detect(empty)


def test_empty_body_of_a_server_is_an_error_of_the_model_call() -> None:
    for found in (endstop.detect(b"", status=200), endstop.detect(b"", api="gemini")):
        assert found.error is not None and found.reason is SignalReason.ERROR_TERMINATION
    with endstop.Run() as run:
        run.go()
        assert run.turn(b"").error is not None


@pytest.mark.parametrize(
    ("part", "name"),
    [
        ({"index": 0, "message": {"content": "Hi"}, "finish_reason": "stop"}, "a choice"),
        ({"index": 0, "delta": {"content": "Hi"}, "finish_reason": None}, "a choice"),
        ({"role": "assistant", "content": "Hi"}, "a message"),
        ([{"role": "user", "content": "Hi"}], "a message"),
        ({"type": "message", "role": "assistant", "content": []}, "a message"),
        ({"type": "ai", "content": "Hi", "response_metadata": {}}, "a message of LangChain"),
        ({"content": {"parts": []}, "finishReason": "STOP"}, "a candidate"),
        ({"content": {"parts": []}, "finish_reason": "STOP"}, "a candidate"),
        ({"model": "m", "messages": []}, "a request"),
        ({"input_tokens": 1, "output_tokens": 2}, "token usage"),
        ({"type": "text", "text": "Hi"}, "a block of content"),
        ({"type": "tool_use", "id": "t", "name": "f", "input": {}}, "a tool call"),
    ],
)
def test_part_of_a_response_is_refused(part: Any, name: str) -> None:
    fix = f"this is {name}, and not a whole response; give the response as"
    for form in (part, json.dumps(part), json.dumps(part).encode()):
        with pytest.raises(endstop.FormatError, match=fix):
            endstop.detect(form)
    # Also after a response, whose format is tried first.
    with endstop.Run() as run:
        for before in (chat("Hi"), json.dumps(GEMINI)):
            run.ask()
            run.turn(before)
            run.ask()
            with pytest.raises(endstop.FormatError, match=fix):
                run.turn(part)


def test_other_documents_are_not_responses() -> None:
    for document in (
        {"candidates": 3},
        {"usage_metadata": {"plan": "pro"}},
        {"done": True, "message": "all tasks are done"},
        {"bytes": "aGVsbG8="},
        {"event_type": "click"},
        {"object": "text_completion", "choices": [{"text": "Hi", "finish_reason": "stop"}]},
        {"stream": "https://example.com", "body": {"a": 1}},
    ):
        with pytest.raises(endstop.FormatError, match="format is not recognised"):
            endstop.detect(document)


@pytest.mark.parametrize("wrong", [7, None, 1.5, object(), bytes, endstop.Run, len, [7], [None]])
def test_other_objects_are_refused(wrong: Any) -> None:
    with pytest.raises(TypeError, match="invalid (response|chunk) of type"):
        endstop.detect(wrong)


def test_streams_are_read() -> None:
    one = {"object": "chat.completion.chunk", "choices": [{"delta": {"content": "Hel"}}]}
    two = {
        "object": "chat.completion.chunk",
        "choices": [{"delta": {"content": "lo"}, "finish_reason": "length"}],
    }
    whole = sse(one, two)
    for stream in (
        iter([one, two]),
        (chunk for chunk in (one, two)),
        (whole[at : at + 5] for at in range(0, len(whole), 5)),
        io.BytesIO(whole),
        io.StringIO(whole.decode()),
        collections.deque([one, two]),
    ):
        found = endstop.detect(stream)
        assert (found.text, found.reason) == ("Hello", SignalReason.TOKEN_LIMIT_REACHED)

    async def later() -> AsyncIterator[bytes]:
        yield whole

    with pytest.raises(TypeError, match=r"\[chunk async for chunk in stream\]"):
        endstop.detect(later())

    def breaks() -> Iterator[bytes]:
        yield whole[:20]
        raise ConnectionError("reset")

    # As if the program had read it.
    with pytest.raises(ConnectionError):
        endstop.detect(breaks())


def test_detection_and_decoder_are_taken() -> None:
    found = endstop.detect(chat("Hi"))
    assert endstop.detect(found) == found
    decoder = endstop.StreamDecoder()
    decoder.push(chat("Hi"))
    assert endstop.detect(decoder) == found


def test_models_in_results_are_written_as_json() -> None:
    pydantic = pytest.importorskip("pydantic")

    class City(pydantic.BaseModel):
        name: str

    with endstop.Run() as run:
        run.go()
        run.result(run.turn(tool()).calls[0], [City(name="Bonn")])
    assert '[{"name":"Bonn"}]' in json.dumps(run.finished().messages).replace('\\"', '"')


def test_wrong_names_list_the_choices() -> None:
    with endstop.Run() as run:
        run.go()
        with pytest.raises(
            endstop.ConfigError, match="`kind` `nonsense`: expected one of text, re"
        ):
            run.delta("x", kind="nonsense")  # type: ignore[arg-type]
        with pytest.raises(
            endstop.ConfigError, match="`kind` `no`: expected one of authentication"
        ):
            run.failed("x", kind="no")  # type: ignore[arg-type]
        call = run.turn(tool()).calls[0]
        with pytest.raises(
            endstop.ConfigError, match="`status` `failed`: expected one of ok, error"
        ):
            run.result(call, "x", status="failed")  # type: ignore[arg-type]
