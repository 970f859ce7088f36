"""``slackline run --on spark``: a hierarchy through ``slackline.spark.detect``, over files or between topics."""

from __future__ import annotations

import logging
import signal
import sys
import threading
from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import typer

from slackline.cli.logs import say_on_stderr
from slackline.cli.planned import plan_text
from slackline.cli.settings import CHECKPOINT_EVERY, RunSettings
from slackline.connectors.addresses import scheme_of
from slackline.connectors.kafka.address import KafkaAddress, client_properties
from slackline.core.errors import ConfigError
from slackline.core.hierarchy import Hierarchy
from slackline.runtime.progress import vitals_of
from slackline.runtime.roles import Roles
from slackline.runtime.sites import Sites
from slackline.runtime.vitals import INTERVAL, Vitals, Watcher

#: Who is told how it fares, for as long as it runs.
Watched = Callable[[RunSettings], AbstractContextManager[Watcher]]

logger = logging.getLogger("slackline.run")


class SparkRun(NamedTuple):
    """A run on Spark: what is told of it, and how it begins; a stream gives its query."""

    source: str
    target: str
    promise: str
    begin: Callable[[Any], Any]


def run_on_spark(settings: RunSettings, hierarchy: Hierarchy, roles: Roles, dry_run: bool, watched: Watched) -> None:
    """Run what the settings say, or print what would be run."""
    run = _run_of(settings, hierarchy, roles)
    if dry_run:
        places, promises = [("from", run.source), ("to", run.target)], [("guarantee", run.promise)]
        if _is_stream(settings):
            promises.append(("at a stop", "what waits is kept"))
        typer.echo(plan_text(settings, hierarchy, settings.key, places, promises))
        return
    from slackline.spark.application import application_session

    say_on_stderr("slackline", settings.log)
    file = Path(settings.app.partition(":")[0])
    with application_session(sys.modules[file.stem] if file.suffix == ".py" else None) as spark:
        if not _is_stream(settings):
            counts = run.begin(spark)
            told = ", ".join(f"{n:,} {kind}" for kind, n in counts.items())
            logger.info("wrote %s: %s", settings.to, told or "nothing")
            return
        with watched(settings) as watch:
            _until_stopped(run.begin(spark), watch, roles.per_second)


def _until_stopped(query: Any, watch: Watcher, per_second: int) -> None:
    """Tell how a query fares until it ends, or until a signal ends it."""
    from slackline.spark.application import check_failure, stop_query

    asked = threading.Event()

    def stop(*_: object) -> None:
        logger.info("stops; what waits is in the checkpoint")
        asked.set()

    before = {number: signal.signal(number, stop) for number in (signal.SIGINT, signal.SIGTERM)}
    fares = _Fares(query, per_second)
    try:
        while not asked.wait(INTERVAL) and query.isActive:
            fares.tell(watch)
        stop_query(query)
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
    fares.tell(watch)
    check_failure(query)


class _Fares:
    """How a query fares, from micro-batch to micro-batch."""

    def __init__(self, query: Any, per_second: int) -> None:
        self._query = query
        self._per_second = per_second
        self._last: Any = None
        self._vitals: Vitals | None = None

    def tell(self, watch: Watcher) -> None:
        """Tell what is known now, if anything is."""
        is_idle = not self._query.status["isTriggerActive"]
        before = self._last
        for progress in self._query.recentProgress:
            if "addBatch" not in progress["durationMs"]:
                continue  # nothing came for a while; its number is that of the micro-batch to come
            if self._last is None or progress["batchId"] > self._last["batchId"]:
                self._last, self._vitals = progress, vitals_of(progress, self._vitals, per_second=self._per_second)
        if self._vitals is None:
            return
        if self._last is before:
            self._vitals = replace(self._vitals, checkpoint_age=vitals_of(self._last).checkpoint_age)
            if is_idle:
                self._vitals = replace(self._vitals, rate=0.0, found_rate=0.0)
        watch(self._vitals)


def _is_stream(settings: RunSettings) -> bool:
    return settings.follow or scheme_of(settings.to) == "kafka"


def _run_of(settings: RunSettings, hierarchy: Hierarchy, roles: Roles) -> SparkRun:
    """How to do what is asked for; a ConfigError if Spark cannot."""
    Sites(hierarchy, settings.engine, keyed=settings.key is not None)  # what is wrong with the options shows now
    schemes = {scheme_of(url) for url in (*settings.sources, settings.to)}
    if len(settings.sources) != 1 or "-" in (*settings.sources, settings.to) or schemes not in ({""}, {"kafka"}):
        raise _refused("reads one file or folder and writes to a folder, or reads and writes a topic of Kafka")
    if _is_stream(settings) and settings.at_stop == "flush":
        raise _refused("keeps what waits in its checkpoint: no --at-stop flush")
    if schemes == {"kafka"}:
        return _between_topics(settings, hierarchy, roles)
    if settings.group or settings.delivery:
        raise ConfigError("--group and --delivery are for kafka:// addresses; there is none.")
    path, to = Path(settings.sources[0]), Path(settings.to)
    if to.suffix:
        raise _refused(f"writes to a folder, and --to {to} is a file")
    if settings.follow:
        return _following(settings, hierarchy, roles, path, to)
    if to.exists():
        raise _refused("writes to a folder that is not there yet, unless it follows a folder (--follow)")
    if any(given is not None for given in (settings.at_stop, settings.metrics, settings.checkpoint_every)):
        raise _refused(
            "runs once over files that are there: no --at-stop, --metrics or --checkpoint-every, unless with --follow"
        )
    if not path.exists():
        raise ConfigError(f"{path}: there is no such file or folder.")

    def begin(spark: Any) -> Any:
        from slackline.spark.files import run_files

        return run_files(spark, hierarchy, path, to, roles, settings.engine)

    promise = "files are read whole; an output directory is written once, when all is done"
    return SparkRun(f"{path} (read once)", f"{to} (folder: JSON lines by kind)", promise, begin)


def _following(settings: RunSettings, hierarchy: Hierarchy, roles: Roles, path: Path, to: Path) -> SparkRun:
    from slackline.spark.files import check_target, follow_files

    if not path.is_dir():
        raise _refused(f"follows a folder, whose files come whole, and --from {path} is none")
    check_target(to)
    every = settings.checkpoint_every or CHECKPOINT_EVERY

    def begin(spark: Any) -> Any:
        return follow_files(spark, hierarchy, path, to, roles, settings.engine, every)

    return SparkRun(
        f"{path} (folder, its files as they come)",
        f"{to} (folder: JSON lines by kind, and a checkpoint)",
        f"exactly once for those who read {to} by Spark; others may see files of a micro-batch that was done again. A "
        f"micro-batch every {every:g} s; the same command goes on after a crash",
        begin,
    )


def _between_topics(settings: RunSettings, hierarchy: Hierarchy, roles: Roles) -> SparkRun:
    from slackline.spark.topics import TopicPair, run_topics

    if settings.follow:
        raise _refused("follows folders; a topic is followed anyway: leave --follow out")
    if settings.delivery == "exactly-once":
        raise _refused(
            "writes to Kafka at least once, with ids to drop repeats by: no --delivery exactly-once; a process does it"
        )
    if settings.group is None:
        raise ConfigError("on Kafka an application needs a name: give --group.")
    source, sink = KafkaAddress.of(settings.sources[0]), KafkaAddress.of(settings.to)
    for where, address, known in (
        ("--from", source, {"format", "schema", "start", "config", "state"}), ("--to", sink, {"quarantine"}),
    ):  # fmt: skip
        unknown = sorted(set(address.options) - known)
        if unknown:
            raise ConfigError(f"{where} {address}: on Spark there are no options {unknown}; there are {sorted(known)}.")
    if source.brokers != sink.brokers:
        raise ConfigError(f"input is at {source.brokers} and output at {sink.brokers}; give the same brokers for both.")
    given = dict(source.options)
    needed = {
        "schema": "a file with its records' fields, such as `ts long, van string, x double`, or with their Avro schema",
        "state": "a folder for the query's checkpoint",
    }
    for name, what in needed.items():
        if name not in given:
            raise ConfigError(f"--from {source}: Spark needs {what}; give ?{name}=… behind the address.")
    client = client_properties(given.pop("config")) if "config" in given else {}
    try:
        schema = Path(given.pop("schema")).read_text("utf-8").strip()
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"--from {source}: the schema cannot be read: {error}.") from error
    topics = TopicPair(
        source.brokers, source.topic, sink.topic, sink.options.get("quarantine", f"{sink.topic}-quarantine"), schema,
        Path(given.pop("state")), settings.group, client=client, **given,
    )  # fmt: skip

    def begin(spark: Any) -> Any:
        return run_topics(spark, hierarchy, topics, roles, settings.engine, settings.checkpoint_every)

    return SparkRun(
        f"{source} ({topics.format}), group {topics.group}",
        f"{sink}, what is set aside to {topics.quarantine}",
        f"at least once: after a crash some outputs come again, with the same header id; the checkpoint is in "
        f"{topics.state}, from which the same command goes on",
        begin,
    )


def _refused(why: str) -> ConfigError:
    return ConfigError(f"--on spark {why}. See the guide to `slackline run`.")
