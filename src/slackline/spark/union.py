"""The union: the DataFrames of many streams as one, with a column that says whose a row is; checked before it runs."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import reduce
from typing import Any

from pyspark.errors import PySparkTypeError
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql.types import DataType, LongType, StringType, StructField, StructType

from slackline.core.errors import ConfigError, SchemaError
from slackline.spark.codec import ARRIVAL, BLOCK, MTIME, PATH, PLACE, SITE
from slackline.spark.columns import arrival_column, check_present, column, place, site_column, ts_column
from slackline.spark.keyed import arrow_schema

#: The columns of the output that are ours; only with a key there is another.
OWN = ("position", "stream", "ts", "kind", "lateness", "reason", "detail")

#: The name of a column, the same in all streams, or by the name of the stream.
Names = str | Mapping[str, str]


@dataclass(frozen=True, slots=True)
class Union:
    """The streams, and which of their columns is what."""

    streams: Mapping[str, DataFrame]
    ts: Names
    arrival: Names | None = None
    key: Names | None = None

    def __post_init__(self) -> None:
        given: Any = self.streams
        if not isinstance(given, Mapping) or not given:
            raise ConfigError(f"the streams are a dict of DataFrames by name, at least one; got {given!r}.")
        for name, df in given.items():
            if not isinstance(df, DataFrame):
                raise ConfigError(f"stream {name!r} must be a DataFrame; got a {type(df).__name__}.")
        for role in ("ts", "arrival", "key"):
            names = getattr(self, role)
            if isinstance(names, Mapping) and set(names) != set(given):
                raise ConfigError(f"{role} names columns of {list(names)}, but the streams are {list(given)}.")
        flowing = [name for name, df in given.items() if df.isStreaming]
        if 0 < len(flowing) < len(given):
            still = [name for name in given if name not in flowing]
            raise ConfigError(
                f"{flowing} are streaming DataFrames and {still} are not: read all with spark.readStream, or all with "
                f"spark.read."
            )

    @property
    def sample(self) -> DataFrame:
        """One of the DataFrames, to ask what holds for all."""
        return next(iter(self.streams.values()))

    def key_type(self) -> DataType | None:
        """The type of the key, which the output's key gets back."""
        roles = self._roles(next(iter(self.streams)))
        return self.sample.schema[roles["key"]].dataType if "key" in roles else None

    def prepare(self) -> DataFrame:
        """All rows as packets want them: site, arrival or place of reading, stream, time stamp, the streams' columns.

        Raises :class:`~slackline.core.errors.SchemaError` for a column that is missing, of a type that cannot mean
        what it is given for, of another type in another stream, or of a name that the output needs.
        """
        chosen = {}
        for name, df in self.streams.items():
            try:
                chosen[name] = self._chosen(name, df)
            except SchemaError as error:
                raise SchemaError(f"stream {name!r}: {error}") from None
        self._check_types()
        places = self._places()
        frames = [df.select(*places[name], *chosen[name]) for name, df in self.streams.items()]
        union = reduce(lambda one, other: one.unionByName(other, allowMissingColumns=True), frames)
        try:
            arrow_schema(union.schema)
        except PySparkTypeError as error:
            raise SchemaError(f"a column is of a type that Arrow lacks; cast or drop it first. {error}") from None
        return union

    def _roles(self, stream: str) -> dict[str, str]:
        """The columns of a stream that were named, by their role."""
        given = {"key": self.key, "arrival": self.arrival, "ts": self.ts}
        return {
            role: names[stream] if isinstance(names, Mapping) else names
            for role, names in given.items()
            if names is not None
        }

    def _theirs(self, stream: str) -> list[str]:
        """The other columns of a stream: they come out as they are."""
        roles = self._roles(stream)
        return [name for name in self.streams[stream].columns if name not in roles.values()]

    def _chosen(self, stream: str, df: DataFrame) -> list[Column]:
        if len({name.lower() for name in df.columns}) < len(df.columns):
            raise SchemaError(f"two columns have one name: {df.columns}. Rename or drop one of them first.")
        roles = self._roles(stream)
        check_present(df, roles)
        theirs = self._theirs(stream)
        needed = OWN if self.key is None else ("key", *OWN)
        for name in theirs:
            if name.lower() in needed:
                raise SchemaError(
                    f"column {name!r} is called like one of the output {needed}; rename or drop it first."
                )
            if "." in name:
                raise SchemaError(f"column {name!r} has a dot, which Spark's mapInArrow cannot take; rename it first.")
        site = F.lit("v") if self.key is None else site_column(df, roles["key"])
        chosen = [site.alias(SITE)]
        if self.arrival is not None:
            chosen.append(arrival_column(df, roles["arrival"]).alias(ARRIVAL))
        chosen += [F.lit(stream).alias("stream"), ts_column(df, roles["ts"]).alias("ts")]
        return chosen + [column(df, name) for name in theirs]

    def _check_types(self) -> None:
        first: dict[tuple[str, str], tuple[str, str]] = {}
        for stream in self.streams:
            for role, name, kind in self._types(stream):
                other, wanted = first.setdefault((role, "" if role else name.lower()), (stream, kind))
                if kind != wanted:
                    what = f"{role}={name!r}" if role else f"column {name!r}"
                    raise SchemaError(
                        f"stream {stream!r}: {what} is {kind}, but {wanted} in stream {other!r}. Cast it first"
                        f"{'.' if role else ', or rename it if it means something else.'}"
                    )

    def _types(self, stream: str) -> Iterator[tuple[str, str, str]]:
        """The role ("" if none), name and type of a stream's columns."""
        schema = self.streams[stream].schema
        for role, name in self._roles(stream).items():
            yield role, name, schema[name].dataType.simpleString()
        for name in self._theirs(stream):
            yield "", name, schema[name].dataType.simpleString()

    def _places(self) -> dict[str, list[Column]]:
        """Where rows were read; rows of streams that are no files, beside files, come from nowhere."""
        with_path = self.arrival is None
        places = {name: place(df, with_path) for name, df in self.streams.items()}
        if not any(places.values()):
            return places
        zero = F.lit(0).cast("long")
        nowhere = [zero.alias(MTIME), *([F.lit("").alias(PATH)] if with_path else []), zero.alias(BLOCK)]
        return {name: here or nowhere for name, here in places.items()}


def output_schema(prepared: DataFrame) -> StructType:
    """The columns of a merge's output for these rows: site, ours, the streams' own."""
    ts = prepared.schema["ts"].dataType
    kinds = (LongType(), StringType(), ts, StringType(), LongType(), StringType(), StringType())
    fields = [StructField(name, kind) for name, kind in zip((SITE, *OWN), (StringType(), *kinds), strict=True)]
    inner = (SITE, ARRIVAL, *PLACE, *OWN)
    return StructType(fields + [StructField(f.name, f.dataType) for f in prepared.schema if f.name not in inner])
