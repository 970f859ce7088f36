"""Keyed engines in Spark's tasks: a stateful processor for streams, a function over sorted rows for batches."""

from __future__ import annotations

import logging
import time
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import Row
from pyspark.sql.streaming.stateful_processor import StatefulProcessor, StatefulProcessorHandle
from pyspark.sql.types import DataType, StringType

from slackline.core import codec
from slackline.core.errors import StateError
from slackline.core.outcome import NO_KEY
from slackline.core.time import Now
from slackline.runtime.keyed import EngineFactory, KeyedEngines, KeyedStates, LiveEngines
from slackline.runtime.output import OutputRecord
from slackline.runtime.sharding import KEY, key_name
from slackline.runtime.timeouts import Timeouts
from slackline.spark import packets
from slackline.spark.fields import TypedFields
from slackline.spark.metrics import metrics_record
from slackline.spark.output import OUTPUT_ROWS, OutputRows, output_schema
from slackline.spark.packets import ARRIVAL, GROUPS, NO_ARRIVAL, ArrowMap, Name, arrow_schema

#: A task with so many keys, of fewer rows each, is better off with shards.
MANY_KEYS, FEW_ROWS = 1_000, 100

logger = logging.getLogger("slackline.spark")

#: Calls of ``detect`` that this worker has warned about.
_warned: set[str] = set()
#: Engines that stay alive in a Python worker between micro-batches; Spark reuses its workers.
LIVE = LiveEngines()


@dataclass(frozen=True, slots=True)
class KeyedPlan:
    """What a task needs to run keyed engines. Shipped to the workers with Spark's own pickling of the user's code.

    ``timed``  whether arrivals are times like the event times, in microseconds: then they are evidence, too.
    ``key``    the type of keys, string or long.
    ``typed``  event types whose fields are columns.
    ``partitions``  into how many engines the key of keyed detectors is hashed; 0: engines are those of keys or shards.
    ``id``     of this call of ``detect``, whose micro-batches share engines that stay alive; empty if they share none.
    """

    factory: EngineFactory
    shards: int | None = None
    timeouts: Timeouts = Timeouts()  # noqa: RUF009
    stats: bool = True
    metrics: bool = False
    timed: bool = False
    key: DataType = StringType()  # noqa: RUF009
    id: str = ""
    typed: TypedFields = field(default_factory=dict)
    partitions: int = 0

    @property
    def keeps_engines(self) -> bool:
        """Whether engines may stay alive: not if they have work in memory that their state leaves out."""
        options = self.factory.options
        return bool(self.id) and options.get("speculation") is None and options.get("pause") is None


class KeyedTask:
    """Runs keyed engines on the rows of a group in a micro-batch, or of one engine in a batch.

    Output records go to ``out``. The engines' states are in ``states``; in memory unless given.
    """

    def __init__(self, plan: KeyedPlan, out: OutputRows, states: KeyedStates | None = None) -> None:
        live = (LIVE, plan.id) if plan.keeps_engines else None
        self.engines = KeyedEngines(plan.factory, shards=plan.shards, timeouts=plan.timeouts, states=states, live=live)
        self._plan = plan
        self._out = out
        self._keys = self._state_bytes = 0

    def push(self, name: Name, table: pa.Table, at: int = 0) -> None:
        """Process rows of an engine, in arrival order; those without a key or an arrival go to the quarantine."""
        if name is None:
            table = table.drop_columns([each for each in (KEY, ARRIVAL) if each in table.column_names])
            self._out.add(self.engines.reject(None, table, NO_KEY))
            return
        times = arrival = None
        if ARRIVAL in table.column_names:
            table, rejected = packets.with_arrival(table)
            if len(rejected):
                self._out.add(self.engines.reject(name, rejected.drop_columns([ARRIVAL]), NO_ARRIVAL, at=at))
            arrival = table[ARRIVAL].combine_chunks()
            if self._plan.timed:  # before 1970: unknown
                times = pc.if_else(pc.less(arrival, 0), pa.scalar(None, pa.int64()), arrival)
            table = table.drop_columns([ARRIVAL])
        start = 0
        for run in packets.pushes(table):
            now = None if times is None else times.slice(start, len(run))
            start += len(run)
            self._out.add(self.engines.push_to(name, run, now, at=at))
        if arrival is not None and len(arrival):
            self._note_arrival(self.engines.notes(name), arrival)

    @staticmethod
    def _note_arrival(notes: dict[str, Any], arrival: pa.Array) -> None:
        """Count arrivals before one of an earlier micro-batch: the source did not deliver in order."""
        first, last = arrival[0].as_py(), arrival[-1].as_py()
        before = notes.get("last_arrival")
        behind = 0 if before is None or first >= before else pc.sum(pc.less(arrival, before)).as_py()
        notes["arrival_behind"] = notes.get("arrival_behind", 0) + behind
        notes["last_arrival"] = last if before is None else max(before, last)

    def save(self, name: Name, table: pa.Table, started: float, stopped: float) -> None:
        """Write the state of an engine whose rows were processed, and emit its statistics."""
        stats = self._stats(name)
        busy = self.engines.worked(started, stopped)
        # Statistics name options that have changed since the checkpoint in the first micro-batch alone.
        size = self.engines.evict(name, keep=not (stats and stats.get("changed")))
        if name is not None:
            self._keys += 1 if self._plan.shards is None else len(pc.unique(table[KEY]))
            self._state_bytes += size
        self._emit_stats(name, stats, busy=busy, state_bytes=size)

    def expire(self, at: int) -> None:
        """Apply the timeouts that are due."""
        for reason, due in self.engines.due(at):
            if isinstance(due, tuple):  # a key of a shard
                name, key = due
                self._out.add(self.engines.apply([(reason, due)]))
            else:
                name, key = due, None
                self._out.add(self.engines.flush(reason, [name]))
            self._emit_stats(name, self._stats(name), reason, key)
            if reason == "state_ttl" and key is None:
                self.engines.drop([name])
        for name in self.engines.names:
            self.engines.evict(name)

    def close(self, name: Name) -> None:
        """Flush an engine whose rows have ended, and emit its statistics."""
        self._out.add(self.engines.close())
        stats = self._stats(name)
        if stats is not None and name is not None:
            self._keys += stats["keyed"].get("keys", 1)
        self._emit_stats(name, stats)

    def emit_metrics(self) -> None:
        """Emit the metrics of all engines, as a record that Spark aggregates."""
        has_engines = any(name is not None for name in self.engines.names)
        self._out.add([metrics_record(self.engines.collector, self._keys, self._state_bytes, has_engines)])

    def _stats(self, name: Name) -> dict[str, Any] | None:
        return self.engines.stats(name) if self._plan.stats or self._plan.metrics else None

    def _emit_stats(
        self, name: Name, stats: dict[str, Any] | None, reason: str = "", key: Name = None, **more: Any
    ) -> None:
        """Emit statistics, unless they are off. Those of a shard have no key, unless they concern one of its keys."""
        if stats is None or not self._plan.stats:
            return
        own = stats["keyed"] | more
        of_shard = self._plan.shards is not None and name is not None
        parts = [*([name] if of_shard else []), own["rows"] + own["rejected"], reason, own.get("incarnation")]
        record = OutputRecord(
            kind="stats", key=key if of_shard else name, payload={**stats, "keyed": own},
            id="/".join(str(part) for part in ("stats", *parts) if part not in ("", None)),
        )  # fmt: skip
        self._out.add([record])


def batch_function(plan: KeyedPlan, dictionaries: Sequence[str]) -> ArrowMap:
    """The function for ``mapInArrow`` on rows sorted by engine and arrival: output records, with the engines closed."""
    schema = arrow_schema(output_schema(plan.key, plan.typed))

    def run(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        out = OutputRows(plan.typed)
        for name, tables in packets.engine_runs(batches, dictionaries):
            task = KeyedTask(plan, out)
            for table in tables:
                task.push(name, table)
                if len(out) >= OUTPUT_ROWS:
                    yield from out.take(schema)
            task.close(name)
            if plan.metrics:
                task.emit_metrics()
        yield from out.take(schema)

    return run


class GroupStates:
    """The states of a group in Spark's state store: a map by the name of the engine, read and written value by value.

    With shards the key of the map has another type, so that Spark refuses a checkpoint that was made without.
    """

    def __init__(self, handle: StatefulProcessorHandle, shards: int | None = None, partitions: int = 0) -> None:
        key = "name string" if shards is None else "name string, shards long"
        self._map = handle.getMapState("states", key, "state binary")
        #: Into how many groups and shards the keys of the group's state were hashed.
        self._layout = handle.getValueState("layout", "groups long, shards long")
        self._shards, self._hashed = shards, shards or partitions

    def get(self, name: Name) -> bytes | None:
        """The state of an engine, None if it is new. Raises if the checkpoint has its keys in another layout."""
        value = self._map.getValue(self._key(name))
        if value is not None:
            return bytes(value[0])
        ours = (GROUPS, self._hashed)
        theirs = self._layout.get()
        if theirs is None:
            self._layout.update(ours)
        elif tuple(theirs) != ours:
            raise StateError(
                f"this checkpoint has its keys in {theirs[0]} groups and {theirs[1] or 'no'} shards, and the query "
                f"has {ours[0]} and {ours[1] or 'no'}: keys would not find their states. Give `shards` as it was, "
                f"or start with a new checkpoint."
            )
        return None

    def __setitem__(self, name: Name, state: bytes) -> None:
        self._map.updateValue(self._key(name), (state,))

    def pop(self, name: Name, default: None = None) -> None:
        self._map.removeKey(self._key(name))

    def _key(self, name: Name) -> tuple[Any, ...]:
        text = "none" if name is None else key_name(name)  # those of keys begin with s or i
        return (text,) if self._shards is None else (text, self._shards)


class KeyedProcessor(StatefulProcessor):
    """Runs the keyed engines of a group, once per micro-batch.

    Spark's own late filter stays off, in either time mode: stream time is part of the state.

    The load of a key, which sets α, is the time from the start of the task until the key's rows are processed, divided
    by the time since that moment in the micro-batch before. It includes the keys processed earlier in the task, which
    need the same core; later ones are unknown, because the key's state is written at once. α is set for the
    micro-batches to come, never for the current one: a repeated micro-batch emits the same rows.

    Many output records leave in one row, as columns: see :func:`~slackline.spark.output.separate`.
    """

    def __init__(self, plan: KeyedPlan, now: Now = time.time) -> None:
        self._plan = plan
        self._now = now
        self._started = 0.0
        self._keys = self._rows = 0
        self._handle: Any = None
        self._states: Any = None
        self._activity: Any = None

    def init(self, handle: StatefulProcessorHandle) -> None:
        self._started = self._now()
        self._keys = self._rows = 0
        self._handle = handle
        self._states = GroupStates(handle, self._plan.shards, self._plan.partitions)
        #: When engines, and the keys of shards, last had rows, and the timer that is registered.
        self._activity = handle.getValueState("activity", "activity binary, timer long")

    def handleInputRows(self, key: Any, rows: Iterator[Row], timerValues: Any) -> Iterator[Row]:
        at = timerValues.getCurrentProcessingTimeInMs() if self._plan.timeouts else 0
        out = OutputRows(self._plan.typed)
        task = KeyedTask(self._plan, out, self._states)
        timer = self._resume(task.engines)
        for name, table in packets.by_engine(packets.restored(rows)):
            task.push(name, table, at)
            task.save(name, table, self._started, self._now())
            self._keys += 1
            self._rows += len(table)
            if len(out) >= OUTPUT_ROWS:
                yield from out.take_columns()
        yield from self._end(task, out, timer)

    def handleExpiredTimer(self, key: Any, timerValues: Any, expiredTimerInfo: Any) -> Iterator[Row]:
        """Apply the timeouts that are due. Spark removes the timer afterwards."""
        out = OutputRows(self._plan.typed)
        task = KeyedTask(self._plan, out, self._states)
        timer = self._resume(task.engines)
        if timer is not None and timer <= expiredTimerInfo.getExpiryTimeInMs():
            timer = None
        task.expire(timerValues.getCurrentProcessingTimeInMs())
        yield from self._end(task, out, timer)

    def close(self) -> None:
        """Warn once per worker if the keys of the task are many and small."""
        small = self._keys >= MANY_KEYS and self._rows < FEW_ROWS * self._keys
        if small and self._plan.shards is None and self._plan.id not in _warned:
            _warned.add(self._plan.id)
            logger.warning(
                "%d keys have %.0f rows each in one task of a micro-batch, and each key has an engine of its own; "
                "detect(…, shards=64) orders many small keys with a few engines (see the guide to Spark)",
                self._keys, self._rows / self._keys,
            )  # fmt: skip

    def _resume(self, engines: KeyedEngines) -> int | None:
        """Continue with the activity of the group; returns its timer."""
        saved = self._activity.get() if self._plan.timeouts else None
        if saved is None:
            return None
        engines.resume_activity(*codec.decode(bytes(saved[0])))
        return None if saved[1] is None else int(saved[1])

    def _end(self, task: KeyedTask, out: OutputRows, timer: int | None) -> Iterator[Row]:
        """Emit what is left, and move the timer to the timeout that is due first."""
        yield from out.take_columns()
        if self._plan.metrics:  # in a row of its own: see metrics.observed
            task.emit_metrics()
            yield from out.take_columns()
        if not self._plan.timeouts:
            return
        due = task.engines.next_timeout()
        if due is not None and (timer is None or due < timer):
            if timer is not None:
                self._handle.deleteTimer(timer)
            self._handle.registerTimer(due)
            timer = due
        self._activity.update((codec.encode(task.engines.activity()), timer))
