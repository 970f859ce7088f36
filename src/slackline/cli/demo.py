"""``slackline demo``: two late, shuffled streams through Spark, and why the answer is right."""

from __future__ import annotations

import csv
import gzip
import json
import os
import sys
import tempfile
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Annotated, Any

import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet as pq
import typer
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table

from slackline import Event, Hierarchy, data
from slackline.cli.failure import reports_errors
from slackline.cli.showcase import kick_hierarchy, phone_hierarchy
from slackline.core.errors import SlacklineError
from slackline.report import Point, RunReport, RunSection, RunTable, Scale, Series, run_page, share_text, verdict
from slackline.sim import kick_sites
from slackline.study import StudyResult, load_stream
from slackline.study import study as run_study

FILES = 24
KICK_SECONDS = 300.0
TICKS = 100
SEED = 7

#: What is compared with the truth: type, time stamp and the fields that matter.
Fact = tuple[str, int, tuple[Any, ...]]


@dataclass
class Story:
    """One stream of the demo: where it is, who detects what in it, and what is really in it."""

    title: str
    text: str
    unit: str
    files: Path
    rows: int
    hierarchy: Callable[[], Hierarchy]
    truth: dict[str, list[Fact]]
    as_they_come: dict[str, list[Fact]]
    study: StudyResult
    attribution: str = ""
    columns: dict[str, str] = field(default_factory=dict)
    schema: str = ""


@dataclass
class Findings:
    """What the query gave back, per site."""

    found: dict[str, list[Fact]] = field(default_factory=dict)
    stats: dict[str, list[dict[str, Any]]] = field(default_factory=dict)
    late: int = 0
    quarantined: int = 0
    batches: int = 0

    def take(self, rows: Iterable[Any]) -> None:
        """The rows of one micro-batch."""
        self.batches += 1
        for row in rows:
            if row.kind == "event":
                payload = json.loads(row.payload)
                fact = (row.type, row.ts, tuple(payload[name] for name in sorted(payload)))
                self.found.setdefault(row.key, []).append(fact)
            elif row.kind == "stats":
                self.stats.setdefault(row.key, []).append(json.loads(row.payload))
            self.late += row.kind == "late"
            self.quarantined += row.kind == "quarantine"

    def sites(self) -> list[str]:
        return sorted(self.stats)

    def horizon(self, site: str, level: str) -> int:
        """Up to where a detector's answer is final."""
        return self.stats[site][-1]["detectors"][level]["horizon"] or 0


@reports_errors
def demo(
    out: Annotated[Path, typer.Option(help="Where the report goes.", dir_okay=False)] = Path("slackline-demo.html"),
    cores: Annotated[int, typer.Option(help="Cores for Spark.", min=1)] = 2,
    seconds: Annotated[float, typer.Option(help="Length of the simulated kick streams.", min=20)] = KICK_SECONDS,
) -> None:
    """Detect hits and meetings in late, shuffled streams through Spark; compare with the truth and with watermarks."""
    console = Console()
    with tempfile.TemporaryDirectory(prefix="slackline-demo-") as folder:
        columns = (TextColumn("{task.description:>28}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
        with Progress(*columns, console=Console(stderr=True)) as bar:
            preparing = bar.add_task("preparing the streams", total=2)
            stories = []
            for make in (_kicks, _phones):
                stories.append(make(Path(folder), seconds))
                bar.advance(preparing)
            sections = []
            for story, findings in _through_spark(stories, cores, bar, Path(folder)):
                sections.append((story, findings))
    for story, findings in sections:
        _print(console, story, findings)
    report = RunReport(
        "Slackline: two streams put in order",
        "Late, shuffled events through Spark Structured Streaming, without a watermark.",
        [_section(story, findings) for story, findings in sections],
    )
    try:
        out.write_text(run_page(report), encoding="utf-8")
    except OSError as cause:
        raise SlacklineError(f"cannot write {out}: {cause}.") from cause
    console.print(f"\nThe report, with plots of waits and K per detector: [bold]{out}[/]", highlight=False)


# The streams, and what is in them.


def _kicks(folder: Path, seconds: float) -> Story:
    table, hits = kick_sites(SEED, seconds, 2, ticks=TICKS)
    one = folder / "one-site.parquet"
    first = table.filter(pa.compute.equal(table["site"], "site-0"))
    pq.write_table(first, one)
    study = run_study(load_stream(one, arrival="arrival", ts="ts", source="source", type="type", unit="us"))
    sites = {site: table.filter(pa.compute.equal(table["site"], site)) for site in hits}
    return Story(
        "Hits: near, not near, kick",
        f"Two simulated sites of {seconds:g} s with known hits. A kick overtakes the news of who is near.",
        "us",
        _cut(table, folder / "kicks"),
        table.num_rows,
        kick_hierarchy,
        {site: _known(hits[site], _run_in(kick_hierarchy(), _sorted(part))) for site, part in sites.items()},
        {site: _run_in(kick_hierarchy(), part) for site, part in sites.items()},
        study,
        columns={"key": "site", "type": "type", "arrival": "arrival", "source": "source", "seq": "seq"},
        schema="site string, arrival long, ts long, type string, source string, seq long, player long",
    )


def _phones(folder: Path, seconds: float) -> Story:
    path = data.path("d-1")
    study = run_study(load_stream(path, arrival="arrival_ms", ts="ts_ms", source="source", unit="ms"))
    with gzip.open(path, "rt", encoding="utf-8") as lines:
        rows = list(csv.DictReader(lines))
    table = pa.table(
        {
            "place": pa.array(["phones"] * len(rows)),
            "nr": pa.array(range(len(rows)), pa.int64()),
            "ts": pa.array([int(row["ts_ms"]) for row in rows], pa.int64()),
            "type": pa.array(["report"] * len(rows)),
            "source": pa.array([row["source"] for row in rows]),
            "seq": pa.array([int(row["seq"]) for row in rows], pa.int64()),
        }
    )
    return Story(
        "Meetings: eight phones over UMTS",
        f"A recorded stream, {share_text(study.late_share)} of it out of order. Three phones that report within 60 ms "
        f"are a meeting.",
        "ms",
        _cut(table, folder / "phones"),
        table.num_rows,
        phone_hierarchy,
        {"phones": _run_in(phone_hierarchy(), _sorted(table))},
        {"phones": _run_in(phone_hierarchy(), table)},
        study,
        data.ATTRIBUTION,
        columns={"key": "place", "type": "type", "arrival": "nr", "source": "source", "seq": "seq"},
        schema="place string, nr long, ts long, type string, source string, seq long",
    )


def _known(hits: list[tuple[int, int]], in_order: list[Fact]) -> list[Fact]:
    """The truth: hits as the simulation made them, and what follows from them in the sorted stream."""
    return [("hit", ts, (player,)) for ts, player in hits] + [fact for fact in in_order if fact[0] != "hit"]


def _cut(table: pa.Table, folder: Path) -> Path:
    """The stream as files that come one after the other."""
    folder.mkdir()
    size = -(-table.num_rows // FILES)
    for number in range(FILES):
        file = folder / f"{number:03}.parquet"
        pq.write_table(table.slice(number * size, size), file)
        os.utime(file, (number, number))  # Spark takes files in the order of their age, to the millisecond
    return folder


def _sorted(table: pa.Table) -> pa.Table:
    return table.sort_by([(name, "ascending") for name in ("ts", "type", "source", "seq")])


def _run_in(hierarchy: Hierarchy, table: pa.Table) -> list[Fact]:
    """What the detectors say when the table's rows come to them just as they are, one after the other."""
    detectors = hierarchy.take_detectors()
    facts: list[Fact] = []
    own = {"site", "place", "nr", "arrival", "ts", "type", "source", "seq"}
    for row in table.to_pylist():
        payload = {name: value for name, value in row.items() if name not in own and value is not None}
        waiting = [Event.of(row["type"], row["ts"], row["source"], row["seq"], payload)]
        while waiting:
            event = waiting.pop(0)
            for detector in detectors:
                if event.type in detector.listens:
                    for found in detector.on_event(event) or ():
                        facts.append((found.type, found.ts, tuple(v for _, v in sorted(found.payload.items()))))
                        waiting.append(found)
    return facts


# Through Spark.


def _through_spark(
    stories: Sequence[Story], cores: int, bar: Progress, folder: Path
) -> Iterator[tuple[Story, Findings]]:
    starting = bar.add_task("starting Spark", total=1)
    from slackline import spark as sls

    with _chatter_to(folder / "spark.log"):
        spark = sls.session(cores)
    bar.advance(starting)
    try:
        for story in stories:
            task = bar.add_task(story.title.split(":")[0] + " through Spark", total=story.rows)
            yield story, _query(spark, sls, story, folder, partial(_show, bar, task))
            bar.update(task, completed=story.rows)
    finally:
        spark.stop()


def _show(bar: Progress, task: Any, rows: int) -> None:
    bar.update(task, completed=rows)


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


def _query(spark: Any, sls: Any, story: Story, folder: Path, done: Callable[[int], None]) -> Findings:
    """One streaming query over the story's files, a few at a time; rows come back micro-batch by micro-batch."""
    stream = spark.readStream.schema(story.schema).option("maxFilesPerTrigger", 2).parquet(str(story.files))
    detected = sls.detect(stream, story.hierarchy(), ts="ts", **story.columns)
    findings = Findings()

    def take(batch: Any, number: int) -> None:
        findings.take(batch.collect())
        done(sum(stats[-1]["arrivals"] for stats in findings.stats.values()))

    checkpoint = folder / f"checkpoint-{story.files.name}"
    query = (
        detected.writeStream.foreachBatch(take)
        .option("checkpointLocation", str(checkpoint))
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()
    return findings


# What to tell.


def _verdicts(story: Story, findings: Findings) -> list[tuple[str, int, int, int, int]]:
    """Per event type: found, right, missed, and wrong in arrival order; as far as the answer is final."""
    rows = []
    publisher = story.hierarchy().publisher
    kinds = sorted({kind for facts in story.truth.values() for kind, *_ in facts})
    for kind in kinds:
        totals = Counter[str]()
        for site in findings.sites():
            end = findings.horizon(site, publisher[kind])
            true = Counter(fact for fact in story.truth[site] if fact[0] == kind and fact[1] <= end)
            found = Counter(fact for fact in findings.found.get(site, []) if fact[0] == kind)
            naive = Counter(fact for fact in story.as_they_come[site] if fact[0] == kind and fact[1] <= end)
            totals["found"] += found.total()
            totals["right"] += (found & true).total()
            totals["missed"] += (true - found).total()
            totals["naive"] += (naive - true).total() + (true - naive).total()
        rows.append((kind, totals["found"], totals["right"], totals["missed"], totals["naive"]))
    return rows


def _waits(story: Story, findings: Findings) -> list[tuple[str, str, int, str, str, str, int, int]]:
    """Per site and detector at the end: level, K, mean and largest wait, late, still waiting."""
    rows = []
    scale = _scale(story, findings)
    for site in findings.sites():
        for name, detector in findings.stats[site][-1]["detectors"].items():
            figures = (detector["K"], detector["wait_mean"], detector["wait_max"])
            texts = [scale.text(figure) for figure in figures]
            rows.append((site, name, detector["level"], *texts, detector["late"], detector["buffered"]))
    return rows


def _scale(story: Story, findings: Findings) -> Scale:
    last = [detector for stats in findings.stats.values() for detector in stats[-1]["detectors"].values()]
    return Scale.of([detector["wait_mean"] for detector in last], story.unit)


FOUND = ("event", "found", "right", "missed", "mistakes in arrival order")


WAITED = ("site", "detector", "level", "K", "mean", "max", "late", "waiting")


def _print(console: Console, story: Story, findings: Findings) -> None:
    console.print()
    console.rule(f"[bold]{story.title}", align="left")
    console.print(story.text, highlight=False)
    unit = _scale(story, findings).name
    for title, header, rows in (
        ("What was detected", FOUND, _verdicts(story, findings)),
        (f"How long events waited, in {unit} of stream time", WAITED, _waits(story, findings)),
    ):
        table = Table(title=title, title_justify="left")
        for number, name in enumerate(header):
            figures = number > (0 if header is FOUND else 1)
            table.add_column(name, justify="right" if figures else "left", no_wrap=True)
        for row in rows:
            table.add_row(*(f"{cell:,}" if isinstance(cell, int) else cell for cell in row))
        console.print(table)
    console.print(f"{findings.batches} micro-batches. Watermarks: {verdict(story.study)}", highlight=False)
    if story.attribution:
        console.print(story.attribution, style="dim", highlight=False)


def _section(story: Story, findings: Findings) -> RunSection:
    tables = [
        RunTable("What was detected", FOUND, [[str(cell) for cell in row] for row in _verdicts(story, findings)]),
        RunTable(
            f"How long events waited, in {_scale(story, findings).name} of stream time",
            WAITED,
            [[str(cell) for cell in row] for row in _waits(story, findings)],
            numeric_from=2,
        ),
    ]
    facts = [
        (f"{story.rows:,}", "events"),
        (str(findings.batches), "micro-batches"),
        (str(findings.late), "late"),
        (str(findings.quarantined), "quarantined"),
    ]
    return RunSection(
        story.title,
        story.text,
        story.unit,
        facts,
        [series for site in findings.sites() for series in _series(site, findings)],
        tables,
        story.study,
        story.attribution,
    )


def _series(site: str, findings: Findings) -> Iterator[Series]:
    """K and waits over stream time, from the statistics rows: one per micro-batch."""
    history = findings.stats[site]
    alone = len(findings.sites()) == 1
    for name in history[-1]["detectors"]:
        points = []
        waited, delivered = 0.0, 0
        for stats in history:
            now = stats["detectors"][name]
            total = now["wait_mean"] * now["delivered"]
            fresh = now["delivered"] - delivered
            wait = (total - waited) / fresh if fresh else None
            waited, delivered = total, now["delivered"]
            if stats["clk"] is not None:
                points.append(Point(stats["clk"], now["K"], wait, now["buffered"], now["late"]))
        yield Series(name if alone else f"{site} {name}", points)
