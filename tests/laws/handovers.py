"""Law 7 with many handovers: ``python -m tests.laws.handovers 0 1000`` plays a network for each of these seeds.

Three levels of detectors, with and without keys and timers, on three to five nodes; links with loss; ten to forty
migrations at random moments, while nodes crash, are cut off, or die and are resumed by others. States are copied in
chunks of a few hundred bytes, so that faults interrupt copies, too. All of it must find what one engine finds, in the
same order, nothing twice: outputs are compared as they were written, none is merged. Prints the seeds and the handovers
that were carried through, as JSON; stops at the first failure.
"""

from __future__ import annotations

import json
import sys
from collections import Counter
from itertools import permutations
from random import Random

from tests.unit.cluster.protocol.joined import stream

import slackline as sl
from slackline.cluster.protocol import Node, NodeSettings
from slackline.cluster.protocol.state_transfer import StateSender
from slackline.cluster.simulation import Arrivals, Link, Network, Partition

DETECTORS = ("Low", "High", "Top")
#: Virtual seconds of input.
SECONDS = 12.0
#: Bytes of a chunk of state.
CHUNKS = (100, 400, StateSender.chunk_bytes)


class Low(sl.Detector):
    """Counts; its state is large, and little of it changes."""

    listens, publishes, reliable = ("a",), ("low",), ("a",)

    def __init__(self) -> None:
        self.n, self.table, self.log = 0, bytearray(3000).decode(), [0]

    def on_event(self, event: sl.Event):
        self.n += 1
        self.log.append(self.n)
        yield event.derive("low", n=self.n, k=self.n % 13, sum=sum(self.log))


class High(sl.Detector):
    """Counts by key; a timer follows each event of a key after which nothing comes for a while."""

    listens, publishes, reliable, key = ("low",), ("high",), ("low",), "k"

    def __init__(self) -> None:
        self.seen: list[int] = []

    def on_event(self, event: sl.Event):
        self.seen.append(event["n"])
        yield sl.Timer(event.ts + 100)
        yield event.derive("high", of=list(self.seen[-3:]), n=len(self.seen))

    def on_timer(self, timer: sl.Timer):
        self.seen.append(-timer.at)
        yield sl.Event("high", timer.at, of=[timer.key], n=len(self.seen))


class Top(sl.Detector):
    listens, publishes, reliable = ("high", "b"), ("top",), ("high", "b")

    def __init__(self) -> None:
        self.n = 0

    def on_event(self, event: sl.Event):
        self.n += 1
        yield event.derive("top", n=self.n, of=event.type)


def tower() -> sl.Hierarchy:
    """Three levels over two sensor types."""
    return sl.Hierarchy([Low(), High(), Top()], clock="a")


def network(seed: int, arrivals: list[sl.Event]) -> Network:
    """A random network, with everything that befalls it."""
    random = Random(seed)
    settings = NodeSettings(checkpoint_every=0.3, heartbeat_interval=0.5, session_timeout=2.0, failover_after=1.0)
    names = [f"n{number}" for number in range(random.randint(3, 5))]
    homes = {detector: random.choice(names) for detector in DETECTORS}
    net = Network(seed)
    for number, name in enumerate(names):
        given = {
            "identity": number,
            "ingress": ["a", "b"] if number == 0 else [],
            "detectors": [detector for detector, home in homes.items() if home == name],
            "settings": settings,
        }
        net.add(
            name,
            lambda name=name, given=given: Node(name, tower(), **given),  # type: ignore[misc]
            lambda data: Node.load(data, tower(), settings=settings),
        )
    for number, one in enumerate(names):
        for another in names[number + 1 :]:
            latency = random.choice([0.0, 0.001, 0.02, 0.1])
            net.connect(one, another, Link(latency, random.choice([0.0, 0.03]), random.choice([0.0, 0.0, 0.05, 0.3])))
    pace = SECONDS / len(arrivals)
    net.feed("n0", [Arrivals(1.0 + pace * i, [event]) for i, event in enumerate(arrivals)])
    for _ in range(random.randint(10, 40)):
        at = random.uniform(0.5, SECONDS + 1)
        net.migrate(random.choice(DETECTORS), to=random.choice(names), by=random.choice(names), at=at)
    dies = random.random() < 0.4  # at most one, and then no other is away for long: half of the cluster must be left
    for kind in random.choices(["crash", "apart"], k=random.randint(1, 3)) + ["death"] * dies:
        name, at, detected = random.choice(names), random.uniform(0.5, SECONDS + 1), random.random() < 0.5
        end = at + random.choice([0.01, 0.05, 0.5] if dies else [0.01, 0.05, 0.5, 2.5, 6.0])
        if kind == "apart":
            net.partition(Partition(at, end, frozenset({name}), detected=detected))
        else:
            net.crash(name, at, end if kind == "crash" else None, detected=detected)
    return net


def found(outputs: list[tuple[float, sl.Output]]) -> dict[str, list[tuple[str, str]]]:
    """By detector, its outputs in the order of time; those of the same moment in its own order."""
    lists: dict[str, list[tuple[str, str]]] = {}
    for _, output in sorted(outputs, key=lambda each: (each[0], each[1].event.seq)):
        lists.setdefault(output.detector, []).append((output.id, str(output.event)))
    return lists


def play(seed: int, arrivals: list[sl.Event], expected: dict[str, list[tuple[str, str]]]) -> Counter[str]:
    """What happened in the network of a seed. An AssertionError if something is wrong, lost or twice."""
    net = network(seed, arrivals)
    usual, StateSender.chunk_bytes = StateSender.chunk_bytes, CHUNKS[seed % len(CHUNKS)]
    try:
        net.settle(limit=300.0)
    finally:
        StateSender.chunk_bytes = usual
    net.check_invariants()
    results = found([(at, output) for host in net.hosts.values() for at, output in host.results.outputs])
    for host in net.hosts.values():
        for name in DETECTORS:
            numbers = [output.event.seq for _, output in host.results.outputs if output.detector == name]
            assert numbers == sorted(numbers), f"seed {seed}: {name} has not kept the order on {host.name}"
    for name in DETECTORS:
        twice = [id for id, n in Counter(id for id, _ in results.get(name, [])).items() if n > 1]
        assert not twice, f"seed {seed}: {name} has found {twice[:3]} twice"
        assert results.get(name) == expected[name], f"seed {seed}: {name} has found something else"
    texts = [each.notice.text for each in net.notices]
    return Counter(
        networks=1,
        handovers=sum("migrated from" in text for text in texts),
        chunks=sum(net.traffic(a, b).messages["StateChunk"] for a, b in permutations(net.hosts, 2) if "@" not in a + b),
        resumed=sum("resumed node" in text for text in texts),
        restarted=sum("reconnected after restart" in text for text in texts),
    )


def single(arrivals: list[sl.Event]) -> dict[str, list[tuple[str, str]]]:
    """What one engine finds."""
    engine = sl.Engine(tower(), sensors=["a", "b"])
    outputs = [(0.0, output) for event in arrivals for output in engine.push(event)]
    return found(outputs + [(1.0, output) for output in engine.close()])


def main(first: int, stop: int) -> None:
    arrivals = stream(200)
    expected = single(arrivals)
    counts: Counter[str] = Counter()
    for seed in range(first, stop):
        counts += play(seed, arrivals, expected)
        print(json.dumps({"seeds": [first, seed], **counts}), flush=True)


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]))
