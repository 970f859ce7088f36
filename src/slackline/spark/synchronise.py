"""Many DataFrames in, one stream in order out: the synchroniser of [Sync] on the runtime of ``detect``."""

from __future__ import annotations

from collections.abc import Mapping

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from slackline.spark.batch import merger
from slackline.spark.codec import SITE
from slackline.spark.columns import column, key_back
from slackline.spark.keyed import streamed, whole
from slackline.spark.merge import MergeRecipe, StreamTime
from slackline.spark.processor import MERGE_OUTPUT, MergeProcessor, unpack
from slackline.spark.session import check
from slackline.spark.union import Names, Union, output_schema


def synchronise(
    streams: Mapping[str, DataFrame],
    *,
    ts: Names,
    arrival: Names | None = None,
    key: Names | None = None,
    max_delay: float | None = None,
    max_failures: int = 3,
    max_waiting: int = 1_000_000,
) -> DataFrame:
    """Put the rows of many streams into one order: by time stamp, then by the name of the stream.

    ``streams`` are DataFrames by name, all streaming or none. Each should deliver in order. A row goes out when every
    stream has delivered something at or after its time. ``ts``, ``arrival`` and ``key`` name columns, the same in all
    streams or by the name of the stream:

    - ``ts``: the time stamp: whole numbers of any unit, or timestamps, taken as microseconds since 1970 (UTC).
    - ``arrival``: grows in the order of arrival, across all streams. Without it the streams of a micro-batch are read
      side by side: always the one that is behind, each in its order of reading.
    - ``key``: the site (text or whole numbers). Every key is synchronised by itself, and needs all streams.

    The options are those of :class:`~slackline.sync.Synchroniser`. ``max_delay`` is in the unit of ``ts``, and is
    measured in stream time, the greatest time stamp so far: by wall time a micro-batch that is done again would give
    other rows.

    The result has the columns ``position, stream, ts, kind, lateness, reason, detail`` (behind ``key``, if there is
    one), then the other columns of all streams, in their own types; a column that a stream lacks is null. ``kind`` is
    ``event``, ``late`` or ``quarantine``; events are numbered by ``position`` from 1, the others have none. A batch
    comes out in that order; a sink may lose the order, so sort by ``position`` when you read.
    """
    union = Union(streams, ts, arrival, key)
    check(union.sample.sparkSession, streaming=union.sample.isStreaming)
    options = {
        "max_delay": max_delay,
        "max_failures": max_failures,
        "max_waiting": max_waiting,
    }
    recipe = MergeRecipe(tuple(streams), options, arrival is not None)
    recipe.synchroniser(None, StreamTime(0))  # so that wrong options and names show here and now
    prepared = union.prepare()
    schema = output_schema(prepared)
    if prepared.isStreaming:
        rows = streamed(prepared, ["stream"], MergeProcessor(recipe), MERGE_OUTPUT).mapInArrow(unpack, schema)
    else:
        rows = whole(prepared, ["stream"], merger(recipe), schema)
    kind = union.key_type()
    if kind is None:
        return rows.drop(SITE)
    return rows.select(key_back(F.col(SITE), kind).alias("key"), *(column(rows, name) for name in schema.names[1:]))
