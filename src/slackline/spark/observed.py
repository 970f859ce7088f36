"""How a query fares, as Spark's observable metrics: the figures that every host tells, of one micro-batch.

Each call of a processor adds one row of a kind of its own, ``METRICS``, with what its keys come to. Spark adds these up
on their way, together with what it can count of the other rows, and drops them behind that. What a figure means is in
the guide to Spark; where hosts tell a figure of the same name it is the same, but for this: a micro-batch knows only
the keys that had rows in it, or whose time was up.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from pyspark.errors import AnalysisException
from pyspark.sql import Column, DataFrame, Observation
from pyspark.sql import functions as F

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
#: Waits are told as exactly as a thousandth of their ranks.
_ACCURACY = 1_000
_TOLD, _WHY = "__slackline_told", "__slackline_why"
_SCHEMA = """
    events long, keys long, state_bytes long, K long, alpha double,
    delivered array<long>, late array<long>, buffered array<long>
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


def observed(rows: DataFrame, name: str | Observation, detectors: int, late_target: float | None) -> DataFrame:
    """The rows without those of the kind ``METRICS``, which are observed as ``name`` together with the others."""
    kind = F.col("kind")
    told = F.when(kind == METRICS, F.from_json("payload", _SCHEMA)).alias(_TOLD)
    why = F.when(kind == "quarantine", F.get_json_object("payload", "$.reason")).alias(_WHY)
    try:
        seen = rows.select("*", told, why).observe(name, *_figures(detectors, late_target))
    except AnalysisException as error:
        if error.getCondition() != "DUPLICATED_METRICS_NAME":
            raise
        raise ConfigError(
            f"metrics={name!r} is the name of another pipeline's metrics in this query; give this one another."
        ) from error
    return seen.where(kind != METRICS).drop(_TOLD, _WHY)


def _figures(detectors: int, late_target: float | None) -> list[Column]:
    def told(what: str, at: int | None = None) -> Column:
        field = F.col(f"{_TOLD}.{what}")
        return field if at is None else F.get(field, F.lit(at))

    kind, why = F.col("kind"), F.col(_WHY)
    wait = F.when(F.col("op") == "insert", F.greatest(F.lit(0), F.col("detected_at") - F.col("ts")))
    late = [F.sum(told("late", at)) for at in range(detectors)]
    all_given = [F.sum(told("late", at) + told("delivered", at)) for at in range(detectors)]
    shares = [F.try_divide(late, given) for late, given in zip(late, all_given, strict=True)]
    waiting = [F.sum(told("buffered", at)) for at in range(detectors)]
    reasons = {reason: F.count_if(why == reason) for reason in REASONS}
    each = {
        "events": F.coalesce(F.sum(told("events")), F.lit(0)),
        "found": F.count_if(kind == "event"),
        "late": F.count_if(kind == "late"),
        "late_share": F.array_max(F.array(*shares)),
        "late_target": F.lit(late_target).cast("double"),
        "wait_p50": F.percentile_approx(wait, 0.5, _ACCURACY),
        "wait_p99": F.percentile_approx(wait, 0.99, _ACCURACY),
        "K": F.max(told("K")),
        "alpha": F.max(told("alpha")),
        "buffered": F.array_max(F.array(*waiting)),
        "keys": F.coalesce(F.sum(told("keys")), F.lit(0)),
        "state_bytes": F.coalesce(F.sum(told("state_bytes")), F.lit(0)),
        "quarantined": F.count(why),
        **{f"quarantined_{reason.replace(' ', '_')}": count for reason, count in reasons.items()},
        "quarantined_other": F.count_if(~why.isin(*REASONS)),
    }
    return [column.alias(name) for name, column in each.items()]
