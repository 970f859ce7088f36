"""An application on Spark, as ``slackline run --on spark`` starts it: its session, its columns, its queries."""

from __future__ import annotations

import re
import signal
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from types import ModuleType
from typing import Any, Protocol

from pyspark import cloudpickle
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.streaming import StreamingQuery
from pyspark.sql.types import TimestampNTZType, TimestampType

from slackline.core.errors import ConfigError, SlacklineError
from slackline.core.hierarchy import Hierarchy
from slackline.spark.pipeline import detect
from slackline.spark.session import session

#: The end of a traceback: which kind of error, and its words.
_RAISED = re.compile(r"^([A-Za-z_][\w.]*): (.*)$", re.MULTILINE)
#: The key of all events, where they have none of their own.
_ALL = "__slackline_all"


class ColumnRoles(Protocol):
    """Which column is what; of those that are None, a column of their own name is taken, if there is one."""

    @property
    def ts(self) -> str: ...
    @property
    def type(self) -> str | None: ...
    @property
    def source(self) -> str | None: ...
    @property
    def seq(self) -> str | None: ...
    @property
    def key(self) -> str | None: ...
    @property
    def unit(self) -> str: ...


class QueryFailedError(SlacklineError):
    """A query stopped by itself."""

    def __init__(self, message: str) -> None:
        super().__init__(
            f"the query failed: {message} What was committed is whole; when the cause is gone, the same command goes "
            f"on."
        )


@contextmanager
def application_session(ships: ModuleType | None = None) -> Iterator[SparkSession]:
    """The session that is there, or one for as long as this takes.

    ``ships`` is a module that workers cannot import: its code is sent to them.
    """
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
    """Processes that are started in here do not end by SIGTERM, which often goes to all of a group: who started them
    stops them. pyspark does the same with SIGINT. For these seconds it does not end us either.
    """
    if threading.current_thread() is not threading.main_thread():
        yield  # only there signals can be set
        return
    before = signal.signal(signal.SIGTERM, signal.SIG_IGN)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


def detected(
    df: DataFrame, hierarchy: Hierarchy, roles: ColumnRoles, options: Mapping[str, Any], arrival: str | None = None
) -> DataFrame:
    """What is found in a DataFrame whose columns have these roles, without statistics; the key only if there is one."""
    if roles.ts in df.columns and roles.unit != "us":
        kind = df.schema[roles.ts].dataType
        if isinstance(kind, TimestampType | TimestampNTZType):
            raise ConfigError(
                f"ts={roles.ts!r} is a column of timestamps, which are microseconds on Spark, and the unit is "
                f"{roles.unit!r}; leave --unit out, or give time stamps as whole numbers."
            )
    columns = {name: getattr(roles, name) or name for name in ("type", "source", "seq")}
    named: dict[str, Any] = {
        name: column for name, column in columns.items() if getattr(roles, name) or column in df.columns
    }
    if roles.key is None:
        df = df.withColumn(_ALL, F.lit("all"))
    found = detect(df, hierarchy, key=roles.key or _ALL, ts=roles.ts, arrival=arrival, stats=False, **named, **options)
    return found.drop("key") if roles.key is None else found


def stop_query(query: StreamingQuery) -> None:
    """Stop a query; a micro-batch that is under way is done again by the next run."""
    active = SparkSession.getActiveSession()
    if active is not None:
        active.sparkContext.setLogLevel("OFF")  # Spark would tell at length that it was interrupted
    try:
        query.stop()
    finally:
        if active is not None:
            active.sparkContext.setLogLevel("ERROR")


def check_failure(query: StreamingQuery) -> None:
    """Raise if a query has stopped by itself, with what its workers said, if they did."""
    error = query.exception()
    if error is not None:
        raise QueryFailedError(_said(str(error)))


def _said(text: str) -> str:
    """What a worker raised, or the first line of what the JVM has to say.

    >>> _said("[PYTHON] Traceback (most recent call last):\\n  File x, line 3\\nValueError: odd\\n\\tat java.x")
    'ValueError: odd'
    """
    _, traced, rest = text.rpartition("Traceback (most recent call last):")
    raised = _RAISED.search(rest) if traced else None
    if raised is not None:
        kind, words = raised.groups()
        return words if kind.startswith("slackline.") else f"{kind}: {words}"
    return next((line.strip() for line in text.splitlines() if line.strip()), "Spark does not say why.")
