"""Fields of event types in Spark's types: what is declared, and published values that are checked against it."""

from __future__ import annotations

import json
import operator
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from types import MappingProxyType
from typing import Any

import numpy as np
import pyarrow as pa
from pyspark.errors import ParseException
from pyspark.sql import types as T
from pyspark.sql.pandas.types import to_arrow_type

from slackline.core.errors import ConfigError, SchemaError
from slackline.core.hierarchy import Hierarchy
from slackline.core.payload import to_json
from slackline.core.types import EventType, type_name
from slackline.runtime.output import FIELDS

#: The fields of event types, by the name of the type.
TypedFields = Mapping[str, T.StructType]
#: What ``detect`` takes as ``typed``.
Typed = str | EventType | Iterable[str | EventType] | Mapping[str, str | T.StructType]
NOT_TYPED: TypedFields = MappingProxyType({})

#: Spark's types of NumPy's; all others are text.
_SPARK_TYPES = {
    "f8": "double", "f4": "float", "f2": "float", "i8": "long", "i4": "int", "i2": "short", "i1": "byte", "u4": "long",
    "u2": "int", "u1": "short", "b1": "boolean",
}  # fmt: skip


def fields_of(event_type: str | EventType, schema: str | T.StructType | None = None) -> T.StructType:
    """The fields of an event type: those of ``schema``, or those that the type declares."""
    if schema is not None:
        return ddl_fields(schema) if isinstance(schema, str) else schema
    if not isinstance(event_type, EventType) or not event_type.fields:
        raise ConfigError(
            f"event type {type_name(event_type)!r} needs the fields: give them as 'player long, ...', or pass an "
            f"EventType that declares them."
        )
    kinds = {name: _SPARK_TYPES.get(np.dtype(kind).str[1:], "string") for name, kind in event_type.fields.items()}
    return T.StructType([T.StructField(name, T.DataType.fromDDL(kind)) for name, kind in kinds.items()])


def ddl_fields(text: str) -> T.StructType:
    """The fields that a user gave as DDL. Raises :class:`~slackline.SchemaError` if they are none."""
    try:
        fields = T.StructType.fromDDL(text)
    except ParseException as error:
        raise SchemaError(f"schema={text!r} is not a list of fields; write 'ts long, van string'.") from error
    if not isinstance(fields, T.StructType):
        raise SchemaError(f"schema={text!r} is one type, not a list of fields; write 'ts long, van string'.")
    return fields


def typed_fields(given: Typed, hierarchy: Hierarchy) -> TypedFields:
    """The fields of the event types that ``detect`` emits as columns, checked."""
    if isinstance(given, str | EventType):
        given = (given,)
    pairs = given.items() if isinstance(given, Mapping) else ((each, None) for each in given)
    found: dict[str, T.StructType] = {}
    for event_type, schema in pairs:
        name = type_name(event_type)
        if name not in hierarchy.publisher:
            raise ConfigError(
                f"typed={name!r} is not valid: no detector publishes this event type. Those that are published are "
                f"{sorted(hierarchy.publisher)}."
            )
        declared = hierarchy.types.get(name, name) if isinstance(event_type, str) else event_type
        found[name] = _nullable_fields(name, fields_of(declared, schema))
    _check_names("columns of the result", [*FIELDS, *found])
    return found


def _check_names(what: str, names: Iterable[str]) -> None:
    lower = [name.lower() for name in names]
    twice = sorted({name for name in lower if lower.count(name) > 1})
    if twice:
        raise SchemaError(
            f"{what} have the name {twice[0]!r} twice (Spark ignores case): rename the type or the field, or leave the "
            f"type out of `typed` and read it from the payload."
        )


def _nullable_fields(where: str, fields: T.StructType) -> T.StructType:
    """The fields, any of which an event may lack. Raises for types that a typed column cannot have."""
    _check_names(f"fields of {where!r}", fields.names)
    if not fields.names:
        raise SchemaError(f"{where!r} is declared without fields; give them as 'player long, ...'.")
    return T.StructType([T.StructField(each.name, _nullable(f"{where}.{each.name}", each.dataType)) for each in fields])


def _nullable(where: str, kind: T.DataType) -> T.DataType:
    if isinstance(kind, T.StructType):
        return _nullable_fields(where, kind)
    if isinstance(kind, T.ArrayType):
        return T.ArrayType(_nullable(f"{where}[]", kind.elementType))
    if type(kind) not in _CONVERTERS:
        raise SchemaError(
            f"field {where} is declared as {kind.simpleString()}, which a typed column cannot have; use boolean, whole "
            f"numbers, float, double, string, binary, or arrays and structs of these. Leave the type out of `typed` "
            f"to read it from the payload: typed(found, …, schema)."
        )
    return kind


def typed_column(event_type: str, field: T.StructField, values: tuple[Any, ...]) -> tuple[Any, ...]:
    """The values of a published field as Python has them in the declared type. Raises if one does not fit."""
    exact, convert = _CONVERTERS.get(type(field.dataType), (None, None))
    if not set(map(type, values)) <= {exact, type(None)}:
        convert = convert or _converter(field.dataType)
        values = tuple(_fitting(event_type, field, convert, value) for value in values)
    arrow = to_arrow_type(field.dataType, timezone="UTC")
    try:
        pa.array(values, arrow)
    except (TypeError, ValueError, OverflowError):  # a number that is too large, or text that is not valid Unicode
        for value in values:
            _fitting(event_type, field, lambda each: pa.array([each], arrow), value)
        raise
    return values


def _fitting(event_type: str, field: T.StructField, convert: Callable[[Any], Any], value: Any) -> Any:
    try:
        return None if value is None else convert(value)
    except (TypeError, ValueError, OverflowError) as error:
        raise SchemaError(
            f"field {field.name!r} of event type {event_type!r} is declared as {field.dataType.simpleString()}, and a "
            f"detector published {value!r:.200} ({type(value).__name__}). Publish a value of that type, or declare "
            f"another."
        ) from error


def _converter(kind: T.DataType) -> Callable[[Any], Any]:
    if isinstance(kind, T.ArrayType):
        return partial(_items, _converter(kind.elementType))
    if isinstance(kind, T.StructType):
        return partial(_members, {field.name: _converter(field.dataType) for field in kind})
    return _CONVERTERS[type(kind)][1]


def _items(convert: Callable[[Any], Any], value: Any) -> list[Any]:
    if not isinstance(value, list | tuple | np.ndarray):
        raise TypeError("no list")
    return [None if each is None else convert(each) for each in value]


def _members(converts: Mapping[str, Callable[[Any], Any]], value: Any) -> dict[str, Any]:
    if not isinstance(value, Mapping):
        raise TypeError("no mapping")
    return {name: None if (each := value.get(name)) is None else convert(each) for name, convert in converts.items()}


def _whole(value: Any) -> int:
    if isinstance(value, bool | np.bool_):
        raise TypeError("no number")
    return operator.index(value)


def _real(value: Any) -> float:
    if not isinstance(value, int | float | np.integer | np.floating) or isinstance(value, bool):
        raise TypeError("no number")
    return float(value)


def _truth(value: Any) -> bool:
    if not isinstance(value, bool | np.bool_):
        raise TypeError("no truth value")
    return bool(value)


def _binary(value: Any) -> bytes:
    if not isinstance(value, bytes | bytearray | memoryview):
        raise TypeError("no bytes")
    return bytes(value)


def _text(value: Any) -> str:
    """Text as it is, and everything else as the payload's JSON has it, as ``from_json`` reads a field of text."""
    if isinstance(value, str):
        return str(value)
    plain = json.loads(to_json({"": value}))[""]
    return plain if isinstance(plain, str) else json.dumps(plain, separators=(",", ":"), ensure_ascii=False)


#: The Python type whose values need no conversion, and the conversion of others; it raises for what does not fit.
_CONVERTERS: dict[type[T.DataType] | None, tuple[type | None, Callable[[Any], Any]]] = {
    **dict.fromkeys((T.ByteType, T.ShortType, T.IntegerType, T.LongType), (int, _whole)),
    **dict.fromkeys((T.FloatType, T.DoubleType), (float, _real)),
    T.BooleanType: (bool, _truth), T.BinaryType: (bytes, _binary), T.StringType: (str, _text),
}  # fmt: skip
