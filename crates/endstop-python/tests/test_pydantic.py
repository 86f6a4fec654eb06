"""The values in models of pydantic and in routes of FastAPI."""

from __future__ import annotations

import json
import subprocess
import sys
from typing import Any

import pytest
from conftest import chat, tool

import endstop

pydantic = pytest.importorskip("pydantic")


def values() -> list[Any]:
    """Returns one value of each class that a route may return."""
    with endstop.Run(model="openai/gpt-4o") as run:
        run.go()
        turn = run.turn(tool())
        run.result(turn.calls[0], "x")
        run.go()
        run.turn(chat("Hi"))
    found = endstop.detect(b"", api="openai-chat")
    deltas = endstop.StreamDecoder().push(b'data: {"choices":[{"delta":{"content":"Hel"}}]}\n\n')
    return [
        run.finished(),
        turn,
        turn.calls[0],
        found,
        found.error,
        found.signal,
        found.usage,
        deltas[0],
        endstop.price("openai/gpt-4o"),
        endstop.backtest(b"{}"),
        endstop.audit(b"{}"),
    ]


VIEWS = (endstop.AuditReport, endstop.BacktestReport, endstop.Delta, endstop.Detection)
"""Classes whose fields do not have all of a value."""


@pytest.mark.parametrize("value", values(), ids=lambda value: type(value).__name__)
def test_value_is_a_field(value: Any) -> None:
    kind = type(value)
    model = pydantic.create_model("Model", one=(kind, ...), several=(list[kind] | None, None))
    made = model(one=value, several=[value])
    plain = json.loads(json.dumps(value.to_dict()))
    assert json.loads(made.model_dump_json()) == {"one": plain, "several": [plain]}
    assert model.model_json_schema(mode="serialization")["properties"]["one"]["type"] == "object"
    model.model_json_schema()
    # A place without a type, and the function of the `json` module.
    assert json.loads(pydantic.TypeAdapter(Any).dump_json({"a": [value]})) == {"a": [plain]}
    assert json.loads(json.dumps(value, default=kind.to_dict)) == plain
    assert dict(value) == value.to_dict()
    if kind in VIEWS:
        with pytest.raises(pydantic.ValidationError, match="cannot be made of its fields"):
            model.model_validate_json(made.model_dump_json())
    else:
        again = model.model_validate_json(made.model_dump_json())
        assert again.one.to_dict() == value.to_dict()
        assert model.model_validate({"one": value.to_dict()}).one.to_dict() == value.to_dict()


@pytest.mark.parametrize(
    "wrong", [3, "stop", None, [], {"termination": "stop"}, {"a": 1}, endstop.FINAL]
)
def test_wrong_value_is_an_error_of_validation(wrong: object) -> None:
    for kind in (endstop.Outcome, endstop.Call, endstop.Price, endstop.Usage, endstop.Turn):
        if kind is endstop.Usage and isinstance(wrong, dict):
            continue  # All of its fields are optional.
        with pytest.raises(pydantic.ValidationError):
            pydantic.TypeAdapter(kind).validate_python(wrong)


def test_routes_return_values() -> None:
    fastapi = pytest.importorskip("fastapi")
    testclient = pytest.importorskip("fastapi.testclient")
    app = fastapi.FastAPI()
    expected = {}

    def returns(value: Any) -> Any:
        return lambda: value

    for value in values():
        name = type(value).__name__
        expected[name] = json.loads(json.dumps(value.to_dict()))
        app.get(f"/untyped/{name}", response_model=None)(returns(value))
        app.get(f"/typed/{name}", response_model=type(value))(returns(value))
        app.get(f"/nested/{name}")(returns({"one": value, "several": [value]}))
    with testclient.TestClient(app) as client:
        for name, plain in expected.items():
            assert client.get(f"/untyped/{name}").json() == plain
            assert client.get(f"/typed/{name}").json() == plain
            assert client.get(f"/nested/{name}").json() == {"one": plain, "several": [plain]}
        assert client.get("/openapi.json").status_code == 200


def test_import_needs_no_pydantic() -> None:
    code = "import endstop, sys; print(sorted({'pydantic', 'pydantic_core', 'inspect', 'logging', 'asyncio'} & {*sys.modules}))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, check=True, text=True)
    assert done.stdout.strip() == "[]"
