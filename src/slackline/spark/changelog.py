"""The changelog folded into tables: with speculation an event may be inserted, retracted and inserted again.

The ``change`` of a row is its place among the changes of its key. So the order survives where rows lose theirs, and a
row that was written twice is the same change twice.
"""

from __future__ import annotations

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from slackline.core.errors import SchemaError

_NEEDS = ("key", "id", "op", "final", "change")


def current(df: DataFrame) -> DataFrame:
    """The events that are valid now: all that were inserted and not retracted since.

    ``df`` is the result of :func:`~slackline.spark.detect` or :func:`~slackline.spark.typed` as far as it was written,
    from the beginning, in any order, possibly with repeated rows. One row per event; those with ``final`` false may
    still be retracted.
    """
    return latest(df).where(F.col("op") != "retract")


def final(df: DataFrame) -> DataFrame:
    """The events that cannot change any more: the result without speculation. ``df`` is as for :func:`current`."""
    return _events(df).where("final").dropDuplicates(["key", "id"])


def latest(df: DataFrame) -> DataFrame:
    """The last change of each event, including retractions: the effect of a micro-batch on a table by ``(key, id)``.

    For upserts in ``foreachBatch``: delete where ``op`` is ``retract``, else update or insert.
    """
    rows = _events(df)
    whole = F.struct(*(F.col(f"`{name.replace('`', '``')}`") for name in rows.columns))
    last = rows.groupBy("key", "id").agg(F.max_by(whole, "change").alias("__slackline_last"))
    return last.select("__slackline_last.*")


def _events(df: DataFrame) -> DataFrame:
    missing = [name for name in _NEEDS if name not in df.columns]
    if missing:
        raise SchemaError(
            f"a changelog is the result of detect() or typed(); this DataFrame lacks {missing}, it has {df.columns}."
        )
    return df.where(F.col("change").isNotNull())  # other kinds have no number
