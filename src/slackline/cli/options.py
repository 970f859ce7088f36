"""Options that several commands share. Those of records and runs are derived from
:class:`~slackline.runtime.options.RunOptions`, where they are written once."""

from __future__ import annotations

import difflib
import inspect
import json
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Annotated, Any, Literal, TypeVar, get_type_hints

import typer
from msgspec import inspect as types

from slackline.core.errors import ConfigError
from slackline.engine import Engine
from slackline.ordering.policy import OPTIONS
from slackline.runtime.options import RunOptions, by_option

C = TypeVar("C", bound=Callable[..., Any])

#: The fields of RunOptions, by name.
FIELDS = {each.name: each for each in types.type_info(RunOptions).fields}  # type: ignore[attr-defined]

At = Annotated[
    str, typer.Option(help="HOST:PORT of any node of the cluster, or the checkpoint folder of a cluster on Spark.")
]
TlsCert = Annotated[
    Path | None,
    typer.Option(
        help="Certificate of this node, PEM. TLS is required for addresses other than loopback; `slackline "
        "certificates` makes the files.",
        dir_okay=False,
    ),
]
TlsKey = Annotated[Path | None, typer.Option(help="Private key of the certificate, PEM.", dir_okay=False)]
TlsCa = Annotated[
    Path | None,
    typer.Option(
        help="Certificate of the authority that signs for the nodes of this cluster only, PEM.", dir_okay=False
    ),
]


def help_of(field: str) -> str:
    """The help text of an option."""
    return str(FIELDS[field].type.extra_json_schema["description"])


# Options of nodes, whether each is a process or a task on Spark.

#: Fields of RunOptions: how a node reads its input, and its log.
OF_NODES = ("ts", "type", "source", "seq", "follow", "format", "avro_schema", "start", "kafka_config", "log")

To = Annotated[
    str | None,
    typer.Option(
        help="Where records go besides the folder, at least once: kafka://HOST:PORT/TOPIC, http://…, mqtt://…."
    ),
]
Speed = Annotated[
    str,
    typer.Option(
        help="Replay speed of a recording: 1 is real time by its event times, 2 twice as fast, 'max' unpaced."
    ),
]
NodeUnit = Annotated[
    Literal["s", "ms", "us", "ns", "ps"] | None,
    typer.Option(help=f"{help_of('unit')} ps is for applications that read recordings themselves."),
]
EngineOptions = Annotated[
    list[str] | None,
    typer.Option(
        help="Option of the engine, the same on all nodes: KEY=VALUE, e.g. policy=slack or late_target=0.01. "
        "Several times."
    ),
]
Optimise = Annotated[
    Literal["master", "neighbours"] | None,
    typer.Option(
        help="Optimise the placement of detectors: as the master of the cluster (of several such nodes, the first "
        "by name), or each node for its own detectors, by the metrics of its neighbours."
    ),
]
UntilEnd = Annotated[
    bool, typer.Option("--until-end", help="Stop when all input has ended, and all subscribers have the results.")
]


def takes(*fields: str) -> Callable[[C], C]:
    """Adds the options of these fields of RunOptions to a command, which has ``**given`` for them; None: not given."""

    def with_options(command: C) -> C:
        hints = get_type_hints(command, include_extras=True)
        named = (each for each in inspect.signature(command).parameters.values() if each.kind is not each.VAR_KEYWORD)
        own = [each.replace(annotation=hints[each.name]) for each in named]
        derived = [
            inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=None, annotation=_annotation(name))
            for name in fields
        ]
        signature = inspect.Signature([*own, *derived])
        command.__signature__ = signature  # type: ignore[attr-defined]
        command.__annotations__ = {each.name: each.annotation for each in signature.parameters.values()}
        return command

    return with_options


def _annotation(field: str) -> Any:
    option = typer.Option(f"--{FIELDS[field].encode_name}", help=help_of(field), show_default=False)
    return Annotated[_plain(FIELDS[field].type.type) | None, option]


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


def given_options(command_line: dict[str, Any]) -> dict[str, Any]:
    """What was given on the command line, by the names of the options; options of the engine as a dict."""
    given = by_option(command_line)
    if "engine" in given:
        given["engine"] = engine_options(given["engine"])
    if "conf" in given:
        given["conf"] = dict(map(setting, given["conf"]))
    return given


#: Options of engines that are no plain values, or that a runtime sets.
_NOT_GIVEN = ("hierarchy", "detectors", "sensors", "now", "speculation", "duplicates", "unit")


def known_options(but: Iterable[str] = ()) -> list[str]:
    """The options of an engine and of its policy that can be given."""
    hidden = (*_NOT_GIVEN, *but)
    return [name for name in (*inspect.signature(Engine).parameters, *OPTIONS) if name not in hidden]


def setting(text: str) -> tuple[str, str]:
    """A setting of Spark, as ``--conf`` takes it."""
    key, equals, value = text.partition("=")
    if not key or not equals:
        raise ConfigError(f"--conf {text} is not valid; write KEY=VALUE.")
    return key, value


def engine_options(texts: Iterable[str], but: Iterable[str] = ()) -> dict[str, Any]:
    """The options of an engine, flat: those of the policy by their own names.

    >>> engine_options(["policy=slack", "late_target=0.01", "timeout=null"])
    {'policy': 'slack', 'late_target': 0.01, 'timeout': None}
    """
    options: dict[str, Any] = {}
    known = known_options(but)
    for text in texts:
        key, equals, value = text.partition("=")
        if key not in known or not equals:
            close = difflib.get_close_matches(key, known, 1)
            hint = f" Did you mean {close[0]}={value or '…'}?" if close else ""
            raise ConfigError(f"--engine {text} is not valid; write KEY=VALUE, KEY one of {', '.join(known)}.{hint}")
        try:
            options[key] = json.loads(value)
        except json.JSONDecodeError:
            options[key] = value
    return options
