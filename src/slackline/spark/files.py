"""A hierarchy over files, once: what ``slackline run --on spark`` does."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from types import ModuleType
from typing import Any, Protocol

from pyspark import cloudpickle
from pyspark.errors import AnalysisException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from slackline.core.errors import ConfigError, SchemaError
from slackline.core.hierarchy import Hierarchy
from slackline.spark.pipeline import detect
from slackline.spark.session import session

_FORMATS = {".csv": "csv", ".jsonl": "json", ".ndjson": "json", ".jsonlines": "json", ".parquet": "parquet"}
#: The key of all events, where they have none of their own.
_ALL = "__slackline_all"


class ColumnRoles(Protocol):
    """Which column is what; of those that are None, a column of their own name is taken, if there is one."""

    @property
    def ts(self) -> str: ...
    @property
    def type(self) -> str | None: ...
    @property
    def source(self) -> str | None: ...
    @property
    def seq(self) -> str | None: ...
    @property
    def key(self) -> str | None: ...


def run_files(
    hierarchy: Hierarchy,
    path: Path,
    to: Path,
    roles: ColumnRoles,
    options: Mapping[str, Any],
    ships: ModuleType | None = None,
) -> dict[str, int]:
    """Run a hierarchy over a file, or over the files of a folder as one stream, older ones first.

    Results are JSON lines in the folder ``to``, below ``kind=event``, ``kind=late`` and ``kind=quarantine``, in the
    columns of :func:`~slackline.spark.detect`. Returns how many there are of each. ``ships`` is a module that workers
    cannot import: its code is sent to them.
    """
    if ships is not None:
        cloudpickle.register_pickle_by_value(ships)
    ours = SparkSession.getActiveSession() is None
    spark = session()
    try:
        df = _read(spark, path)
        columns = {name: getattr(roles, name) or name for name in ("type", "source", "seq")}
        named: dict[str, Any] = {
            name: column for name, column in columns.items() if getattr(roles, name) or column in df.columns
        }
        if roles.key is None:
            df = df.withColumn(_ALL, F.lit("all"))
        found = detect(df, hierarchy, key=roles.key or _ALL, ts=roles.ts, stats=False, **named, **options)
        found = found.drop("key") if roles.key is None else found
        found.write.partitionBy("kind").json(str(to))
        written = spark.read.json(str(to)).groupBy("kind").count().collect() if any(to.glob("kind=*")) else []
        return {row["kind"]: row["count"] for row in sorted(written, key=lambda row: str(row["kind"]))}
    finally:
        if ours:
            spark.stop()


def _read(spark: SparkSession, path: Path) -> DataFrame:
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
    try:
        return spark.read.load(str(path), format=formats.pop(), header=True, inferSchema=True)
    except AnalysisException as error:
        raise SchemaError(f"cannot read {path}: {error}.") from error
