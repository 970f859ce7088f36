"""What the nodes of a network say of themselves, over a while: what those need to know who decide where detectors run.

Every node tells all others once a second what it runs, has sent and has needed (``overview``). A :class:`ClusterMetrics` keeps
that for a short time, so that counts become rates [Thesis, 5.2.3]; the text measures for 2 seconds [Thesis, 5.2.6]. It
takes the overview of any node: its own, inside a node, or one that was asked for, outside.

What others say may be anything. What cannot be read counts as not said, and :attr:`Statistics.lacks` tells in words
what was not said, or not lately; who decides something by statistics does nothing where they lack something.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any, NamedTuple

import msgspec

from slackline.cluster.controller.statistics import NodeState, Ports, Statistics

#: States of a node that is connected.
PRESENT = ("self", "up")
#: Seconds over which rates are measured, at least.
WINDOW = 2.0


class _CpuSpent(msgspec.Struct, frozen=True):
    cpu: float | None = None
    delivered: int = 0


class _EventsSent(msgspec.Struct, frozen=True):
    events: int


class _Told(msgspec.Struct, frozen=True):
    """What is read of a node's part of an overview."""

    state: str
    load: float
    runs: list[str]
    enters: list[str]
    at: float | None = None
    limit: float = 0.0
    stays: list[str] = []
    round_trips: dict[str, float] = {}
    detectors: dict[str, _CpuSpent] = {}
    sent: dict[str, _EventsSent] = {}

    def __post_init__(self) -> None:
        spent = [each.cpu for each in self.detectors.values() if each.cpu is not None]
        numbers = [self.load, self.limit, self.at or 0.0, *self.round_trips.values(), *spent]
        if not all(math.isfinite(each) for each in numbers) or min(self.limit, self.load) < 0:
            raise ValueError("not a number")
        if any(trip < 0 for trip in self.round_trips.values()):
            raise ValueError("a negative time")


class _Sample(NamedTuple):
    """What a node has said, and when that was heard."""

    heard: float
    at: float
    shown: _Told


class ClusterMetrics:
    """Overviews in, :class:`Statistics` out. ``stale_after``: what was said longer ago does not count."""

    def __init__(self, stale_after: float = 5.0) -> None:
        self._stale_after = stale_after
        self._shown: dict[str, _Told] = {}
        self._samples: dict[str, list[_Sample]] = {}
        self._unreadable: list[str] = []
        self._wiring: dict[str, Ports] = {}
        self._moving: frozenset[str] = frozenset()
        # What was measured last, for types and detectors that have just moved; and how long their handovers took.
        self._events: dict[str, float] = {}
        self._cpu: dict[str, float] = {}
        self._processed: dict[str, float] = {}
        self._handovers: dict[str, float] = {}

    def look(self, overview: Mapping[str, Any], now: float) -> None:
        """Take what a node knows of the network now."""
        self._wiring = {
            name: Ports(tuple(each["listens"]), tuple(each["publishes"]))
            for name, each in overview["hierarchy"].items()
        }
        self._moving = frozenset(overview["moving"])
        self._shown, self._unreadable = {}, []
        for name, said in overview["nodes"].items():
            try:
                self._shown[name] = shown = msgspec.convert(said, _Told)
            except msgspec.ValidationError as error:
                self._unreadable.append(f"{name} says what cannot be read ({error})")
                continue
            if shown.state in PRESENT and shown.at is not None:
                self._keep(name, _Sample(now, shown.at, shown))
        for name in [name for name in self._samples if not self._is_there(name)]:
            del self._samples[name]

    def moved(self, detector: str, seconds: float) -> None:
        """A detector that has come stood still for so long at the end of its way."""
        if math.isfinite(seconds) and seconds >= 0:
            self._handovers[detector] = seconds

    def _keep(self, name: str, sample: _Sample) -> None:
        samples = self._samples.setdefault(name, [])
        if samples and sample.at < samples[-1].at:  # it has begun anew
            samples.clear()
        if not samples or sample.at > samples[-1].at:
            samples.append(sample)
        while len(samples) > 2 and samples[-1].at - samples[1].at >= WINDOW:
            del samples[0]

    def _is_there(self, name: str) -> bool:
        return name in self._shown and self._shown[name].state in PRESENT

    def neighbourhood(self, name: str, now: float) -> Statistics:
        """What a node knows of itself and of those that it is linked with, and that have said enough.

        What comes from elsewhere does not count. Where two neighbours have not told how far they are from each other,
        it is taken to be as far as by here.
        """
        whole = self.statistics(now)
        there = [each for each in whole.nodes if not self._objection(each, now)]
        away = {each: whole.latency(name, each) for each in there}
        near = [each for each in there if away[each] is not None]
        runs = {detector: node for detector, node in whole.runs.items() if node in near}
        enters = {kind: node for kind, node in whole.enters.items() if node in near}
        known = {*enters, *(kind for detector in runs for kind in whole.hierarchy[detector].publishes)} & {
            *whole.events
        }
        latencies = {}
        for nth, one in enumerate(near):
            for another in near[nth + 1 :]:
                told = whole.latency(one, another)
                latencies[one, another] = (away[one] or 0.0) + (away[another] or 0.0) if told is None else told
        return replace(
            whole,
            fresh=min((self._samples[each][-1].heard for each in near), default=-math.inf),
            nodes={each: whole.nodes[each] for each in near},
            hierarchy={
                detector: wiring._replace(listens=tuple(kind for kind in wiring.listens if kind in known))
                for detector, wiring in whole.hierarchy.items()
                if detector in runs
            },
            runs=runs,
            enters=enters,
            stays={detector: node for detector, node in whole.stays.items() if detector in runs and node in near},
            latencies=latencies,
            lacks=() if name in near and runs else (self._objection(name, now) or "nothing runs here",),
        )

    def statistics(self, now: float) -> Statistics:
        """What is known now of all nodes."""
        there = sorted(name for name in self._shown if self._is_there(name))
        runs, twice = self._where((name, self._shown[name].runs) for name in there)
        enters, _ = self._where((name, self._shown[name].enters) for name in there)
        self._measure(runs, enters)
        lacks = self._unreadable + self._silent(there, now)
        lacks += [f"detector {detector!r} runs on more than one node" for detector in twice]
        lacks += [f"detector {name!r} runs nowhere at the moment" for name in self._wiring if name not in runs]
        kinds = {kind: enters.get(kind) for kind in self._sensor_types()}
        kinds |= {kind: runs[d] for d, wiring in self._wiring.items() if d in runs for kind in wiring.publishes}
        lacks += [f"type {kind!r} enters nowhere at the moment" for kind, node in kinds.items() if node is None]
        latencies = self._latencies(there)
        unknown = [(a, b) for nth, a in enumerate(there) for b in there[nth + 1 :] if (a, b) not in latencies]
        lacks += [f"no latency was measured between {a!r} and {b!r}" for a, b in unknown]
        if not lacks:
            lacks += [f"events of type {kind!r} were not counted yet" for kind in kinds if kind not in self._events]
        latest = [samples[-1].heard for samples in self._samples.values()]
        return Statistics(
            at=now,
            fresh=min(latest, default=-math.inf),
            hierarchy=dict(self._wiring),
            nodes={name: NodeState(self._shown[name].load, self._shown[name].limit) for name in there},
            runs={name: runs[name] for name in self._wiring if name in runs},
            enters={kind: node for kind, node in sorted(enters.items()) if kind in kinds},
            stays=self._stays(there, runs),
            events={kind: self._events[kind] for kind in kinds if kind in self._events},
            cpu={name: self._cpu[name] for name in runs if name in self._cpu},
            processed={name: self._processed[name] for name in runs if name in self._processed},
            latencies=latencies,
            handovers=dict(self._handovers),
            moving=self._moving,
            arrived=frozenset(name for name, node in runs.items() if self._has_just_come(name, node)),
            lacks=tuple(lacks),
        )

    def _has_just_come(self, detector: str, node: str) -> bool:
        samples = self._samples.get(node, [])
        return sum(detector in each.shown.detectors for each in samples) < 2

    def _silent(self, there: list[str], now: float) -> list[str]:
        """Who has said nothing, or not lately, or not for long enough."""
        lacks = []
        for name, shown in self._shown.items():
            if name not in there and shown.state != "left" and (shown.runs or shown.enters):
                has = ", ".join([*shown.runs, *(f"{kind} enters there" for kind in shown.enters)])
                lacks.append(f"{name} is gone ({has})")
        return lacks + [said for name in there if (said := self._objection(name, now))]

    def _objection(self, name: str, now: float) -> str:
        """Why what a node has said does not count; empty if it does."""
        samples = self._samples.get(name)
        if not samples:
            return f"{name} has not said yet how it goes"
        if now - samples[-1].heard > self._stale_after:
            return f"{name} has said nothing for {now - samples[-1].heard:.1f} s"
        if samples[-1].at - samples[0].at < 0.9 * WINDOW:  # life signs do not come to the millisecond
            return f"{name} was heard for {samples[-1].at - samples[0].at:.1f} of {WINDOW:g} s"
        return ""

    def _sensor_types(self) -> list[str]:
        published = {kind for wiring in self._wiring.values() for kind in wiring.publishes}
        return sorted({kind for wiring in self._wiring.values() for kind in wiring.listens} - published)

    @staticmethod
    def _where(said: Iterable[tuple[str, list[str]]]) -> tuple[dict[str, str], list[str]]:
        """By name the node that has it, and what more than one says to have."""
        where: dict[str, str] = {}
        twice = []
        for node, names in said:
            twice += [name for name in names if name in where]
            where |= dict.fromkeys(names, node)
        return where, sorted(set(twice))

    def _stays(self, there: list[str], runs: Mapping[str, str]) -> dict[str, str]:
        """Where detectors are to stay. If several nodes say so, where it runs, or else the first."""
        stays: dict[str, str] = {}
        for name in there:
            for detector in self._shown[name].stays:
                if detector in self._wiring and (detector not in stays or runs.get(detector) == name):
                    stays[detector] = name
        return stays

    def _measure(self, runs: Mapping[str, str], enters: Mapping[str, str]) -> None:
        """Rates where detectors run and types enter now; of what has just come there, the last ones stay."""
        for detector, node in runs.items():
            samples = self._samples.get(node, [])
            told = [(each.at, each.shown.detectors[detector]) for each in samples if detector in each.shown.detectors]
            share = _rate([(at, spent.cpu) for at, spent in told if spent.cpu is not None])
            if share is not None:
                self._cpu[detector] = share
                self._processed[detector] = _rate([(at, spent.delivered) for at, spent in told]) or 0.0
            for kind in self._wiring[detector].publishes if detector in self._wiring else ():
                self._count(kind, samples)
        for kind, node in enters.items():
            self._count(kind, self._samples.get(node, []))

    def _count(self, kind: str, samples: list[_Sample]) -> None:
        rate = _rate([(each.at, each.shown.sent[kind].events) for each in samples if kind in each.shown.sent])
        if rate is not None:
            self._events[kind] = rate

    def _latencies(self, there: list[str]) -> dict[tuple[str, str], float]:
        """Half a round trip, as both sides measured it, or one of them."""
        latencies = {}
        for nth, one in enumerate(there):
            for another in there[nth + 1 :]:
                both = (self._shown[one].round_trips.get(another), self._shown[another].round_trips.get(one))
                trips = [trip for trip in both if trip is not None]
                if trips:
                    latencies[one, another] = sum(trips) / len(trips) / 2
        return latencies


def _rate(counted: list[tuple[float, float]]) -> float | None:
    """Growth per second of a count; one that falls has begun anew.

    >>> _rate([(0.0, 90), (1.0, 0), (3.0, 20)]), _rate([(0.0, 90)])
    (10.0, None)
    """
    for nth in range(len(counted) - 1, 0, -1):
        if counted[nth][1] < counted[nth - 1][1]:
            counted = counted[nth:]
            break
    if len(counted) < 2:
        return None
    (start, first), (end, last) = counted[0], counted[-1]
    return (last - first) / (end - start)
