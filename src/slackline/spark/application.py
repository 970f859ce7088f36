"""An application on Spark, as ``slackline run --on spark`` starts it: over files into a folder, or from topic to topic.

Results in a folder are JSON lines below ``kind=event``, ``kind=late`` and so on, in the columns of
:func:`~slackline.spark.detect`.
"""

from __future__ import annotations

import logging
import shutil
import threading
from dataclasses import replace
from pathlib import Path
from types import ModuleType
from typing import Any

import msgspec
import numpy as np
from pyspark import cloudpickle
from pyspark.errors import AnalysisException
from pyspark.sql import DataFrame, Observation, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.streaming import StreamingQuery
from pyspark.sql.types import IntegralType, StructType, TimestampNTZType, TimestampType

from slackline.connectors.kafka.settings import KafkaAddress, client_properties, described, output_topics
from slackline.core.errors import ConfigError, SchemaError, StateError
from slackline.core.hierarchy import Hierarchy
from slackline.runtime.application import stopped_by_signals
from slackline.runtime.checkpoint import Checkpoint, FolderCheckpointStore
from slackline.runtime.keyed import EngineFactory
from slackline.runtime.metrics import INTERVAL, Metrics, MetricsListener
from slackline.runtime.options import RunOptions
from slackline.runtime.schema import RecordSchema
from slackline.runtime.timeouts import Timeouts
from slackline.runtime.units import unit_of
from slackline.spark.columns import column
from slackline.spark.kafka import ARRIVED, RECORD_KEY, found_records, prepare_topics, read_topic
from slackline.spark.metrics import metrics_of_observation, metrics_of_progress
from slackline.spark.pipeline import detect
from slackline.spark.session import application_session, check_failure

#: Seconds between micro-batches over files, unless given.
EVERY = 1.0
#: Records, and files, of one micro-batch: what it reads of a key is in memory at once.
MAX_RECORDS, MAX_FILES = 1_000_000, 100

_FORMATS = {".csv": "csv", ".jsonl": "json", ".ndjson": "json", ".jsonlines": "json", ".parquet": "parquet"}
#: The query's checkpoint beside results in a folder; Spark ignores the name when it reads them.
_CHECKPOINT = "_checkpoint"
#: Rows that show the unit of event times.
_SAMPLE = 1_000
#: The key of all events, where they have none of their own.
_ALL = "__slackline_all"

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
        self._timers = bool(Timeouts.of(options.idle_timeout, options.state_ttl))
        addresses = (*options.sources, options.to)
        kafka = [address.startswith("kafka://") for address in addresses]
        others = any("://" in address or address == "-" for address in addresses) and not any(kafka)
        if len(options.sources) != 1 or others or any(kafka) != all(kafka):
            raise _refused("reads one file or folder and writes to a folder, or reads and writes a topic of Kafka")
        if options.shards is not None and options.key is None:
            raise ConfigError("--shards needs a key: give --key, or leave out --shards.")
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
            raise _refused(f"follows a folder, whose files arrive complete, and --from {path} is not a folder")
        if not path.exists():
            raise ConfigError(f"{path}: there is no such file or folder.")
        given = (
            options.at_stop, options.metrics, options.page, options.checkpoint_every, options.idle_timeout,
            options.state_ttl,
        )  # fmt: skip
        if not options.follow and any(each is not None for each in given):
            raise _refused(
                "runs once over files: no --at-stop, --metrics, --page, --checkpoint-every, --idle-timeout or "
                "--state-ttl, unless with --follow"
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
        self._written = output_topics(
            self._sink.topic, options.late_topic, options.quarantine_topic, options.duplicates == "write"
        )
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
                ("to", f"{self._sink}; {described(self._written)}"),
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
                ("guarantee", "files are read completely; the folder is written once, at the end"),
            ]
        return [*lines, ("at a stop", "buffered events are stored in the checkpoint")] if self._streams else lines

    def run(self, listener: MetricsListener) -> Metrics | None:
        """Run until the files end, the query fails, or SIGINT or SIGTERM; returns the last metrics."""
        if not self._topics:
            _check_folder(Path(self._options.to), self._options.follow, self._options.fresh)
        if self._ships is not None:
            cloudpickle.register_pickle_by_value(self._ships)
        with application_session(conf=self._options.conf) as spark:
            if self._topics:
                return _until_stopped(spark, *self._start_topics(spark), listener)
            if self._options.follow:
                return _until_stopped(spark, *self._start_files(spark), listener)
            metrics = self._run_files(spark)
            listener(metrics)
            return metrics

    # Files.

    def _run_files(self, spark: SparkSession) -> Metrics:
        """Process a file, or the files of a folder as one stream, older ones first."""
        path = Path(self._options.sources[0])
        df = _read(spark, path, _format_of(path))
        schema = _with_unit(df, self._options.schema)
        seen = Observation()
        self._detect(df, schema, metrics=seen).write.partitionBy("kind").json(self._options.to)
        return metrics_of_observation(seen.get, schema.ts_per_second)

    def _start_files(self, spark: SparkSession) -> tuple[StreamingQuery, RecordSchema]:
        """Process the files of a folder as they arrive, older ones first, with the columns of those at the first start.

        Returns the query, and the schema with the unit that was recognised.
        """
        folder, to = Path(self._options.sources[0]), Path(self._options.to)
        saved = self._saved_input(to / _CHECKPOINT)
        if saved is None:
            format = _format_of(folder)
            sample = _read(spark, folder, format)
            schema, columns = _with_unit(sample, self._options.schema), sample.schema
        else:
            schema = self._options.schema.resumed(saved["records"], str(to))
            format, columns = saved["format"], StructType.fromJson(saved["columns"])
        reader = spark.readStream.schema(columns)
        df = reader.load(str(folder), format=format, header=True, maxFilesPerTrigger=MAX_FILES)
        writer = self._detect(df, schema).writeStream.partitionBy("kind").format("json").option("path", str(to))
        if saved is None:
            self._save_input(to / _CHECKPOINT, schema, format=format, columns=columns.jsonValue())
        writer = writer.trigger(processingTime=_milliseconds(self._options.checkpoint_every or EVERY))
        return writer.option("checkpointLocation", str(to / _CHECKPOINT)).start(), schema

    # Topics.

    def _start_topics(self, spark: SparkSession) -> tuple[StreamingQuery, RecordSchema]:
        options, schema, brokers = self._options, self._options.schema, self._source.brokers
        properties = client_properties(options.kafka_config)
        client = {f"kafka.{name}": value for name, value in properties.items()}
        assert options.state is not None and options.group is not None
        saved = self._saved_input(Path(options.state))
        if saved is not None:
            schema.resumed(saved["records"], options.state)
        events = read_topic(
            spark, brokers, self._source.topic, self._fields(), format=options.format, start=options.start,
            options={"groupIdPrefix": options.group, "maxOffsetsPerTrigger": str(MAX_RECORDS), **client},
        )  # fmt: skip
        source, written = self._source.topic, self._written
        partitions = prepare_topics(spark, brokers, source, self._sink.topic, written.values(), properties)
        if partitions > 1 and schema.key is None:
            raise ConfigError(
                f"the topic {source!r} has {partitions} partitions, between which there is no order of arrival, and "
                f"there is one engine for all. Give --key, or a topic with one partition."
            )
        if schema.key == "key" and "key" not in events.columns:
            events = events.withColumnRenamed(RECORD_KEY, "key")
        found = self._detect(events.drop(RECORD_KEY), schema, arrival=ARRIVED)
        if saved is None:
            self._save_input(Path(options.state), schema)
        messages = found_records(found, self._sink.topic, written["late"], written["quarantine"])
        writer = messages.writeStream.format("kafka").options(**client)
        writer = writer.option("kafka.bootstrap.servers", brokers).option("includeHeaders", "true")
        if options.checkpoint_every is not None:
            writer = writer.trigger(processingTime=_milliseconds(options.checkpoint_every))
        return writer.option("checkpointLocation", options.state).queryName(options.group).start(), schema

    # Both.

    def _detect(
        self, df: DataFrame, schema: RecordSchema, *, arrival: str | None = None,
        metrics: str | Observation | None = "slackline",
    ) -> DataFrame:  # fmt: skip
        """The output records of a DataFrame, without statistics; the key is null where the schema has none.

        Columns called ``type``, ``source`` and ``seq`` are used as such where the schema does not name others, ``seq``
        only where the source or the key is known, as in every runtime.
        """
        options = self._options
        kind = df.schema[schema.ts].dataType if schema.ts in df.columns else None
        if isinstance(kind, TimestampType | TimestampNTZType) and (schema.unit or "us") != "us":
            raise ConfigError(
                f"ts={schema.ts!r} is a column of timestamps, which are microseconds on Spark, and the unit is "
                f"{schema.unit!r}; leave --unit out, or give event times as whole numbers."
            )
        roles: dict[str, Any] = {
            role: getattr(schema, role) or (role if role in df.columns else None) for role in ("type", "source", "seq")
        }
        if schema.seq is None and roles["seq"] and roles["source"] is None and schema.key is None:
            raise ConfigError(
                "column 'seq' is a sequence number per source, and no source is given. Give --source or --key, or "
                "--seq seq to use it without them; on Spark it cannot be payload."
            )
        rows = df if schema.key is not None else df.withColumn(_ALL, F.lit("all"))
        found = detect(
            rows, self._hierarchy, key=schema.key or _ALL, ts=schema.ts, arrival=arrival, stats=False, metrics=metrics,
            shards=options.shards, idle_timeout=options.idle_timeout, state_ttl=options.state_ttl, **roles,
            **options.engine_options,
        )  # fmt: skip
        return found if schema.key is not None else found.withColumn("key", F.lit(None).cast("string"))

    def _save_input(self, folder: Path, schema: RecordSchema, **more: Any) -> None:
        """Write into a new checkpoint how its input is read: another record schema would not find its states."""
        folder.mkdir(parents=True, exist_ok=True)
        layout = {"records": schema.plain(), "shards": self._options.shards, "timers": self._timers, **more}
        _input_store(folder).save(Checkpoint("spark input", layout))

    def _saved_input(self, folder: Path) -> Any:
        """How the input of a checkpoint is read; None for a new one. Raises if the options do not fit it."""
        checkpoint = _input_store(folder).load()
        if checkpoint is None:
            return None
        saved = checkpoint.header
        if saved["shards"] != self._options.shards:
            raise StateError(
                f"{folder} was started with {saved['shards'] or 'no'} shards, and --shards is {self._options.shards}: "
                f"keys would not find their states. Give the same number, or start with another folder."
            )
        if saved["timers"] != self._timers:
            had, has = ("with", "without") if saved["timers"] else ("without", "with")
            raise StateError(
                f"{folder} was started {had} --idle-timeout or --state-ttl and cannot be resumed {has}: Spark's timers "
                f"are part of its checkpoint. Their lengths may change. Start with another folder."
            )
        return saved


def _input_store(folder: Path) -> FolderCheckpointStore:
    return FolderCheckpointStore(folder, "spark input", "slackline")


def _check_folder(to: Path, follow: bool, fresh: bool) -> None:
    """Raise if results cannot go to this folder. With ``fresh``, those of an earlier run on Spark are discarded."""
    has_checkpoint = _input_store(to / _CHECKPOINT).path.is_file()
    if fresh and (has_checkpoint or (to / "_SUCCESS").is_file()):
        shutil.rmtree(to)
    if not to.exists() or (to.is_dir() and not any(to.iterdir()) and follow):
        return
    if not follow:
        raise ConfigError(f"{to} exists; on Spark give a new folder, or --fresh to discard results of an earlier run.")
    if not has_checkpoint:
        raise ConfigError(
            f"{to} exists and has no checkpoint of Spark; give a new folder, or that of the run to resume."
        )


def _with_unit(df: DataFrame, schema: RecordSchema) -> RecordSchema:
    """The schema with the unit of event times; unless given it is recognised from the first rows. Logs how."""
    if schema.ts not in df.columns or not isinstance(df.schema[schema.ts].dataType, IntegralType):
        return schema
    ts = column(df, schema.ts)
    rows = df.select(ts).where(ts > 0).limit(_SAMPLE).collect()
    choice = unit_of({schema.ts: np.array([row[0] for row in rows], np.int64)}, schema.unit, "the files")
    choice.log(logger)
    return msgspec.structs.replace(schema, unit=choice.unit)


def _format_of(path: Path) -> str:
    names = [path.name] if path.is_file() else [each.name for each in path.iterdir()]
    formats = {
        kind
        for name in names
        for ending, kind in _FORMATS.items()
        if name.lower().removesuffix(".gz").endswith(ending) and not name.startswith((".", "_"))
    }
    if len(formats) != 1:
        known = ", ".join(_FORMATS)
        raise ConfigError(
            f"{path}: on Spark, files are of one format, with one of the endings {known}; found {names[:5]}."
        )
    return formats.pop()


def _read(spark: SparkSession, path: Path, format: str) -> DataFrame:
    try:
        return spark.read.load(str(path), format=format, header=True, inferSchema=True)
    except AnalysisException as error:
        raise SchemaError(f"cannot read {path}: {error}.") from error


def _milliseconds(seconds: float) -> str:
    return f"{round(seconds * 1_000)} milliseconds"


def _until_stopped(
    spark: SparkSession, query: StreamingQuery, schema: RecordSchema, listener: MetricsListener
) -> Metrics | None:
    """Report the metrics of a query until it ends, or until a signal ends it."""
    asked = threading.Event()

    def stop() -> None:
        logger.info("shutting down; buffered events stay in the checkpoint")
        asked.set()

    metrics = QueryMetrics(query, schema.ts_per_second)
    with stopped_by_signals(stop):
        try:
            while not asked.wait(INTERVAL) and query.isActive:
                metrics.report(listener)
            spark.sparkContext.setLogLevel("OFF")  # Spark would log at length that it was interrupted
            query.stop()  # the next run repeats a micro-batch that was in progress
        finally:
            spark.sparkContext.setLogLevel("ERROR")
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


def _refused(why: str) -> ConfigError:
    return ConfigError(f"--on spark {why}. See the guide to `slackline run`.")
