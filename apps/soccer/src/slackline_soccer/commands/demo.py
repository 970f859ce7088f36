"""``slackline demo``: a simulated match, out of order, through Spark; what was detected, and why it is right."""

from __future__ import annotations

import json
import os
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import pyarrow as pa
import typer
from rich.console import Console
from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn, TimeElapsedColumn

from slackline import Event, SlacklineError
from slackline.cli import reports_errors
from slackline_soccer import (
    Match,
    MatchResult,
    Simulation,
    Summary,
    compare,
    load_truth,
    match_hierarchy,
    match_warmup,
    run,
    simulate,
)
from slackline_soccer.commands.tables import print_match
from slackline_soccer.plausibility import plausibility
from slackline_soccer.report import delays_by_kind, hierarchy_nodes, match_page, match_report, policy_waits
from slackline_soccer.run import MARGIN
from slackline_soccer.simulator import saved

SEED = 7
SECONDS = 65.0
#: Positions of a file, and so of a micro-batch: eight seconds of match.
PART = 288_000
#: What the detectors need of a position.
COLUMNS = ("arrival", "sid", "ts", "x", "y", "z", "v", "a", "vx", "vy", "vz")


@dataclass
class Findings:
    """What the streaming query gave back."""

    summary: Summary
    events: list[Event] = field(default_factory=list)
    stats: list[dict[str, Any]] = field(default_factory=list)
    late_positions: set[tuple[int, int]] = field(default_factory=set)
    quarantined: Counter[str] = field(default_factory=Counter)
    seconds: float = 0.0

    def take(self, rows: Iterable[Any]) -> None:
        """The rows of one micro-batch."""
        for row in rows:
            if row.kind == "event":
                event = Event.of(row.type, row.ts, None, None, json.loads(row.payload))
                self.events.append(event)
                self.summary.add(event, row.detected_at - row.ts)
            elif row.kind == "stats":
                self.stats.append(json.loads(row.payload))
            elif row.kind == "late" and row.type == "position":
                self.late_positions.add((int(row.source), row.ts))
            elif row.kind == "quarantine":
                self.quarantined[row.reason] += 1

    @property
    def arrivals(self) -> int:
        return int(self.stats[-1]["arrivals"]) if self.stats else 0

    @property
    def final_until(self) -> int:
        """Up to where the answer is final: a stream that has not ended owes the rest."""
        return min(unit["watermark"] or 0 for unit in self.stats[-1]["detectors"].values()) if self.stats else 0


@reports_errors
def demo(
    out: Annotated[Path, typer.Option(help="Where the report goes.", dir_okay=False)] = Path("slackline-demo.html"),
    cores: Annotated[int, typer.Option(help="Cores for Spark.", min=1)] = 2,
    seconds: Annotated[float, typer.Option(help="Length of the match.", min=10)] = SECONDS,
    seed: Annotated[int, typer.Option(help="Another seed is another match.", min=0)] = SEED,
) -> None:
    """Detect hits, passes and shots in a simulated match, out of order, through Spark; compare with the truth."""
    console = Console()
    columns = (TextColumn("{task.description:>34}"), BarColumn(), TaskProgressColumn(), TimeElapsedColumn())
    with (
        tempfile.TemporaryDirectory(prefix="slackline-demo-") as name,
        Progress(*columns, console=Console(stderr=True)) as bar,
    ):
        folder = Path(name)
        simulation = simulate(seconds, seed)
        table = _record(simulation, folder / "match", bar)
        findings = _through_spark(simulation.match, folder, len(table), cores, bar)
        others = _for_comparison(simulation.match, table, bar)
    _tell(console, simulation, table, findings, others, out)


# The match.


def _record(simulation: Simulation, folder: Path, bar: Progress) -> pa.Table:
    """Play the match and write it down; the whole of it is also kept, for the comparisons."""
    task = bar.add_task("playing the match", total=1.0)
    parts: list[pa.Table] = []
    start = simulation.match.periods[0].start

    def note(table: pa.Table) -> None:
        parts.append(table.select(COLUMNS))
        played = (table["arrival"][-1].as_py() - start) / 1e12
        bar.update(task, completed=min(played / simulation.seconds, 1.0))

    saved.save(folder, simulation.match, simulation.tables(rows=PART), lambda: simulation.truth, note)
    for number, file in enumerate(sorted((folder / "positions").glob("*.parquet"))):
        os.utime(file, (number, number))  # Spark takes files in the order of their age
    bar.update(task, completed=1.0)
    return pa.concat_tables(parts)


# Through Spark.


def _through_spark(match: Match, folder: Path, positions: int, cores: int, bar: Progress) -> Findings:
    starting = bar.add_task("starting Spark", total=1.0)
    from slackline import spark as sls

    with _chatter_to(folder / "spark.log"):
        spark = sls.session(cores)
    bar.update(starting, completed=1.0)
    hierarchy = match_hierarchy(match)
    findings = Findings(Summary.of(match, hierarchy))
    task = bar.add_task("detecting", total=float(positions))

    def take(batch: Any, number: int) -> None:
        findings.take(batch.collect())
        counts = findings.summary.counts
        live = f"{counts['hit']} hits {counts['pass']} passes {counts['shot']} shots"
        bar.update(task, completed=findings.arrivals, description=live)

    try:
        files = str(folder / "match" / "positions")
        schema = spark.read.parquet(files).schema
        stream = spark.readStream.schema(schema).option("maxFilesPerTrigger", 1).parquet(files)
        stream = stream.selectExpr(*COLUMNS, f"'{match.name}' AS match")
        found = sls.detect(
            stream, hierarchy, key="match", ts="ts", arrival="arrival", source="sid", warmup=match_warmup(match),
            margin=MARGIN,
        )  # fmt: skip
        started = time.perf_counter()
        query = (
            found.writeStream.foreachBatch(take)
            .option("checkpointLocation", str(folder / "checkpoint"))
            .trigger(availableNow=True)
            .start()
        )
        query.awaitTermination()
        findings.seconds = time.perf_counter() - started
    finally:
        spark.stop()
    return findings


@contextmanager
def _chatter_to(file: Path) -> Iterator[None]:
    """What is started in here, and its children, write their log to a file instead of over the progress bar."""
    sys.stderr.flush()
    ours = os.dup(2)
    with file.open("w") as log:
        os.dup2(log.fileno(), 2)
    try:
        yield
    finally:
        os.dup2(ours, 2)
        os.close(ours)


# The same match in other ways, to compare with.


@dataclass(frozen=True)
class Others:
    """The same detectors: under `slack`, on the perfectly ordered stream, and on the stream just as it comes."""

    slack: MatchResult
    slack_history: list[dict[str, Any]]
    in_order: MatchResult
    as_it_comes: MatchResult


def _for_comparison(match: Match, table: pa.Table, bar: Progress) -> Others:
    ordered = table.take(pa.array(np.lexsort((table["sid"].to_numpy(), table["ts"].to_numpy()))))
    history: list[dict[str, Any]] = []

    def one(what: str, rows: pa.Table, **options: Any) -> MatchResult:
        task = bar.add_task(what, total=float(len(rows)))
        show: Callable[[int], None] = lambda done: bar.update(task, completed=done)  # noqa: E731
        return run([rows], match, progress=show, **options)

    return Others(
        one("for comparison: policy slack", table, policy="slack", queries=True, history=history),
        history,
        one("for comparison: in perfect order", ordered, queries=False),
        one("for comparison: as it comes", table, queries=False, ordered=False),
    )


# What to tell.


def _tell(
    console: Console, simulation: Simulation, table: pa.Table, findings: Findings, others: Others, out: Path
) -> None:
    match, until = simulation.match, findings.final_until
    truth = load_truth(simulation.truth)
    found = [event for event in findings.events if event.ts <= until]
    late, positions = len(findings.late_positions), findings.arrivals
    sid, ts, arrival = (table[name].to_numpy() for name in ("sid", "ts", "arrival"))
    behind = float(np.mean(ts < np.maximum.accumulate(ts)))
    detected = sum(event.type in others.in_order.outputs for event in found)
    report = match_report(
        match,
        findings.events,
        "A match, out of order",
        truth=truth,
        in_arrival_order=others.as_it_comes.events(),
        until=until,
        text=f"{simulation.seconds:g} s of simulated soccer (seed {simulation.seed}): 144 transmitters, through Spark "
        f"Structured Streaming, without a watermark.",
        facts=[
            (f"{positions:,}", "positions"),
            (f"{100 * behind:.0f} %", "of them out of order"),
            (f"{late:,}", f"late ({100 * late / max(positions, 1):.4f} %)"),
            (f"{detected:,}", "events detected"),
            (f"{findings.seconds:.0f} s", "on Spark, from the first micro-batch to the last"),
        ],
        ordered=others.in_order.events(),
        late=late,
        positions=positions,
        hierarchy=hierarchy_nodes(findings.summary),
        waits=[
            policy_waits("auto", findings.summary, findings.stats),
            policy_waits("slack", others.slack.summary, others.slack_history),
        ],
        delays=delays_by_kind(match, sid, ts, arrival),
        plausibility=plausibility(match, simulation.truth, [table]),
    )
    different = sum(kind.found + kind.ordered - 2 * kind.same for kind in report.sameness)
    identical = "the same" if not different else f"{different} different"
    console.print()
    print_match(console, findings.summary, compare(match, found, truth, until), late, positions, findings.quarantined)
    console.print(
        f"{positions:,} positions, {100 * behind:.1f} % of them out of order, through Spark in "
        f"{findings.seconds:.1f} s. Of {detected:,} events detected, {identical} as in the perfectly ordered stream.",
        highlight=False,
    )
    try:
        out.write_text(match_page(report), encoding="utf-8")
    except OSError as cause:
        raise SlacklineError(f"cannot write {out}: {cause}.") from cause
    console.print(f"The report, with pitch, timeline and waits: [bold]{out}[/]", highlight=False)
