"""Random networks for law 7: who is where, what arrives where, and what befalls nodes and links.

A :class:`Net` is a few numbers, too, so that a failing one can be printed and played again.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from hypothesis import strategies as st
from tests.laws.worlds import World, entry_of, table

import slackline as sl
from slackline.cluster.protocol import Node, NodeSettings
from slackline.cluster.simulation import Arrivals, Link, Network, Partition


@dataclass(frozen=True)
class Trouble:
    """What befalls a node: it crashes (and comes back from its checkpoint), is cut off for a while, or dies for good.

    Where one dies, nodes that are away for long are resumed by others.
    """

    kind: str
    node: int
    at: float
    seconds: float
    detected: bool


@dataclass(frozen=True)
class Net:
    """A world spread over nodes."""

    world: World
    #: Sizes and forms of the pushes, and the seconds between them.
    pieces: tuple[tuple[int, str], ...]
    pace: float
    nodes: int
    #: Per sensor type that is used, or part of one, and per detector: at which node.
    enters: dict[str, int]
    home: tuple[int, ...]
    links: tuple[Link, ...]
    #: Time, detector, to which node, by which.
    moves: tuple[tuple[float, str, int, int], ...]
    troubles: tuple[Trouble, ...]
    seed: int
    #: To a bus that retains what is sent; None: there is none.
    bus: Link | None = None
    #: By sensor type that enters in parts, how many.
    parts: tuple[tuple[str, int], ...] = ()

    @property
    def is_unsafe(self) -> bool:
        """Whether something may get lost on the way."""
        return bool(self.troubles) or any(link.loss for link in (*self.links, self.bus or Link()))

    def alone(self) -> Net:
        """All of it on one node."""
        enters, home = dict.fromkeys(self.enters, 0), (0,) * len(self.home)
        return Net(self.world, self.pieces, self.pace, 1, enters, home, (), (), (), self.seed)

    def network(self, options: dict[str, Any]) -> Network:
        """Ready to run."""
        network = Network(self.seed, bus=self.bus)
        names = [f"n{number}" for number in range(self.nodes)]
        crashes = any(trouble.kind in ("crash", "death") for trouble in self.troubles)
        dies = any(trouble.kind == "death" for trouble in self.troubles)
        # Retransmissions alone must not let a peer time out.
        session_timeout = 2.0 if self.troubles else 5.0
        settings = NodeSettings(
            checkpoint_every=0.3 if crashes else None,
            heartbeat_interval=0.5,
            session_timeout=session_timeout,
            gap_timeout=0.02,
            failover_after=1.0 if dies else None,
            bus=None if self.bus is None else "simulated",
        )

        def hierarchy() -> sl.Hierarchy:
            return self.world.hierarchy(declared=True, reliable=self.is_unsafe).in_parts(dict(self.parts))

        for number, name in enumerate(names):
            ingress = [kind for kind, at in self.enters.items() if at == number]
            mine = [plan.name for plan, at in zip(self.world.plans, self.home, strict=True) if at == number]

            def make(name: str = name, number: int = number, ingress: Any = ingress, mine: Any = mine) -> Node:
                return Node(
                    name, hierarchy(), identity=number, ingress=ingress, detectors=mine, settings=settings, **options
                )

            network.add(name, make, lambda data: Node.load(data, hierarchy(), settings=settings))
        pairs = [(a, b) for number, a in enumerate(names) for b in names[number + 1 :]]
        for (a, b), link in zip(pairs, self.links, strict=True):
            network.connect(a, b, link)
        for number, name in enumerate(names):
            network.feed(name, self._feed(number))
        for at, detector, to, by in self.moves:
            network.migrate(detector, names[to], by=names[by], at=at)
        for trouble in self.troubles:
            name, end = names[trouble.node], trouble.at + trouble.seconds
            if trouble.kind in ("crash", "death"):
                network.crash(name, trouble.at, end if trouble.kind == "crash" else None, detected=trouble.detected)
            else:
                network.partition(Partition(trouble.at, end, frozenset({name}), detected=trouble.detected))
        return network

    def _feed(self, number: int) -> list[Arrivals]:
        """The world's arrivals at a node, in pieces."""
        feed, start = [], 0
        for count, (size, form) in enumerate(self.pieces):
            rows = [
                (event, self.world.now[start + i] if self.world.now is not None else None)
                for i, event in enumerate(self.world.events[start : start + size])
                if self.enters[entry_of(event, dict(self.parts))] == number
            ]
            start += size
            if rows:
                events = [event for event, _ in rows]
                wall = None if self.world.now is None else [at for _, at in rows]
                feed.append(Arrivals(1.0 + count * self.pace, table(events) if form == "table" else events, wall))
        return feed


@dataclass
class Outcome:
    """All that is visible of a network that has settled."""

    #: By detector, its outputs in the order in which they were found.
    found: dict[str, list[tuple[str, str, sl.Event]]]
    late: list[Any]
    quarantined: list[Any]
    seen: dict[str, list[Any]]
    #: Handovers that were carried through.
    moved: int


def play(network: Network) -> Outcome:
    """Let a network settle, and collect what came of it: nothing twice. In the end every detector runs on one node."""
    network.settle(limit=120.0)
    network.run(until=network.now + 5.0)  # until those meet again who were apart
    network.check_invariants()
    found: dict[str, list[tuple[float, int, tuple[str, str, sl.Event]]]] = {}
    late, quarantined, seen = [], [], {}
    for host in network.hosts.values():
        for number, (at, output) in enumerate(host.results.outputs):
            found.setdefault(output.detector, []).append((at, number, (output.op, output.id, output.event)))
        late += [each.event for each in host.results.late]
        quarantined += [each.event for each in host.results.quarantined]
        for name, detector in host.node._engine.detectors.items() if host.node is not None else ():
            assert name not in seen, f"{name} runs on two nodes"
            seen[name] = detector.seen
    moved = sum("migrated from" in each.notice.text for each in network.notices)
    in_order = {name: [one for *_, one in sorted(outputs, key=lambda o: o[:2])] for name, outputs in found.items()}
    for name, outputs in in_order.items():
        identities = [(op, id) for op, id, _ in outputs]
        assert len(identities) == len(set(identities)), f"{name} has found something twice"
    return Outcome(in_order, sorted(late, key=str), sorted(quarantined, key=str), seen, moved)


@st.composite
def links(draw: st.DrawFn, lossy: bool) -> Link:
    """Slow ones and quick ones; with ``lossy`` bad ones."""
    latency = draw(st.sampled_from([0.0, 0.001, 0.02, 0.2]))
    if not lossy or draw(st.booleans()):
        return Link(latency)
    loss = draw(st.sampled_from([0.0, 0.05, 0.3]))
    bandwidth = draw(st.sampled_from([None, 20_000.0]))
    return Link(latency, draw(st.sampled_from([0.0, 0.03])), loss, bandwidth)


@st.composite
def nets(
    draw: st.DrawFn,
    world: World,
    pieces: Any,
    spread: bool,
    faults: tuple[str, ...],
    retains: bool = False,
    in_parts: bool = False,
) -> Net:
    """A random network for a world; with ``spread`` sensor types enter at several nodes, ``in_parts`` each in several.

    ``faults``: what may happen beside moves; ``loss`` (and what else links do), ``crash``, ``apart``; ``death``: of one
    node, first of all. ``retains``: a bus is between the nodes.
    """
    n = draw(st.integers(2, 4))
    node = st.integers(0, n - 1)
    used = sorted({event.type for event in world.events} | {kind for p in world.plans for kind in p.listens})
    used = [kind for kind in used if not kind.startswith("found_")]
    one = draw(node)
    enters = {kind: draw(node) if spread else one for kind in used}
    parts = {kind: draw(st.integers(2, n)) for kind in used if in_parts and kind in world.hierarchy().sensor_types}
    for kind, count in parts.items():
        homes = draw(st.permutations(range(n)))[:count]
        del enters[kind]
        enters |= {f"{kind}/{part}": at for part, at in enumerate(homes)}
    home = tuple(draw(node) for _ in world.plans)
    pace = draw(st.sampled_from([0.001, 0.01, 0.1]))
    length = 1.0 + pace * len(pieces)
    times = st.floats(0.5, length + 0.5).map(lambda at: round(at, 3))
    names = st.sampled_from([plan.name for plan in world.plans])
    few = draw(st.sampled_from([0, 1, 10]))
    moves = draw(st.lists(st.tuples(times, names, node, node), min_size=few, max_size=12))
    kinds = [kind for kind in faults if kind not in ("loss", "death")]
    troubles = [Trouble("death", draw(node), draw(times), 0.0, draw(st.booleans()))] if "death" in faults else []
    if kinds:
        seconds = st.sampled_from([0.05, 0.5, 4.0])
        trouble = st.builds(Trouble, st.sampled_from(kinds), node, times, seconds, st.booleans())
        troubles += draw(st.lists(trouble, min_size=0 if troubles else 1, max_size=3))
    ways = tuple(draw(links("loss" in faults)) for _ in range(n * (n - 1) // 2))
    bus = draw(links("loss" in faults)) if retains else None
    seed = draw(st.integers(0, 2**20))
    return Net(
        world,
        tuple(pieces),
        pace,
        n,
        enters,
        home,
        ways,
        tuple(moves),
        tuple(troubles),
        seed,
        bus,
        tuple(parts.items()),
    )
