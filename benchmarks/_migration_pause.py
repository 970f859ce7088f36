"""The pause of a migration by size of the state: copied while the detector runs, and stopped and copied.

Three nodes in the simulated network, links of 1 Gbit/s and 1 ms. ``Accounts`` has a state of 1 kB, 1 MB or 100 MB in
entries of 1 kB, one per key; ``Array`` has it in one array. An event comes every millisecond, changes one random entry
and publishes one event. The detector migrates from n2 to n3 in the middle. Time is virtual; the CPU time that ``run``
and ``receive`` of a node take, measured as they are played, is added to it on the node's processor: encoding,
comparing, decoding and everything else. ``pause_ms`` is the longest time from the arrival of an event to its output,
less the median without a migration: that of the events that the migration holds up.
"""

# mypy: disable-error-code="misc"

from __future__ import annotations

import gc
import time
from statistics import median
from typing import Any

import numpy as np

import slackline as sl
from scenarios.handover_baselines import StopAndCopyNode
from slackline.cluster.interface import Actions
from slackline.cluster.protocol import Node, NodeSettings
from slackline.cluster.simulation import Arrivals, Cpu, Link, Network

SIZES = {"1kB": 1_000, "1MB": 1_000_000, "100MB": 100_000_000}
ENTRY = 1_000
GIGABIT = 125e6
NODES = ("n1", "n2", "n3")
#: Virtual seconds between events.
EVERY = 0.001
#: Events before the migration.
BEFORE = 500


class Accounts(sl.Detector):
    """A state of one entry per key."""

    listens, publishes, key = ("a",), ("found",), "k"
    reliable = ("a",)

    def __init__(self) -> None:
        self.n, self.notes = 0, b""

    def on_event(self, event: sl.Event):
        self.n += 1
        self.notes = self.notes or event["k"].to_bytes(8, "big") * (ENTRY // 8)
        yield event.derive("found", n=self.n, last=self.notes[-1])


class Array(sl.Detector):
    """The same amount of state in one array."""

    listens, publishes, reliable = ("a",), ("found",), ("a",)

    def __init__(self, size: int = 0) -> None:
        self.values = np.zeros(size // 8)

    def on_event(self, event: sl.Event):
        at = event["k"] * 7919 % len(self.values)
        self.values[at] += 1
        yield event.derive("found", n=self.values[at])


def measured(kind: type[Node], cpu: Cpu) -> type[Node]:
    """Nodes whose work takes as long in virtual time as it takes CPU time in this process.

    A run without any result is free, and its time is added to the next: a simulated host runs its node until it rests.
    """

    class Measured(kind):  # type: ignore[valid-type]
        unpaid = 0.0

        def run(self, now: float) -> Actions:
            start = time.process_time()
            actions = super().run(now)
            self.unpaid += time.process_time() - start
            if actions.messages or actions.outputs:
                cpu.work(self.unpaid)
                self.unpaid = 0.0
            return actions

        def receive(self, link: str, data: bytes, now: float) -> None:
            start = time.process_time()
            super().receive(link, data, now)
            self.unpaid += time.process_time() - start

    return Measured


def latencies(state: str, size: int, kind: type[Node], seed: int, migrates: bool) -> tuple[list[float], dict[str, Any]]:
    """Seconds from each arrival to its output, and the metrics of the migration."""
    entries, rng = max(1, size // ENTRY), np.random.default_rng(seed)
    network = Network(seed)
    for number, name in enumerate(NODES):
        cpu, detector = Cpu(), Accounts() if state == "keys" else Array(size)
        node = measured(kind, cpu)(
            name, sl.Hierarchy([detector], clock="a"), identity=number, ingress=["a"] * (name == "n1"),
            detectors=[type(detector).__name__] if name == "n2" else [], settings=NodeSettings(), policy="ordered",
        )  # fmt: skip
        network.add(name, lambda node=node: node, cpu=cpu)
    network.connect_all(Link(0.001, bandwidth=GIGABIT))
    seconds = 1.0 + 8 * size / GIGABIT
    keys = rng.integers(0, entries, BEFORE + int(seconds / EVERY)).tolist()
    filled = entries if state == "keys" else 1
    feed = [Arrivals(1.0, [sl.Event("a", ts=i, source="s", seq=i, k=i) for i in range(filled)])]
    start = 2.0 + 20 * size / GIGABIT  # when the state is there
    feed += [
        Arrivals(start + EVERY * i, [sl.Event("a", ts=filled + i, source="s", seq=filled + i, k=key)])
        for i, key in enumerate(keys)
    ]
    network.feed("n1", feed)
    if migrates:
        network.migrate(type(detector).__name__, to="n3", by="n3", at=start + EVERY * BEFORE)
    gc.collect()
    gc.disable()
    network.settle()
    gc.enable()
    found = {output.event.seq or 0: at for name in NODES for at, output in network.results(name).outputs}
    assert len(found) == filled + len(keys) == max(found) + 1, "outputs are missing"
    moved = [each.notice.text for each in network.notices if "migrated from" in each.notice.text]
    assert len(moved) == migrates, [each.notice.text for each in network.notices]
    return [found[filled + i] - (start + EVERY * i) for i in range(len(keys))], {"log": moved}


def pauses(seed: int, sizes: dict[str, int] | None = None) -> dict[str, Any]:
    """Milliseconds by size, for a keyed state and one array; of both methods in the same run."""
    figures: dict[str, Any] = {}
    for state in ("keys", "array"):
        ours: dict[str, float] = {}
        others: dict[str, float] = {}
        for name, size in (sizes or SIZES).items():
            usual = median(latencies(state, size, Node, seed, False)[0])
            for found, kind in ((ours, Node), (others, StopAndCopyNode)):
                found[name] = round(1000 * (max(latencies(state, size, kind, seed, True)[0]) - usual), 1)
        suffix = "" if state == "keys" else "_array"
        figures |= {f"pause_ms{suffix}": ours, f"pause_ms_stop_and_copy{suffix}": others}
    return figures
