"""Overviews of networks that never were, for those who decide by them."""

from __future__ import annotations

from typing import Any

#: A chain over one sensor type, and somebody who listens to both.
CHAIN = {
    "Low": {"listens": ["a"], "publishes": ["low"]},
    "High": {"listens": ["low"], "publishes": ["high", "low_too"]},
    "Top": {"listens": ["high", "low_too"], "publishes": ["top"]},
}


class Told:
    """A network as it tells of itself, second by second."""

    def __init__(
        self,
        runs: dict[str, list[str]],
        *,
        enters: dict[str, list[str]] | None = None,
        rates: dict[str, float] | None = None,
        cpu: dict[str, float] | None = None,
        trips: dict[tuple[str, str], float] | None = None,
        trip: float = 0.02,
        limits: dict[str, float] | None = None,
        stays: dict[str, list[str]] | None = None,
        hierarchy: dict[str, Any] | None = None,
    ) -> None:
        self.runs = runs
        self.enters = enters or {"n1": ["a"]}
        self.rates = {"a": 100.0, "low": 10.0, "high": 2.0, "low_too": 3.0, "top": 1.0} if rates is None else rates
        self.cpu = cpu or {}
        self.trips, self.trip = trips or {}, trip
        self.limits, self.stays = limits or {}, stays or {}
        self.hierarchy = CHAIN if hierarchy is None else hierarchy
        self.states = dict.fromkeys(runs, "there")
        self.master: str | None = None
        self.moving: dict[str, str] = {}
        self.at = 100.0
        self.sent: dict[str, float] = dict.fromkeys(self.rates, 0.0)
        self.spent: dict[str, float] = {}

    def go_on(self, seconds: float = 1.0) -> None:
        self.at += seconds
        for kind, rate in self.rates.items():
            self.sent[kind] += rate * seconds
        for name in self.hierarchy:
            self.spent[name] = self.spent.get(name, 0.0) + self.cpu.get(name, 0.1) * seconds

    def move(self, detector: str, to: str) -> None:
        """A detector has moved; what it needs is counted anew there."""
        for names in self.runs.values():
            if detector in names:
                names.remove(detector)
        self.runs[to].append(detector)
        self.spent[detector] = 0.0

    def overview(self) -> dict[str, Any]:
        nodes = {}
        for name, runs in self.runs.items():
            enters = self.enters.get(name, [])
            kinds = [*enters, *(kind for each in runs for kind in self.hierarchy[each]["publishes"])]
            others = [other for other in self.runs if other != name and self.states[other] == "there"]
            nodes[name] = {
                "at": self.at, "state": self.states[name], "load": 0.3, "limit": self.limits.get(name, 0.8),
                "stays": self.stays.get(name, []), "master": False, "runs": list(runs), "enters": enters,
                "round_trips": {o: self.trips.get((name, o), self.trips.get((o, name), self.trip)) for o in others},
                "detectors": {each: {"cpu": self.spent.get(each, 0.0), "K": 0} for each in runs},
                "sent": {kind: {"events": int(self.sent[kind]), "kept": 0} for kind in kinds},
            }  # fmt: skip
        return {"nodes": nodes, "hierarchy": self.hierarchy, "moving": self.moving, "master": self.master}
