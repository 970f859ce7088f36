"""Sessions: a local Spark set up for Slackline, the check that any other session can run it, and errors of queries."""

from __future__ import annotations

import os
import re
import shutil
import signal
import sys
import threading
import warnings
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from types import MappingProxyType
from typing import Any

from pyspark.serializers import CloudPickleSerializer
from pyspark.sql import SparkSession
from pyspark.sql.streaming import StreamingQuery

from slackline.core.errors import ConfigError, SlacklineError, StateError

NO_DATA = "spark.sql.streaming.noDataMicroBatches.enabled"
PROVIDER = "spark.sql.streaming.stateStore.providerClass"
ROCKSDB = "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"

#: Above this size Spark ships Python code as a broadcast, which its stateful processors cannot read.
UDF_LIMIT = "spark.broadcast.UDFCompressionThreshold"

#: The end of a traceback: the kind of error, and its message.
_RAISED = re.compile(r"^([A-Za-z_][\w.]*): (.*)$", re.MULTILINE)


def session(cores: int = 2, **conf: Any) -> SparkSession:
    """A local Spark session on ``cores`` cores, ready for :func:`~slackline.spark.detect`.

    RocksDB state store, as many shuffle partitions as cores, Arrow, UTC, no web UI, errors only in the log, and this
    Python with its import path in the workers. ``conf`` adds or overrides settings, e.g.
    ``session(4, **{"spark.driver.memory": "4g"})``. See :func:`configure` for a session of your own.
    """
    if not (os.environ.get("JAVA_HOME") or shutil.which("java")):
        raise ConfigError("Spark needs Java 17 or newer and there is none: install a JRE, or set JAVA_HOME.")
    warnings.filterwarnings("ignore", "PySpark does not yet fully support pandas", FutureWarning)
    settings = {
        "spark.app.name": "slackline",
        UDF_LIMIT: "64m",
        "spark.driver.bindAddress": "127.0.0.1",
        # Packets are large objects, which G1 handles badly, and concurrent collection needs a core of its own.
        "spark.driver.extraJavaOptions": "-XX:+UseParallelGC",
        "spark.driver.host": "localhost",
        "spark.log.level": "ERROR",
        # With a limit in bytes Spark measures a whole Arrow batch after each row, which is half the cost of the way to
        # Python. Packets are small (packets.PACKET_BYTES), so the limit in rows bounds memory well enough.
        "spark.sql.execution.arrow.maxBytesPerBatch": str(2**31 - 1),
        "spark.sql.execution.arrow.maxRecordsPerBatch": "8192",
        "spark.sql.shuffle.partitions": str(cores),
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        PROVIDER: ROCKSDB,
        # Writes a micro-batch's changes instead of whole snapshots.
        "spark.sql.streaming.stateStore.rocksdb.changelogCheckpointing.enabled": "true",
        # Counting the rows of the state store reads every one before it is written.
        "spark.sql.streaming.stateStore.rocksdb.trackTotalNumberOfRows": "false",
        "spark.sql.execution.arrow.pyspark.enabled": "true",
        "spark.sql.session.timeZone": "UTC",
        **{name: str(value).lower() if isinstance(value, bool) else str(value) for name, value in conf.items()},
    }
    builder = SparkSession.builder.master(f"local[{cores}]")
    for name, value in settings.items():
        builder = builder.config(name, value)
    # Spark reads this one when the context starts; its setting spark.pyspark.python does not reach the worker that
    # initialises a stateful processor on the driver.
    os.environ["PYSPARK_PYTHON"] = sys.executable
    # Workers are children of the JVM and inherit its environment, so they can import what this process can.
    before = os.environ.get("PYTHONPATH")
    os.environ["PYTHONPATH"] = os.pathsep.join(_import_path())
    try:
        spark = builder.getOrCreate()
    finally:
        if before is None:
            del os.environ["PYTHONPATH"]
        else:
            os.environ["PYTHONPATH"] = before
    spark.sparkContext.setLogLevel(settings["spark.log.level"])
    return spark


@contextmanager
def application_session(cores: int = 2, conf: Mapping[str, str] = MappingProxyType({})) -> Iterator[SparkSession]:
    """The active session, or one for as long as this takes."""
    ours = SparkSession.getActiveSession() is None
    # SIGTERM often goes to a whole process group. The JVM must ignore it, because this process stops it; pyspark does
    # the same with SIGINT. Signals can only be set in the main thread.
    in_main = threading.current_thread() is threading.main_thread()
    before = signal.signal(signal.SIGTERM, signal.SIG_IGN) if in_main else None
    try:
        spark = session(cores, **conf)
    finally:
        if in_main:
            signal.signal(signal.SIGTERM, before)
    try:
        yield spark
    finally:
        if ours:
            spark.stop()


def configure(spark: SparkSession) -> SparkSession:
    """Set what :func:`~slackline.spark.detect` requires in a session of your own; returns the session.

    It sets the RocksDB state store, which then applies to all stateful queries that are started in this session. A
    query that resumes from a checkpoint keeps the state store with which it was started.
    """
    spark.conf.set(PROVIDER, ROCKSDB)
    return spark


def check(spark: SparkSession, timers: bool = False) -> None:
    """Raise if this session cannot run a stateful query. Timers expire in micro-batches without rows."""
    provider = spark.conf.get(PROVIDER)
    if provider is not None and not provider.endswith("RocksDBStateStoreProvider"):
        raise ConfigError(
            f"stateful streaming in Python needs the RocksDB state store; this session has {provider}. Call "
            f"slackline.spark.configure(spark) before the query starts, or set {PROVIDER} to {ROCKSDB}."
        )
    if timers and spark.conf.get(NO_DATA) == "false":
        raise ConfigError(
            f"idle_timeout and state_ttl need micro-batches without rows; this session has {NO_DATA}=false. Set it to "
            f"true (Spark's default) before the query starts."
        )


def check_size(spark: SparkSession, plan: Any) -> None:
    """Raise if what is sent to the workers is too large for this session."""
    setting = spark.conf.get(UDF_LIMIT, "1m") or "1m"
    known = re.fullmatch(r"(\d+)([bkmgtp]?)b?", setting.strip().lower())
    limit = int(known[1]) << 10 * "bkmgtp".index(known[2]) if known else 2**63
    size = len(CloudPickleSerializer().dumps(plan))
    if size > 0.9 * limit:
        raise ConfigError(
            f"the hierarchy takes {size:,} bytes, and this session sends at most {limit:,} to a stateful processor. "
            f"Start the session with {UDF_LIMIT} set to 64m, as slackline.spark.session() does, or let detectors "
            f"build large tables when they first need them."
        )


class QueryFailedError(SlacklineError):
    """A query failed."""


def check_failure(query: StreamingQuery) -> None:
    """Raise the error of a failed query, without Java's stack trace; what to do where the checkpoint does not fit."""
    error = query.exception()
    if error is None:
        return
    text = str(error)
    if "STATE_STORE_INVALID_CONFIG_AFTER_RESTART" in text and "timeMode" in text:
        raise StateError(
            "the checkpoint was started without idle_timeout and state_ttl and the query has one of them, or the "
            "reverse: Spark's timers are part of the checkpoint. Their lengths may change. Give the option as it was, "
            "or start with a new checkpoint."
        ) from error
    if "STATE_STORE_KEY_SCHEMA_NOT_COMPATIBLE" in text:
        raise StateError(
            "the checkpoint was started with shards and the query has none, or the reverse: keys would not find their "
            "states. Give `shards` as it was, or start with a new checkpoint."
        ) from error
    raise QueryFailedError(
        f"the query failed: {spark_message(text)} Committed micro-batches are complete; when the cause is removed, the "
        f"same query resumes."
    ) from error


def spark_message(text: str) -> str:
    """The exception of a worker, or the first line of the JVM's message.

    >>> spark_message("[PYTHON] Traceback (most recent call last):\\n  File x, line 3\\nValueError: odd\\n\\tat java.x")
    'ValueError: odd'
    """
    _, traced, rest = text.rpartition("Traceback (most recent call last):")
    raised = _RAISED.search(rest) if traced else None
    if raised is not None:
        kind, words = raised.groups()
        return words if kind.startswith("slackline.") else f"{kind}: {words}"
    return next((line.strip() for line in text.splitlines() if line.strip()), "Spark gives no reason.")


def _import_path() -> list[str]:
    """Entries of our import path that a new Python process would not have."""
    roots = {os.path.realpath(path) for path in (sys.prefix, sys.base_prefix)}
    paths = [os.path.abspath(path or os.curdir) for path in sys.path]
    return [path for path in paths if not any(os.path.realpath(path).startswith(root + os.sep) for root in roots)]
