"""Random worlds for the laws: hierarchies, streams, delays, and ways to cut them into pushes.

Everything is drawn by Hypothesis from small choices and a seed, so a failing world is printed as a few numbers.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pyarrow as pa
from hypothesis import strategies as st

import slackline as sl
from slackline.cluster.ingress import part_of
from slackline.ordering.policy import with_policy

SENSORS = ("ball", "door", "lamp")


class Mixer(sl.Detector):
    """Mixes everything it sees, in order, into a number: any difference in its input shows in its outputs.

    With timers it sets, moves and cancels some, in the future and in the past, as the number says.
    """

    def __init__(
        self, name: str, listens: tuple[str, ...], unsorted: tuple[str, ...], every: int, set_back: int
    ) -> None:
        self.name = name
        self.listens = listens
        self.unsorted = unsorted
        self.publishes = (f"found_{name}",)
        self.every = every
        self.set_back = set_back
        self.mixed = 0
        self.seen: list[tuple[Any, ...]] = []
        self.fired: list[tuple[Any, ...]] = []

    def _take(self, kind: str, ts: int, source: Any, seq: int | None, value: int) -> list[sl.Event | sl.Timer]:
        self.seen.append((ts, kind, str(source), -1 if seq is None else seq))
        self.mixed = (self.mixed * 31 + 7 * ts + value + len(kind)) % 1_000_003
        found: list[sl.Event | sl.Timer] = []
        if self.takes_timers and self.mixed % 7 == 1:
            found.append(sl.Timer.cancel("a"))
        elif self.takes_timers and self.mixed % 3 != 1:
            found.append(sl.Timer(ts + self.mixed % 40 - PAST, "ab"[self.mixed % 2]))
        if len(self.seen) % self.every == 0:
            back = self.set_back * (self.mixed % 3)
            found.append(sl.Event(self.publishes[0], ts=max(0, ts - back), value=self.mixed))
        return found


#: How far timers are set back at most.
PAST = 8


class EventMixer(Mixer):
    def on_event(self, event: sl.Event):
        yield from self._take(event.type, event.ts, event.source, event.seq, event["value"])


class BatchMixer(Mixer):
    def on_batch(self, batch: sl.Batch):
        columns = (batch.types, batch.ts, batch.source, batch.seq, batch["value"])
        for row, (kind, ts, source, seq, value) in enumerate(zip(*(c.tolist() for c in columns), strict=True)):
            for found in self._take(kind, ts, source, seq, int(value)):
                yield row, found


class BothMixer(EventMixer, BatchMixer):
    """Takes events and batches."""


class MergedMixer(BatchMixer):
    merged = True


class Timed(Mixer):
    """Takes timers, too."""

    def on_timer(self, timer: sl.Timer):
        self.fired.append((len(self.seen), timer.at, timer.tag))
        self.mixed = (self.mixed * 17 + 3 * timer.at + len(timer.tag)) % 1_000_003
        if self.mixed % 2:
            yield timer.derive(self.publishes[0], ts=max(0, timer.at - self.set_back), value=self.mixed)
        if (
            self.mixed % 3 == 0 and len(timer.tag) < 4
        ):  # how often a periodic one fires depends on where stream time ends
            yield sl.Timer(timer.at + self.mixed % 50, timer.tag + "c")


class TimedEventMixer(Timed, EventMixer):
    pass


class TimedBatchMixer(Timed, BatchMixer):
    pass


class TimedMergedMixer(Timed, MergedMixer):
    pass


STYLES = {
    "event": EventMixer,
    "batch": BatchMixer,
    "both": BothMixer,
    "merged": MergedMixer,
    "timed event": TimedEventMixer,
    "timed batch": TimedBatchMixer,
    "timed merged": TimedMergedMixer,
}


@dataclass(frozen=True)
class Plan:
    """One detector of a random hierarchy."""

    name: str
    listens: tuple[str, ...]
    style: str
    every: int
    set_back: int
    unsorted: tuple[str, ...] = ()
    #: Each source has a state of its own, for so long.
    keyed: bool = False
    ttl: int | None = None

    def detector(self) -> Mixer:
        """A fresh detector."""
        made = STYLES[self.style](self.name, self.listens, self.unsorted, self.every, self.set_back)
        if made.takes_timers:
            made.max_backdate = PAST
        if self.keyed:
            made.key, made.ttl = "source", self.ttl
        return made


@dataclass(frozen=True)
class World:
    """A hierarchy and a stream in arrival order."""

    plans: tuple[Plan, ...]
    clock: tuple[str, ...]
    events: tuple[sl.Event, ...]
    #: Wall times of the arrivals, if they are known.
    now: tuple[int | None, ...] | None = None
    clock_aids: tuple[str, ...] = ()

    def hierarchy(self, declared: bool = False, reliable: bool = False) -> sl.Hierarchy:
        """Fresh detectors; with ``declared`` they say from the start how far they set events back.

        With ``reliable`` they want all their inputs, whatever the network does.
        """
        detectors = [plan.detector() for plan in self.plans]
        for detector in detectors if declared else ():
            detector.max_backdate = 2 * detector.set_back + PAST
        for detector in detectors if reliable else ():
            detector.reliable = detector.listens
        return sl.Hierarchy(detectors, clock=self.clock, clock_aids=self.clock_aids)

    @property
    def types(self) -> set[str]:
        """All event types, of sensors and of detectors."""
        hierarchy = self.hierarchy()
        return {*hierarchy.sensor_types, *hierarchy.publisher}

    def times(self, start: int, size: int) -> Any:
        """The wall times of a piece."""
        return None if self.now is None else self.now[start : start + size]

    def __repr__(self) -> str:
        arrivals = " ".join(f"{e.type[0]}{e.source[1:]}:{e.ts}#{e.seq}" for e in self.events)
        clock = f"clock={self.clock}, aids={self.clock_aids}"
        return f"World({list(self.plans)}, {clock}, arrivals={arrivals}, now={self.now})"


@st.composite
def plans(draw: st.DrawFn) -> tuple[Plan, ...]:
    made: list[Plan] = []
    types = list(SENSORS[: draw(st.integers(1, 3))])
    for number in range(draw(st.integers(1, 5))):
        listens = tuple(draw(st.lists(st.sampled_from(types), min_size=1, max_size=3, unique=True)))
        style = draw(st.sampled_from(sorted(STYLES)))
        name = f"d{number}"
        unsorted = listens[: draw(st.sampled_from([0, 0, 0, 1]))]
        set_back = draw(st.sampled_from([0, 0, 3, 20]))
        keyed, ttl = draw(st.sampled_from([(False, None), (False, None), (True, None), (True, 30)]))
        made.append(Plan(name, listens, style, draw(st.integers(1, 3)), set_back, unsorted, keyed, ttl))
        types.append(f"found_{name}")
    return tuple(made)


def delays(rng: np.random.Generator, kind: str, n: int) -> np.ndarray:
    """How long each of n events is under way."""
    if kind == "none":
        return np.zeros(n)
    if kind == "bounded":
        return rng.uniform(0, 30, n)
    if kind == "heavy":
        return np.minimum(rng.pareto(1.2, n) * 5, 400)
    if kind == "bursty":
        return rng.uniform(0, 5, n) + 150 * (rng.random(n // 10 + 1).repeat(10)[:n] < 0.1)
    return np.where(np.arange(n) < n // 2, rng.uniform(0, 4, n), rng.uniform(0, 80, n))  # a change of regime


@st.composite
def worlds(draw: st.DrawFn, kinds: tuple[str, ...] = ("none", "bounded", "heavy", "bursty", "regime")) -> World:
    """A random world: one to three sensor types, up to four sources each, regular or not, each type late by its own.

    The clock is one type or several, of whatever delays, and others may aid it. Sources may send events again.
    """
    chosen = draw(plans())
    used = sorted({kind for plan in chosen for kind in plan.listens if kind in SENSORS})
    rng = np.random.default_rng(draw(st.integers(0, 2**20)))
    n = draw(st.integers(1, 120))
    in_order = draw(st.booleans())
    repeated = draw(st.sampled_from([0, 0, 0.2]))
    arrivals: list[tuple[float, int, sl.Event]] = []
    for kind in used:
        later = draw(st.sampled_from([0, 0, 7, 60]))
        for number in range(draw(st.integers(1, 3))):
            count = max(1, n // (len(used) * 2))
            gaps = rng.integers(0, 25, count) if draw(st.booleans()) else rng.integers(9, 12, count)
            ts = np.cumsum(gaps) + int(rng.integers(0, 20))
            arrival = ts + later + delays(rng, draw(st.sampled_from(kinds)), count)
            if in_order:
                arrival = np.maximum.accumulate(arrival)
            for seq, (t, a) in enumerate(zip(ts.tolist(), arrival.tolist(), strict=True)):
                event = sl.Event(kind, ts=t, source=f"s{number}", seq=seq, value=int(rng.integers(0, 100)))
                arrivals.append((a, len(arrivals), event))
                if rng.random() < repeated:
                    arrivals.append((a + float(rng.uniform(0, 40)), len(arrivals), event))
    arrivals.sort(key=lambda item: item[:2])
    clock = tuple(draw(st.lists(st.sampled_from(used), min_size=1, max_size=2, unique=True)))
    others = [kind for kind in used if kind not in clock]
    aids = tuple(draw(st.lists(st.sampled_from(others), unique=True))) if others else ()
    now: tuple[int | None, ...] | None = None
    if draw(st.booleans()):
        now = tuple(None if i % 5 == 3 else int(a) + 1000 - 2 * (i % 7 == 5) for i, (a, *_) in enumerate(arrivals))
    return World(chosen, clock, tuple(event for *_, event in arrivals), now, aids)


def entry_of(event: sl.Event, parts: Mapping[str, int]) -> str:
    """The sensor type as which an event enters where some enter in parts: the part of its source."""
    return f"{event.type}/{part_of(event.source, parts[event.type])}" if event.type in parts else event.type


policies = st.sampled_from(["slack", "ready", "auto", "ordered"])


@st.composite
def settings(draw: st.DrawFn) -> dict[str, Any]:
    """Options of an engine, biased to what makes things happen in short streams."""
    policy = draw(policies)
    slack: dict[str, Any] = {"late_target": draw(st.sampled_from([None, 0, 0.01, 0.3]))}
    if policy == "ordered":
        slack = {}
    elif policy != "auto" or draw(st.booleans()):
        slack = {
            "margin": draw(st.sampled_from([0, 0.5, 2.0])),
            "window": draw(st.sampled_from([32, 2048])),
            "timeout": None if policy == "slack" else draw(st.sampled_from([None, None, 10, 100])),
        }
    warmup = None if policy == "ordered" else draw(st.sampled_from([None, 0, 5]))
    return {
        **with_policy({"policy": policy, **slack, "warmup": warmup}),
        "late": draw(st.sampled_from(["divert", "deliver"])),
        "duplicates": draw(st.sampled_from(["drop", "keep"])),
        "max_jump": draw(st.sampled_from(["auto", None, 60])),
        "skew": "report" if policy == "ordered" else draw(st.sampled_from(["report", "correct"])),
    }


def table(events: list[sl.Event] | tuple[sl.Event, ...]) -> pa.Table:
    """Events as the table a user would push."""
    return pa.table(
        {
            "ts": pa.array([event.ts for event in events], pa.int64()),
            "type": pa.array([event.type for event in events], pa.string()),
            "source": pa.array([event.source for event in events], pa.string()),
            "seq": pa.array([event.seq for event in events], pa.int64()),
            "value": pa.array([event.payload.get("value") for event in events], pa.int64()),
        }
    )


@st.composite
def cuts(draw: st.DrawFn, n: int) -> list[tuple[int, str]]:
    """A way to cut n arrivals into pushes, each as events or as a table."""
    pieces = []
    left = n
    while left > 0:
        size = min(left, draw(st.sampled_from([1, 2, 7, 30, 1000])))
        pieces.append((size, draw(st.sampled_from(["events", "table"]))))
        left -= size
    return pieces


@dataclass
class Result:
    """All that is visible of a run."""

    outputs: list[Any]
    late: list[Any]
    quarantined: list[Any]
    duplicates: list[Any]
    seen: dict[str, list[Any]]
    stats: list[dict[str, Any]]
    fired: dict[str, list[Any]] = field(default_factory=dict)


def push_piece(engine: sl.Engine, piece: tuple[sl.Event, ...], form: str, now: Any = None) -> list[Any]:
    return engine.push(table(piece) if form == "table" else list(piece), now=now)


def run(
    world: World, pieces: list[tuple[int, str]], options: dict[str, Any], restart: bool = False, declared: bool = False
) -> Result:
    """Push the world's stream piece by piece; with ``restart`` the engine is saved and loaded between pieces."""
    engine = sl.Engine(world.hierarchy(declared), **options)
    result = Result([], [], [], [], {}, [])
    start = 0
    for size, form in pieces:
        result.outputs += push_piece(engine, world.events[start : start + size], form, world.times(start, size))
        start += size
        engine.check_invariants()
        result.stats.append(engine.stats())
        if restart:
            engine = sl.Engine.load(engine.save(), world.hierarchy())
    return ended(engine, result)


def ended(engine: sl.Engine, result: Result) -> Result:
    """The result with what the end of the stream brings."""
    result.outputs += engine.close()
    result.late, result.quarantined, result.duplicates = engine.drain()
    result.seen = {name: list(detector.seen) for name, detector in engine.detectors.items()}
    result.fired = {name: list(detector.fired) for name, detector in engine.detectors.items()}
    result.stats.append(engine.stats())
    return result
