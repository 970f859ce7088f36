"""How a query on Spark fares, out of what Spark tells of its micro-batches: the same vitals as of any other host.

A progress is ``query.lastProgress``, or ``event.progress`` in a ``StreamingQueryListener``; or what one of them was as
JSON. It takes no Spark to read it.
"""

from __future__ import annotations

import json
import time
from collections import Counter
from collections.abc import Mapping
from dataclasses import replace
from datetime import datetime
from typing import Any

from slackline.core.time import Now
from slackline.runtime.numbers import Numbers
from slackline.runtime.vitals import Vitals

#: How the figures of reasons are called.
_REASON = "quarantined_"
#: What becomes of figures where a micro-batch has none: they are those of the one before.
_LAST = ("late_share", "late_target", "wait_p50", "wait_p99", "K", "alpha", "buffered")


def vitals_of(
    progress: Mapping[str, Any],
    before: Vitals | None = None,
    *,
    metrics: str = "slackline",
    per_second: int = 1_000_000,
    now: Now = time.time,
) -> Vitals:
    """How a query fares that runs :func:`slackline.spark.detect`, after a micro-batch.

    ``before``      the vitals after the micro-batch before it: counts go on from there, and so does what this one says
                    nothing of. Without it, counts are those of this micro-batch.
    ``metrics``     the name that ``detect`` was given for them.
    ``per_second``  so many units of time stamps make a second.

    A micro-batch knows only some of the keys: ``keys``, ``buffered``, ``late_share``, ``K`` and ``alpha`` are those of
    the keys that had rows in it, or whose time was up; waits are those of its events.
    """
    told = _plain((progress.get("observedMetrics") or {}).get(metrics) or {})
    passed = _seconds(progress)
    return Vitals(
        _numbers(told, before.numbers if before else Numbers()),
        rate=told.get("events", 0) / passed,
        found_rate=told.get("found", 0) / passed,
        lag=_lag(progress),
        checkpoint_bytes=_state_bytes(progress),
        checkpoint_age=max(0.0, now() - _ended(progress)),
        per_second=per_second,
    )


def _numbers(told: Mapping[str, Any], before: Numbers) -> Numbers:
    reasons = Counter(before.quarantined)
    for name, count in told.items():
        if name.startswith(_REASON) and count:
            reasons[name.removeprefix(_REASON).replace("_", " ")] += count
    return replace(
        before,
        keys=told.get("keys", 0),
        arrivals=before.arrivals + told.get("events", 0),
        outputs=before.outputs + told.get("found", 0),
        late=before.late + told.get("late", 0),
        quarantined=dict(reasons),
        **{name: told[name] for name in _LAST if told.get(name) is not None},
    )


def _plain(row: Any) -> dict[str, Any]:
    """What was observed: a row of Spark, or the same out of JSON."""
    return dict(row.asDict() if hasattr(row, "asDict") else row)


def _seconds(progress: Mapping[str, Any]) -> float:
    """The time in which the rows of a micro-batch came: since the last one began. Spark says it as a rate."""
    rows, rate = progress.get("numInputRows") or 0, progress.get("inputRowsPerSecond") or 0.0
    if rows and 0 < rate < float("inf"):
        return rows / rate
    return max(_took(progress), 1e-3)


def _took(progress: Mapping[str, Any]) -> float:
    return (progress.get("durationMs") or {}).get("triggerExecution", 0) / 1_000


def _ended(progress: Mapping[str, Any]) -> float:
    """When the micro-batch was done, and its checkpoint with it."""
    return datetime.fromisoformat(progress["timestamp"]).timestamp() + _took(progress)


def _state_bytes(progress: Mapping[str, Any]) -> int | None:
    """The size of the state that is kept, if Spark tells."""
    sizes = [operator["customMetrics"].get("rocksdbSstFileSize") for operator in progress["stateOperators"]]
    return sum(size for size in sizes if size is not None) if any(size is not None for size in sizes) else None


def _lag(progress: Mapping[str, Any]) -> int | None:
    """Records that lie there and were not taken. A topic tells; of files Spark does not know before it reads them."""
    behind = None
    for source in progress["sources"]:
        end, latest = (_offsets(source.get(name)) for name in ("endOffset", "latestOffset"))
        if end and latest:
            behind = (behind or 0) + sum(max(0, latest[place] - end.get(place, 0)) for place in latest)
    return behind


def _offsets(text: Any) -> dict[tuple[str, str], int]:
    """Offsets by topic and partition; nothing for what is no place in topics."""
    try:
        topics = json.loads(text) if isinstance(text, str) else text
    except ValueError:
        return {}
    if not isinstance(topics, dict) or not all(isinstance(parts, dict) for parts in topics.values()):
        return {}
    return {(topic, part): at for topic, parts in topics.items() for part, at in parts.items()}
