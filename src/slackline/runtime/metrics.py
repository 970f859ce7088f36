"""Metrics of a running application: one model for the terminal, logs, Prometheus and Spark's observed metrics.

Lengths of stream time are in the unit of the event times; ``ts_per_second`` turns them into seconds.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from typing import Any, NamedTuple

import numpy as np

from slackline.core.outcome import Output
from slackline.core.time import Now

#: Latencies are those of so many events that were emitted last.
RECENT = 4096
#: Rates are averages over at least so many seconds.
INTERVAL = 1.0


class DetectorMetrics(NamedTuple):
    """Metrics of one detector in one engine, or in all of them.

    ``wait`` is how long events waited in the reorder buffer, on average; ``watermark_lag`` how far the watermark is
    behind stream time, None while there is none.
    """

    delivered: int = 0
    late: int = 0
    buffered: int = 0
    K: int = 0
    alpha: float | None = None
    wait: float = 0.0
    watermark_lag: int | None = None

    @classmethod
    def of(cls, stats: Mapping[str, Any], stream_time: int | None) -> DetectorMetrics:
        """From the statistics that an engine has of a detector, and its stream time."""
        watermark = stats["watermark"]
        lag = None if watermark is None or stream_time is None else max(0, stream_time - watermark)
        delivered, late, buffered, slack = (stats[name] for name in ("delivered", "late", "buffered", "K"))
        return cls(delivered, late, buffered, slack, stats.get("alpha"), stats["wait_mean"], lag)

    @property
    def late_share(self) -> float:
        """The share of events that were late."""
        return self.late / (self.delivered + self.late) if self.late else 0.0

    @classmethod
    def merged(cls, each: Collection[DetectorMetrics]) -> DetectorMetrics:
        """Metrics of several engines as one: sums of counts, the mean wait, and the largest of the others."""
        delivered, late, buffered = (
            sum(getattr(one, name) for one in each) for name in ("delivered", "late", "buffered")
        )
        slack = max((one.K for one in each), default=0)
        wait = sum(one.wait * one.delivered for one in each) / delivered if delivered else 0.0
        alpha, lag = largest(one.alpha for one in each), largest(one.watermark_lag for one in each)
        return cls(delivered, late, buffered, slack, alpha, wait, lag)


@dataclass(frozen=True, slots=True)
class Metrics:
    """Metrics at one moment.

    ``keys``           keys with an engine.
    ``events``         events received; ``outputs`` events emitted; ``late`` late events; ``duplicates`` events dropped
                       as duplicates; ``quarantined`` events and records in quarantine, by reason.
    ``late_share``     of the detector with the largest; ``late_target`` is the share that engines are set to.
    ``latency_p50``, ``latency_p99``  stream time from the event time of an output to its emission, of recent outputs.
    ``K``, ``alpha``   the largest of all engines and detectors; α is None without speculation.
    ``buffered``       events in reorder buffers, of the detector with the most, all keys together.
    ``detectors``      metrics of each detector.
    ``event_rate``, ``output_rate``  per second.
    ``lag``            records that are available and were not processed; None where unknown.
    ``checkpoint_bytes``, ``checkpoint_age``  of the last checkpoint, the age in seconds; None where there is none.
    ``ts_per_second``  units of event time in a second.
    """

    keys: int = 0
    events: int = 0
    outputs: int = 0
    late: int = 0
    duplicates: int = 0
    quarantined: Mapping[str, int] = field(default_factory=dict)
    late_share: float = 0.0
    late_target: float | None = None
    latency_p50: float | None = None
    latency_p99: float | None = None
    K: int = 0
    alpha: float | None = None
    buffered: int = 0
    detectors: Mapping[str, DetectorMetrics] = field(default_factory=dict)
    event_rate: float = 0.0
    output_rate: float = 0.0
    lag: int | None = None
    checkpoint_bytes: int | None = None
    checkpoint_age: float | None = None
    ts_per_second: int = 1_000_000

    def seconds(self, length: float | None) -> float | None:
        """A length of stream time in seconds."""
        return None if length is None else length / self.ts_per_second

    @property
    def unprocessed(self) -> int:
        """Records that reached no detector: duplicates and what is in quarantine."""
        return self.duplicates + sum(self.quarantined.values())

    def plain(self) -> dict[str, Any]:
        """The metrics as JSON takes them, lengths of time in seconds; without those of detectors."""
        found = {each.name: getattr(self, each.name) for each in fields(self)}
        del found["detectors"], found["ts_per_second"]
        found |= {name: self.seconds(found[name]) for name in ("latency_p50", "latency_p99", "K")}
        found |= {name: round(found[name], 1) for name in ("event_rate", "output_rate")}
        return found | {"quarantined": dict(self.quarantined)}

    @classmethod
    def merged(cls, each: Iterable[Metrics]) -> Metrics:
        """The metrics of several partitions or processes as one: sums, and the largest of what cannot be added."""
        parts = list(each)
        if not parts:
            return cls()
        reasons: Counter[str] = Counter()
        by_detector: dict[str, list[DetectorMetrics]] = {}
        for part in parts:
            reasons.update(part.quarantined)
            for name, one in part.detectors.items():
                by_detector.setdefault(name, []).append(one)
        detectors = {name: DetectorMetrics.merged(each) for name, each in by_detector.items()}
        worst = ("latency_p50", "latency_p99", "alpha", "checkpoint_age")
        added = ("keys", "events", "outputs", "late", "duplicates", "buffered", "event_rate", "output_rate")
        lags = [part.lag for part in parts if part.lag is not None]
        sizes = [part.checkpoint_bytes for part in parts if part.checkpoint_bytes is not None]
        return replace(
            parts[0],
            **{name: sum(getattr(part, name) for part in parts) for name in added},
            **{name: largest(getattr(part, name) for part in parts) for name in worst},
            lag=sum(lags) if lags else None,
            checkpoint_bytes=sum(sizes) if sizes else None,
            K=max(part.K for part in parts),
            late_share=max((one.late_share for one in detectors.values()), default=0.0),
            quarantined=dict(reasons),
            detectors=detectors,
        )


#: Receives the metrics of a moment.
MetricsListener = Callable[[Metrics], object]


class MetricsCollector:
    """Counts what passes through engines, and adds up what is known of their detectors."""

    def __init__(self, detectors: Sequence[str] = (), late_target: float | None = None) -> None:
        self.events = self.outputs = self.late = self.duplicates = 0
        self.quarantined: Counter[str] = Counter()
        self.detectors = tuple(detectors)
        self.latencies: deque[int] = deque(maxlen=RECENT)
        self._late_target = late_target
        self._by_key: dict[Any, tuple[DetectorMetrics, ...]] = {}
        self._dropped = (DetectorMetrics(),) * len(self.detectors)  # of all keys that were dropped

    def count_events(self, events: int) -> None:
        """Events were received."""
        self.events += events

    def count_outputs(self, outputs: Sequence[Output]) -> None:
        """Detectors have published events."""
        new = (output for output in outputs[-RECENT:] if output.op == "insert")
        self.count_emitted(len(outputs), (max(0, output.detected_at - output.event.ts) for output in new))

    def count_emitted(self, events: int, latencies: Iterable[int]) -> None:
        """So many events were emitted; the latencies are those of the last :data:`RECENT` of them."""
        self.outputs += events
        self.latencies.extend(latencies)

    def count_aside(self, late: int, duplicates: int, reasons: Iterable[str]) -> None:
        """Events were late, duplicates, or went into quarantine for these reasons."""
        self.late += late
        self.duplicates += duplicates
        self.quarantined.update(reasons)

    def update(self, key: Any, detectors: Iterable[DetectorMetrics]) -> None:
        """Replace the metrics of a key's detectors, in the order of the hierarchy."""
        self._by_key[key] = tuple(detectors)

    def drop(self, key: Any) -> None:
        """The engine of a key is gone: its counts stay, its buffered events, slack and watermark do not."""
        gone = [one._replace(buffered=0, K=0, alpha=None, watermark_lag=None) for one in self._by_key.pop(key, ())]
        if gone:
            self._dropped = tuple(map(DetectorMetrics.merged, zip(self._dropped, gone, strict=True)))

    def of(self, key: Any) -> tuple[DetectorMetrics, ...]:
        """The metrics of a key's detectors, as far as they are known."""
        return self._by_key.get(key, ())

    def by_detector(self) -> dict[str, DetectorMetrics]:
        """The metrics of each detector, over all keys."""
        each = zip(self._dropped, *self._by_key.values(), strict=True)
        return {name: DetectorMetrics.merged(ones) for name, ones in zip(self.detectors, each, strict=True)}

    def metrics(self, keys: int) -> Metrics:
        """All of it, at this moment."""
        detectors = self.by_detector()
        p50, p99 = (float(p) for p in np.percentile(self.latencies, (50, 99))) if self.latencies else (None, None)
        return Metrics(
            keys=keys,
            events=self.events,
            outputs=self.outputs,
            late=self.late,
            duplicates=self.duplicates,
            quarantined=dict(self.quarantined),
            late_share=max((one.late_share for one in detectors.values()), default=0.0),
            late_target=self._late_target,
            latency_p50=p50,
            latency_p99=p99,
            K=max((one.K for one in detectors.values()), default=0),
            alpha=largest(one.alpha for one in detectors.values()),
            buffered=max((one.buffered for one in detectors.values()), default=0),
            detectors=detectors,
        )

    def save(self) -> dict[str, Any]:
        """The counts, for a checkpoint; metrics of detectors are saved with their keys."""
        counts = {name: getattr(self, name) for name in ("events", "outputs", "late", "duplicates")}
        return {**counts, "quarantined": dict(self.quarantined)}

    def load(self, state: Mapping[str, Any]) -> None:
        """Continue from the counts of a checkpoint."""
        for name in ("events", "outputs", "late", "duplicates"):
            setattr(self, name, getattr(self, name) + state[name])
        self.quarantined.update(state["quarantined"])


class Rates:
    """How much counts grow per second: over the last interval, or since the start until one has passed.

    >>> times = iter([0.0, 0.1, 0.5, 2.0, 2.5])
    >>> rates = Rates(lambda: next(times))
    >>> rates.of(0, 0), rates.of(50, 5)
    ((0.0, 0.0), (100.0, 10.0))
    >>> rates.of(100, 10), rates.of(400, 11)
    ((50.0, 5.0), (50.0, 5.0))
    """

    def __init__(self, now: Now, *counts: int) -> None:
        self._now = now
        self._since = now()
        self._counts = counts
        self._rates: tuple[float, ...] = ()  # of an interval

    def of(self, *counts: int) -> tuple[float, ...]:
        """The rates, given the counts of this moment."""
        now = self._now()
        before = self._counts or (0,) * len(counts)
        passed = now - self._since
        if passed < INTERVAL and self._rates:
            return self._rates
        rates = tuple(max(0, new - old) / max(passed, 1e-9) for new, old in zip(counts, before, strict=True))
        if passed >= INTERVAL:
            self._counts, self._since, self._rates = counts, now, rates
        return rates


def largest(values: Iterable[float | None]) -> Any:
    """The largest of the values that are known; None if none is."""
    return max((value for value in values if value is not None), default=None)
