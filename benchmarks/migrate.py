"""Migration of a running detector in a simulated network: ours, and the two methods it is compared with.

    slackline bench migrate --json

A simulated match, 36,000 positions a second for 65 s, which enter at n1 in batches of 20 ms. The detectors of a match
are spread over three nodes, with links of 5, 15 and 30 ms (and up to 2 ms of jitter) between them; ``Pass`` migrates
every 2 s, round and round. It listens to hits (from n2), shots (from n3), and to where the ball is and which one is in
play (from n1). And, as in [Thesis, 5.1.4], a single migration, n2 to n3, at a third of the time.

- ``cooperative``: ours, under ``auto``, as users run it; and under ``slack``, where K is measured at each node.
- ``snapshot``: state and K are sent, and nothing else [Thesis, 5.1.4]; under ``slack``.
- ``classic``: the ordered stream is forwarded until all types were seen; under ``slack``.

``misdetections``: passes that are found and should not be, or should be and are not, against one engine on the same
match. ``forwarded``: packets. ``mean_added_latency_ms``: how much later a pass is known than in a network where the
detector has always been where it is found, without migrations. ``late``: events that were diverted, all of them
positions of the first moments; without migrations there are as many. ``net_equal``: whether the outputs of all nodes
are those of one engine, in the same order per detector. ``K_ms_after``: K of the single migration under slack, before
it, right after, and a while after; the same for a network without it.

``pause_ms``: the pause by size of the state, ours and stop-and-copy; see ``_migration_pause``. ``--pause`` measures
nothing else.
"""

# mypy: disable-error-code="misc"

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from statistics import fmean
from typing import Any

import numpy as np
import pyarrow as pa
from rich.console import Console
from rich.progress import Progress

import slackline as sl
from _figures import parser, print_figures
from _migration_page import MigrationSample, migration_page
from _migration_pause import SIZES, pauses
from scenarios.handover_baselines import ClassicNode, SnapshotNode
from slackline.cluster.protocol import Node
from slackline.cluster.simulation import Arrivals, Link, Network
from slackline_soccer import match_hierarchy, simulate
from slackline_soccer.run import match_policy

SEED, SECONDS, EVERY = 7, 65.0, 2.0
BATCH = 0.02
PER_SECOND = 10**12
MILLISECOND = 10**9
NODES = ("n1", "n2", "n3")
LATENCIES = {("n1", "n2"): 0.005, ("n2", "n3"): 0.015, ("n1", "n3"): 0.030}
JITTER = 0.002
#: Where the inputs of Pass come from; all other detectors are where the positions are.
ELSEWHERE = {"PlayerHitsBall": "n2", "ShotOnGoal": "n3"}
MIGRATING = "Pass"
METHODS: dict[str, type[Node]] = {"cooperative": Node, "snapshot": SnapshotNode, "classic": ClassicNode}
#: Seconds around the single migration that are drawn, and the interval of samples.
AROUND, LOOK = 10.0, 0.05


@dataclass
class Played:
    """What came of a match through the network."""

    found: dict[str, list[tuple[str, sl.Event]]]
    #: By id of a pass: when it was found, and where.
    passes: dict[str, tuple[float, str]]
    late: int
    handovers: int
    forwarded: list[float]
    state_bytes: int
    moments: list[MigrationSample] = field(default_factory=list)


class Benchmark:
    """One match, played in several ways."""

    def __init__(self, seconds: float, seed: int) -> None:
        self.seconds = seconds
        self.simulation = simulate(seconds, seed)
        self.match = self.simulation.match
        self.table = self.simulation.table()
        self.single = self._single()

    def _single(self) -> dict[str, list[tuple[str, sl.Event]]]:
        engine = sl.Engine(self._hierarchy(), policy=match_policy(self.match))
        outputs = [output for batch in self._batches() for output in engine.push(batch.rows)] + engine.close()
        return by_detector(outputs)

    def _hierarchy(self) -> sl.Hierarchy:
        return match_hierarchy(self.match, queries=False)

    def _batches(self) -> Iterator[Arrivals]:
        """The positions as they arrive, in batches, with the virtual time at which each is complete."""
        arrival = self.table["arrival"].to_numpy()
        start = int(arrival[0])
        number = (arrival - start) // int(BATCH * PER_SECOND)
        cuts = np.flatnonzero(np.diff(number)) + 1
        rows: pa.Table = self.table.drop_columns(["arrival"])
        for first, last in zip([0, *cuts.tolist()], [*cuts.tolist(), len(arrival)], strict=True):
            yield Arrivals(float(number[first] + 1) * BATCH, rows.slice(first, last - first))

    def play(
        self, method: str, policy: str, home: str, migrations: list[tuple[float, str]], watch: bool = False
    ) -> Played:
        """The match through three nodes; Pass starts at ``home`` and migrates at the given times."""
        network = Network(seed=SEED)
        names, options = self._hierarchy().names, {"policy": match_policy(self.match, policy)}
        places = {name: home if name == MIGRATING else ELSEWHERE.get(name, "n1") for name in names}
        for number, name in enumerate(NODES):
            runs = [each for each in names if places[each] == name]
            enters = self._hierarchy().sensor_types if name == "n1" else ()
            given = {"identity": number, "ingress": enters, "detectors": runs, **options}
            network.add(name, lambda name=name, given=given: METHODS[method](name, self._hierarchy(), **given))
        for (one, another), latency in LATENCIES.items():
            network.connect(one, another, Link(latency, JITTER))
        network.run(until=1.0)  # all have met
        network.feed("n1", (Arrivals(1.0 + batch.at, batch.rows) for batch in self._batches()))
        for at, to in migrations:
            network.migrate(MIGRATING, to, by=to, at=1.0 + at)
        moments: list[MigrationSample] = []
        if watch:
            first = max(1.0, 1.0 + migrations[0][0] - AROUND) if migrations else 1.0
            for turn in range(int(2 * AROUND / LOOK)):
                network.at(first + turn * LOOK, lambda: sample(network, moments))
        network.settle()
        return self._played(network, moments)

    @staticmethod
    def _played(network: Network, moments: list[MigrationSample]) -> Played:
        outputs, passes, late = [], {}, 0
        for name in NODES:
            kept = network.results(name)
            late += len(kept.late)
            for found in kept.outputs:
                outputs.append(found.output)
                if found.output.detector == MIGRATING:
                    passes[found.output.id] = found.at, name
        ways = [network.traffic(a, b) for a in NODES for b in NODES if a != b]
        taken, states = (sum(way.messages[kind] for way in ways) for kind in ("MigrationDone", "DetectorState"))
        size = sum(way.size["DetectorState"] for way in ways) // max(1, states)
        return Played(by_detector(outputs), passes, late, taken, [f.at for f in network.forwarded], size, moments)

    def misdetections(self, played: Played) -> int:
        """Passes that are not those of a single engine."""
        ours, truth = ({plain(e) for _, e in found.get(MIGRATING, [])} for found in (played.found, self.single))
        return len(ours ^ truth)


def plain(event: sl.Event) -> tuple[Any, ...]:
    """An event without its number, which differs after the first that is missed."""
    return event.type, event.ts, tuple(sorted(event.payload.items(), key=str))


def by_detector(outputs: list[sl.Output]) -> dict[str, list[tuple[str, sl.Event]]]:
    """What each detector found, in the order in which it found it."""
    found: dict[str, list[tuple[str, sl.Event]]] = {}
    for output in sorted(outputs, key=lambda output: output.event.seq or 0):
        found.setdefault(output.detector, []).append((output.id, output.event))
    return found


def sample(network: Network, moments: list[MigrationSample]) -> None:
    """Write down K of Pass, its lag behind stream time, and the packets forwarded so far."""
    for name in NODES:
        machine = network.hosts[name].node
        shown = machine.overview()["nodes"][name] if isinstance(machine, Node) else None
        if shown is not None and MIGRATING in shown["detectors"]:
            figures = shown["detectors"][MIGRATING]
            behind = None if figures["watermark"] is None else (shown["clk"] - figures["watermark"]) / MILLISECOND
            moments.append(MigrationSample(network.now, figures["K"] / MILLISECOND, behind, len(network.forwarded)))


def repeated_migrations(seconds: float) -> list[tuple[float, str]]:
    """When Pass migrates, and where to: every 2 s, round and round."""
    times = [EVERY * (turn + 1) for turn in range(int((seconds - 1) / EVERY))]
    return [(at, NODES[(turn + 1) % 3]) for turn, at in enumerate(times)]


def cooperative(benchmark: Benchmark, play: Callable[..., Played]) -> dict[str, Any]:
    """The figures of the cooperative handover alone; all are counts or virtual time, so they repeat to the bit."""
    migrations = repeated_migrations(benchmark.seconds)
    still = {home: play(f"still, on {home}", "cooperative", "auto", home, []) for home in NODES}
    auto = play("cooperative, auto", "cooperative", "auto", "n1", migrations)
    slack = play("cooperative, slack", "cooperative", "slack", "n1", migrations)
    added = [
        1000 * (at - still[where].passes[id][0]) for id, (at, where) in auto.passes.items() if id in still[where].passes
    ]
    return {
        "handovers": auto.handovers,
        "net_equal": auto.found == benchmark.single and all(s.found == benchmark.single for s in still.values()),
        "passes": len(auto.passes),
        "forwarded_cooperative": len(auto.forwarded) + len(slack.forwarded),
        "misdetections_cooperative": benchmark.misdetections(auto) + benchmark.misdetections(slack),
        "late_cooperative": auto.late + slack.late,
        "late_still": still["n1"].late,
        "mean_added_latency_ms": fmean(added) if added else 0.0,
        "max_added_latency_ms": max(added, default=0.0),
        "state_bytes_mean": auto.state_bytes,
    }


def run(seconds: float = SECONDS, seed: int = SEED, html: Path | None = None, quiet: bool = True) -> dict[str, Any]:
    """Measure. Returns the figures."""
    steps = 11
    with Progress(console=Console(stderr=True), transient=True, disable=quiet) as bar:
        task = bar.add_task("one engine", total=steps)
        benchmark = Benchmark(seconds, seed)

        def play(what: str, *arguments: Any, **options: Any) -> Played:
            bar.update(task, advance=1, description=what)
            return benchmark.play(*arguments, **options)

        once = [(seconds / 3, "n3")]
        ours = cooperative(benchmark, play)
        others = {
            method: play(f"{method}, slack", method, "slack", "n1", repeated_migrations(seconds))
            for method in ("snapshot", "classic")
        }
        single = {
            method: play(f"{method}, one migration", method, "slack", "n2", once, watch=True) for method in METHODS
        }  # fmt: skip
        stationary = play("no migration", "cooperative", "slack", "n3", [], watch=True)
    late_still = ours.pop("late_still")
    figures = {
        "seconds": seconds,
        **ours,
        "forwarded_classic": len(others["classic"].forwarded),
        "misdetections_snapshot": benchmark.misdetections(others["snapshot"]),
        "misdetections_classic": benchmark.misdetections(others["classic"]),
        "late_without_migrations": late_still + stationary.late,
        "single_migration": {
            method: {
                "forwarded": len(played.forwarded),
                "misdetections": benchmark.misdetections(played),
                "late": played.late,
            }
            for method, played in single.items()
        },
        "K_ms_after": K_after(single["cooperative"].moments, stationary.moments, 1.0 + once[0][0]),
    }
    if html is not None:
        moments = {method: played.moments for method, played in single.items()}
        html.write_text(migration_page(moments, 1.0 + once[0][0], figures), encoding="utf-8")
    return figures


def K_after(moments: list[MigrationSample], stationary: list[MigrationSample], at: float) -> dict[str, float | None]:
    """K before a migration, right after it, and later; and of a detector that was on that node from the start."""

    def at_time(series: list[MigrationSample], when: float) -> float | None:
        return next((moment.K for moment in series if moment.at >= when), None)

    return {
        "before": at_time(moments, at - 0.1),
        "right_after": at_time(moments, at + 0.15),
        "after_1_s": at_time(moments, at + 1.0),
        "after_9_s": at_time(moments, at + 9.0),
        "stationary": stationary[-1].K if stationary else None,
    }


def main(argv: list[str]) -> int:
    asked = parser("migrate", __doc__)
    asked.add_argument("--seconds", type=float, default=SECONDS, help="how much of the match, 65 unless given")
    asked.add_argument("--seed", type=int, default=SEED, help="which match, 7 unless given")
    asked.add_argument(
        "--html", type=Path, help="write a page with K, latency and forwarded packets around a migration"
    )
    asked.add_argument("--pause", action="store_true", help="measure the pause by size of the state only")
    asked.add_argument("--largest", choices=SIZES, default="100MB", help="largest state, 100MB unless given")
    given = asked.parse_args(argv)
    figures = {} if given.pause else run(given.seconds, given.seed, given.html, quiet=given.json)
    sizes = {name: size for name, size in SIZES.items() if size <= SIZES[given.largest]}
    figures |= pauses(given.seed, sizes)
    print_figures(figures, given.json)
    return 0


if __name__ == "__main__":
    import sys

    raise SystemExit(main(sys.argv[1:]))
