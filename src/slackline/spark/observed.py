"""How a query fares, as Spark's observable metrics: the figures that every host tells, of one micro-batch.

Each call of a processor adds one row of a kind of its own, ``METRICS``, with what its keys come to and what it gave
out. Spark adds these up on their way, and drops them behind that. What a figure means is in
the guide to Spark; where hosts tell a figure of the same name it is the same, but for this: a micro-batch knows only
the keys that had rows in it, or whose time was up.
"""

from __future__ import annotations

import operator
from collections.abc import Mapping, Sequence
from functools import reduce
from typing import Any

import numpy as np
from pyspark.errors import AnalysisException
from pyspark.sql import Column, DataFrame, Observation
from pyspark.sql import functions as F
from pyspark.sql.types import ArrayType

from slackline.core.errors import ConfigError
from slackline.core.outcome import NO_KEY
from slackline.engine.intake import CHECKS, CLOCK_JUMP, UNKNOWN_TYPE
from slackline.engine.outbox import RAISED
from slackline.spark.codec import NO_ARRIVAL

#: The kind of rows that are only here to be added up.
METRICS = "metrics"

#: Why events are set aside.
REASONS = (UNKNOWN_TYPE, *(check.reason for check in CHECKS), CLOCK_JUMP, RAISED, NO_KEY[0], NO_ARRIVAL[0])

#: What is added up of each detector by itself.
_SUMS = ("delivered", "late", "buffered")
#: So many points stand for the waits of a call: ranks are right to a quarter of a percent.
_POINTS = 200
_TOLD, _AT, _WAIT = "__slackline_told", "__slackline_at", "__slackline_wait"
_SCHEMA = """
    events long, keys long, state_bytes long, K long, alpha double,
    delivered array<long>, late array<long>, buffered array<long>,
    found long, late_found long, quarantined long, reasons map<string, long>, waits array<array<long>>
"""


class SitesTally:
    """What the sites of one call come to. Sums are by detector, so that those of several calls can be added."""

    def __init__(self) -> None:
        self.events = self.keys = self.state_bytes = self.K = 0
        self.alpha: float | None = None
        self._sums: list[list[int]] = []

    def rows(self, events: int, keys: int) -> None:
        """Rows that came, and of how many keys they are."""
        self.events += events
        self.keys += keys

    def figures(self, detectors: Sequence[Mapping[str, Any]], state_bytes: int = 0) -> None:
        """What is known of a site's detectors after its turn, and the size of its state."""
        self.state_bytes += state_bytes
        if not detectors:  # rows without a key have no engine
            return
        self._sums = self._sums or [[0, 0, 0] for _ in detectors]
        for sums, stats in zip(self._sums, detectors, strict=True):
            for at, name in enumerate(_SUMS):
                sums[at] += stats[name]
            self.K = max(self.K, stats["K"])
            alpha = stats.get("alpha")
            if alpha is not None:
                self.alpha = alpha if self.alpha is None else max(self.alpha, alpha)

    def plain(self) -> dict[str, Any]:
        """All of it as the payload of a row."""
        told: dict[str, Any] = {"events": self.events, "keys": self.keys, "state_bytes": self.state_bytes}
        if self._sums:
            sums = map(list, zip(*self._sums, strict=True))
            told |= {"K": self.K, "alpha": self.alpha, **dict(zip(_SUMS, sums, strict=True))}
        return told


def metrics_name(metrics: Any, streaming: bool) -> str | Observation | None:
    """What to observe a pipeline by, if at all. Those of a batch that have but a name would reach nobody in Python."""
    if isinstance(metrics, Observation) and not streaming:
        return metrics
    if metrics is None or (isinstance(metrics, str) and metrics):
        return metrics if streaming else None
    raise ConfigError(
        f"metrics={metrics!r} is not valid; it must be the name of a stream's metrics, such as 'slackline', or None. "
        f"Those of a batch go to a pyspark.sql.Observation."
    )


def weighed(waits: list[int]) -> list[list[int]]:
    """Waits in order, as pairs of a wait and how many there are of about this length: not more pairs than points.

    >>> weighed([5, 3, 4]), len(weighed(list(range(1_000)))), weighed(list(range(1_000)))[0]
    ([[3, 1], [4, 1], [5, 1]], 200, [2, 5])
    """
    parts = np.array_split(np.sort(np.array(waits, dtype=np.int64)), max(1, min(_POINTS, len(waits))))
    return [[int(part[len(part) // 2]), len(part)] for part in parts if len(part)]


def observed(rows: DataFrame, name: str | Observation, detectors: int, late_target: float | None) -> DataFrame:
    """The rows, those of the kind ``METRICS`` observed as ``name``. Many in one, as columns, are looked at as one.

    So Spark adds up a few rows per call of a processor, however much is found.
    """
    kind, payload = F.col("kind"), F.col("payload")
    if isinstance(rows.schema["kind"].dataType, ArrayType):
        kind, payload = F.get(kind, F.lit(0)), F.get(payload, F.lit(0))
    told = rows.select("*", F.when(kind == METRICS, F.from_json(payload, _SCHEMA)).alias(_TOLD))
    told = told.select("*", F.posexplode_outer(f"{_TOLD}.waits").alias(_AT, _WAIT))
    try:
        seen = told.observe(name, *_figures(detectors, late_target))
    except AnalysisException as error:
        if error.getCondition() != "DUPLICATED_METRICS_NAME":
            raise
        raise ConfigError(
            f"metrics={name!r} is the name of another pipeline's metrics in this query; give this one another."
        ) from error
    return seen.drop(_TOLD, _AT, _WAIT)


def _figures(detectors: int, late_target: float | None) -> list[Column]:
    def told(what: str, at: int | None = None) -> Column:
        """A figure once, though there is a row for each of the waits."""
        field = F.col(f"{_TOLD}.{what}") if at is None else F.get(F.col(f"{_TOLD}.{what}"), F.lit(at))
        return F.when(F.coalesce(F.col(_AT), F.lit(0)) == 0, field)

    def total(figure: Column) -> Column:
        return F.coalesce(F.sum(figure), F.lit(0))

    def because(reason: str) -> Column:
        return F.try_element_at(told("reasons"), F.lit(reason))

    wait, weight = F.get(F.col(_WAIT), F.lit(0)), F.coalesce(F.get(F.col(_WAIT), F.lit(1)), F.lit(0))
    late = [F.sum(told("late", at)) for at in range(detectors)]
    all_given = [F.sum(told("late", at) + told("delivered", at)) for at in range(detectors)]
    shares = [F.try_divide(late, given) for late, given in zip(late, all_given, strict=True)]
    waiting = [F.sum(told("buffered", at)) for at in range(detectors)]
    known = [total(because(reason)) for reason in REASONS]
    each = {
        "events": total(told("events")),
        "found": total(told("found")),
        "late": total(told("late_found")),
        "late_share": F.array_max(F.array(*shares)),
        "late_target": F.lit(late_target).cast("double"),
        "wait_p50": F.percentile(wait, 0.5, weight),
        "wait_p99": F.percentile(wait, 0.99, weight),
        "K": F.max(told("K")),
        "alpha": F.max(told("alpha")),
        "buffered": F.array_max(F.array(*waiting)),
        "keys": total(told("keys")),
        "state_bytes": total(told("state_bytes")),
        "quarantined": total(told("quarantined")),
        **{f"quarantined_{reason.replace(' ', '_')}": count for reason, count in zip(REASONS, known, strict=True)},
        "quarantined_other": total(told("quarantined")) - reduce(operator.add, known),
    }
    return [column.alias(name) for name, column in each.items()]
