"""Long-lived tasks on executors: what nodes of a cluster and hosts between topics have in common on Spark.

Each task is a Spark job of its own, which lives as long as what runs in it: Spark places it, isolates it and starts it
again when its worker or executor dies, and only it. The driver has the :class:`~slackline.cluster.registry.Registry`,
to which the tasks report; it decides nothing about the stream.
"""

from __future__ import annotations

import logging
import re
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, Self

import msgspec
from pyspark import InheritableThread, SparkContext
from pyspark.sql import SparkSession

from slackline.cluster.registry import Registry
from slackline.cluster.task import HostTask, NodeTask, Outcome
from slackline.cluster.tcp import LEAVING
from slackline.core.errors import ConfigError, SlacklineError
from slackline.spark.session import spark_message

#: Seconds that executors have to register with the driver before slots are counted.
EXECUTORS = 10.0
#: A task that ends earlier than this has failed at once; after so many of these in a row all tasks are ended.
SHORT, MAX_FAILURES = 5.0, 4
#: Seconds before the next attempt of a task, at first and at most.
FIRST, CAP = 0.25, 10.0

logger = logging.getLogger("slackline.cluster")


class SparkTasks:
    """Runs a task for each seat of a registry until it ends; a context manager that stops them.

    ``group``    begins the names of Spark's job groups.
    ``what``     what runs in a task, in messages: node, host.
    ``stopped``  the error if the session is stopped underneath.
    """

    def __init__(self, spark: SparkSession, registry: Registry, *, group: str, what: str, stopped: str) -> None:
        self._context: SparkContext = spark.sparkContext
        self._registry = registry
        self._group = group
        self._what = what
        self._stopped = stopped
        self._ended: set[str] = set()
        self._threads: list[threading.Thread] = []
        self._changed = threading.Condition()
        self._stops = threading.Event()
        self._error: SlacklineError | None = None
        self._is_open = False

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def wait(self, timeout: float | None = None) -> bool:
        """Wait until all tasks have ended; whether they have. Raises if one has failed for good."""
        with self._changed:
            ended = self._changed.wait_for(lambda: self._error is not None or self._is_over, timeout)
        self._check()
        return ended

    def stop(self) -> None:
        """Stop what runs in the tasks, with its state in checkpoints, from which the same call resumes."""
        if not self._is_open:
            return
        self._is_open = False
        self._stops.set()
        self._registry.stop_nodes()
        until = time.monotonic() + LEAVING
        for thread in self._threads:
            if thread is not threading.current_thread():
                thread.join(max(0.0, until - time.monotonic()))
        self._registry.close()
        if any(thread.is_alive() for thread in self._threads) and not _is_stopped(self._context):
            for name in self._registry.seats:
                self._context.cancelJobGroup(self._group_of(name))

    def tasks(self) -> dict[str, dict[str, Any]]:
        """The host, process and number of attempts of each task, and whether it runs."""
        return {
            name: {"host": seat.host, "pid": seat.pid, "attempts": seat.attempts, "runs": seat.is_up}
            for name, seat in self._registry.seats.items()
        }

    def _launch(self, tasks: Mapping[str, NodeTask | HostTask], *more: threading.Thread) -> None:
        """Start the jobs of tasks, and further threads that end with them."""
        work = [(self._keep, name, msgspec.json.encode(task)) for name, task in tasks.items()]
        threads = [InheritableThread(target=run, args=given, daemon=True) for run, *given in work]
        self._threads = [*threads, *more]
        for thread in self._threads:
            thread.start()

    def _until(self, is_complete: Callable[[], bool], timeout: float, why: Callable[[list[str]], str]) -> None:
        """Wait until all tasks run; ``why`` they do not is said of the names of those that do not run."""
        until = time.monotonic() + timeout
        while not is_complete():
            self._check()
            if time.monotonic() > until:
                raise SlacklineError(why(sorted(self._registry.seats.keys() - self._registry.addresses().keys())))
            self._stops.wait(0.02)
        self._check()

    def _keep(self, name: str, task: bytes) -> None:
        """Run the job of a task, and again when it has ended too early."""
        run = task_of(task)
        context, failures, delay = self._context, 0, FIRST
        context.setJobGroup(self._group_of(name), f"slackline {self._what} {name}", interruptOnCancel=True)
        while not self._stops.is_set():
            began = time.monotonic()
            try:
                (found,) = context.parallelize([0], 1).mapPartitions(run).collect()
                outcome = msgspec.json.decode(found, type=Outcome)
            except Exception as error:
                if self._stops.is_set():
                    self._end(name)
                    return
                if _is_stopped(context):
                    self._fail(self._stopped)
                    return
                outcome = Outcome(how="failed", error=_lost(str(error)))
            if outcome.how == "ended" or self._stops.is_set():
                self._end(name)
                return
            where = f"{self._what} {name}" + (f" on {outcome.host}" if outcome.host else "")
            is_short = outcome.how != "replaced" and time.monotonic() - began < SHORT
            failures = failures + 1 if is_short else 0
            delay = min(CAP, 2 * delay) if is_short or outcome.how == "replaced" else FIRST
            if outcome.how == "refused" or failures >= MAX_FAILURES:
                self._fail(f"{where}: {outcome.error}")
                return
            logger.warning("%s: %s; starting it again", where, outcome.error.rstrip(".") or outcome.how)
            self._stops.wait(delay)

    def _group_of(self, name: str) -> str:
        return f"{self._group} {name}"

    def _end(self, name: str) -> None:
        with self._changed:
            self._ended.add(name)
            self._changed.notify_all()

    def _fail(self, text: str) -> None:
        with self._changed:
            if self._error is None and not self._stops.is_set():
                self._error = SlacklineError(text)
                logger.error("%s", text)
            self._changed.notify_all()
        self._stops.set()
        self._registry.stop_nodes()

    @property
    def _is_over(self) -> bool:
        return len(self._ended) == len(self._registry.seats)

    def _check(self) -> None:
        if self._error is not None:
            raise SlacklineError(str(self._error)) from self._error


def task_of(task: bytes) -> Callable[[Iterable[int]], Iterator[bytes]]:
    """What a task runs. It is sent by value, and says which package an executor lacks."""

    def run(_: Iterable[int]) -> Iterator[bytes]:
        import json
        import socket
        import sys

        try:
            from slackline.cluster.task import main
        except ImportError as error:
            missing = error.name or str(error)
            text = (
                f"this executor cannot import the package {missing!r} with {sys.executable}. Install there what the "
                f"driver has, or set PYSPARK_PYTHON to a Python that has it"
            )
            yield json.dumps({"how": "refused", "error": text + ".", "host": socket.gethostname()}).encode()
            return
        yield main(task)

    return run


def check_slots(context: SparkContext, wanted: int, what: str) -> None:
    """A ConfigError if fewer slots are free than tasks are wanted, as far as Spark says how many there are."""
    until = time.monotonic() + EXECUTORS
    while (slots := _slots(context)) is not None and slots[0] - slots[1] < wanted:
        if time.monotonic() > until or str(context.master).startswith("local["):
            total, busy = slots
            raise ConfigError(
                f"{wanted} {what}s need {wanted} slots, and {total - busy} are free: the session has {total}, of which "
                f"other jobs use {busy}. Start fewer {what}s, or a session with more cores."
            )
        time.sleep(0.2)


def _slots(context: SparkContext) -> tuple[int, int] | None:
    """How many tasks can run at once, and how many do; None where that is not known in advance."""
    try:
        conf = context.getConf()
        if conf.get("spark.dynamicAllocation.enabled") == "true" or conf.contains("spark.default.parallelism"):
            return None
        total = context.defaultParallelism // int(conf.get("spark.task.cpus") or 1)
        tracker = context.statusTracker()
        stages = [tracker.getStageInfo(each) for each in tracker.getActiveStageIds()]
        return total, sum(stage.numActiveTasks for stage in stages if stage is not None)
    except Exception as error:
        if _is_stopped(context):
            raise ConfigError("the Spark session is stopped; start a new one.") from error
        raise


def _lost(text: str) -> str:
    """Why Spark has given up a task.

    >>> _lost("Job aborted: Lost task 0.0: org.apache.spark.SparkException: Python worker exited (crashed). Consider")
    'Python worker exited (crashed)'
    """
    found = re.search(r"ExecutorLostFailure \([^)]*\)|SparkException: (?!Job aborted)(.+?)\.(?:\s|$)", text)
    return spark_message(text) if found is None else found[1] or found[0]


def _is_stopped(context: SparkContext) -> bool:
    try:
        return context.defaultParallelism < 0
    except Exception:  # of the gateway, or of the JVM: there is no context any more
        return True


def host_of(spark: SparkSession) -> str:
    """The address of the driver for its executors: loopback, if all are on this machine."""
    context = spark.sparkContext
    try:
        if str(context.master).startswith("local"):
            return "127.0.0.1"
        host = str(context.getConf().get("spark.driver.host"))
    except AttributeError as error:
        raise ConfigError("the Spark session is stopped; start a new one.") from error
    return "127.0.0.1" if host == "localhost" else host


def absolute(app: str) -> str:
    """The application, with the whole path of its file: executors have another working directory."""
    file, colon, name = app.rpartition(":") if not app.endswith(".py") else (app, "", "")
    return f"{Path(file).resolve()}{colon}{name}" if file.endswith(".py") else app
