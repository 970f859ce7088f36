"""An application on Spark, as ``slackline run --on spark`` starts it: its session, its query, its metrics."""

from __future__ import annotations

import logging
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from types import ModuleType

from pyspark import cloudpickle
from pyspark.sql import SparkSession
from pyspark.sql.streaming import StreamingQuery

from slackline.connectors.kafka.settings import KafkaAddress, client_properties
from slackline.core.errors import ConfigError
from slackline.core.hierarchy import Hierarchy
from slackline.runtime.keyed import EngineFactory
from slackline.runtime.metrics import INTERVAL, Metrics, MetricsListener
from slackline.runtime.options import RunOptions
from slackline.runtime.schema import RecordSchema
from slackline.runtime.timeouts import Timeouts
from slackline.spark.files import InputState, check_folder, detected, follow_files, run_files
from slackline.spark.kafka import ARRIVED, RECORD_KEY, found_records, prepare_topics, read_topic
from slackline.spark.metrics import metrics_of_progress
from slackline.spark.session import check_failure, session

#: Seconds between micro-batches over files, unless given.
EVERY = 1.0
#: Records of one micro-batch: what it reads of a key is in memory at once.
MAX_RECORDS = 1_000_000

logger = logging.getLogger("slackline.run")


class SparkApplication:
    """A hierarchy on Spark: over a file or folder into a folder, or from topic to topic of Kafka.

    The options are checked at once; ``plan`` describes the run and ``run`` executes it. ``ships`` is a module that
    workers cannot import: its code is sent to them.
    """

    def __init__(self, options: RunOptions, hierarchy: Hierarchy, ships: ModuleType | None = None) -> None:
        self._options = options
        self._hierarchy = hierarchy
        self._ships = ships
        EngineFactory.of(hierarchy, options.engine_options, options.shards)
        Timeouts.of(options.idle_timeout, options.state_ttl)
        addresses = (*options.sources, options.to)
        kafka = [address.startswith("kafka://") for address in addresses]
        others = any("://" in address or address == "-" for address in addresses) and not any(kafka)
        if len(options.sources) != 1 or others or any(kafka) != all(kafka):
            raise _refused("reads one file or folder and writes to a folder, or reads and writes a topic of Kafka")
        if options.shards is not None and options.key is None:
            raise ConfigError("--shards hashes keys, and there are none; give --key, or leave --shards out.")
        self._topics = all(kafka)
        self._streams = self._topics or options.follow
        if self._streams and options.at_stop == "flush":
            raise _refused("stores buffered events in its checkpoint: no --at-stop flush")
        if self._topics:
            self._check_topics()
        else:
            self._check_files()

    def _check_files(self) -> None:
        options = self._options
        path, to = Path(options.sources[0]), Path(options.to)
        if options.group or options.delivery:
            raise ConfigError("--group and --delivery are for kafka:// addresses; there is none.")
        if to.suffix:
            raise _refused(f"writes to a folder, and --to {to} is a file")
        if options.follow and not path.is_dir():
            raise _refused(f"follows a folder, whose files arrive complete, and --from {path} is none")
        if not path.exists():
            raise ConfigError(f"{path}: there is no such file or folder.")
        given = (options.at_stop, options.metrics, options.checkpoint_every, options.idle_timeout, options.state_ttl)
        if not options.follow and any(each is not None for each in given):
            raise _refused(
                "runs once over files: no --at-stop, --metrics, --checkpoint-every, --idle-timeout or --state-ttl, "
                "unless with --follow"
            )

    def _check_topics(self) -> None:
        options = self._options
        self._source, self._sink = KafkaAddress.of(options.sources[0]), KafkaAddress.of(options.to)
        if options.follow or options.fresh:
            raise _refused(
                "takes no --follow or --fresh with Kafka: a topic is followed anyway, a new --state is fresh"
            )
        if options.delivery == "exactly-once":
            raise _refused(
                "writes to Kafka at least once, with ids by which to drop repeats: no --delivery exactly-once"
            )
        if options.group is None:
            raise ConfigError("on Kafka an application needs a name: give --group.")
        if self._source.brokers != self._sink.brokers:
            raise ConfigError(
                f"--from {self._source} and --to {self._sink} have other brokers; give the same for both."
            )
        if options.state is None:
            raise ConfigError("Spark needs a folder for the query's checkpoint: give --state FOLDER.")
        self._fields()

    def _fields(self) -> str:
        """The fields of the records in a topic, or their Avro schema."""
        option = "avro-schema" if self._options.format == "avro" else "fields"
        path = self._options.avro_schema if self._options.format == "avro" else self._options.fields
        if path is None:
            raise ConfigError(f"Spark needs the fields of records, e.g. `ts long, van string`: give --{option} FILE.")
        try:
            return Path(path).read_text("utf-8").strip()
        except (OSError, UnicodeDecodeError) as error:
            raise ConfigError(f"--{option} {path} cannot be read: {error}.") from error

    def plan(self) -> list[tuple[str, str]]:
        """The lines of the plan: from, to, guarantee."""
        options = self._options
        if self._topics:
            lines = [
                ("from", f"{self._source} ({options.format}), group {options.group}"),
                ("to", f"{self._sink}, {', '.join(f'{kind}: {name}' for kind, name in self._other_topics().items())}"),
                ("guarantee", f"at least once: after a crash some outputs are repeated, with the same header id; the "
                 f"checkpoint is in {options.state}, from which the same command resumes"),
            ]  # fmt: skip
        elif options.follow:
            lines = [
                ("from", f"{options.sources[0]} (folder, its files as they arrive)"),
                ("to", f"{options.to} (folder: JSON lines by kind, and a checkpoint)"),
                ("guarantee", f"exactly once for readers of {options.to} on Spark; others may see files of a repeated "
                 f"micro-batch. One every {options.checkpoint_every or EVERY:g} s; after a crash the same command "
                 f"resumes"),
            ]  # fmt: skip
        else:
            lines = [
                ("from", f"{options.sources[0]} (read once)"),
                ("to", f"{options.to} (folder: JSON lines by kind)"),
                ("guarantee", "files are read completely; the folder is written once, when all is done"),
            ]
        return [*lines, ("at a stop", "buffered events are kept")] if self._streams else lines

    def run(self, listener: MetricsListener) -> Metrics | None:
        """Run until the files end, the query fails, or SIGINT or SIGTERM; returns the last metrics."""
        options = self._options
        if not self._topics:
            check_folder(Path(options.to), options.follow, options.fresh)
        with _session(self._ships) as spark:
            if self._topics:
                return _until_stopped(self._start_topics(spark), options.schema, listener)
            if options.follow:
                every = options.checkpoint_every or EVERY
                return _until_stopped(*follow_files(spark, self._hierarchy, options, every), listener)
            metrics = run_files(spark, self._hierarchy, options)
            listener(metrics)
            return metrics

    def _other_topics(self) -> dict[str, str]:
        sink, options = self._sink.topic, self._options
        topics = {"late": options.late_topic or f"{sink}-late"}
        topics["quarantine"] = options.quarantine_topic or f"{sink}-quarantine"
        return topics | ({"duplicates": f"{sink}-duplicates"} if options.duplicates == "write" else {})

    def _start_topics(self, spark: SparkSession) -> StreamingQuery:
        options, schema, brokers = self._options, self._options.schema, self._source.brokers
        properties = client_properties(options.kafka_config) if options.kafka_config else {}
        client = {f"kafka.{name}": value for name, value in properties.items()}
        assert options.state is not None and options.group is not None
        state = Path(options.state)
        before = InputState.load(state)
        if before is not None:
            before.resumed(schema, options, state)
        events = read_topic(
            spark, brokers, self._source.topic, self._fields(), format=options.format, start=options.start,
            options={"groupIdPrefix": options.group, "maxOffsetsPerTrigger": str(MAX_RECORDS), **client},
        )  # fmt: skip
        others = self._other_topics()
        source, sink = self._source.topic, self._sink.topic
        partitions = prepare_topics(spark, brokers, source, sink, others.values(), properties)
        if partitions > 1 and schema.key is None:
            raise ConfigError(
                f"the topic {source!r} has {partitions} partitions, between which there is no order of arrival, and "
                f"there is one engine for all. Give --key, or a topic with one partition."
            )
        if schema.key == "key" and "key" not in events.columns:
            events = events.withColumnRenamed(RECORD_KEY, "key")
        found = detected(events.drop(RECORD_KEY), self._hierarchy, options, schema, arrival=ARRIVED)
        if before is None:
            InputState.of(schema, options).save(state)
        writer = found_records(found, sink, **others).writeStream.format("kafka").options(**client)
        writer = writer.option("kafka.bootstrap.servers", brokers).option("includeHeaders", "true")
        if options.checkpoint_every is not None:
            writer = writer.trigger(processingTime=f"{round(options.checkpoint_every * 1_000)} milliseconds")
        return writer.option("checkpointLocation", str(state)).queryName(options.group).start()


@contextmanager
def _session(ships: ModuleType | None) -> Iterator[SparkSession]:
    """The active session, or one for as long as this takes."""
    if ships is not None:
        cloudpickle.register_pickle_by_value(ships)
    ours = SparkSession.getActiveSession() is None
    with _shielded():
        spark = session()
    try:
        yield spark
    finally:
        if ours:
            spark.stop()


@contextmanager
def _shielded() -> Iterator[None]:
    """Processes that are started in here do not end by SIGTERM, which often goes to a whole process group: this process
    stops them. pyspark does the same with SIGINT.
    """
    if threading.current_thread() is not threading.main_thread():
        yield  # signals can only be set in the main thread
        return
    before = signal.signal(signal.SIGTERM, signal.SIG_IGN)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


def _until_stopped(query: StreamingQuery, schema: RecordSchema, listener: MetricsListener) -> Metrics | None:
    """Report the metrics of a query until it ends, or until a signal ends it."""
    asked = threading.Event()

    def stop(*_: object) -> None:
        logger.info("shutting down; buffered events stay in the checkpoint")
        asked.set()

    before = {number: signal.signal(number, stop) for number in (signal.SIGINT, signal.SIGTERM)}
    metrics = QueryMetrics(query, schema.ts_per_second)
    try:
        while not asked.wait(INTERVAL) and query.isActive:
            metrics.report(listener)
        stop_query(query)
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
    metrics.report(listener)
    check_failure(query)
    return metrics.last


class QueryMetrics:
    """The metrics of a query, from micro-batch to micro-batch."""

    def __init__(self, query: StreamingQuery, ts_per_second: int) -> None:
        self._query = query
        self._ts_per_second = ts_per_second
        self._batch = -1
        #: The last metrics; None before the first micro-batch.
        self.last: Metrics | None = None

    def report(self, listener: MetricsListener) -> None:
        """Report the metrics of now, if there are any."""
        is_idle, is_new = not self._query.status["isTriggerActive"], False
        for progress in self._query.recentProgress:
            # Without addBatch there was no micro-batch; the number is that of the next one.
            if "addBatch" in progress["durationMs"] and progress["batchId"] > self._batch:
                self._batch, is_new = progress["batchId"], True
                self.last = metrics_of_progress(progress, self.last, ts_per_second=self._ts_per_second)
        if self.last is None:
            return
        if not is_new and is_idle:
            self.last = replace(self.last, event_rate=0.0, output_rate=0.0)
        listener(self.last)


def stop_query(query: StreamingQuery) -> None:
    """Stop a query; the next run repeats a micro-batch that was under way."""
    active = SparkSession.getActiveSession()
    if active is not None:
        active.sparkContext.setLogLevel("OFF")  # Spark would log at length that it was interrupted
    try:
        query.stop()
    finally:
        if active is not None:
            active.sparkContext.setLogLevel("ERROR")


def _refused(why: str) -> ConfigError:
    return ConfigError(f"--on spark {why}. See the guide to `slackline run`.")
