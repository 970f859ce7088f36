"""Hosts between two topics of Kafka in long-lived tasks of a Spark session.

Each task runs the host that ``slackline run`` runs in a process (:mod:`slackline.connectors.kafka.host`), as a member
of the consumer group: Kafka deals the partitions to the tasks, and fences the former owner of a partition by its
transactions. So a task that is lost, or one that Spark has given up and that still runs, costs time, never an output.
"""

from __future__ import annotations

import secrets
import threading
from pathlib import Path
from typing import Any

import msgspec
from pyspark.sql import SparkSession

from slackline.cluster.links import Credentials
from slackline.cluster.registry import Registry
from slackline.cluster.task import HostTask
from slackline.connectors.kafka import KafkaApplication, KafkaSettings
from slackline.core.errors import ConfigError
from slackline.core.hierarchy import Hierarchy
from slackline.runtime.address import Address
from slackline.runtime.application import load_application, stopped_by_signals
from slackline.runtime.metrics import INTERVAL, Metrics, MetricsListener
from slackline.runtime.options import RunOptions, by_option, option_names, run_options
from slackline.spark.session import application_session
from slackline.spark.tasks import SparkTasks, absolute, check_slots, host_of

#: Seconds within which all tasks must run.
START_TIMEOUT = 60.0


def hosts(
    spark: SparkSession,
    app: str,
    *,
    source: str,
    sink: str,
    group: str,
    tasks: int,
    host: str | None = None,
    start_timeout: float = START_TIMEOUT,
    **options: Any,
) -> SparkHosts:
    """Run an application between two topics of Kafka in tasks of this session; returns when all of them run.

    ``app``      the application as ``slackline run`` names it: a file, or ``module:name``. Executors load it from
                 there; no code is sent to them.
    ``source``, ``sink``  ``kafka://HOST:PORT/TOPIC``.
    ``group``    the consumer group. Tasks, and processes of ``slackline run`` with the same group, share the
                 partitions.
    ``tasks``    how many; each takes one slot (``spark.task.cpus`` cores) until it ends.
    ``host``     address of the driver that executors can reach; that of the session by default.
    ``options``  those of ``slackline run`` for Kafka, such as ``key``, ``commit_interval``, ``idle_timeout``,
                 ``engine`` (a dict), ``kafka_config``, ``tls`` (three files). Files are read by executors, too.
    """
    known = {each.name for each in option_names().values()}
    unknown = sorted(set(options) - known)
    if unknown:
        raise ConfigError(f"unknown options {', '.join(unknown)}; known are {', '.join(sorted(known))}.")
    given = by_option({"app": app, "sources": [source], "to": sink, "group": group, "tasks": tasks, **options})
    made = SparkHosts(spark, run_options({**given, "on": "spark-tasks"}, None), host)
    try:
        made._start(start_timeout)
    except BaseException:
        made.stop()
        raise
    return made


class SparkHosts(SparkTasks):
    """Hosts that run; :func:`hosts` starts them. A context manager that stops them."""

    def __init__(self, spark: SparkSession, options: RunOptions, host: str | None = None) -> None:
        hierarchy, _ = load_application(absolute(options.app), None)
        check_options(options, hierarchy)
        if not hasattr(spark, "_jsparkSession"):
            raise ConfigError("hosts are tasks of RDDs, and Spark Connect has none; use a session with a SparkContext.")
        self._options = _absolute_paths(options)
        self._host = host or host_of(spark)
        self._credentials = Credentials.of(*map(Path, options.tls))
        super().__init__(
            spark,
            Registry([f"h{at + 1}" for at in range(options.tasks or 0)], self._credentials, lambda: None),
            group=f"slackline {options.group} {secrets.token_hex(4)}",
            what="host",
            stopped="the Spark session was stopped while the hosts ran. Start them in a new session to resume.",
        )

    def metrics(self) -> Metrics:
        """Metrics of all hosts that run, as one; each reports once a second."""
        seats = [seat for seat in self._registry.seats.values() if seat.is_up or self._stops.is_set()]
        return Metrics.merged(msgspec.convert(seat.metrics, Metrics) for seat in seats if seat.metrics)

    def _start(self, timeout: float) -> None:
        seats, credentials = self._registry.seats, self._credentials
        credentials.check(Address(self._host, 0))
        check_slots(self._context, len(seats), self._what)
        self._is_open = True
        at, token = str(self._registry.start(self._host)), self._registry.token
        self._launch({name: HostTask(name=name, options=self._options, registry=at, token=token) for name in seats})
        self._until(
            lambda: len(self._registry.addresses()) == len(seats),
            timeout,
            lambda missing: (
                f"after {timeout:g} s no slot of Spark has run {', '.join(missing)}. Start fewer tasks, or "
                f"add executors."
            ),
        )


def check_options(options: RunOptions, hierarchy: Hierarchy) -> KafkaSettings:
    """The settings of the hosts; a ConfigError for what they cannot do."""
    if options.tasks is None:
        raise ConfigError(
            "--tasks is missing; give the number of tasks, each of which takes one slot of the session, e.g. --tasks 2."
        )
    if len(options.tls) not in (0, 3):
        raise ConfigError(f"--tls takes three files: certificate, key and authority; got {len(options.tls)}.")
    return KafkaApplication(options, hierarchy).host.settings


def _absolute_paths(options: RunOptions) -> RunOptions:
    """The options with whole paths: executors have another working directory."""

    def whole(path: str | None) -> str | None:
        return None if path is None else str(Path(path).resolve())

    state = options.state
    return msgspec.structs.replace(
        options,
        app=absolute(options.app),
        state=whole(state) if state and "/" in state else state,
        kafka_config=whole(options.kafka_config),
        avro_schema=whole(options.avro_schema),
        tls=tuple(str(Path(each).resolve()) for each in options.tls),
    )


class HostsApplication:
    """``slackline run … --on spark-tasks``: hosts by the options of the command line."""

    def __init__(self, options: RunOptions, hierarchy: Hierarchy) -> None:
        self._options = options
        self._settings = check_options(options, hierarchy)

    def plan(self) -> list[tuple[str, str]]:
        """From where to where, what is guaranteed, and where it runs: a line each."""
        where = self._options.conf.get("spark.master", "a local session")
        return [*self._settings.plan(), ("tasks", f"{self._options.tasks}, each one slot of {where}")]

    def run(self, listener: MetricsListener) -> Metrics:
        """Process until SIGINT or SIGTERM; the last metrics."""
        asked = threading.Event()
        session = application_session(self._options.tasks or 1, self._options.conf)
        with session as spark, stopped_by_signals(asked.set), SparkHosts(spark, self._options) as running:
            running._start(START_TIMEOUT)
            while not asked.wait(INTERVAL) and not running.wait(0):
                listener(running.metrics())
        return running.metrics()
