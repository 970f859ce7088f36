"""What is told of engines at work: the same figures for the terminal, for logs and for metrics."""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np

from slackline.core.outcome import Output

#: Waits are those of so many events that were found last.
RECENT = 4096


class Figures(NamedTuple):
    """What is known of one detector in one engine, or in all of them: sums of counts, and the largest K and α."""

    delivered: int = 0
    late: int = 0
    buffered: int = 0
    K: int = 0
    alpha: float | None = None

    @classmethod
    def of(cls, stats: Mapping[str, Any]) -> Figures:
        """Out of an engine's statistics of a detector."""
        return cls(stats["delivered"], stats["late"], stats["buffered"], stats["K"], stats.get("alpha"))

    @property
    def late_share(self) -> float:
        """The share of events that came too late."""
        return self.late / (self.delivered + self.late) if self.late else 0.0


@dataclass(frozen=True, slots=True)
class Numbers:
    """Figures at one moment. Times are stream times, in the unit of the time stamps.

    ``late_share``  that of the detector with the largest; ``late_target`` is what the engines keep, if they keep one.
    ``wait_p50``, ``wait_p99``  from the time stamp of an event that was found to the moment it was found, of the last
                    4096; None before the first.
    ``K``, ``alpha``  the largest of all engines and detectors; α is None without speculation.
    ``buffered``    events that wait, in front of the detector with the most, of all keys together.
    """

    keys: int = 0
    arrivals: int = 0
    outputs: int = 0
    late: int = 0
    late_share: float = 0.0
    late_target: float | None = None
    wait_p50: float | None = None
    wait_p99: float | None = None
    K: int = 0
    alpha: float | None = None
    buffered: int = 0
    quarantined: Mapping[str, int] = field(default_factory=dict)
    detectors: Mapping[str, Figures] = field(default_factory=dict)


class RunTotals:
    """Adds up what passes through, and the figures of engines, some of which are looked at now and some later."""

    def __init__(self, detectors: Sequence[str], late_target: float | None) -> None:
        self.arrivals = self.outputs = self.late = 0
        self.reasons: Counter[str] = Counter()
        self.detectors = tuple(detectors)
        self._target = late_target
        self._waits: deque[int] = deque(maxlen=RECENT)
        self._figures: dict[Any, tuple[Figures, ...]] = {}
        self._sums = [(0, 0, 0) for _ in detectors]  # delivered, late and buffered, of all keys

    def found(self, outputs: Sequence[Output]) -> None:
        """Count what came out."""
        self.outputs += len(outputs)
        news = (output for output in outputs[-RECENT:] if output.op == "insert")
        self._waits.extend(max(0, output.detected_at - output.event.ts) for output in news)

    def note(self, key: Any, figures: Iterable[Figures]) -> None:
        """The figures of a key's engine, detector by detector; they take the place of older ones."""
        new = tuple(figures)
        old = self._figures.get(key, (Figures(),) * len(new))
        for at, (before, after) in enumerate(zip(old, new, strict=True)):
            delivered, late, buffered = self._sums[at]
            delivered += after.delivered - before.delivered
            late += after.late - before.late
            self._sums[at] = delivered, late, buffered + after.buffered - before.buffered
        self._figures[key] = new

    def forget(self, key: Any) -> None:
        """What waits in a key's engine, and its K, are somebody else's now; its counts stay."""
        if key in self._figures:
            self.note(key, (figures._replace(buffered=0, K=0, alpha=None) for figures in self._figures[key]))

    def of(self, key: Any) -> tuple[Figures, ...]:
        """The figures of a key that were noted last."""
        return self._figures.get(key, ())

    def numbers(self, keys: int) -> Numbers:
        """All of it."""
        by_detector = {}
        for at, name in enumerate(self.detectors):
            each = [figures[at] for figures in self._figures.values()]
            alphas = [one.alpha for one in each if one.alpha is not None]
            most = max((one.K for one in each), default=0)
            delivered, late, buffered = self._sums[at]
            by_detector[name] = Figures(delivered, late, buffered, most, max(alphas, default=None))
        alphas = [one.alpha for one in by_detector.values() if one.alpha is not None]
        p50, p99 = (float(p) for p in np.percentile(self._waits, (50, 99))) if self._waits else (None, None)
        return Numbers(
            keys=keys,
            arrivals=self.arrivals,
            outputs=self.outputs,
            late=self.late,
            late_share=max((one.late_share for one in by_detector.values()), default=0.0),
            late_target=self._target,
            wait_p50=p50,
            wait_p99=p99,
            K=max((one.K for one in by_detector.values()), default=0),
            alpha=max(alphas, default=None),
            buffered=max((one.buffered for one in by_detector.values()), default=0),
            quarantined=dict(self.reasons),
            detectors=by_detector,
        )

    def state(self) -> dict[str, Any]:
        """The counts, for a checkpoint; figures are saved with their keys."""
        return {"arrivals": self.arrivals, "outputs": self.outputs, "late": self.late, "reasons": dict(self.reasons)}

    def add(self, state: Mapping[str, Any]) -> None:
        """Go on from counts of a checkpoint."""
        self.arrivals += state["arrivals"]
        self.outputs += state["outputs"]
        self.late += state["late"]
        self.reasons.update(state["reasons"])
