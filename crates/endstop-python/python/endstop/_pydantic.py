"""The values of this package in pydantic and FastAPI: as fields of models, and as what a route returns.
Nothing of pydantic is imported before it asks.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from functools import cache
from typing import TYPE_CHECKING, Any

from endstop import _endstop

if TYPE_CHECKING:
    from pydantic_core import SchemaSerializer
    from pydantic_core.core_schema import CoreSchema

__all__: list[str] = []

# The values with `to_dict`, and the functions that read that dict. None: the dict is a view, which has not
# all of the value.
_VALUES: dict[type[Any], Callable[[dict[str, Any]], Any] | None] = {
    _endstop.AuditReport: None,
    _endstop.BacktestReport: None,
    _endstop.Call: lambda fields: _endstop.Call(**fields),
    _endstop.Delta: None,
    _endstop.Detection: None,
    _endstop.ModelError: lambda fields: _endstop.ModelError._from_json(json.dumps(fields)),
    _endstop.Outcome: lambda fields: _endstop.Outcome.from_json(json.dumps(fields)),
    _endstop.Price: lambda fields: _endstop.Price(**fields),
    _endstop.Signal: lambda fields: _endstop.Signal._from_json(json.dumps(fields)),
    _endstop.Turn: lambda fields: _endstop.Turn._from_json(json.dumps(fields)),
    _endstop.Usage: lambda fields: _endstop.Usage._from_json(json.dumps(fields)),
}


def _to_dict(value: Any) -> Any:
    return value.to_dict()


def _items(value: Any) -> Iterator[tuple[str, Any]]:
    """Returns the fields one by one, as models of pydantic do, so that `dict(value)` has them all."""
    return iter(value.to_dict().items())


def _schema(kind: type[Any], _source: Any, _handler: Any) -> CoreSchema:
    """Returns the schema of a field: an instance, or what `to_dict` returned."""
    from pydantic_core import core_schema as schema

    read = _VALUES[kind]
    instance = schema.is_instance_schema(kind)
    fields = schema.dict_schema()

    def checked(given: dict[str, Any]) -> Any:
        if read is None:
            raise ValueError(f"a {kind.__name__} cannot be made of its fields")
        try:
            return read(given)
        except TypeError as problem:  # Unknown or missing fields.
            raise ValueError(str(problem)) from None

    made = schema.no_info_after_validator_function(checked, fields)
    return schema.json_or_python_schema(
        json_schema=made,
        python_schema=schema.union_schema([instance, made]),
        serialization=schema.plain_serializer_function_ser_schema(_to_dict, return_schema=fields),
    )


@cache
def _serializer() -> SchemaSerializer:
    """Returns the serialiser for a value in a place without a type."""
    from pydantic_core import SchemaSerializer
    from pydantic_core import core_schema as schema

    by = schema.plain_serializer_function_ser_schema(_to_dict)
    return SchemaSerializer(schema.any_schema(serialization=by))


for _kind in _VALUES:
    # The names by which pydantic asks, and what FastAPI needs of a route without a type.
    setattr(_kind, "__iter__", _items)  # noqa: B010
    setattr(_kind, "__get_pydantic_core_schema__", classmethod(_schema))  # noqa: B010
    setattr(_kind, "__pydantic_serializer__", property(lambda _: _serializer()))  # noqa: B010
