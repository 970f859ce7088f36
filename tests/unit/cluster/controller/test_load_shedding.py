"""Nodes that give detectors away before they fall behind: in time, to whom there is room, and not back and forth."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass, field
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.unit.cluster.protocol.joined import texts, three

from slackline.cluster.controller.load_shedding import CALM, LOWER_THRESHOLD, LoadShedding
from slackline.cluster.controller.metrics import NodeLoad, Ports, Statistics
from slackline.cluster.controller.policy import Move
from slackline.cluster.protocol import NodeSettings

LIMIT = 0.8
RATE = 100.0
#: What a detector needs at a time.
Curve = Callable[[float], float]


@dataclass
class Hosts:
    """Nodes that all shed, in a world where a handover takes less than a beat and rates are means over two."""

    curves: dict[str, Curve]
    runs: dict[str, str]
    nodes: tuple[str, ...]
    stays: dict[str, str] = field(default_factory=dict)
    missing: tuple[str, ...] = ()
    noise: float = 0.0
    handover: float = 0.1
    now: float = 0.0

    def __post_init__(self) -> None:
        self.random = Random(7)
        self.sheddings = {name: LoadShedding(name, 1.0) for name in self.nodes}
        self.moved: dict[str, list[tuple[float, str, str]]] = defaultdict(list)
        self.refused: list[tuple[str, str]] = []
        self.notices: list[str] = []
        self.loads: dict[str, list[float]] = {name: [] for name in self.nodes}

    def load(self, node: str) -> float:
        return sum(self.curves[name](self.now) for name, at in self.runs.items() if at == node)

    def measured(self) -> Statistics:
        """As a survey gives it: the means of the last two seconds. Who is above 1 processes what it can."""
        cpu, processed = {}, {}
        for name, curve in self.curves.items():
            mean = sum(curve(self.now - ago) for ago in (1.75, 1.25, 0.75, 0.25)) / 4
            mean *= 1 + self.noise * (2 * self.random.random() - 1)
            share = min(1.0, 1 / max(self.load(self.runs[name]), 1e-9))
            cpu[name], processed[name] = mean * share, RATE * share
        pairs = {(a, b): 0.005 for i, a in enumerate(self.nodes) for b in self.nodes[i + 1 :]}
        return Statistics(
            at=self.now, fresh=self.now, hierarchy={name: Ports((f"to_{name}",), ()) for name in self.curves},
            nodes={name: NodeLoad(self.load(name), LIMIT) for name in self.nodes}, runs=dict(self.runs),
            ingress={f"to_{name}": self.nodes[0] for name in self.curves}, pinned=self.stays,
            events={f"to_{name}": RATE for name in self.curves}, cpu=cpu, processed=processed, latencies=pairs,
            handovers={}, unmeasured=frozenset(), migrating=frozenset(), missing=self.missing,
        )  # fmt: skip

    def beat(self) -> None:
        """A second passes: all look, then all that was ordered is carried out, in order."""
        self.now += 1.0
        for name in self.nodes:
            self.loads[name].append(self.load(name))
        statistics = self.measured()
        actions = {name: shedding.on_heartbeat(statistics, self.now) for name, shedding in self.sheddings.items()}
        for name, each in actions.items():
            self.notices += [notice.text for notice in each.notices]
            for move in each.moves:
                self._carry_out(name, move)

    def _carry_out(self, by: str, move: Move) -> None:
        assert move.if_room and move.source == by == self.runs[move.detector] != move.to
        error = "" if self.sheddings[move.to].has_room(move.detector, self.now) else "no room"
        if error:
            self.refused.append((move.detector, move.to))
        else:
            self.runs[move.detector] = move.to
            self.moved[move.detector].append((self.now, move.source, move.to))
        self.sheddings[by].on_move_result(move, error, {}, self.now + self.handover)

    def go(self, beats: int) -> Hosts:
        for _ in range(beats):
            self.beat()
        return self


def steady(share: float) -> Curve:
    return lambda at: share


def rises(low: float, high: float, start: float, seconds: float, end: float = math.inf) -> Curve:
    """From low to high in so many seconds, and back as fast from ``end`` on."""

    def curve(at: float) -> float:
        up = min(1.0, max(0.0, (at - start) / seconds))
        down = min(1.0, max(0.0, (at - end) / seconds))
        return low + (high - low) * (up - down)

    return curve


def names(n: int) -> tuple[str, ...]:
    return tuple(f"n{number + 1}" for number in range(n))


def risen(nodes: int = 3, high: float = 0.3, seconds: float = 10.0, **more: object) -> Hosts:
    """Four detectors on n1 that need 0.2 together, and from second 10 on more and more; 0.2 on each of the others."""
    curves: dict[str, Curve] = {f"D{n}": rises(0.05, high, 10.0, seconds) for n in range(4)}
    curves |= {f"S{name}": steady(0.2) for name in names(nodes)[1:]}
    runs = {name: "n1" if name.startswith("D") else name[1:] for name in curves}
    return Hosts(curves, runs, names(nodes), **more)  # type: ignore[arg-type]


def test_a_node_sheds_before_it_is_above_its_limit() -> None:
    hosts = risen().go(40)
    assert hosts.moved and max(max(loads) for loads in hosts.loads.values()) <= LIMIT
    assert all(at > 10.0 for moves in hosts.moved.values() for at, *_ in moves), "before there was a reason"
    assert sum(hosts.load(name) for name in hosts.nodes) > 1.5, "it would have fitted anyway"


def test_it_sheds_down_to_its_lower_mark_and_no_node_accepts_more_than_to_its_own() -> None:
    curves = {"A": steady(0.4), "B": steady(0.3), "C": steady(0.3), "D": steady(0.3)}
    hosts = Hosts(curves, {"A": "n1", "B": "n1", "C": "n1", "D": "n2"}, names(3)).go(8)
    assert hosts.load("n1") <= LOWER_THRESHOLD * LIMIT
    assert all(hosts.load(name) <= LOWER_THRESHOLD * LIMIT for name in hosts.nodes)


def test_below_the_limit_nothing_moves_even_if_measurements_differ_by_a_tenth() -> None:
    curves = {f"D{n}": steady(0.7 / 5) for n in range(5)} | {"E": steady(0.1)}
    hosts = Hosts(curves, {f"D{n}": "n1" for n in range(5)} | {"E": "n2"}, names(2), noise=0.1).go(200)
    assert not hosts.moved


def test_a_node_that_has_fallen_behind_is_seen_to_need_more_than_there_is() -> None:
    curves = {"A": steady(0.7), "B": steady(0.7), "C": steady(0.5)}
    hosts = Hosts(curves, dict.fromkeys(curves, "n1"), names(4)).go(1)  # processes half of what is sent
    assert sum(len(moves) for moves in hosts.moved.values()) == 1, "only C fits below a lower mark"
    assert "n1 will need 1.40 of a core" in hosts.notices[0]


def test_if_no_node_has_room_nothing_migrates_and_that_is_logged_once() -> None:
    curves = {"A": steady(0.5), "B": steady(0.5), "C": steady(0.6), "D": steady(0.6)}
    hosts = Hosts(curves, {"A": "n1", "B": "n1", "C": "n2", "D": "n3"}, names(3)).go(20)
    assert not hosts.moved and not hosts.refused
    assert len(hosts.notices) == 1
    assert (
        "(limit 0.8), and no node has room for more of its detectors (n2 0.60 of 0.8, n3 0.60 of 0.8)"
        in hosts.notices[0]
    )


def test_two_overloaded_nodes_do_not_offload_to_the_same_third() -> None:
    curves = {f"{node}{n}": steady(0.25) for node in "ab" for n in range(4)}
    curves |= {"c": steady(0.3), "d": steady(0.32), "e": steady(0.35)}
    runs = {name: {"a": "n1", "b": "n2", "c": "n3", "d": "n4", "e": "n5"}[name[0]] for name in curves}
    hosts = Hosts(curves, runs, names(5))
    hosts.beat()
    assert hosts.refused, "both wanted the same"
    hosts.go(5)
    assert all(hosts.load(name) <= LIMIT for name in hosts.nodes)
    assert all(len(moves) == 1 for moves in hosts.moved.values())


def test_what_is_pinned_stays() -> None:
    hosts = risen(stays={"D0": "n1", "D1": "n1"}).go(40)
    assert set(hosts.moved) == {"D2", "D3"}


def test_while_something_is_not_known_nothing_moves() -> None:
    assert not risen(missing=("node n3 is lost (X)",)).go(40).moved


def test_after_a_fall_it_may_begin_again() -> None:
    """In the second rise detectors may go back to where they came from in the first."""
    up, down = rises(0.1, 0.6, 10, 10, end=30), rises(0.1, 0.6, 80, 10, end=100)
    curves = {"A": steady(0.3), "B": steady(0.2), "C": up, "D": lambda at: down(at)}
    hosts = Hosts(curves, {"A": "n1", "C": "n1", "B": "n2", "D": "n2"}, names(2)).go(130)
    first = [name for name, moves in hosts.moved.items() for at, *_ in moves if at < 60]
    second = [name for name, moves in hosts.moved.items() for at, *_ in moves if at > 60]
    assert first and second and max(max(loads) for loads in hosts.loads.values()) <= LIMIT


shapes = st.tuples(st.floats(0.0, 0.2), st.floats(0.0, 0.8), st.floats(5, 20), st.floats(2, 10), st.floats(0, 15)).map(
    lambda shape: rises(shape[0], shape[0] + shape[1], shape[2], shape[3], shape[2] + shape[3] + shape[4])
)


@given(
    st.integers(2, 4).flatmap(
        lambda n: st.tuples(st.just(n), st.lists(st.tuples(shapes, st.integers(0, n - 1)), min_size=2, max_size=6))
    ),
    st.sampled_from([0.0, 0.1, 0.3]),
)
def test_in_a_rise_and_fall_no_detector_moves_more_than_twice_nor_back(world, noise) -> None:
    n, detectors = world
    curves = {f"D{number}": curve for number, (curve, _) in enumerate(detectors)}
    runs = {f"D{number}": names(n)[at] for number, (_, at) in enumerate(detectors)}
    hosts = Hosts(curves, runs, names(n), noise=noise)
    hosts.go(60 + CALM)
    # What lies between two moves that are further apart than a rest may have been two rises; what is not, was one.
    for moves in hosts.moved.values():
        spell = moves[:1]
        for move in moves[1:]:
            spell = [*spell, move] if move[0] - spell[-1][0] < CALM else [move]
            assert len(spell) <= 2, moves
            been = [source for _, source, _ in spell]
            assert all(to not in been[: nth + 1] for nth, (_, _, to) in enumerate(spell)), moves


@given(st.lists(st.tuples(st.floats(0.0, 0.2), st.integers(0, 2)), min_size=3, max_size=15), st.integers(0, 3))
def test_no_node_is_brought_above_its_limit_by_what_it_accepts(detectors, nth) -> None:
    curves = {f"D{number}": steady(share) for number, (share, _) in enumerate(detectors)}
    runs = {f"D{number}": names(3)[at] for number, (_, at) in enumerate(detectors)}
    hosts = Hosts(curves, runs, names(3))
    before = {name: hosts.load(name) for name in hosts.nodes}
    hosts.go(12)
    for name in hosts.nodes:
        assert hosts.load(name) <= max(LIMIT, before[name]) + 1e-9
    total = sum(before.values())
    if total <= 3 * (LOWER_THRESHOLD * LIMIT - 0.2):  # there is room for anything, wherever it is
        assert max(hosts.load(name) for name in hosts.nodes) <= LIMIT + 1e-9


def test_a_node_knows_nothing_at_first_and_takes_what_comes() -> None:
    assert LoadShedding("n1", 1.0).has_room("D", 0.0)


@pytest.mark.parametrize("beats", [3, 30])
def test_a_promise_that_is_not_kept_is_forgotten(beats: int) -> None:
    hosts = Hosts({"A": steady(0.3), "B": steady(0.4), "C": steady(0.4)}, {"A": "n1", "B": "n2", "C": "n2"}, names(2))
    hosts.go(1)
    shedding = hosts.sheddings["n1"]
    assert shedding.has_room("B", hosts.now) and not shedding.has_room("C", hosts.now)
    hosts.go(beats)
    assert shedding.has_room("C", hosts.now) == (beats > CALM)


def test_a_node_without_room_refuses_shed_detectors_but_not_requested_ones() -> None:
    net = three(settings=NodeSettings(sheds=True))
    net.nodes["n3"]._requests.has_room = lambda detector, now: False
    net.nodes["n2"].migrate("High", "n3", net.now, if_room=True)
    net.settle(1.0)
    assert net.nodes["n2"].runs == ["High"]
    assert "'n3' has no room for 'High'." in texts(net)
    net.nodes["n2"].migrate("High", "n3", net.now)
    net.settle(1.0)
    assert net.nodes["n3"].runs == ["High", "Top"]
    net.check()
