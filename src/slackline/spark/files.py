"""A hierarchy over files, once or as they come: what ``slackline run --on spark`` does."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from pyspark.errors import AnalysisException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming import StreamingQuery
from pyspark.sql.types import StructType

from slackline.core.errors import ConfigError, SchemaError, StateError
from slackline.core.hierarchy import Hierarchy
from slackline.spark.application import ColumnRoles, detected

_FORMATS = {".csv": "csv", ".jsonl": "json", ".ndjson": "json", ".jsonlines": "json", ".parquet": "parquet"}
#: Beside the results, where Spark does not look for any: the query's checkpoint, and how its files are read.
_CHECKPOINT, _READING = "_checkpoint", "_reading.json"


#: Files of one micro-batch: what it reads of a key is in memory at once.
_MOST_FILES = 100


def run_files(
    spark: SparkSession, hierarchy: Hierarchy, path: Path, to: Path, roles: ColumnRoles, options: Mapping[str, Any]
) -> dict[str, int]:
    """Run a hierarchy over a file, or over the files of a folder as one stream, older ones first.

    Results are JSON lines in the folder ``to``, below ``kind=event``, ``kind=late`` and ``kind=quarantine``, in the
    columns of :func:`~slackline.spark.detect`. Returns how many there are of each.
    """
    df = _read(spark, path, _format_of(path))
    detected(df, hierarchy, roles, options).write.partitionBy("kind").json(str(to))
    written = spark.read.json(str(to)).groupBy("kind").count().collect() if any(to.glob("kind=*")) else []
    return {row["kind"]: row["count"] for row in sorted(written, key=lambda row: str(row["kind"]))}


def follow_files(
    spark: SparkSession,
    hierarchy: Hierarchy,
    folder: Path,
    to: Path,
    roles: ColumnRoles,
    options: Mapping[str, Any],
    every: float,
) -> StreamingQuery:
    """The same over the files of a folder as they come, older ones first, in a micro-batch every so many seconds.

    The columns are those of the files that are there at the first start; a restart reads as before.
    """
    format, schema = _reading(spark, folder, to)
    df = spark.readStream.schema(schema).load(str(folder), format=format, header=True, maxFilesPerTrigger=_MOST_FILES)
    found = detected(df, hierarchy, roles, options)
    writer = found.writeStream.partitionBy("kind").format("json").option("path", str(to))
    writer = writer.option("checkpointLocation", str(to / _CHECKPOINT))
    return writer.trigger(processingTime=f"{round(every * 1_000)} milliseconds").start()


def check_target(to: Path) -> None:
    """Raise if a folder has other things in it than what :func:`follow_files` would go on with."""
    if to.exists() and not (to / _READING).is_file() and (not to.is_dir() or any(to.iterdir())):
        raise ConfigError(
            f"{to} is there, and not from a stream on Spark; give a folder that is new, or the one of the run to go on "
            f"with."
        )


def _reading(spark: SparkSession, folder: Path, to: Path) -> tuple[str, StructType]:
    """Format and columns of the files, as they were when it all began."""
    kept = to / _READING
    if not kept.is_file():
        format = _format_of(folder)
        schema = _read(spark, folder, format).schema
        to.mkdir(parents=True, exist_ok=True)
        kept.write_text(json.dumps({"format": format, "schema": schema.jsonValue()}), "utf-8")
        return format, schema
    try:
        match json.loads(kept.read_text("utf-8")):
            case {"format": str(format), "schema": dict(fields)}:
                return format, StructType.fromJson(fields)
    except (ValueError, KeyError):
        pass
    raise StateError(f"{kept} does not say how files are read; begin anew with another folder.")


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
