"""``slackline demo``: a simulated match, out of order, through Spark; what was detected, and what ordering is for."""

from __future__ import annotations

import json
import os
import sys
import tempfile
import time
import warnings
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any, TextIO

import numpy as np
import pyarrow as pa
import typer
from rich.console import Console
from rich.progress import BarColumn, Progress, TaskID, TaskProgressColumn, TextColumn, TimeElapsedColumn

from slackline import Event, SlacklineError
from slackline.cli import reports_errors
from slackline.report import share_text
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
from slackline_soccer.baselines import Baseline, arrival_order, clairvoyant, fixed_watermark
from slackline_soccer.commands.tables import print_match
from slackline_soccer.plausibility import plausibility
from slackline_soccer.report import (
    Approach,
    MatchReport,
    approach,
    comparison,
    counted,
    delays_by_kind,
    hierarchy_nodes,
    match_page,
    match_report,
    policy_waits,
)
from slackline_soccer.simulator import saved
from slackline_soccer.simulator.simulation import SCHEMA
from slackline_soccer.tracking.positions import MILLISECOND, SECOND

SEED = 7
SECONDS = 65.0
#: Positions of a file, and so of a micro-batch: thirteen seconds of match.
PART = 480_000
#: What the detectors need of a position.
COLUMNS = ("arrival", "sid", "ts", "x", "y", "z", "v", "a", "vx", "vy", "vz")
#: Fixed watermarks to compare with, in ms. Those with a reason are in the page's sentences.
WATERMARKS = {
    50: "",
    150: "just above the largest delay at 70 % load",
    300: "",
    500: "an expert's choice, for a full load",
}
#: [Order, IV-A; Thesis, 3.4.1]; simulator/transport.py has the model.
DELAYS_FROM = (
    "The delays are those of the RedFIR installation in the Nuremberg stadium (Mutschler and Philippsen, Distributed "
    "Low-Latency Out-of-Order Event Processing for High Data Rate Sensor Streams, 2013, section IV-A; Mutschler, "
    "Latency Minimization of Order-Preserving Distributed Event-Based Systems, 2014, section 3.4.1). Measured at 70 % "
    "of its capacity, with 36,000 positions per second as here: balls have priority and a jitter below 5 ms; all "
    "others have 5 ms and more, rarely 100 ms, and travel in packets of ten, which makes up to 145 ms. For a fully "
    "loaded installation an expert would provide 500 ms. So the receiver simulated here is fully loaded from time to "
    "time, and falls behind by 200 to 500 ms with all transmitters but the balls'. Assumed, since the sources have no "
    "figures: how often that happens (5 s after the last time on average) and for how long (about 2 s); stalls of the "
    "network (100 to 300 ms, every 20 s on average); the loss of one packet in a thousand."
)


@dataclass
class Findings:
    """The results of the streaming query."""

    summary: Summary
    events: list[Event] = field(default_factory=list)
    stats: list[dict[str, Any]] = field(default_factory=list)
    late_positions: set[tuple[int, int]] = field(default_factory=set)
    quarantined: Counter[str] = field(default_factory=Counter)
    seconds: float = 0.0

    def add(self, rows: Iterable[Any]) -> None:
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
        """The smallest watermark: the query stops without an end of stream, so later results are not complete."""
        return min(one["watermark"] or 0 for one in self.stats[-1]["detectors"].values()) if self.stats else 0

    @property
    def rate(self) -> float:
        """Positions per second."""
        return self.arrivals / self.seconds if self.seconds else 0.0


@reports_errors
def demo(
    out: Annotated[Path, typer.Option(help="HTML file to write.", dir_okay=False)] = Path("slackline-demo.html"),
    cores: Annotated[int, typer.Option(help="Cores for Spark.", min=1)] = 2,
    seconds: Annotated[float, typer.Option(help="Length of the match.", min=10)] = SECONDS,
    seed: Annotated[int, typer.Option(help="Another seed is another match.", min=0)] = SEED,
) -> None:
    """Detect hits, passes and shots in a simulated match, out of order, through Spark; compare with the truth."""
    with tempfile.TemporaryDirectory(prefix="slackline-demo-") as name, _progress() as bar:
        folder = Path(name)
        simulation = simulate(seconds, seed, "congested")
        with ThreadPoolExecutor(1) as pool:
            session = pool.submit(_start_spark, cores, folder)
            table = _record(simulation, folder / "match", bar)
            findings = _through_spark(session, simulation.match, folder, len(table), bar)
        others = _for_comparison(simulation.match, table, bar)
    _publish(Console(), simulation, table, findings, others, out)


# Progress.


class _Lines:
    """Progress where there is no terminal: a line when a step starts, when it reports, and when it is complete."""

    def __init__(self, file: TextIO) -> None:
        self._file = file
        self._steps: list[tuple[str, float, float]] = []

    def add_task(self, description: str, total: float) -> TaskID:
        self._steps.append((description, total, time.perf_counter()))
        self._print(f"{description} …")
        return TaskID(len(self._steps) - 1)

    def update(self, task: TaskID, completed: float, description: str | None = None) -> None:
        name, total, started = self._steps[task]
        if description is not None:
            self._print(f"  {100 * completed / total:.0f} %: {description}")
        if completed >= total:
            self._print(f"  {name}: done in {time.perf_counter() - started:.1f} s")
            self._steps[task] = name, float("inf"), started

    def _print(self, text: str) -> None:
        print(text, file=self._file, flush=True)


Bar = Progress | _Lines


@contextmanager
def _progress() -> Iterator[Any]:
    """On stderr; through a descriptor of its own, since that of stderr is redirected while Spark starts."""
    with os.fdopen(os.dup(2), "w") as file:
        console = Console(file=file)
        if not console.is_terminal:
            yield _Lines(file)
            return
        columns = (TextColumn("{task.description:>34}"), BarColumn(), TaskProgressColumn(), TimeElapsedColumn())
        with Progress(*columns, console=console) as bar:
            yield bar


# The match.


def _record(simulation: Simulation, folder: Path, bar: Bar) -> pa.Table:
    """Simulate the match and write it to files; the table is for the comparisons."""
    task = bar.add_task("simulating the match", total=1.0)
    parts: list[pa.Table] = []
    start = simulation.match.periods[0].start

    def note(table: pa.Table) -> None:
        parts.append(table.select(COLUMNS))
        played = (table["arrival"][-1].as_py() - start) / SECOND
        bar.update(task, completed=min(played / simulation.seconds, 0.99))

    saved.save(folder, simulation.match, simulation.tables(rows=PART), lambda: simulation.truth, note)
    for number, file in enumerate(sorted((folder / "positions").glob("*.parquet"))):
        os.utime(file, (number, number))  # Spark takes files in the order of their age
    bar.update(task, completed=1.0)
    return pa.concat_tables(parts)


# Through Spark.


def _start_spark(cores: int, folder: Path) -> Any:
    from slackline import spark as sls

    with _stderr_to(folder / "spark.log"):
        # A short run gains nothing from the JVM's second compiler, which takes a core for a while.
        options = "-XX:+UseParallelGC -XX:TieredStopAtLevel=1"
        return sls.session(cores, **{"spark.driver.extraJavaOptions": options})


def _through_spark(session: Future[Any], match: Match, folder: Path, positions: int, bar: Bar) -> Findings:
    starting = bar.add_task("starting Spark", total=1.0)
    from slackline import spark as sls

    spark = session.result()
    # So does the session; but it starts in a thread, and the simulation may have restored the filters since.
    warnings.filterwarnings("ignore", "PySpark does not yet fully support pandas", FutureWarning)
    bar.update(starting, completed=1.0)
    hierarchy = match_hierarchy(match)
    findings = Findings(Summary.of(match, hierarchy))
    task = bar.add_task("detecting on Spark", total=float(positions))

    def add(batch: Any, number: int) -> None:
        findings.add(batch.collect())
        counts = findings.summary.counts
        live = [
            counted(counts["hit"], "hit", "hits"),
            counted(counts["pass"], "pass", "passes"),
            counted(counts["shot"], "shot", "shots"),
        ]
        bar.update(task, completed=findings.arrivals, description=", ".join(live))

    try:
        stream = spark.readStream.schema(_ddl(SCHEMA)).option("maxFilesPerTrigger", 1)
        stream = stream.parquet(str(folder / "match" / "positions"))
        stream = stream.selectExpr(*COLUMNS, f"'{match.name}' AS match")
        found = sls.detect(
            stream, hierarchy, key="match", ts="ts", arrival="arrival", source="sid", warmup=match_warmup(match)
        )
        started = time.perf_counter()
        query = (
            found.writeStream.foreachBatch(add)
            .option("checkpointLocation", str(folder / "checkpoint"))
            .trigger(availableNow=True)
            .start()
        )
        query.awaitTermination()
        findings.seconds = time.perf_counter() - started
    finally:
        spark.stop()
    return findings


def _ddl(schema: pa.Schema) -> str:
    """The schema as Spark reads it, so that it need not be inferred from the files."""
    names = {"int16": "SMALLINT", "int32": "INT", "int64": "BIGINT"}
    return ", ".join(f"{column.name} {names[str(column.type)]}" for column in schema)


@contextmanager
def _stderr_to(file: Path) -> Iterator[None]:
    """Processes that are started in here, and their children, write their log to a file."""
    sys.stderr.flush()
    ours = os.dup(2)
    with file.open("w") as log:
        os.dup2(log.fileno(), 2)
    try:
        yield
    finally:
        os.dup2(ours, 2)
        os.close(ours)


# The same stream in other ways, to compare with.


@dataclass(frozen=True)
class Others:
    """The same detectors on the same stream: under policy slack, and without Slackline."""

    slack: MatchResult
    slack_history: list[dict[str, Any]]
    arrival: Baseline
    fixed: Sequence[Baseline]
    bound: Baseline


def _for_comparison(match: Match, table: pa.Table, bar: Bar) -> Others:
    history: list[dict[str, Any]] = []

    def progress(what: str) -> Callable[[int], None]:
        task = bar.add_task(f"to compare: {what}", total=float(len(table)))
        return lambda done: bar.update(task, completed=done)

    def fixed(delay: int) -> Baseline:
        task = bar.add_task(f"to compare: watermark {delay} ms", total=1.0)
        found = fixed_watermark(table, match, delay * MILLISECOND)
        bar.update(task, completed=1.0)
        return found

    return Others(
        run([table], match, policy="slack", queries=False, history=history, progress=progress("policy slack")),
        history,
        arrival_order(table, match, progress("arrival order")),
        [fixed(delay) for delay in WATERMARKS],
        clairvoyant(table, match, progress("perfect order")),
    )


# The results.


def _approaches(truth: list[Event], findings: Findings, others: Others) -> list[Approach]:
    until = findings.final_until

    def of(kind: str, other: Baseline, why: str = "") -> Approach:
        wait = other.waits.get("hit", 0.0)
        return approach(other.name, kind, other.events, truth, until, wait=wait, late=other.dropped, why=why)

    fixed = [of("fixed", other, why) for other, why in zip(others.fixed, WATERMARKS.values(), strict=True)]
    wait = findings.summary.waits["hit"].mean
    late = len(findings.late_positions)
    ours = approach("Slackline", "slackline", findings.events, truth, until, wait=wait, late=late)
    return [of("arrival", others.arrival), *fixed, ours, of("bound", others.bound)]


def _report(simulation: Simulation, table: pa.Table, findings: Findings, others: Others) -> MatchReport:
    match, until = simulation.match, findings.final_until
    truth = load_truth(simulation.truth)
    sid, ts, arrival = (table[name].to_numpy() for name in ("sid", "ts", "arrival"))
    late, positions = len(findings.late_positions), findings.arrivals
    behind = float(np.mean(ts < np.maximum.accumulate(ts)))
    return match_report(
        match,
        findings.events,
        "A match, out of order",
        truth=truth,
        in_arrival_order=others.arrival.events,
        ordered=others.bound.events,
        until=until,
        text=f"{simulation.seconds:g} s of simulated soccer (seed {simulation.seed}): {len(match.sids)} transmitters, "
        f"and a receiver that is fully loaded at times. On Spark Structured Streaming, with Slackline's default "
        f"options: no watermark delay is configured.",
        facts=[
            (f"{positions:,}", "positions"),
            (f"{100 * behind:.0f} %", "of them out of order"),
            (f"{late:,}", f"late ({share_text(late / max(positions, 1))})"),
            (f"{_detected(findings):,}", "events detected"),
            (f"{findings.seconds:.0f} s", f"on Spark, start-up excluded: {findings.rate:,.0f} positions/s"),
        ],
        approaches=_approaches(truth, findings, others),
        late=late,
        positions=positions,
        hierarchy=hierarchy_nodes(findings.summary),
        waits=[
            policy_waits("auto", findings.summary, findings.stats),
            policy_waits("slack", others.slack.summary, others.slack_history),
        ],
        delays=delays_by_kind(match, sid, ts, arrival),
        delays_from=DELAYS_FROM,
        plausibility=plausibility(match, simulation.truth, [table]),
    )


def _detected(findings: Findings) -> int:
    """Events of the detectors, without the queries' results."""
    detectors = match_hierarchy(findings.summary.match, queries=False).publisher
    return sum(event.type in detectors and event.ts <= findings.final_until for event in findings.events)


def _publish(
    console: Console, simulation: Simulation, table: pa.Table, findings: Findings, others: Others, out: Path
) -> None:
    report = _report(simulation, table, findings, others)
    until = findings.final_until
    found = [event for event in findings.events if event.ts <= until]
    compared = compare(simulation.match, found, load_truth(simulation.truth), until)
    same = sum(kind.same for kind in report.sameness)
    console.print()
    print_match(console, findings.summary, compared, report.late or 0, findings.arrivals, findings.quarantined)
    console.print(
        f"{findings.arrivals:,} positions through Spark in {findings.seconds:.1f} s ({findings.rate:,.0f}/s). Of "
        f"{_detected(findings):,} events detected, {same:,} are equal to those of the perfectly ordered stream. "
        f"{comparison(report)}",
        highlight=False,
    )
    try:
        out.write_text(match_page(report), encoding="utf-8")
    except OSError as cause:
        raise SlacklineError(f"cannot write {out}: {cause}.") from cause
    console.print(f"The report, with pitch, timeline and waits: [bold]{out}[/]", highlight=False)
