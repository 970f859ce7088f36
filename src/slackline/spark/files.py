"""An application over files, once or as they arrive: what ``slackline run --on spark`` does."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
from pyspark.errors import AnalysisException
from pyspark.sql import DataFrame, Observation, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.streaming import StreamingQuery
from pyspark.sql.types import IntegralType, StructType, TimestampNTZType, TimestampType

from slackline.core.errors import ConfigError, SchemaError, StateError
from slackline.core.hierarchy import Hierarchy
from slackline.runtime.metrics import Metrics
from slackline.runtime.options import RunOptions
from slackline.runtime.schema import RecordSchema
from slackline.runtime.units import unit_of
from slackline.spark.metrics import metrics_of_observation
from slackline.spark.pipeline import detect

_FORMATS = {".csv": "csv", ".jsonl": "json", ".ndjson": "json", ".jsonlines": "json", ".parquet": "parquet"}
#: Beside the results, where Spark ignores it: the query's checkpoint. In that, how its input is read.
_CHECKPOINT, _INPUT = "_checkpoint", "slackline.json"
#: Files of one micro-batch: what it reads of a key is in memory at once.
_MAX_FILES = 100
#: Rows that show the unit of event times.
_SAMPLE = 1_000
#: The key of all events, where they have none of their own.
_ALL = "__slackline_all"


class InputState(msgspec.Struct, frozen=True):
    """How the input of a checkpoint is read: another record schema or layout would not find its states."""

    records: dict[str, Any]
    shards: int | None
    timers: bool
    format: str = ""
    columns: dict[str, Any] = {}

    @classmethod
    def of(cls, schema: RecordSchema, options: RunOptions, format: str = "", columns: Any = None) -> InputState:
        timers = options.idle_timeout is not None or options.state_ttl is not None
        return cls(schema.plain(), options.shards, timers, format, columns or {})

    @classmethod
    def load(cls, folder: Path) -> InputState | None:
        """What a checkpoint was started with; None for a new one."""
        path = folder / _INPUT
        try:
            return msgspec.json.decode(path.read_bytes(), type=cls) if path.is_file() else None
        except msgspec.DecodeError as error:
            raise StateError(f"{path} is damaged: {error}. Start with another folder.") from error

    def save(self, folder: Path) -> None:
        """Write it into a new checkpoint."""
        folder.mkdir(parents=True, exist_ok=True)
        (folder / _INPUT).write_bytes(msgspec.json.encode(self))

    def resumed(self, schema: RecordSchema, options: RunOptions, folder: Path) -> RecordSchema:
        """The schema with the unit that was recognised; StateError where the options do not fit the checkpoint."""
        now = InputState.of(schema, options)
        if now.shards != self.shards:
            raise StateError(
                f"{folder} was started with {self.shards or 'no'} shards, and --shards is {now.shards}: keys would not "
                f"find their states. Give the same number, or start with another folder."
            )
        if now.timers != self.timers:
            had, has = ("with", "without") if self.timers else ("without", "with")
            raise StateError(
                f"{folder} was started {had} --idle-timeout or --state-ttl and cannot be resumed {has}: Spark's timers "
                f"are part of its checkpoint. Their lengths may change. Start with another folder."
            )
        return schema.resumed(self.records, str(folder))


def detected(
    df: DataFrame, hierarchy: Hierarchy, options: RunOptions, schema: RecordSchema, *, arrival: str | None = None,
    metrics: str | Observation | None = "slackline",
) -> DataFrame:  # fmt: skip
    """The output records of a DataFrame, without statistics; the key is null where the schema has none.

    Columns called ``type``, ``source`` and ``seq`` are used as such where the schema does not name others, ``seq`` only
    where the source or the key is known, as in every runtime.
    """
    kind = df.schema[schema.ts].dataType if schema.ts in df.columns else None
    if isinstance(kind, TimestampType | TimestampNTZType) and (schema.unit or "us") != "us":
        raise ConfigError(
            f"ts={schema.ts!r} is a column of timestamps, which are microseconds on Spark, and the unit is "
            f"{schema.unit!r}; leave --unit out, or give event times as whole numbers."
        )
    roles: dict[str, Any] = {
        role: getattr(schema, role) or (role if role in df.columns else None) for role in ("type", "source", "seq")
    }
    if schema.seq is None and roles["seq"] and roles["source"] is None and schema.key is None:
        raise ConfigError(
            "column 'seq' counts within a source, which is not known. Give --source, --key, or --seq seq to use it "
            "anyway; on Spark it cannot be payload."
        )
    key = schema.key or _ALL
    rows = df if schema.key is not None else df.withColumn(_ALL, F.lit("all"))
    found = detect(
        rows, hierarchy, key=key, ts=schema.ts, arrival=arrival, stats=False, metrics=metrics, shards=options.shards,
        idle_timeout=options.idle_timeout, state_ttl=options.state_ttl, **roles, **options.engine_options,
    )  # fmt: skip
    return found if schema.key is not None else found.withColumn("key", F.lit(None).cast("string"))


def run_files(spark: SparkSession, hierarchy: Hierarchy, options: RunOptions) -> Metrics:
    """Run a hierarchy over a file, or over the files of a folder as one stream, older ones first.

    Results are JSON lines in a folder, below ``kind=event``, ``kind=late`` and so on, in the columns of
    :func:`~slackline.spark.detect`.
    """
    path = Path(options.sources[0])
    df = _read(spark, path, _format_of(path))
    schema = _with_unit(df, options.schema)
    seen = Observation()
    detected(df, hierarchy, options, schema, metrics=seen).write.partitionBy("kind").json(options.to)
    return metrics_of_observation(seen.get, schema.ts_per_second)


def follow_files(
    spark: SparkSession, hierarchy: Hierarchy, options: RunOptions, every: float
) -> tuple[StreamingQuery, RecordSchema]:
    """The same over the files of a folder as they arrive, older ones first, in a micro-batch every so many seconds.

    The columns are those of the files at the first start; a restart reads as before. Returns the query, and the schema
    with the unit that was recognised.
    """
    folder, to = Path(options.sources[0]), Path(options.to)
    checkpoint = to / _CHECKPOINT
    before = InputState.load(checkpoint)
    if before is None:
        format = _format_of(folder)
        sample = _read(spark, folder, format)
        schema, columns = _with_unit(sample, options.schema), sample.schema
        new = InputState.of(schema, options, format, columns.jsonValue())
    else:
        schema, format = before.resumed(options.schema, options, to), before.format
        columns = StructType.fromJson(before.columns)
    df = spark.readStream.schema(columns).load(str(folder), format=format, header=True, maxFilesPerTrigger=_MAX_FILES)
    found = detected(df, hierarchy, options, schema)
    if before is None:
        new.save(checkpoint)
    writer = found.writeStream.partitionBy("kind").format("json").option("path", str(to))
    writer = writer.option("checkpointLocation", str(checkpoint))
    return writer.trigger(processingTime=f"{round(every * 1_000)} milliseconds").start(), schema


def check_folder(to: Path, follow: bool, fresh: bool) -> None:
    """Raise if results cannot go to this folder. With ``fresh``, those of an earlier run on Spark are discarded."""
    ours = (to / _CHECKPOINT / _INPUT).is_file() or (to / "_SUCCESS").is_file()
    if fresh and ours:
        shutil.rmtree(to)
    if not to.exists() or (to.is_dir() and not any(to.iterdir()) and follow):
        return
    if not follow:
        raise ConfigError(f"{to} exists; on Spark give a new folder, or --fresh to discard results of an earlier run.")
    if not (to / _CHECKPOINT / _INPUT).is_file():
        raise ConfigError(
            f"{to} exists and has no checkpoint of Spark; give a new folder, or that of the run to resume."
        )


def _with_unit(df: DataFrame, schema: RecordSchema) -> RecordSchema:
    """The schema with the unit of event times; unless given it is recognised from the first rows."""
    kind = df.schema[schema.ts].dataType if schema.ts in df.columns else None
    if schema.unit is not None or not isinstance(kind, IntegralType):
        return schema
    rows = df.select(F.col(f"`{schema.ts}`")).where(f"`{schema.ts}` > 0").limit(_SAMPLE).collect()
    choice = unit_of({schema.ts: np.array([row[0] for row in rows], np.int64)}, None, "the files")
    return msgspec.structs.replace(schema, unit=choice.unit)


def _format_of(path: Path) -> str:
    names = [path.name] if path.is_file() else [each.name for each in path.iterdir()]
    formats = {
        kind
        for name in names
        for ending, kind in _FORMATS.items()
        if name.lower().removesuffix(".gz").endswith(ending) and not name.startswith((".", "_"))
    }
    if len(formats) != 1:
        known = ", ".join(_FORMATS)
        raise ConfigError(
            f"{path}: on Spark, files are of one format, with one of the endings {known}; see {names[:5]}."
        )
    return formats.pop()


def _read(spark: SparkSession, path: Path, format: str) -> DataFrame:
    try:
        return spark.read.load(str(path), format=format, header=True, inferSchema=True)
    except AnalysisException as error:
        raise SchemaError(f"cannot read {path}: {error}.") from error
