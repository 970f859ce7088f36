"""``slackline run APP``: an application between sources and sinks, in this process, on Kafka or on Spark."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import signal
import sys
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Annotated, Any, Protocol

import pyarrow as pa
import typer

from slackline.cli.console import FAILED, reports_errors
from slackline.cli.logs import Status, log_to_stderr, served_metrics, served_page
from slackline.cli.options import FIELDS, given_options, help_of, known_options, takes
from slackline.cluster.protocol.directory import fingerprint
from slackline.connectors.addresses import check_output, is_kafka, sink_of, sources_of
from slackline.core.errors import ConfigError
from slackline.core.hierarchy import Hierarchy
from slackline.runtime.application import load_application
from slackline.runtime.forms import events_of
from slackline.runtime.keyed import KeyedEngines
from slackline.runtime.metrics import Metrics, MetricsListener
from slackline.runtime.options import RunOptions, run_options
from slackline.runtime.output import NOT_AN_EVENT
from slackline.runtime.schema import Decoder
from slackline.runtime.sink import Sink
from slackline.runtime.source import Source
from slackline.runtime.trace import Trace
from slackline.runtime.worker import Worker

#: Seconds between checkpoints in a folder, unless given.
CHECKPOINT_EVERY = 1.0
#: Events that --dry-run shows, and records that it looks at.
SHOWN, LOOKED_AT = 3, 10_000

#: Where engines are, in the plan.
_PLACES = {"process": "in this process", "spark": "on Spark", "spark-tasks": "in tasks on executors of Spark"}

logger = logging.getLogger("slackline.run")


@takes(*(name for name in FIELDS if name != "app"))
@reports_errors
def run(
    app: Annotated[str | None, typer.Argument(metavar="APP", help=help_of("app"))] = None,
    config: Annotated[
        Path | None,
        typer.Option(help="TOML file with options, named as here; the command line overrides it.", dir_okay=False),
    ] = None,
    dry_run: Annotated[
        bool,
        typer.Option("--dry-run", help="Print the plan, how records are read and what is guaranteed; run nothing."),
    ] = False,
    **given: Any,
) -> None:
    """Run an application until its input ends, or Ctrl-C.

    `slackline run app.py --from events.csv --to found` reads a file and writes outputs.jsonl, late.jsonl and
    quarantined.jsonl; interrupted in any way, the same command resumes, and nothing is lost or emitted twice. See the
    plan first: add --dry-run. Exit code 1: failed, or most records could not be processed.
    """
    options = run_options(given_options({"app": app, **given}), config, known_options())
    hierarchy, _ = load_application(options.app, None)
    between_topics = all(map(is_kafka, (*options.sources, options.to)))
    if options.trace is not None and (options.on != "process" or between_topics):
        raise ConfigError("--trace is for runs in this process; it records neither Spark nor topic to topic.")
    _check_place(options, between_topics)
    _check_outputs(options)
    if options.on == "spark-tasks":
        _run_elsewhere(_in_tasks(options, hierarchy), options, hierarchy, dry_run)
    elif options.on == "spark":
        _run_elsewhere(_on_spark(options, hierarchy), options, hierarchy, dry_run)
    elif between_topics:
        _run_elsewhere(_between_topics(options, hierarchy), options, hierarchy, dry_run)
    else:
        _in_process(options, hierarchy, dry_run)


def _check_place(options: RunOptions, between_topics: bool) -> None:
    """Refuse options of another place than the one to run at."""
    if options.on != "spark-tasks" and (options.tasks is not None or options.tls):
        raise ConfigError("--tasks and --tls are for --on spark-tasks.")
    if options.on == "process" and options.conf:
        raise ConfigError("--conf is for --on spark and --on spark-tasks.")
    if options.on == "spark-tasks" and not between_topics:
        raise ConfigError("--on spark-tasks reads and writes topics of Kafka; give kafka:// addresses, or --on spark.")


def _check_outputs(options: RunOptions) -> None:
    """Refuse outputs that would overwrite the input or the application."""
    app = options.app.rpartition(":")[0] or options.app
    check_output("--to", options.to, options.sources)
    if options.trace is not None:
        check_output("--trace", options.trace, (*options.sources, app))


def _in_process(options: RunOptions, hierarchy: Hierarchy, dry_run: bool) -> None:
    if options.delivery or (options.group and not any(map(is_kafka, (*options.sources, options.to)))):
        raise ConfigError("--group and --delivery are for kafka:// addresses on both sides.")
    sources, sink = sources_of(options), sink_of(options)
    at_stop = options.at_stop or ("keep" if sink.commits else "flush")
    if at_stop == "keep" and not sink.commits:
        raise ConfigError(f"--at-stop keep needs a folder for checkpoints; --to {options.to} is not a folder.")
    if options.checkpoint_every is not None and not sink.commits:
        raise ConfigError("--checkpoint-every is for a folder with checkpoints, and for Kafka.")
    every = options.checkpoint_every or CHECKPOINT_EVERY
    trace = None if options.trace is None or dry_run else Trace(options.trace, app=options.app)
    engines = KeyedEngines(
        hierarchy, options.engine_options, keyed=options.key is not None, shards=options.shards,
        idle_timeout=options.idle_timeout, state_ttl=options.state_ttl, trace=trace,
    )  # fmt: skip
    if dry_run:
        plan = [("from", source.describe()) for source in sources]
        plan.append(("to", sink.describe()))
        plan.append(("guarantee", _guarantee(sources, sink, every)))
        buffered = "stored in the checkpoint" if at_stop == "keep" else "flushed"
        plan.append(("at a stop", f"buffered events are {buffered}"))
        typer.echo(plan_text(options, hierarchy, plan + asyncio.run(_preview(options, sources, hierarchy))))
        return
    log_to_stderr("slackline", options.log)
    with _watched(options, hierarchy) as listener:
        worker = Worker(
            engines, sources, sink, options.schema, application=fingerprint(hierarchy, options.engine),
            at_stop=at_stop, checkpoint_every=every, listener=listener,
        )  # fmt: skip
        metrics = _until_the_end(worker)
    _check_processed(metrics)


def _until_the_end(worker: Worker) -> Metrics | None:
    async def until_the_end() -> Metrics | None:
        task = asyncio.current_task()
        assert task is not None
        asked: list[int] = []

        def stop(number: int) -> None:
            """The first time in order, then at once."""
            asked.append(number)
            if len(asked) > 1:
                task.cancel()
                return
            worker.stop()
            logger.info("a second signal stops at once, without waiting for the sink")

        for number in (signal.SIGINT, signal.SIGTERM):
            asyncio.get_running_loop().add_signal_handler(number, stop, number)
        return await worker.run()

    try:
        return asyncio.run(until_the_end())
    except (asyncio.CancelledError, KeyboardInterrupt):
        logger.warning("stopped immediately; the next run processes the input after the last checkpoint again")
        raise typer.Exit(FAILED) from None


def _check_processed(metrics: Metrics | None) -> None:
    """Exit with 1 if most of the records reached no detector."""
    if metrics is None:
        return
    records = metrics.events + metrics.quarantined.get(NOT_AN_EVENT, 0)
    if 2 * metrics.unprocessed > records:
        reasons = {"duplicates": metrics.duplicates, **metrics.quarantined}
        why = ", ".join(f"{count:,} {reason}" for reason, count in reasons.items() if count)
        logger.error("%s of %s records were not processed: %s", f"{metrics.unprocessed:,}", f"{records:,}", why)
        raise typer.Exit(FAILED)


class Application(Protocol):
    """An application in a runtime that brings its own sources and sinks: on Spark, or between topics of Kafka."""

    def plan(self) -> list[tuple[str, str]]:
        """What it reads and writes, and what it guarantees."""

    def run(self, listener: MetricsListener) -> Metrics | None:
        """Run until the end, or a signal; the last metrics."""


def _on_spark(options: RunOptions, hierarchy: Hierarchy) -> Application:
    from slackline.spark.application import SparkApplication

    file = Path(options.app.partition(":")[0])
    return SparkApplication(options, hierarchy, sys.modules[file.stem] if file.suffix == ".py" else None)


def _in_tasks(options: RunOptions, hierarchy: Hierarchy) -> Application:
    from slackline.spark.kafka_hosts import HostsApplication

    return HostsApplication(options, hierarchy)


def _between_topics(options: RunOptions, hierarchy: Hierarchy) -> Application:
    from slackline.connectors.kafka import KafkaApplication

    return KafkaApplication(options, hierarchy)


def _run_elsewhere(application: Application, options: RunOptions, hierarchy: Hierarchy, dry_run: bool) -> None:
    if dry_run:
        typer.echo(plan_text(options, hierarchy, application.plan()))
        return
    log_to_stderr("slackline", options.log)
    with _watched(options, hierarchy) as listener:
        metrics = application.run(listener)
    _check_processed(metrics)


@contextlib.contextmanager
def _watched(options: RunOptions, hierarchy: Hierarchy) -> Iterator[MetricsListener]:
    """A listener that shows metrics in the terminal or the log, and serves them."""
    with contextlib.ExitStack() as stack:
        listeners: list[MetricsListener] = []
        if (prometheus := served_metrics(options.metrics)) is not None:
            stack.callback(prometheus.close)
            listeners.append(prometheus)
        if (page := served_page(options.page, options.app, hierarchy)) is not None:
            stack.callback(page.close)
            listeners.append(page)
        with Status(options.app) as status:
            listeners.append(status)

            def listener(metrics: Metrics) -> None:
                for each in listeners:
                    each(metrics)

            yield listener
        status.log()


# The plan.


def plan_text(options: RunOptions, hierarchy: Hierarchy, lines: Sequence[tuple[str, str]]) -> str:
    """The plan of a run, a line per part; ``lines`` are those of the runtime."""
    engine = ", ".join(f"{name}={value}" for name, value in sorted(options.engine.items()))
    engines = "one for all events" if options.key is None else f"one per {options.key}"
    if options.shards is not None:
        engines = f"{options.shards} shards of {options.key}"
    parts = [
        ("application", options.app),
        ("sensor types", ", ".join(f"{k} (clock)" if k in hierarchy.clock else k for k in hierarchy.sensor_types)),
        *_levels(hierarchy),
        ("engines", f"{engines}, {_PLACES[options.on]}"),
        ("options", engine or "policy=auto, late_target=0.001, and the other defaults"),
        *lines,
    ]
    if options.idle_timeout is not None:
        parts.append(("idle timeout", f"{options.idle_timeout}: buffered events of a key are flushed"))
    if options.state_ttl is not None:
        parts.append(("state TTL", f"{options.state_ttl}: the state of a key is dropped"))
    if options.metrics is not None:
        parts.append(("metrics", f"http://127.0.0.1:{options.metrics}/metrics"))
    if options.page is not None:
        parts.append(("page", f"http://127.0.0.1:{options.page}/"))
    if options.trace is not None:
        parts.append(("trace", f"{options.trace}, for slackline explain"))
    return "\n".join(f"{what:<13} {text}" for what, text in parts)


def _levels(hierarchy: Hierarchy) -> Iterator[tuple[str, str]]:
    for name in sorted(hierarchy.names, key=hierarchy.levels.__getitem__):
        listens = ", ".join(sorted(hierarchy.listens[name]))
        publishes = ", ".join(hierarchy.published(name)) or "nothing"
        yield f"level {hierarchy.levels[name]}", f"{name}: {listens} -> {publishes}"


def _guarantee(sources: Sequence[Source], sink: Sink, every: float) -> str:
    """What a crash does to results."""
    if not sink.commits:
        return "none beyond this run: there are no checkpoints, a new run begins at the start"
    lost = [source.name for source in sources if source.position() is None]
    if not lost:
        return f"exactly once, a checkpoint every {every:g} s; after a crash the same command resumes"
    return (
        f"a checkpoint every {every:g} s, from which the same command resumes; a crash loses what {', '.join(lost)} "
        f"delivered after the last one"
    )


async def _preview(options: RunOptions, sources: Sequence[Source], hierarchy: Hierarchy) -> list[tuple[str, str]]:
    """How the records of the first bounded source are read: each role, sample events, duplicates among them."""
    source = next((source for source in sources if source.bounded), None)
    decoder = Decoder(options.schema, hierarchy)
    default = source.name if source is not None and len(sources) > 1 else None
    if source is None:
        return [(f"field {role}", text) for role, text in decoder.roles().items()]
    events: list[Any] = []
    keys: list[Any] = []
    bad = 0
    batches = source.batches()
    async for batch in batches:
        rows, row_keys, wrong = decoder.decode(batch, default)
        events += events_of(rows) if isinstance(rows, pa.Table) else rows
        keys += [None] * len(rows) if row_keys is None else _list(row_keys)
        bad += len(wrong)
        if len(events) >= LOOKED_AT:
            break
    await batches.aclose()  # type: ignore[attr-defined]
    lines = [(f"field {role}", text) for role, text in decoder.roles(default).items()]
    (_, *notes), warnings = decoder.explained(default)
    lines += [*(("note", text) for text in notes), *(("warning", text) for text in warnings)]
    shown = zip(events[:SHOWN], keys[:SHOWN], strict=True)
    lines += [("sample", f"{event!r}" if options.key is None else f"{key!r}: {event!r}") for event, key in shown]
    numbered = Counter((k, e.type, e.source, e.seq) for e, k in zip(events, keys, strict=True) if e.seq is not None)
    repeated = numbered.total() - len(numbered)
    absent = sum(key is None for key in keys) if options.key is not None else 0
    found = f"{len(events):,} events, {repeated:,} duplicates, {bad:,} not an event, {absent:,} without a key"
    return [*lines, ("sample of", found)]


def _list(column: Any) -> list[Any]:
    return column.to_pylist() if isinstance(column, pa.ChunkedArray) else column
