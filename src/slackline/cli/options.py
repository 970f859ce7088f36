"""Options that several commands share. Those of records and runs are derived from
:class:`~slackline.runtime.options.RunOptions`, where they are written once."""

from __future__ import annotations

import inspect
import json
from collections.abc import Iterable
from typing import Annotated, Any, Literal

import typer
from msgspec import inspect as types

from slackline.core.errors import ConfigError
from slackline.engine import Engine
from slackline.runtime.options import RunOptions

#: The fields of RunOptions, by name.
FIELDS = {each.name: each for each in types.type_info(RunOptions).fields}  # type: ignore[attr-defined]


def help_of(field: str) -> str:
    """The help text of an option."""
    return str(FIELDS[field].type.extra_json_schema["description"])


def annotation_of(field: str) -> Any:
    """The option of the command line for a field, None where it is not given."""
    kind = FIELDS[field].type.type
    return Annotated[
        _plain(kind) | None, typer.Option(f"--{FIELDS[field].encode_name}", help=help_of(field), show_default=False)
    ]


def _plain(kind: types.Type) -> Any:
    """What the command line takes for a value of this type; RunOptions validates it."""
    if isinstance(kind, types.UnionType):
        kind = next(each for each in kind.types if not isinstance(each, types.NoneType))
    if isinstance(kind, types.Metadata):
        kind = kind.type
    match kind:
        case types.BoolType():
            return bool
        case types.IntType():
            return int
        case types.FloatType():
            return float
        case types.LiteralType(values=values):
            return Literal[tuple(values)]
        case types.VarTupleType() | types.DictType():
            return list[str]
    return str


Ts = Annotated[str, typer.Option(help=help_of("ts"))]
Type = Annotated[str | None, typer.Option(help=help_of("type"))]
Source = Annotated[str | None, typer.Option(help=help_of("source"))]
Seq = Annotated[str | None, typer.Option(help=help_of("seq"))]
Key = Annotated[str | None, typer.Option(help=help_of("key"))]
Unit = Annotated[Literal["s", "ms", "us", "ns"] | None, typer.Option(help=help_of("unit"))]
MetricsPort = Annotated[int | None, typer.Option(help=help_of("metrics"), min=0, max=65535)]
Log = Annotated[Literal["text", "json"], typer.Option(help=help_of("log"))]

#: Options of engines that are no plain values, or that a runtime sets.
_NOT_GIVEN = ("hierarchy", "detectors", "sensors", "now", "speculation", "duplicates")


def known_options(but: Iterable[str] = ()) -> list[str]:
    """The options of an engine that can be given."""
    hidden = (*_NOT_GIVEN, *but)
    return [name for name in inspect.signature(Engine).parameters if name not in hidden]


def engine_options(texts: Iterable[str], but: Iterable[str] = ()) -> dict[str, Any]:
    """
    >>> engine_options(["policy=slack", "late_target=0.01", "timeout=null"])
    {'policy': 'slack', 'late_target': 0.01, 'timeout': None}
    """
    options: dict[str, Any] = {}
    known = known_options(but)
    for text in texts:
        key, equals, value = text.partition("=")
        if key not in known or not equals:
            raise ConfigError(f"--engine {text} is not valid; write KEY=VALUE, KEY one of {', '.join(known)}.")
        try:
            options[key] = json.loads(value)
        except json.JSONDecodeError:
            options[key] = value
    return options


def given_options(command_line: dict[str, Any]) -> dict[str, Any]:
    """What was given on the command line, by the names of the options; options of the engine as a dict."""
    given = {FIELDS[name].encode_name: value for name, value in command_line.items() if value not in (None, [])}
    if "engine" in given:
        given["engine"] = engine_options(given["engine"])
    return given
