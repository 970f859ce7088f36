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
from concurrent.futures import Future, ProcessPoolExecutor, ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cache
from multiprocessing import get_context
from pathlib import Path
from typing import Annotated, Any, TextIO

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import typer
from rich.console import Console
from rich.progress import BarColumn, Progress, TaskID, TaskProgressColumn, TextColumn, TimeElapsedColumn

from slackline import Event, SlacklineError
from slackline.cli import reports_errors
from slackline.report import share_text
from slackline_soccer import (
    Match,
    Simulation,
    Summary,
    compare,
    load_truth,
    match_hierarchy,
    match_policy,
    run,
    simulate,
)
from slackline_soccer.commands.live import watch
from slackline_soccer.commands.soccer import print_match
from slackline_soccer.plausibility import plausibility
from slackline_soccer.report import (
    approach,
    comparison,
    counted,
    delays_by_kind,
    hierarchy_nodes,
    match_page,
    match_report,
    policy_waits,
)
from slackline_soccer.report.model import Approach, MatchReport
from slackline_soccer.run import Baseline, arrival_order, clairvoyant, fixed_watermark
from slackline_soccer.simulator.simulation import SCHEMA
from slackline_soccer.tracking import MILLISECOND, SECOND

SEED = 7
SECONDS = 65.0
#: Positions of a file, and so of a micro-batch: thirteen seconds of match.
PART = 480_000
#: What the detectors need of a position.
COLUMNS = ("arrival", "sid", "ts", "x", "y", "z", "v", "a", "vx", "vy", "vz")
#: Spark for one key and a short run: one state partition, and no second compiler of the JVM, which takes a core for a
#: while.
SPARK = {
    "spark.sql.shuffle.partitions": 1,
    "spark.driver.extraJavaOptions": "-XX:+UseParallelGC -XX:TieredStopAtLevel=1",
}
#: So often the query is started again if Spark's Python worker did not start in time.
RESTARTS = 3
#: Fixed watermarks to compare with, in ms. Those with a reason are in the page's sentences.
WATERMARKS = {
    50: "",
    150: "just above the largest delay at 70 % load",
    300: "",
    500: "an expert's choice, for a full load",
}
#: [Order, IV-A; Thesis, 3.4.1]; simulator/locating.py has the model.
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
    live: Annotated[
        bool, typer.Option("--live", help="Play the match at its own speed, without Spark, with a page to watch it.")
    ] = False,
    page: Annotated[int, typer.Option(help="Port of the page of --live; 0: any free port.", min=0, max=65535)] = 0,
) -> None:
    """Detect hits, passes and shots in a simulated match, out of order, through Spark; compare with the truth."""
    simulation = simulate(seconds, seed, "congested")
    if live:
        watch(simulation, page)
        return
    match = simulation.match
    with tempfile.TemporaryDirectory(prefix="slackline-demo-") as name, _progress() as bar:
        folder = Path(name)
        _write(folder, 0, SCHEMA.empty_table())
        # The comparisons take what Spark leaves of the cores; processes that are forked might inherit its threads.
        with ThreadPoolExecutor(1) as thread, ProcessPoolExecutor(2, get_context("spawn"), _yield_to_others) as process:
            starting = thread.submit(Detecting, match, folder, cores)
            positions = _record(simulation, folder, bar)
            comparing = _start_comparing(process, match, folder, bar)
            findings = _through_spark(starting, positions, bar)
            others = Others(*(future.result() for future in comparing))
        _publish(Console(), simulation, _recorded(folder), findings, others, out)


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


def _record(simulation: Simulation, folder: Path, bar: Bar) -> int:
    """Simulate the match and write it to files; returns the number of positions."""
    task = bar.add_task("simulating the match", total=1.0)
    start = simulation.match.periods[0].start
    positions = 0
    for number, table in enumerate(simulation.tables(rows=PART), 1):
        _write(folder, number, table)
        positions += len(table)
        played = (table["arrival"][-1].as_py() - start) / SECOND
        bar.update(task, completed=min(played / simulation.seconds, 0.99))
    bar.update(task, completed=1.0)
    return positions


def _write(folder: Path, number: int, table: pa.Table) -> None:
    """Write positions to a file, which appears complete; two row groups, for two tasks of Spark to read."""
    file = folder / f".{number:05d}.parquet"
    pq.write_table(
        table.select(COLUMNS), file, row_group_size=len(table) // 2 + 1, compression="lz4", use_dictionary=False
    )
    os.utime(file, (number, number))  # Spark takes files in the order of their age
    (folder / "positions").mkdir(exist_ok=True)
    file.rename(folder / "positions" / file.name.lstrip("."))


@cache
def _recorded(folder: Path) -> pa.Table:
    """All positions, in the order of arrival."""
    return pq.read_table(folder / "positions")


# Through Spark.


class Detecting:
    """The streaming query, started over a folder whose files are still being written.

    The folder has an empty file first: its micro-batch starts Spark's Python workers, and compiles the query, while the
    match is simulated.
    """

    def __init__(self, match: Match, folder: Path, cores: int) -> None:
        from slackline import spark as sls

        hierarchy = match_hierarchy(match)
        self.findings = Findings(Summary.of(match, hierarchy))
        self.batches = 0
        with _stderr_to(folder / "spark.log"):
            self._spark = sls.session(cores, **SPARK)
        reader = self._spark.readStream.schema(_ddl(SCHEMA, COLUMNS)).option("maxFilesPerTrigger", 1)
        stream = reader.parquet(str(folder / "positions")).selectExpr("*", f"'{match.name}' AS match")
        found = sls.detect(
            stream, hierarchy, key="match", ts="ts", arrival="arrival", source="sid", policy=match_policy(match),
            metrics=None,
        )  # fmt: skip
        writer = found.writeStream.foreachBatch(self._add).option("checkpointLocation", str(folder / "checkpoint"))
        self._writer = writer.trigger(processingTime="100 milliseconds")
        self._query = self._writer.start()
        self._restarts = RESTARTS

    def _add(self, batch: Any, number: int) -> None:
        self.findings.add(batch.collect())
        self.batches = number

    def is_behind(self, positions: int) -> bool:
        """Whether positions are still to be processed. Raises if the query failed.

        On an overloaded machine Spark gives its Python worker too little time to start, and no setting changes that
        (docs/guides/spark.md): nothing was processed yet, and the query is started again.
        """
        from slackline import spark as sls

        try:
            sls.check_failure(self._query)
        except SlacklineError as error:
            if "connect back" not in str(error) or not self._restarts:
                raise
            self._restarts -= 1
            self._query = self._writer.start()
        return self.findings.arrivals < positions

    def finish(self) -> Findings:
        """What was found, and the time of the micro-batches that had positions; all positions were processed."""
        self._query.processAllAvailable()
        took = [each for each in self._query.recentProgress if each["numInputRows"]]
        self.findings.seconds = sum(each["durationMs"]["triggerExecution"] for each in took) / 1_000
        return self.findings

    def stop(self) -> None:
        """End the query and Spark."""
        self._query.stop()
        self._spark.stop()


def _through_spark(starting: Future[Detecting], positions: int, bar: Bar) -> Findings:
    """Wait until the query has processed all positions."""
    task = bar.add_task("starting Spark", total=1.0)
    detecting = starting.result()
    # So does the session; but it starts in a thread, and the simulation may have restored the filters since.
    warnings.filterwarnings("ignore", "PySpark does not yet fully support pandas", FutureWarning)
    bar.update(task, completed=1.0)
    task = bar.add_task("detecting on Spark", total=float(positions))
    reported = 0
    try:
        while detecting.is_behind(positions):
            time.sleep(0.1)
            if detecting.batches > reported:
                reported, counts = detecting.batches, detecting.findings.summary.counts
                live = [
                    counted(counts["hit"], "hit", "hits"),
                    counted(counts["pass"], "pass", "passes"),
                    counted(counts["shot"], "shot", "shots"),
                ]
                bar.update(task, completed=detecting.findings.arrivals, description=", ".join(live))
        return detecting.finish()
    finally:
        detecting.stop()


def _ddl(schema: pa.Schema, columns: Iterable[str]) -> str:
    """The columns as Spark reads them, so that they need not be inferred from the files."""
    names = {"int16": "SMALLINT", "int32": "INT", "int64": "BIGINT"}
    return ", ".join(f"{name} {names[str(schema.field(name).type)]}" for name in columns)


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

    slack: tuple[Summary, list[dict[str, Any]]]
    arrival: Baseline
    fixed: Sequence[Baseline]
    bound: Baseline


def _yield_to_others() -> None:
    """Let other processes have the cores first, where that is possible."""
    if hasattr(os, "nice"):
        os.nice(10)


def _start_comparing(process: ProcessPoolExecutor, match: Match, folder: Path, bar: Bar) -> list[Future[Any]]:
    """Run the detectors on the recorded match in other ways; the futures are the fields of :class:`Others`."""
    task = bar.add_task("to compare", total=4.0)
    done: list[str] = []

    def start(what: str, run: Callable[[Match, Path], Any]) -> Future[Any]:
        def note(future: Future[Any]) -> None:
            if future.exception() is None:
                done.append(what)
                bar.update(task, completed=len(done), description=what)

        future = process.submit(run, match, folder)
        future.add_done_callback(note)
        return future

    return [
        start("policy slack", _under_slack),
        start("arrival order", _in_arrival_order),
        start("fixed watermarks", _behind_watermarks),
        start("perfect order", _in_perfect_order),
    ]


def _under_slack(match: Match, folder: Path) -> tuple[Summary, list[dict[str, Any]]]:
    history: list[dict[str, Any]] = []
    result = run([_recorded(folder)], match, policy="slack", queries=False, history=history)
    return result.summary, history


def _in_arrival_order(match: Match, folder: Path) -> Baseline:
    return arrival_order(_recorded(folder), match)


def _behind_watermarks(match: Match, folder: Path) -> list[Baseline]:
    return [fixed_watermark(_recorded(folder), match, delay * MILLISECOND) for delay in WATERMARKS]


def _in_perfect_order(match: Match, folder: Path) -> Baseline:
    return clairvoyant(_recorded(folder), match)


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
            policy_waits("slack", *others.slack),
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
