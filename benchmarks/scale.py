"""What an event, key, source, detector, hop, handover and commit cost, how that grows, and a network of 1,000 nodes.

    slackline bench scale --json
    slackline bench scale --part key --part hop
    slackline bench scale --part network --nodes 1000

Every part is measured at three sizes or more, each a few times as large as the one before, with a fixed seed, in
seconds of CPU. ``exponent`` is the slope of the cost over the size, both logarithmic: 1 is proportional, 0 constant.
``fixed`` and ``each`` are the least-squares line through the same points. ``at`` is what that comes to for 1 M
events/s, 10 M keys and 1,000 nodes.

``network`` simulates 1,000 nodes with 10,000 detectors for a minute of virtual time: 20 sensor types enter at 20 nodes,
and from each a tree of 50 nodes is supplied. Links lose 1 % of their packets, one node of 100 crashes and resumes from
its checkpoint, and a partition cuts off one node of 100 for five seconds. Nodes have links to those that they exchange
events with; ``mesh`` measures what a link to every other node costs. ``lost`` and ``duplicated`` compare the outputs
with what has to come of the input.
"""

# mypy: disable-error-code="misc, arg-type"

from __future__ import annotations

import cProfile
import pstats
import tempfile
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

import slackline as sl
from _figures import parser, print_figures
from slackline.cluster.interface import NodeSettings
from slackline.cluster.protocol import Node
from slackline.cluster.simulation import Arrivals, Link, Network, Partition
from slackline.runtime.checkpoint import Checkpoint, FolderCheckpointStore
from slackline.runtime.keyed import KeyedEngines

SEED = 7
#: Rows of a push.
PUSH = 10_000
EVENTS, KEYS, NODES = 1_000_000, 10_000_000, 1_000

Figures = dict[str, Any]


# What runs.


class Counter(sl.Detector):
    """Reads columns; publishes one event in a thousand."""

    def __init__(self, name: str = "Counter", listens: str = "a", publishes: str = "counted") -> None:
        self.name, self.listens, self.publishes = name, (listens,), (publishes,)
        self.count = 0

    def on_batch(self, batch: sl.Batch) -> Iterable[tuple[int, sl.Event]]:
        for row in range(999 - self.count % 1000, len(batch), 1000):
            yield row, batch.event(row).derive(self.publishes[0])
        self.count += len(batch)


class Relay(sl.Detector):
    """Publishes an event for each of its input, or for each tenth."""

    def __init__(self, name: str, listens: str, publishes: str | None = None, every: int = 1) -> None:
        self.name, self.listens, self.reliable = name, (listens,), (listens,)
        self.publishes = () if publishes is None else (publishes,)
        self.every, self.count = every, 0

    def on_event(self, event: sl.Event) -> Iterable[sl.Event]:
        self.count += 1
        if self.publishes and self.count % self.every == 0:
            yield event.derive(self.publishes[0], count=self.count)


class Heavy(Relay):
    """A relay whose state has so many bytes."""

    def __init__(self, name: str, listens: str, publishes: str, size: int) -> None:
        super().__init__(name, listens, publishes)
        self.state = np.random.default_rng(SEED).bytes(size)


def rows(number: int, sources: int = 10, seed: int = SEED) -> pa.Table:
    """Readings of a millisecond each, from sources in turn, with delays of 5 ms in the mean, as they arrive."""
    ts = np.arange(number, dtype=np.int64) * 1_000
    order = np.argsort(ts + np.random.default_rng(seed).exponential(5_000.0, number), kind="stable")
    names = pa.array([f"s{at}" for at in range(sources)])
    return pa.table(
        {
            "ts": ts[order],
            "type": pa.array(["a"]).take(pa.array(np.zeros(number, np.int64))),
            "source": names.take(pa.array(order % sources)),
            "seq": order // sources,
            "x": order.astype(np.float64),
        }
    )


def cpu_of(work: Callable[[], Any]) -> float:
    """Seconds of CPU that this takes."""
    start = time.process_time()
    work()
    return time.process_time() - start


def pushed(engine: sl.Engine, table: pa.Table) -> sl.Engine:
    for at in range(0, len(table), PUSH):
        engine.push(table.slice(at, PUSH))
    return engine


def law(sizes: Iterable[float], costs: Iterable[float]) -> dict[str, float]:
    """How a cost grows with a size: the exponent, and the line."""
    x, y = np.array(list(sizes), float), np.array(list(costs), float)
    exponent = np.polyfit(np.log(x), np.log(np.maximum(y, 1e-9)), 1)[0]
    weights = 1 / y  # relative errors count, or the largest size alone would decide
    each, fixed = np.polyfit(x, y, 1, w=weights)
    return {"exponent": float(exponent), "fixed": float(fixed), "each": float(each)}


def part(sizes: list[int], measure: Callable[[int], float], **more: Any) -> Figures:
    """The CPU of each size, and its law."""
    costs = [measure(size) for size in sizes]
    return {"sizes": sizes, "cpu_s": [float(f"{cost:.3g}") for cost in costs], **law(sizes, costs), **more}


# The parts.


def event(scale: float) -> Figures:
    """Ordering and a detector that reads columns; and one in Python, event by event."""
    pushed(sl.Engine(sl.Hierarchy([Counter()])), rows(PUSH))
    columns = part(
        [int(scale * n) for n in (100_000, 400_000, 1_600_000)],
        lambda n: cpu_of(lambda t=rows(n): pushed(sl.Engine(sl.Hierarchy([Counter()])), t)),
    )
    python = part(
        [int(scale * n) for n in (20_000, 80_000, 320_000)],
        lambda n: cpu_of(lambda t=rows(n): pushed(sl.Engine(sl.Hierarchy([Relay("r", "a", "b", 1000)])), t)),
    )
    at = {f"cores for {EVENTS:,} events/s": EVENTS * columns["each"], "in Python": EVENTS * python["each"]}
    return {"columns": columns, "python": python, "at": at}


def keyed(keys: int) -> tuple[KeyedEngines, pa.Table, list[str]]:
    """Engines, and 20 events of each key, interleaved."""
    return KeyedEngines(sl.Hierarchy([Counter()])), rows(20 * keys), [f"k{at % keys}" for at in range(20 * keys)]


def key(scale: float) -> Figures:
    """Keys with 20 events each, in one push, and the bytes of their states."""
    sizes, states = [int(scale * n) for n in (500, 2_000, 8_000)], []

    def measure(keys: int) -> float:
        engines, table, names = keyed(keys)
        cost = cpu_of(lambda: engines.push(table, names))
        states.append(sum(map(len, engines.save()[1])) / keys)
        return cost

    measure(10)
    states.clear()
    found = part(sizes, measure, state_bytes=states)
    at = {
        f"CPU hours for {KEYS:,} keys of 20 events": KEYS * found["each"] / 3600,
        f"state of {KEYS:,} keys, GB": KEYS * states[-1] / 1e9,
    }
    return {**found, "at": at}


def source(scale: float) -> Figures:
    """The same events from more and more sources."""
    number = int(scale * 400_000)
    sizes, states = [10, 100, 1_000, 10_000], []

    def measure(sources: int) -> float:
        table, engine = rows(number, sources), sl.Engine(sl.Hierarchy([Counter()]))
        cost = cpu_of(lambda: pushed(engine, table))
        states.append(len(engine.save()))
        return cost / number

    found = part(sizes, measure)
    at = {"µs per event with 10,000 sources": 1e6 * found["cpu_s"][-1]}
    return {**found, "state_bytes_per_source": (states[-1] - states[0]) / (sizes[-1] - sizes[0]), "at": at}


def detector(scale: float) -> Figures:
    """More detectors that listen to a type; and more that listen to others."""
    number = int(scale * 100_000)
    table = rows(number)

    def measure(detectors: int, same: bool) -> float:
        made = [Counter(f"d{at}", "a" if same or not at else f"b{at}", f"c{at}") for at in range(detectors)]
        engine = sl.Engine(sl.Hierarchy(made, clock="a"))
        return cpu_of(lambda: pushed(engine, table))

    sizes = [2, 8, 32, 128]
    measure(2, True)
    same = part(sizes, lambda n: measure(n, True))
    other = part(sizes, lambda n: measure(n, False))
    at = {f"cores per detector for {EVENTS:,} events/s": EVENTS * same["each"] / number}
    return {"listening": same, "others": other, "at": at}


def chain(nodes: int, events: int, handovers: int = 0, size: int = 0) -> Network:
    """A detector on each node, which listens to the one before; the last one moves between the last two nodes."""
    last = nodes - 1
    made = [Relay(f"d{at}", "a" if not at else f"r{at - 1}", f"r{at}") for at in range(last)]
    made.append(Heavy(f"d{last}", f"r{last - 1}", f"r{last}", size) if size else Relay(f"d{last}", f"r{last - 1}", "r"))
    network, hierarchy = Network(SEED), sl.Hierarchy(made, clock="a")
    for at in range(nodes):
        network.add(
            f"n{at}",
            lambda at=at: Node(f"n{at}", hierarchy, identity=at, ingress=[] if at else ["a"], detectors=[f"d{at}"]),
        )
    network.connect_all(Link(0.001))
    network.run(until=2.0)
    batches = [
        Arrivals(2.0 + at / 1_000, [sl.Event("a", 1_000 * (at + row), source="s", seq=at + row) for row in range(20)])
        for at in range(0, events, 20)
    ]
    network.feed("n0", batches)
    for number in range(handovers):
        to = f"n{last - 1 if number % 2 == 0 else last}"
        network.migrate(f"d{last}", to, by=to, at=2.0 + (number + 1) * events / 1_000 / (handovers + 1))
    return network


def settled(network: Network, node: int, expected: int) -> None:
    network.settle()
    found = sum(output.detector == f"d{node}" for host in network.hosts.values() for _, output in host.results.outputs)
    assert found == expected, f"{found} outputs of d{node} instead of {expected}"


def hop(scale: float) -> Figures:
    """Each event goes through more and more nodes, one detector each, in packets of 20."""
    events = int(scale * 4_000)
    settled(chain(2, 200), 1, 200)

    def measure(nodes: int) -> float:
        network = chain(nodes, events)
        return cpu_of(lambda: settled(network, nodes - 1, events)) / events

    found = part([2, 4, 8, 16], measure)
    return {**found, "at": {f"cores per hop for {EVENTS:,} events/s": EVENTS * found["each"]}}


def handover(scale: float) -> Figures:
    """More and more handovers of a detector, and of larger and larger states."""
    events = int(scale * 4_000)

    def measure(handovers: int, size: int) -> float:
        network = chain(3, events, handovers, size)
        return cpu_of(lambda: settled(network, 2, events))

    number = part([10, 20, 40, 80], lambda handovers: measure(handovers, 1_000))
    still = min(measure(0, 1_000) for _ in range(3))
    size = part([1_000, 100_000, 1_000_000, 4_000_000], lambda size: max(1e-6, (measure(20, size) - still) / 20))
    return {
        "number": number,
        "size": size,
        "at": {
            "ms of CPU, 1 kB": 1e3 * number["each"],
            "ms of CPU per MB": 1e9 * size["each"],
            f"cores for {NODES:,} handovers a minute": NODES / 60 * number["each"],
        },
    }


def commit(scale: float) -> Figures:
    """A checkpoint of more and more keys: all changed, and one of a hundred."""
    sizes, written = [int(scale * n) for n in (500, 2_000, 8_000)], []
    with tempfile.TemporaryDirectory() as folder:
        store = FolderCheckpointStore(Path(folder), "run")

        def measure(keys: int, changed: bool) -> float:
            engines, table, names = keyed(keys)
            engines.push(table, names)
            if not changed:
                engines.save()
                engines.push(table.slice(0, keys // 100), names[: keys // 100])

            def save() -> None:
                header, pieces = engines.snapshot()
                written.append(store.save(Checkpoint("run", header, pieces)) / keys)

            return cpu_of(save)

        full = part(sizes, lambda keys: measure(keys, True))
        few = part(sizes, lambda keys: measure(keys, False))
    return {
        "all": full,
        "one_percent": few,
        "bytes_per_key": written[len(sizes) - 1],
        "at": {
            f"CPU s for {KEYS:,} keys, all changed": KEYS * full["each"],
            "one of a hundred changed": KEYS * few["each"],
        },
    }


# The network.


class Supplied(Node):
    """A node that has links to its publishers and subscribers only, and starts when it knows these.

    Others start when they know a host of every detector, which in a cluster comes from links between all nodes.
    """

    def _assemble(self, name: str, engine: Any, *arguments: Any) -> None:
        super()._assemble(name, engine, *arguments)
        hierarchy, detectors = engine.hierarchy, set(engine.detectors)
        published = {kind for each in detectors for kind in hierarchy.published(each)} | set(arguments[2])
        wanted = {kind for each in detectors for kind in hierarchy.listens[each]} | set(hierarchy.clock)
        near = detectors | {hierarchy.publisher[kind] for kind in wanted if kind in hierarchy.publisher}
        near |= {each for kind in published for each in self._directory._listeners.get(kind, ())}
        self._directory.detectors = tuple(each for each in hierarchy.names if each in near)
        self._directory.types = tuple(kind for kind in hierarchy.sensor_types if kind in wanted)


def application(trees: int, size: int) -> sl.Hierarchy:
    """Ten detectors per node: one listens to the node above it in its tree, the others to that one."""
    made = []
    for number in range(trees * size):
        tree, at = divmod(number, size)
        above = f"r{tree * size + (at - 1) // 3}" if at else f"s{tree}"
        made.append(Relay(f"d{number}.0", above, f"r{number}"))
        made.append(Relay(f"d{number}.1", f"r{number}", f"c{number}", 10))
        made += [Relay(f"d{number}.{each}", f"r{number}") for each in range(2, 10)]
    return sl.Hierarchy(made, clock="s0")


def nodes_of(trees: int, size: int, kind: type[Node], settings: NodeSettings) -> Network:
    """The network without links."""
    hierarchy, network = application(trees, size), Network(SEED)
    for number in range(trees * size):
        tree, at = divmod(number, size)
        options: dict[str, Any] = {
            "identity": number,
            "ingress": [] if at else [f"s{tree}"],
            "detectors": [f"d{number}.{each}" for each in range(10)],
            "settings": settings,
        }
        network.add(
            f"n{number}",
            lambda name=f"n{number}", options=options: kind(name, hierarchy, **options),
            lambda data: kind.load(data, hierarchy, settings=settings),
        )
    return network


def network(nodes: int, seconds: float = 60.0) -> Figures:
    """So many nodes with ten detectors each, with faults."""
    size, every = 50, 0.5
    trees = max(1, nodes // size)
    settings = NodeSettings(checkpoint_every=5.0, heartbeat_interval=1.0, session_timeout=5.0)
    start = time.process_time()
    made = nodes_of(trees, size, Supplied, settings)
    making = time.process_time() - start
    way = Link(0.005, jitter=0.002, loss=0.01)
    for number in range(trees * size):
        tree, at = divmod(number, size)
        if at:
            made.connect(f"n{number}", f"n{tree * size + (at - 1) // 3}", way)
        elif tree:
            made.connect("n0", f"n{number}", way)  # stream time
    events = int((seconds - 15) / every)
    for tree in range(trees):
        made.feed(
            f"n{tree * size}",
            [
                Arrivals(2 + every * at, [sl.Event(f"s{tree}", 500_000 * at, source="s", seq=at)])
                for at in range(events)
            ],
        )
    chance = np.random.default_rng(SEED)
    inner = [number for number in range(trees * size) if number % size]
    failing = chance.choice(inner, 2 * max(1, nodes // 100), replace=False).tolist()
    crashed, cut = failing[::2], failing[1::2]
    for number in crashed:
        down = float(chance.uniform(5, seconds - 25))
        made.crash(f"n{number}", down, down + float(chance.uniform(1, 4)))
    made.partition(Partition(20.0, 25.0, frozenset(f"n{number}" for number in cut)))
    profile = cProfile.Profile()
    run = cpu_of(lambda: made.run(until=seconds - 10.0))
    profile.enable()
    run += cpu_of(lambda: made.run(until=seconds))
    profile.disable()
    lost = duplicated = 0
    for host in made.hosts.values():
        number = int(host.name[1:])
        for name, expected in ((f"d{number}.0", events), (f"d{number}.1", events // 10)):
            found = [output.id for _, output in host.results.outputs if output.detector == name]
            duplicated += len(found) - len(set(found))
            lost += expected - len(set(found))
    messages, sent = traffic(made)
    return {
        "nodes": trees * size,
        "detectors": trees * size * 10,
        "virtual_s": seconds,
        "crashes": len(crashed),
        "partitioned": len(cut),
        "outputs": sum(len(host.results.outputs) for host in made.hosts.values()),
        "lost": lost,
        "duplicated": duplicated,
        "messages": messages,
        "bytes": sent,
        "cpu_making_s": making,
        "cpu_running_s": run,
        "profile": hottest(profile),
    }


def hottest(profile: cProfile.Profile, most: int = 8) -> list[tuple[str, float]]:
    """The functions that took most of the time themselves, with their share."""
    stats: Any = pstats.Stats(profile)
    total = sum(row[2] for row in stats.stats.values())
    found = sorted(stats.stats.items(), key=lambda item: -item[1][2])[:most]
    return [(f"{Path(file).name}:{name}", round(row[2] / total, 3)) for (file, _, name), row in found]


def mesh(scale: float) -> Figures:
    """Links between all nodes, as processes have: what a second of heartbeats over one of them costs, and its bytes."""
    sizes, sent = [int(scale * n) for n in (20, 40, 80)], []

    def measure(nodes: int) -> float:
        made = nodes_of(1, nodes, Node, NodeSettings())
        made.connect_all(Link(0.005, jitter=0.002))
        made.run(until=4.0)
        assert all(host.node is not None and host.node.is_ready for host in made.hosts.values())
        links, before = nodes * (nodes - 1), traffic(made)[1]
        cost = cpu_of(lambda: made.run(until=14.0)) / 10 / links
        sent.append((traffic(made)[1] - before) / 10 / links)
        return cost

    found, size = part(sizes, measure), law(sizes, sent)
    found |= {"bytes_per_s": [round(each) for each in sent], "bytes_each": size["each"], "bytes_fixed": size["fixed"]}
    each_node = NODES - 1
    at = {
        f"share of a core of each of {NODES:,} nodes": each_node * (found["fixed"] + NODES * found["each"]),
        f"MB/s that each of {NODES:,} nodes sends": each_node * (size["fixed"] + NODES * size["each"]) / 1e6,
    }
    return {**found, "at": at}


def traffic(network: Network) -> tuple[int, int]:
    """Messages and bytes so far."""
    each = [way.traffic for way in network._directions.values()]
    return sum(sum(one.messages.values()) for one in each), sum(sum(one.size.values()) for one in each)


PARTS: dict[str, Callable[[float], Figures]] = {
    each.__name__: each for each in (event, key, source, detector, hop, handover, commit, mesh)
}


def main(argv: list[str]) -> int:
    made = parser("scale", __doc__)
    made.add_argument("--part", action="append", choices=[*PARTS, "network"], help="measure this part only; several")
    made.add_argument("--scale", type=float, default=1.0, help="sizes are multiplied by this")
    made.add_argument("--nodes", type=int, default=NODES, help="of the simulated network, 1,000 unless given")
    given = made.parse_args(argv)
    chosen = given.part or [*PARTS, "network"]
    figures = {name: network(given.nodes) if name == "network" else PARTS[name](given.scale) for name in chosen}
    if given.json:
        print_figures(figures, True)
        return 0
    for name, found in figures.items():
        print(name)
        for what, value in _flat(found):
            print(f"  {what:<56} {f'{value:,.4g}' if isinstance(value, float) else value}")
    return 0


def _flat(found: Figures, before: str = "") -> Iterable[tuple[str, Any]]:
    for name, value in found.items():
        if isinstance(value, dict):
            yield from _flat(value, f"{before}{name}: ")
        elif isinstance(value, list):
            yield f"{before}{name}", [f"{each:.4g}" if isinstance(each, float) else each for each in value]
        else:
            yield f"{before}{name}", value


if __name__ == "__main__":
    import sys

    raise SystemExit(main(sys.argv[1:]))
