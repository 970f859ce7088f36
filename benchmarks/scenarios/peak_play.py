"""One engine under twice its capacity: urgent detectors are in time, others are deferred [Thesis, 7.3].

All detectors together need twice the time there is, the urgent one two ninths of it. Half the capacity comes before,
to compare with. The host is as simple as can be: what has arrived is pushed, one by one; if nothing has, ``push([])``.

In virtual time the detectors move the clock, so each run gives the same. Live they keep a core busy.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import slackline as sl

#: Seconds of work on an event, by detector. The urgent one needs 0.22 of the time at the peak.
COSTS = {"Slow": 0.008, "Above": 0.008, "Urgent": 0.002}
CAPACITY = 1 / sum(COSTS.values())

#: Time stamps are microseconds.
PER_SECOND = 1_000_000

#: Seconds at the start that do not count.
LEARNT = 2.0


class VirtualCore:
    """Virtual time, which advances with work and waiting."""

    def __init__(self) -> None:
        self.at = 0.0

    def now(self) -> float:
        return self.at

    def spend(self, seconds: float) -> None:
        self.at += seconds

    wait = spend


class BusyCore:
    """Real time."""

    now = staticmethod(time.perf_counter)
    wait = staticmethod(time.sleep)

    @staticmethod
    def spend(seconds: float) -> None:
        end = time.perf_counter() + seconds
        while time.perf_counter() < end:
            pass


class Worker(sl.Detector):
    fixed = ("spend",)

    def __init__(self, name: str, listens: str, spend: Callable[[float], None]) -> None:
        self.name, self.listens, self.publishes = name, (listens,), (name.lower(),)  # type: ignore[misc]
        self.spend, self.urgency = spend, float(name == "Urgent")

    def on_event(self, event: sl.Event) -> Iterator[sl.Event]:
        self.spend(COSTS[self.name])
        yield event.derive(self.name.lower())


def hierarchy(spend: Callable[[float], None]) -> sl.Hierarchy:
    return sl.Hierarchy(
        [Worker("Slow", "a", spend), Worker("Above", "slow", spend), Worker("Urgent", "a", spend)], clock="a"
    )


@dataclass(frozen=True)
class PeakStream:
    """Events with their arrivals, in seconds, in the order of these; and when the peak begins."""

    events: list[sl.Event]
    arrivals: list[float]
    peak: float

    @classmethod
    def made(cls, quiet: float, peak: float, evenly: bool, delay: float, seed: int) -> PeakStream:
        """At half the capacity for some seconds, then at twice of it; each event up to ``delay`` seconds on its way."""
        rng = random.Random(seed)
        at, made = 0.0, []
        while at < quiet + peak:
            gap = 1 / (CAPACITY * (0.5 if at < quiet else 2.0))
            at += gap if evenly else rng.expovariate(1 / gap)
            made.append((at + rng.uniform(0, delay), sl.Event("a", ts=round(at * PER_SECOND), source=rng.randrange(4))))
        made.sort(key=lambda each: each[0])
        return cls([event for _, event in made], [arrival for arrival, _ in made], quiet)


@dataclass(frozen=True)
class PeakRun:
    """The outputs, each with its time, those of the end, and how long detectors were deferred."""

    found: list[tuple[float, sl.Output]]
    at_end: list[sl.Output]
    paused: float

    @property
    def outputs(self) -> list[sl.Output]:
        return [output for _, output in self.found] + self.at_end


def run(stream: PeakStream, host: VirtualCore | BusyCore, policy: str, pause: sl.Pause | None) -> PeakRun:
    """Push the stream through an engine, then run until no detector is deferred."""
    engine = sl.Engine(hierarchy(host.spend), policy=policy, pause=pause, now=host.now)
    found: list[tuple[float, sl.Output]] = []
    begin = host.now()

    def push(*events: sl.Event) -> None:
        outputs = engine.push(events)
        found.extend((host.now() - begin, output) for output in outputs)

    for event, arrival in zip(stream.events, stream.arrivals, strict=True):
        while (early := begin + arrival - host.now()) > 0:
            if engine.deferred:
                push()
            host.wait(min(early, 0.001) if engine.deferred else early)
        push(event)
    while engine.deferred:
        host.wait(0.001)
        push()
    paused = engine.stats()["overload"]["seconds"] if pause else 0.0
    return PeakRun(found, engine.close(), paused)


def plain(stream: PeakStream, policy: str) -> list[sl.Output]:
    """The outputs of an engine that defers no detector."""
    made = hierarchy(lambda seconds: None)
    engine = sl.Engine(made, policy=policy, sensors=made.sensor_types)
    return engine.push(stream.events) + engine.close()


def said(outputs: list[sl.Output]) -> list[tuple[str, str]]:
    return sorted((output.id, str(output.event)) for output in outputs)


def _figures(seconds: list[float]) -> dict[str, float]:
    ordered = sorted(seconds)
    return {"p50": ordered[len(ordered) // 2], "p99": ordered[int(0.99 * len(ordered))], "max": ordered[-1]}


def urgent_latencies(stream: PeakStream, result: PeakRun, ordered: bool) -> tuple[dict[str, float], dict[str, float]]:
    """In quiet times, when it has learnt how long to wait, and at the peak."""
    following = dict(zip([event.ts for event in stream.events], stream.arrivals[1:], strict=False))
    quiet: list[float] = []
    peak: list[float] = []
    for at, output in result.found:
        if output.detector == "Urgent" and output.event.ts in following:
            since = output.event.ts / PER_SECOND if ordered else following[output.event.ts]
            if since >= LEARNT:
                (quiet if since < stream.peak else peak).append(at - since)
    return _figures(quiet), _figures(peak)


def pausing(
    live: bool = False, quiet: float = 5.0, peak: float = 10.0, evenly: bool = False, delay: float = 0.0, seed: int = 1
) -> dict[str, Any]:
    """The figures of one run, with latencies in seconds.

    Without ``delay``, latency begins with the arrival by which an answer is certain: the next, in a stream in order.
    With it, it begins with the occurrence of the event, so it contains the wait for order.
    """
    stream = PeakStream.made(quiet, peak, evenly, delay, seed)
    policy = "auto" if delay else "ordered"
    result = run(stream, BusyCore() if live else VirtualCore(), policy, sl.Pause())
    before, during = urgent_latencies(stream, result, bool(delay))
    without = urgent_latencies(stream, run(stream, VirtualCore(), policy, None), bool(delay))[1]
    return {
        "paused_seconds": result.paused,
        "net_equal": said(result.outputs) == said(plain(stream, policy)),
        "most_delayed": max(output.delayed for output in result.outputs) / PER_SECOND,
        "urgent_quiet": before,
        "urgent_peak": during,
        "urgent_peak_without": without,
        "ratio": {name: during[name] / before[name] for name in before},
    }
