"""One recorded stream under every policy, side by side (docs/concepts/watermarks.md)."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from slackline.core.batch import Ints
from slackline.core.time import converted
from slackline.ordering.policy import with_policy
from slackline.ordering.watermark import LATE_TARGET
from slackline.study.literature import adwin, aqkslack, percentile
from slackline.study.policies import (
    STEADY,
    Outcome,
    PolicyFigures,
    clairvoyant,
    fixed,
    lateness,
    max_slack,
    measure,
    overtaken,
    quantile,
    replay,
    smallest_bound,
    timer,
)
from slackline.study.recording import RecordedStream

#: Targets of `auto` that are compared, beside its default.
LATE_TARGETS = (0.0005, 0.001, 0.002, 0.005, 0.01)
BOUNDS_MS = (0, 1, 2, 5, 10, 20, 50, 100, 200, 400, 1_000, 2_000, 5_000, 10_000)
#: Late shares for which the study finds the smallest fixed watermark and timer, with hindsight.
HINDSIGHT_SHARES = (0.05, 0.02, 0.01, 0.005, 0.002, 0.001, 0.0005, 0.0)
MARGINS = (0.0, 0.5, 2.0)
QUANTILES = (0.98, 0.99, 0.995, 0.998, 0.999, 0.9995)
WINDOW = 2_000
#: Shares of late events that adaptive watermarks of others are asked for.
ACCEPTED = (0.005, 0.002, 0.001)
#: The share of delays that Confluent's default covers.
CONFLUENT = 0.95
#: The target is missed by more than chance above so many times the target and so many events.
TOLERATED, FEW = 1.3, 3

#: Policies that use arrival times, and nothing else.
TIMED = ("timer", "adwin")
#: Policies with one fixed delay, of which hindsight chooses the best.
FIXED = ("fixed", "timer")

_OF_CLAIRVOYANT = ("mean_wait", "p99_wait", "steady_late_share", "steady_mean_wait")

#: Called before each policy with its name, how many are done and how many there are.
Progress = Callable[[str, int, int], None]


@dataclass(frozen=True, slots=True)
class PolicyResult:
    """What one policy with one choice of parameters does to the stream."""

    policy: str
    params: dict[str, Any]
    waits: PolicyFigures
    late_sources: Sequence[dict[str, Any]] = ()

    @property
    def is_default(self) -> bool:
        """Whether this is what a user gets without choosing anything."""
        return self.policy == "auto" and not self.params

    def to_dict(self) -> dict[str, Any]:
        return {"policy": self.policy, "params": self.params, **asdict(self.waits)}


@dataclass(frozen=True, slots=True)
class StudyResult:
    """The stream in figures, the clairvoyant bound, and every policy; waits are in ``unit``.

    ``span`` is the time from the first arrival to the last.
    """

    rows: int
    sources: int
    late_share: float
    unit: str
    warnings: tuple[str, ...]
    clairvoyant: PolicyFigures
    policies: tuple[PolicyResult, ...]
    span: int = 0

    @property
    def default(self) -> PolicyResult:
        return next(p for p in self.policies if p.is_default)

    @property
    def late_sources(self) -> Sequence[dict[str, Any]]:
        """The sources of which far more events are late under the default than its target allows."""
        return self.default.late_sources

    def cheapest(self, *policies: str, steady: bool = False, than: PolicyResult | None = None) -> PolicyResult | None:
        """Of all variants of some policies that lose no more events than the default, or ``than`` another, the one
        that waits least.

        By the steady figures if asked for; None if there are none.
        """
        late, wait = ("steady_late_share", "steady_mean_wait") if steady else ("late_share", "mean_wait")
        limit = getattr((than or self.default).waits, late)
        able = [p for p in self.policies if p.policy in policies and getattr(p.waits, wait) is not None]
        able = [p for p in able if limit is not None and getattr(p.waits, late) <= limit]
        return min(able, key=lambda p: getattr(p.waits, wait), default=None)

    @property
    def misses_target(self) -> bool:
        """Whether the default has more late events than its target accepts, by more than chance."""
        return self.default.waits.late_share > TOLERATED * LATE_TARGET + FEW / max(1, self.rows)

    def bound_for(self, late_share: float) -> int | None:
        """The smallest fixed bound, found with hindsight, that has no more late events."""
        able = [p.params["bound"] for p in self.policies if p.policy == "fixed" and p.waits.late_share <= late_share]
        return min(able, default=None)

    def to_dict(self) -> dict[str, Any]:
        """The figures as `slackline study --json` prints them."""
        return {
            "stream": {"rows": self.rows, "sources": self.sources, "late_share": self.late_share},
            "clairvoyant": {name: getattr(self.clairvoyant, name) for name in _OF_CLAIRVOYANT},
            "policies": [p.to_dict() for p in self.policies],
            "late_sources": list(self.late_sources),
        }


def study(stream: RecordedStream, progress: Progress | None = None) -> StudyResult:
    """Run the stream under every policy."""

    def run(case: _Case, done: int, total: int) -> PolicyResult:
        if progress is not None:
            progress(case.policy, done, total)
        outcome = _by_key(stream, case.run)
        slow = outcome.late_sources
        if stream.names:
            slow = tuple({**each, "source": stream.names[each["source"]]} for each in slow)
        return PolicyResult(case.policy, case.params, measure(stream.arrival, outcome), slow)

    adaptive = [case for case in _adaptive() if stream.timed or case.policy not in TIMED]
    guess = len(adaptive) + len(BOUNDS_MS) + 2 * len(HINDSIGHT_SHARES)
    results = [run(case, i, guess) for i, case in enumerate(adaptive)]
    hindsight = list(_hindsight(stream, [result.waits for result in results if result.policy == "auto"]))
    total = len(adaptive) + len(hindsight)
    results += [run(case, i, total) for i, case in enumerate(hindsight, len(adaptive))]
    if progress is not None:
        progress("clairvoyant", total, total)
    best = measure(stream.arrival, _by_key(stream, _on_times(clairvoyant)))
    return StudyResult(
        len(stream),
        stream.sources,
        stream.late_share,
        stream.unit,
        (*stream.notes, *stream.warnings),
        best,
        tuple(results),
        int(stream.arrival[-1] - stream.arrival[0]),
    )


@dataclass(frozen=True, slots=True)
class _Case:
    policy: str
    params: dict[str, Any]
    run: Callable[[RecordedStream], Outcome]


def _on_times(policy: Callable[..., Outcome], *parameters: Any) -> Callable[[RecordedStream], Outcome]:
    """A policy that sees event times alone."""
    return lambda part: policy(part.ts, *parameters)


def _with_arrivals(policy: Callable[..., Outcome], *parameters: Any) -> Callable[[RecordedStream], Outcome]:
    """A policy that sees event times and arrival times."""
    return lambda part: policy(part.ts, part.arrival, *parameters)


def _with_unit(q: float) -> Callable[[RecordedStream], Outcome]:
    return lambda part: percentile(part.ts, q, part.unit)


def _by_key(stream: RecordedStream, run: Callable[[RecordedStream], Outcome]) -> Outcome:
    """The outcome of a policy that orders each key by itself; of the whole stream, if it has no keys."""
    if stream.key is None:
        return run(stream)
    n = len(stream)
    release, late, at = np.empty(n, np.int64), np.empty(n, np.bool_), np.empty(n, np.int64)
    for rows, of_key in _parts(stream, stream.key):
        part = run(of_key)
        late[rows] = part.late
        # Positions in the key's stream become positions in the whole; its end is the end of the whole.
        release[rows] = np.where(part.late, -1, np.append(rows, n)[part.release])
        times = np.append(stream.arrival[rows], stream.arrival[-1])
        at[rows] = times[part.release] if part.at is None else part.at
    return Outcome(release, late, at)


def _adaptive() -> Iterator[_Case]:
    """Every policy that measures instead of taking a bound; the default first."""
    yield _replayed("auto", {})
    for target in LATE_TARGETS:
        yield _replayed("auto", {"late_target": target})
    yield _replayed("ready", {})
    for margin in MARGINS:
        yield _replayed("slack", {"margin": margin})
    for q in QUANTILES:
        yield _Case("quantile", {"q": q, "window": WINDOW}, _on_times(quantile, q, WINDOW))
    yield _Case("max_slack", {}, _on_times(max_slack))
    for q in (CONFLUENT, *(1 - share for share in ACCEPTED)):
        yield _Case("percentile", {"q": q}, _with_unit(q))
    for threshold in ACCEPTED:
        yield _Case("adwin", {"threshold": threshold}, _with_arrivals(adwin, threshold))
    for share in ACCEPTED:
        yield _Case("aqkslack", {"coverage": 1 - share}, _on_times(aqkslack, 1 - share))


def _replayed(policy: str, params: dict[str, Any]) -> _Case:
    def run(part: RecordedStream) -> Outcome:
        sources = np.unique(part.source, return_inverse=True)[1].astype(np.int64)
        return replay(
            part.ts, sources, arrival=part.arrival if part.timed else None, **with_policy({"policy": policy, **params})
        )

    return _Case(policy, params, run)


def _hindsight(stream: RecordedStream, autos: list[PolicyFigures]) -> Iterator[_Case]:
    """Fixed watermarks and timers worth showing: round bounds, and delays that hindsight chooses, also to match each
    `auto`."""
    behind = _each_key(stream, lambda part: lateness(part.ts))
    enough = smallest_bound(behind, 0)
    chosen = {bound for ms in BOUNDS_MS if (bound := converted(ms, "ms", stream.unit)) <= enough}
    for bound in sorted(chosen | _smallest(behind, autos)):
        yield _Case("fixed", {"bound": bound}, _on_times(fixed, bound))
    if not stream.timed:
        return
    for delay in sorted(_smallest(_each_key(stream, lambda part: overtaken(part.ts, part.arrival)), autos)):
        yield _Case("timer", {"delay": delay}, _with_arrivals(timer, delay))


def _smallest(behind: Ints, autos: list[PolicyFigures]) -> set[int]:
    """The smallest delays that reach certain late shares, among them those of each `auto`, whole and steady."""
    steady = behind[STEADY:]
    chosen = {smallest_bound(behind, int(share * len(behind))) for share in HINDSIGHT_SHARES}
    for waits in autos:
        chosen.add(smallest_bound(behind, round(waits.late_share * len(behind))))
        if waits.steady_late_share is not None:
            chosen.add(smallest_bound(steady, round(waits.steady_late_share * len(steady))))
    return chosen


def _each_key(stream: RecordedStream, column: Callable[[RecordedStream], Ints]) -> Ints:
    """A column of values of the events of each key; of the whole stream, if it has no keys."""
    if stream.key is None:
        return column(stream)
    values = np.empty(len(stream), np.int64)
    for rows, part in _parts(stream, stream.key):
        values[rows] = column(part)
    return values


def _parts(stream: RecordedStream, key: Ints) -> Iterator[tuple[Ints, RecordedStream]]:
    """The rows of each key, in their order, and the stream that they are."""
    for rows in np.split(np.argsort(key, kind="stable"), np.cumsum(np.bincount(key))[:-1]):
        arrival, ts, source = stream.arrival[rows], stream.ts[rows], stream.source[rows]
        yield rows, RecordedStream(arrival, ts, source, stream.unit, timed=stream.timed)
