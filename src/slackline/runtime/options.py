"""The options of ``slackline run``, listed once: the command line, the TOML file and the validation are derived from
:class:`RunOptions`."""

from __future__ import annotations

import difflib
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Literal

import msgspec
from msgspec import Meta
from msgspec import inspect as types

from slackline.core.errors import ConfigError
from slackline.core.time import PER_SECOND
from slackline.ordering.policy import with_policy
from slackline.runtime.schema import RecordSchema

Text = Annotated[str, Meta(min_length=1)]
Unit = Literal["s", "ms", "us", "ns"]
assert set(PER_SECOND) == {"s", "ms", "us", "ns"}


class RunOptions(msgspec.Struct, frozen=True, kw_only=True, rename="kebab", forbid_unknown_fields=True):
    """What to run, from where to where, and how. A field is an option of the command line and a key of the TOML file,
    with dashes for underscores; its description is the text of ``--help``.
    """

    app: Annotated[
        Text,
        Meta(description="The hierarchy: module:name, a file (app.py:name), or app.py for the `hierarchy` in it."),
    ]
    sources: Annotated[
        tuple[Text, ...],
        Meta(
            description="Where records come from: a file (CSV, JSON lines, both also .gz, or Parquet), a folder of "
            "files, - (standard input, JSON lines), http://…, https://… (JSON lines or server-sent events), "
            "mqtt://HOST/TOPIC, kafka://HOST:PORT/TOPIC. May be repeated."
        ),
    ] = msgspec.field(name="from")
    to: Annotated[
        Text,
        Meta(
            description="Where results go: a folder (with checkpoints: the same command resumes), a .jsonl file, - "
            "(standard output), http://…, https://… (POST), mqtt://HOST/TOPIC, kafka://HOST:PORT/TOPIC."
        ),
    ]
    ts: Annotated[Text, Meta(description="Field of event times; `ts` by default.")] = "ts"
    type: Annotated[
        Text | None,
        Meta(description="Field of event types; `type` by default. Not needed if there is one sensor type."),
    ] = None
    source: Annotated[
        Text | None, Meta(description="Field that names the source of an event; `source` by default, if there is one.")
    ] = None
    seq: Annotated[
        Text | None,
        Meta(
            description="Field of sequence numbers within a source; `seq` by default, if the source or key is known. "
            "Repeated numbers are dropped as duplicates."
        ),
    ] = None
    key: Annotated[
        Text | None, Meta(description="Field of keys, e.g. van: each key has its own engine. One for all by default.")
    ] = None
    unit: Annotated[
        Unit | None,
        Meta(description="Unit of event times; dates become it. Recognised from the magnitude unless given."),
    ] = None
    shards: Annotated[
        Annotated[int, Meta(ge=1)] | None,
        Meta(description="Hash the keys into so many engines, each ordered as one stream; for many small keys."),
    ] = None
    engine: Annotated[
        dict[str, Any],
        Meta(description="Option of the engine: KEY=VALUE, e.g. policy=slack or late_target=0.01. May be repeated."),
    ] = msgspec.field(default_factory=dict)
    idle_timeout: Annotated[
        str | float | None,
        Meta(description="Flush a key without arrivals for so long, e.g. 30s or '5 min'. Never unless given."),
    ] = None
    state_ttl: Annotated[
        str | float | None,
        Meta(description="Drop the state of a key without arrivals for so long, e.g. '1 day'. Never unless given."),
    ] = None
    duplicates: Annotated[
        Literal["drop", "write"],
        Meta(description="Duplicates are counted and dropped; `write` also emits them (kind duplicate)."),
    ] = "drop"
    follow: Annotated[
        bool, Meta(description="Wait for more at the end of files: lines that are appended, files that are added.")
    ] = False
    fresh: Annotated[
        bool, Meta(description="Discard results and checkpoint of an earlier run in the folder; start anew.")
    ] = False
    on: Annotated[
        Literal["process", "spark", "spark-tasks"],
        Meta(
            description="Where to run: in this process; on Spark, by slackline.spark; or, between topics, in "
            "long-lived tasks on executors of Spark, which share the partitions as processes do."
        ),
    ] = "process"
    tasks: Annotated[
        Annotated[int, Meta(ge=1)] | None,
        Meta(description="Spark tasks: how many; each takes one slot of the session until it ends."),
    ] = None
    conf: Annotated[
        dict[str, str],
        Meta(
            description="Spark: setting of the session, KEY=VALUE, e.g. spark.master=spark://HOST:7077. May be "
            "repeated. A local session by default."
        ),
    ] = msgspec.field(default_factory=dict)
    tls: Annotated[
        tuple[Text, ...],
        Meta(
            description="Spark tasks: PEM files of a certificate, its key and the authority, in this order, on all "
            "machines (`slackline certificates` makes them); required unless all is on this machine."
        ),
    ] = ()
    at_stop: Annotated[
        Literal["flush", "keep"] | None,
        Meta(
            description="Buffered events on shutdown (Ctrl-C, SIGTERM): `flush` emits them, `keep` stores them in the "
            "checkpoint. `keep` by default where there is one."
        ),
    ] = None
    checkpoint_every: Annotated[
        Annotated[float, Meta(gt=0)] | None,
        Meta(description="Seconds between checkpoints: 1 by default with a folder, 30 on Kafka."),
    ] = None
    metrics: Annotated[
        Annotated[int, Meta(ge=0, le=65535)] | None,
        Meta(description="Serve metrics for Prometheus at http://127.0.0.1:PORT/metrics; 0: any free port."),
    ] = None
    page: Annotated[
        Annotated[int, Meta(ge=0, le=65535)] | None,
        Meta(description="Serve a page to watch the run at http://127.0.0.1:PORT/; 0: any free port."),
    ] = None
    trace: Annotated[
        Text | None,
        Meta(
            description="Record what the engines are given in this file, for `slackline explain`: the last 100,000 "
            "arrivals or more, in it and in FILE.1."
        ),
    ] = None
    log: Annotated[Literal["text", "json"], Meta(description="Format of the log on stderr.")] = "text"
    group: Annotated[
        Text | None, Meta(description="Kafka: consumer group, the same for all processes of the application.")
    ] = None
    delivery: Annotated[
        Literal["exactly-once", "at-least-once"] | None,
        Meta(description="Kafka: exactly-once (default) writes in transactions, at-least-once at once."),
    ] = None
    format: Annotated[
        Literal["json", "arrow", "avro"],
        Meta(description="Kafka: format of the records: JSON object, Arrow IPC stream, or Avro."),
    ] = "json"
    avro_schema: Annotated[Text | None, Meta(description="Kafka: file with the Avro schema of the records.")] = None
    start: Annotated[Literal["earliest", "latest"], Meta(description="Kafka: where a new group begins to read.")] = (
        "earliest"
    )
    commit_interval: Annotated[
        Annotated[float, Meta(ge=0)] | None,
        Meta(description="Kafka: seconds between two transactions (0.01 by default)."),
    ] = None
    state: Annotated[
        Text | None,
        Meta(description="Kafka: topic for checkpoints, GROUP-state by default; with a slash in it, a folder."),
    ] = None
    late_topic: Annotated[Text | None, Meta(description="Kafka: topic of late events, SINK-late by default.")] = None
    quarantine_topic: Annotated[
        Text | None, Meta(description="Kafka: topic of quarantined records, SINK-quarantine by default.")
    ] = None
    kafka_config: Annotated[
        Text | None, Meta(description="Kafka: file with properties of the client, name=value per line (passwords).")
    ] = None
    fields: Annotated[
        Text | None,
        Meta(description="Kafka on Spark: file with the fields of the records, such as `ts long, van string`."),
    ] = None

    @property
    def schema(self) -> RecordSchema:
        """The record schema."""
        names = ("ts", "type", "source", "seq", "key", "unit", "format", "avro_schema")
        return RecordSchema(**{name: getattr(self, name) for name in names})

    @property
    def engine_options(self) -> dict[str, Any]:
        """The options of the engines; those of the policy, which are flat in ``engine``, as its object."""
        own = {"duplicates": "keep"} if self.duplicates == "write" else {}
        return {**with_policy(self.engine), **own, **({} if self.unit is None else {"unit": self.unit})}


def option_names() -> dict[str, msgspec.structs.FieldInfo]:
    """The fields by the names that the command line and the file have for them."""
    return {each.encode_name: each for each in msgspec.structs.fields(RunOptions)}


def by_option(given: Mapping[str, Any]) -> dict[str, Any]:
    """What was given by the names of fields, by those of the options; without what was not given."""
    names = {each.name: each.encode_name for each in msgspec.structs.fields(RunOptions)}
    return {names[field]: value for field, value in given.items() if value not in (None, [])}


def run_options(given: Mapping[str, Any], config: Path | None, engine: Any = ()) -> RunOptions:
    """The options out of a TOML file and the command line, which overrides the file.

    ``given`` has what the command line gave, by name; ``engine`` is the names of the engine's options.
    """
    file = {} if config is None else _read(config, engine)
    merged = file | {name: value for name, value in given.items() if value is not None}
    merged["engine"] = {**file.get("engine", {}), **(given.get("engine") or {})}
    for name, what in (("app", "APP, module:hierarchy or a file"), ("to", "--to FOLDER, FILE, URL or -")):
        if name not in merged:
            raise ConfigError(f"{what} is missing; give it, or `{name}` in the file of --config.")
    if not merged.get("from"):
        raise ConfigError("no input is given; give --from FILE, FOLDER, URL or - (standard input).")
    return _converted(merged, "")


def _converted(given: Mapping[str, Any], where: str) -> RunOptions:
    if isinstance(given.get("from"), str):
        given = {**given, "from": [given["from"]]}
    try:
        return msgspec.convert(given, RunOptions)
    except msgspec.ValidationError as error:
        raise ConfigError(f"{where}{_message(str(error), given)}") from None


def _read(path: Path, engine: Any) -> dict[str, Any]:
    try:
        found = tomllib.loads(path.read_text("utf-8"))
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"cannot read {path}: {error}.") from error
    except tomllib.TOMLDecodeError as error:
        raise ConfigError(f"{path} is not TOML: {error}.") from error
    _check_known(path, "", found, option_names())
    if isinstance(found.get("engine"), dict):
        _check_known(path, "engine.", found["engine"], engine)
    _converted({"app": "-", "from": "-", "to": "-", **found}, f"{path}: ")  # the command line may give what is missing
    return found


def _check_known(path: Path, prefix: str, given: Mapping[str, Any], known: Any) -> None:
    for name in given:
        if name not in known:
            close = difflib.get_close_matches(name.replace("_", "-") if not prefix else name, known, 1, 0.5)
            hint = f" Did you mean {prefix}{close[0]}?" if close else ""
            raise ConfigError(f"{path}: there is no option {prefix}{name}.{hint} Known are {', '.join(known)}.")


def _message(error: str, given: Mapping[str, Any]) -> str:
    """What is wrong with an option, what was given, and what it must be.

    >>> _message("Expected `float`, got `str` - at `$.checkpoint-every`", {"checkpoint-every": "often"})
    "checkpoint-every = 'often' is not valid; it must be a number above 0."
    """
    text, _, place = error.partition(" - at `$.")
    name = place.rstrip("`").partition("[")[0]
    field = next((each for each in types.type_info(RunOptions).fields if each.encode_name == name), None)  # type: ignore[attr-defined]
    if field is None:
        return f"{text}."
    return f"{name} = {given[name]!r} is not valid; it must be {_expected(field.type)}."


def _expected(kind: types.Type) -> str:
    """What a value of this type is, in words."""
    match kind:
        case types.Metadata():
            return _expected(kind.type)
        case types.UnionType():
            return " or ".join(_expected(each) for each in kind.types if not isinstance(each, types.NoneType))
        case types.LiteralType():
            return f"one of {', '.join(map(str, kind.values))}"
        case types.BoolType():
            return "true or false"
        case types.IntType(ge=low, le=high):
            return "a whole number" + (f" from {low}" if low is not None else "") + (f" to {high}" if high else "")
        case types.FloatType(gt=above, ge=low):
            bound = f" above {above:g}" if above is not None else f" from {low:g}" if low is not None else ""
            return f"a number{bound}"
        case types.VarTupleType():
            return "text, or a list of texts"
        case types.DictType():
            return "a table"
    return "text"
