"""Keyed engines: one engine per key, per shard of keys, or one for all. A machine without I/O or clock.

Arrivals are split by key, in the order of arrival, and each key's engine gets its own, so that the outputs of a key
depend on its own arrivals alone, however they were cut into pushes (laws 3, 6 and 10). Results are output records.

**Delays are shared.** A key with few events waits as long as the delays of the other keys suggest
(:mod:`slackline.ordering.delay_pool`). That decides when its events are released and which are late, so in this the
outputs of a key depend on the other keys' arrivals before, in the order of arrival of all. Detectors share nothing.

**Cache.** An engine in use takes some 8 KB, and 3 KB more per detector; saved, as bytes, a fifth to a quarter of that.
The engines of the keys that had arrivals last are cached, as many as fit ``CACHE_BYTES``; the others are evicted to
``states`` and loaded when their key has arrivals. Loading and evicting one costs about as much as 30 events. So of
the keys in a push those come first that are cached: with a few more keys than the cache holds, each key in its turn
would otherwise evict the one that is next. The saved bytes of a key stay valid until it has arrivals again, so that a
checkpoint costs what has changed.

**Snapshots while events are processed.** :meth:`KeyedEngines.snapshot` saves the engines one by one while pushes go
between; an engine that is about to change is saved before it does (copy on write). Each key adds some 0.3 ms to the
push in which that happens.

**Timeouts.** Without arrivals of a key for ``idle_timeout`` its buffered events are flushed; after ``state_ttl`` its
state is dropped. Both go by the wall time given to :meth:`push` and :meth:`expire`, per key. In a shard all keys share
one reorder buffer: the idle timeout is that of the shard, the state TTL that of each key.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from hashlib import blake2b
from typing import Any, Protocol

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from slackline.core import codec
from slackline.core.calibration import calibration_of
from slackline.core.errors import ConfigError, DetectorError, SchemaError, SlacklineError, StateError, raised_text
from slackline.core.event import Event
from slackline.core.hierarchy import Hierarchy
from slackline.core.outcome import NO_KEY, Output, Quarantined
from slackline.engine import Engine
from slackline.engine.arrow import split
from slackline.engine.engine import engine_of
from slackline.engine.options import Options, check_known
from slackline.engine.rows import in_numbers, rows_of, with_type
from slackline.ordering.delay_pool import DelayPool, PooledEstimator
from slackline.running.deferral import UNLIMITED, Pause
from slackline.runtime.forms import FEW, events_of, quickest
from slackline.runtime.metrics import DetectorMetrics, Metrics, MetricsCollector
from slackline.runtime.output import OutputRecord, RecordBuilder
from slackline.runtime.schema import Decoder, RecordSchema
from slackline.runtime.sharding import KEY, KeyedDetector, joined_events, joined_sources, separated, shard_of, sharded
from slackline.runtime.timeouts import Activity, Timeouts
from slackline.runtime.trace import Trace

#: Bytes that cached engines may take, about, and what one takes, for itself and for each detector.
CACHE_BYTES, ENGINE_BYTES, DETECTOR_BYTES = 512 << 20, 8 << 10, 3 << 10
#: Metrics of so many keys are brought up to date when metrics are asked for.
REFRESHED = 256

STATE_KIND, STATE_VERSION = "keyed engine", 2


@dataclass(frozen=True)
class EngineFactory:
    """How to make the engine of a key: the hierarchy and the engine's options, the same for all keys.

    With ``shards`` the hierarchy is one of :class:`~slackline.runtime.sharding.KeyedDetector`.
    """

    hierarchy: Hierarchy
    options: Mapping[str, Any] = field(default_factory=dict)
    sharded: bool = False
    #: Deferred events stay in memory, and so in the state: for runtimes without a local disk.
    spill: bool = True

    @classmethod
    def of(
        cls, hierarchy: Hierarchy, options: Mapping[str, Any] | None = None, shards: int | None = None,
        columns: Iterable[str] = (), spill: bool = True,
    ) -> EngineFactory:  # fmt: skip
        """A factory whose options are checked; ``columns`` are those of the events, if known."""
        given = dict(options or {})
        check_known(given)
        given["calibration"] = calibration_of(given.get("calibration"))
        Options(**given).check(hierarchy, "host")
        if shards is None:
            return cls(hierarchy, given, spill=spill)
        if given.get("pause") is not None:
            raise ConfigError("pause and shards exclude each other: a shard delivers late events to its keys at once.")
        return cls(sharded(hierarchy, columns, given.get("late", "divert")), given, True, spill)

    @property
    def late_target(self) -> float | None:
        """The target of the share of late events."""
        return self._prepared.target

    @cached_property
    def _prepared(self) -> Options:
        """The options of the engines, made once."""
        # What is late for the shard need not be late for its key: the detectors decide.
        options = {**self.options, "late": "deliver"} if self.sharded else dict(self.options)
        options["calibration"] = calibration_of(options.get("calibration"))
        pause = options.get("pause")
        if isinstance(pause, Pause) and not self.spill:
            options["pause"] = replace(pause, keep=min(pause.keep, pause.memory or 1), memory=UNLIMITED)
        return Options(**options)

    def engine(self, saved: bytes | None = None) -> Engine:
        """A new engine, or a saved one with the options of now."""
        return engine_of(self.hierarchy, self._prepared, saved, now="host")


class KeyedDetectorError(SlacklineError):
    """A detector raised on an event of a key. Nothing of the push is returned."""

    def __init__(self, name: Any, error: DetectorError) -> None:
        self.cause = error.cause
        where = "" if name is None else f"key {name!r}: "
        super().__init__(
            f"{where}detector {error.detector!r} raised {raised_text(error.cause)} on {error.event!r}, state of "
            f"{error.state_size} bytes. Nothing is committed since the last checkpoint; on Spark the micro-batch "
            f"fails. Fix the detector and start again, or pass on_error='quarantine' to continue without the event."
        )


class KeyedStates(Protocol):
    """Where the states of engines are that are not cached. A dict is one."""

    def get(self, name: Any) -> bytes | None:
        """The state of an engine; None if there is none."""

    def __setitem__(self, name: Any, state: bytes) -> None:
        """Store the state of an engine."""

    def pop(self, name: Any, default: None) -> Any:
        """Remove the state of an engine."""


#: Bytes that engines may take, about, that are kept alive between the tasks of a process.
LIVE_BYTES = 256 << 20


class LiveEngines:
    """Engines that outlive the :class:`KeyedEngines` that used them, for runtimes whose tasks are short.

    An engine is kept with the digest of the state that was saved of it, and is reused only for exactly that state: a
    task that is repeated, or that runs elsewhere in between, loads the state instead. It is taken out while it is used,
    so one whose task fails is never used again.
    """

    def __init__(self, most_bytes: int = LIVE_BYTES) -> None:
        self._most = most_bytes
        self._kept: OrderedDict[tuple[Any, Any], tuple[bytes, int, _Entry]] = OrderedDict()  # the newest is last
        self._bytes = 0
        #: How many engines were reused.
        self.reused = 0

    def keep(self, owner: Any, name: Any, state: bytes, entry: _Entry) -> None:
        """Keep the engine of which this state was just saved; ``owner`` names what has this hierarchy and options."""
        self._remove((owner, name))
        detectors = 0 if entry.engine is None else len(entry.engine.detectors)
        size = ENGINE_BYTES + DETECTOR_BYTES * detectors + 2 * len(state)
        self._kept[owner, name] = _digest(state), size, entry
        self._bytes += size
        while self._bytes > self._most:
            self._remove(next(iter(self._kept)))

    def take(self, owner: Any, name: Any, state: bytes) -> _Entry | None:
        """The engine of this state, if it was kept; it is no longer kept then."""
        kept = self._remove((owner, name))
        if kept is None or kept[0] != _digest(state):
            return None
        self.reused += 1
        return kept[2]

    def _remove(self, key: tuple[Any, Any]) -> tuple[bytes, int, _Entry] | None:
        kept = self._kept.pop(key, None)
        if kept is not None:
            self._bytes -= kept[1]
        return kept


def _digest(state: bytes) -> bytes:
    return blake2b(state, digest_size=16).digest()


@dataclass(slots=True)
class _Entry:
    """An engine with what is counted beside it. The entry of rows without a key has no engine."""

    engine: Engine | None
    #: Rows received, events emitted, and rows rejected before they reached the engine.
    rows: int = 0
    changes: int = 0
    rejected: int = 0
    #: When the engine was made, where states expire: part of the ids of its records.
    incarnation: int = 0
    #: Plain data of a runtime, saved with the engine.
    notes: dict[str, Any] = field(default_factory=dict)
    #: The epoch of the delay pool whose slack is in use, and the estimators that had measured enough before it.
    epoch: int = 0
    grown: Sequence[str] = ()


class KeyedEngines:
    """The engines of a hierarchy, by key.

    ``hierarchy``      what all engines run, or an :class:`EngineFactory`.
    ``options``        options of :class:`~slackline.Engine`, the same for all keys.
    ``keyed``          whether each key has its own engine. If not, all arrivals go to one.
    ``shards``         hash the keys into so many engines, each ordered as one stream, for many keys of few events;
                       detectors still see each key by itself.
    ``idle_timeout``   flush a key without arrivals for so long: seconds, or text such as ``"30 seconds"``.
    ``state_ttl``      drop the state of a key without arrivals for so long.
    ``timeouts``       both, where a runtime has checked them before.
    ``cache``          how many engines are cached; as many as fit in 512 MiB unless given.
    ``states``         where the other states are; in memory unless given.
    ``live``           engines that earlier :class:`KeyedEngines` of this process kept, and by what they are shared.
    ``trace``          records what the engines are given, for ``slackline explain``; not with shards.

    >>> from slackline import Detector
    >>> class Echo(Detector):
    ...     listens, publishes = ("ping",), ("pong",)
    ...     def on_event(self, event):
    ...         yield event.derive("pong")
    >>> engines = KeyedEngines(Hierarchy([Echo()], clock="ping"), keyed=True)
    >>> found = engines.push([Event("ping", ts=5), Event("ping", ts=2), Event("ping", ts=1)], keys=["a", "b", "a"])
    >>> [(record.key, record.ts) for record in found + engines.close()]
    [('a', 1), ('a', 5), ('b', 2)]
    """

    def __init__(
        self,
        hierarchy: Hierarchy | EngineFactory,
        options: Mapping[str, Any] | None = None,
        *,
        keyed: bool = True,
        shards: int | None = None,
        idle_timeout: Any = None,
        state_ttl: Any = None,
        timeouts: Timeouts | None = None,
        cache: int | None = None,
        states: KeyedStates | None = None,
        live: tuple[LiveEngines, Any] | None = None,
        trace: Trace | None = None,
    ) -> None:
        if shards is not None and not keyed:
            raise ConfigError("shards need keys: give a key, or leave out shards.")
        if shards is not None and trace is not None:
            raise ConfigError("trace and shards exclude each other: trace without shards, one engine per key.")
        if isinstance(hierarchy, Hierarchy):
            hierarchy = EngineFactory.of(hierarchy, options, shards)
        self._trace = trace
        self.factory = hierarchy
        self.keyed = keyed
        self.shards = shards
        self.timeouts = timeouts or Timeouts.of(idle_timeout, state_ttl)
        names = self.factory.hierarchy.names
        #: The sensor types of which something is declared.
        self.types = tuple(
            self.factory.hierarchy.types[name]
            for name in self.factory.hierarchy.sensor_types
            if name in self.factory.hierarchy.types
        )
        self.collector = MetricsCollector(names, self.factory.late_target)
        self._capacity = cache or CACHE_BYTES // (ENGINE_BYTES + DETECTOR_BYTES * len(names))
        self._cache: OrderedDict[Any, _Entry] = OrderedDict()  # the one used last is last
        self._states: KeyedStates = {} if states is None else states
        self._in_memory = states is None
        self._live = live
        self._known: dict[Any, None] = {}  # all engines, cached or not
        self._current: set[Any] = set()  # cached engines whose saved state is current
        self._buffering: set[Any] = set()  # engines with buffered events
        self._outdated: dict[Any, None] = {}  # cached engines whose metrics have changed
        self._pushed: list[Any] = []  # engines of the last push
        self._left: dict[Any, None] = {}  # engines of the snapshot under way that are not in it yet
        self._pieces: list[bytes] = []  # pieces of it that were not taken yet
        #: How many engines the last push has loaded.
        self.loaded = 0
        # The idle timeout is the engine's; the state TTL is the key's, which in a shard is not the engine's.
        self._activity = Activity(Timeouts(self.timeouts.idle) if shards else self.timeouts)
        self._key_activity = Activity(Timeouts(ttl=self.timeouts.ttl if shards else None))
        #: What keys share of delays: not with shards, nor where the states of other keys are elsewhere (Spark).
        shares = keyed and not shards and self._in_memory and self.factory.late_target is not None
        self._pool = DelayPool() if shares else None
        if not keyed:
            self._entry(None)

    @property
    def names(self) -> list[Any]:
        """The engines: keys, or shards, or None for the only one."""
        return list(self._known)

    # Arrivals.

    def decoder(self, schema: RecordSchema) -> Decoder:
        """What turns records into arrivals of these engines."""
        return Decoder(schema, self.factory.hierarchy)

    def push(
        self,
        arrivals: Any,
        keys: str | Sequence[Any] | pa.Array | pa.ChunkedArray | None = None,
        now: Any = None,
        *,
        at: int = 0,
        incarnation: int | None = None,
    ) -> list[OutputRecord]:
        """Process the next arrivals, in the order of arrival; return the output records.

        ``arrivals``  rows as :meth:`slackline.Engine.push` takes them; dates become whole numbers of the engine's
                      ``unit``, microseconds unless given, and records have these numbers.
        ``keys``      the key of each row, or the name of the field that holds it, which is no payload then. A key is
                      text or a whole number; a row without one goes to the quarantine.
        ``now``       arrival times, as in :meth:`slackline.Engine.push`.
        ``at``        wall time in milliseconds, for the timeouts.
        ``incarnation``  of the engines that this push makes: part of their ids where states expire, so that an engine
                      made again has other ids. ``at`` unless given; runtimes that process input again after a crash
                      give a number that is the same then.
        """
        hierarchy = self.factory.hierarchy
        rows, _ = in_numbers(rows_of(arrivals, hierarchy), None, self.factory.options.get("unit") or "us", hierarchy)
        rows = with_type(rows, hierarchy)  # parts of it may become events
        if isinstance(keys, str):
            rows, keys = _without_key(rows, keys)
        if keys is not None and not self.keyed:
            raise ConfigError("keys were given, but all arrivals go to one engine; make KeyedEngines with keyed=True.")
        if self.keyed and (keys is None or len(keys) != len(rows)):
            raise ConfigError(f"{len(rows)} rows have {'no' if keys is None else len(keys)} keys; give one per row.")
        self._pushed, self.loaded = [], 0
        if not self.keyed:
            return self.push_to(None, rows, now, at=at, incarnation=incarnation)
        one = now is None or isinstance(now, int)
        times = None if one else pc.fill_null_forward(pa.array(now) if not isinstance(now, pa.ChunkedArray) else now)
        if self._pool is None:
            return self._push_keyed(rows, keys, now, times, at, incarnation)
        found: list[OutputRecord] = []
        start = 0
        while start < len(rows):
            size = min(self._pool.left, len(rows) - start)
            part, part_keys, part_times = (_slice(each, start, size) for each in (rows, keys, times))
            found += self._push_keyed(part, part_keys, now, part_times, at, incarnation)
            self._pool.advance(size)
            start += size
        return found

    def _push_keyed(
        self, rows: list[Event] | pa.Table, keys: Any, now: Any, times: Any, at: int, incarnation: int | None
    ) -> list[OutputRecord]:
        """Process arrivals of one epoch; ``times`` are those of each row, if ``now`` is not the same for all."""
        parts, without = _by_key(keys, self.shards)
        if isinstance(rows, pa.Table) and len(rows) < FEW * len(parts):
            rows = events_of(rows)
        found: list[OutputRecord] = []
        for key, places in without:
            detail = NO_KEY[1] if key is None else f"the key is {key!r:.80}; a key is text or a whole number"
            found += self.reject(None, rows_at(rows, places), (NO_KEY[0], detail))
        for name, places, part_keys in sorted(parts, key=lambda part: part[0] not in self._cache):
            part = rows_at(rows, places)
            if part_keys is not None:
                if isinstance(part, pa.Table):
                    part = part.append_column(KEY, pa.array(part_keys))
                else:
                    part = joined_events(part, part_keys)
            part_now = now if times is None else times.take(places)
            found += self.push_to(name, part, part_now, at=at, incarnation=incarnation)
        return found

    def push_to(
        self, name: Any, rows: list[Event] | pa.Table, now: Any = None, *, at: int = 0, incarnation: int | None = None
    ) -> list[OutputRecord]:
        """Process arrivals of one engine: a key, or a shard whose rows have their keys in the column ``KEY``."""
        entry = self._entry(name, at if incarnation is None else incarnation)
        self._changes(name)
        entry.rows += len(rows)
        self.collector.count_events(len(rows))
        self._pushed.append(name)
        if self.timeouts:
            self._activity.arrived([name], at)
            if self._key_activity.timeouts:
                self._key_activity.arrived(((name, key) for key in _keys_of(rows)), at)
        if self.shards and isinstance(rows, pa.Table) and KEY in rows.column_names:
            rows = joined_sources(rows)
        if not isinstance(rows, pa.Table):
            rows = quickest(rows, self.types)
        work = partial(Engine.push, arrivals=rows, now=now)
        return self._work(name, work if self._pool is None else partial(self._pooled, entry, self._pool, work))

    @staticmethod
    def _pooled(entry: _Entry, pool: DelayPool, work: Callable[[Engine], list[Output]], engine: Engine) -> list[Output]:
        """Let an engine work with the pooled slack, and count what it measures."""
        host = engine.host
        if entry.epoch != pool.epoch:
            entry.epoch = pool.epoch
            entry.grown = tuple(name for name, each in host.pooled_estimators().items() if not each.is_small)
            host.use_pool(pool)
        before = host.default_slack
        pool.count(_without(host.pooled_estimators(), entry.grown), -1)
        try:
            return work(engine)
        finally:
            pool.count(_without(host.pooled_estimators(), entry.grown), 1)
            pool.count_known(before, host.default_slack)

    def reject(
        self, name: Any, rows: list[Event] | pa.Table, why: tuple[str, str], *, at: int = 0
    ) -> list[OutputRecord]:
        """Put rows into the quarantine that an engine cannot take: the reason, fit for counting, and a detail.

        ``name`` is that of the engine; None for rows without a key.
        """
        reason, detail = why
        entry = self._entry(name, at)
        self._changes(name)
        if self.timeouts and name is not None:
            self._activity.arrived([name], at)
        self.collector.count_events(len(rows))
        self.collector.count_aside(0, 0, [reason] * len(rows))
        if isinstance(rows, pa.Table) and KEY in rows.column_names:
            rows = joined_sources(rows)
        events = events_of(rows) if isinstance(rows, pa.Table) else rows
        build = RecordBuilder(name, separated if self.shards and name is not None else None, entry.incarnation)
        numbered = enumerate(events, entry.rejected)
        items = (Quarantined(event, reason, detail, None, number) for number, event in numbered)
        records = [msgspec.structs.replace(record, id=f"row/{record.id}") for record in build.quarantine(items)]
        entry.rejected += len(events)
        return records

    def advance(self, now: int) -> list[OutputRecord]:
        """Arrival time has passed without arrivals: what that releases. For runtimes that push with arrival times."""
        self._pushed = []
        return self._all(self._buffering, partial(Engine.push, arrivals=[], now=now))

    def expire(self, at: int) -> list[OutputRecord]:
        """Apply the timeouts that are due at this wall time, in milliseconds: flush idle keys, drop expired states."""
        return self.apply(self.due(at))

    def due(self, at: int) -> list[tuple[str, Any]]:
        """The timeouts that are due, as pairs of ``idle`` or ``state_ttl`` and a name; each is given once."""
        idle = self._activity.idle(at)
        if self._in_memory:  # otherwise engines that are not cached may buffer events, too
            idle = [name for name in idle if name in self._buffering]
        expired = [*self._activity.expired(at), *self._key_activity.expired(at)]
        return [*(("idle", name) for name in idle), *(("state_ttl", name) for name in expired)]

    def apply(self, due: Iterable[tuple[str, Any]]) -> list[OutputRecord]:
        """Flush or drop as :meth:`due` said; also to repeat what was applied before a crash, in the same order."""
        records: list[OutputRecord] = []
        for reason, name in due:
            if isinstance(name, tuple | list):  # a key of a shard
                records += self._drop_key(*name)
            elif name in self._known or not self._in_memory:
                records += self._work(name, partial(Engine.flush, reason=reason))
                if reason == "state_ttl":
                    self.drop([name])
        return records

    def next_timeout(self) -> int | None:
        """When the next timeout is due, in milliseconds of wall time; None if none is."""
        each = (self._activity.next_at(), self._key_activity.next_at())
        return min((at for at in each if at is not None), default=None)

    def activity(self) -> tuple[list[Any], list[Any]]:
        """When engines, and the keys of shards, last had arrivals: plain data, for :meth:`resume_activity`."""
        return self._activity.save(), self._key_activity.save()

    def resume_activity(self, engines: Iterable[Any], keys: Iterable[Any]) -> None:
        """Continue from saved activity."""
        self._activity = Activity(self._activity.timeouts, ((name, at, done) for name, at, done in engines))
        pairs = ((tuple(name), at, done) for name, at, done in keys)
        self._key_activity = Activity(self._key_activity.timeouts, pairs)

    def flush(self, reason: str, names: Iterable[Any] | None = None) -> list[OutputRecord]:
        """Emit all that is buffered, in all engines unless some are named; see :meth:`slackline.Engine.flush`."""
        return self._all(self._buffering if names is None else names, partial(Engine.flush, reason=reason))

    def close(self) -> list[OutputRecord]:
        """The stream has ended: emit all that is buffered."""
        return self._all(self._buffering.union(n for n, entry in self._cache.items() if entry.engine), Engine.close)

    def worked(self, start: float, stop: float) -> float | None:
        """The last push took from start to stop, in seconds of wall time: ``alpha="auto"`` is set from this."""
        busy = None
        for name in dict.fromkeys(self._pushed):
            engine = self._cache[name].engine if name in self._cache else None
            if engine is not None:
                busy = engine.host.worked(start, stop)
        return busy

    def _all(self, names: Iterable[Any], work: Callable[[Engine], list[Output]]) -> list[OutputRecord]:
        """The work of some engines, in an order that does not depend on arrivals."""
        return [record for name in sorted(names, key=_order) for record in self._work(name, work)]

    def _work(self, name: Any, work: Callable[[Engine], list[Output]]) -> list[OutputRecord]:
        """Let an engine work; its output records."""
        entry = self._entry(name)
        engine = entry.engine
        assert engine is not None
        self._changes(name)
        self._outdated[name] = None
        before = engine.duplicates
        outputs: list[Output] = []
        try:
            outputs = work(engine)
        except DetectorError as error:
            raise KeyedDetectorError(name, error) from error.cause
        finally:
            late, quarantined, duplicates = engine.drain()
            if self.shards:
                late = [*late, *(item for each in _keyed_detectors(engine) for item in each.take_late())]
            build = RecordBuilder(name, separated if self.shards else None, entry.incarnation)
            aside = [*build.late(late), *build.quarantine(quarantined), *build.duplicates(duplicates)]
            late_events = len(aside) - len(quarantined) - len(duplicates)
            reasons = (item.reason for item in quarantined)
            self.collector.count_aside(late_events, engine.duplicates - before, reasons)
            (self._buffering.add if engine.waiting else self._buffering.discard)(name)
        self.collector.count_outputs(outputs)
        records = [*build.events(outputs, entry.changes), *aside]
        entry.changes += len(outputs)
        return records

    def _drop_key(self, shard: Any, key: Any) -> list[OutputRecord]:
        """Drop the detectors of one key of a shard, after what is buffered of it."""
        engine = self._entry(shard).engine
        assert engine is not None
        records: list[OutputRecord] = []
        buffered = {separated(event)[0] for events in engine.buffered().values() for event in events}
        if key in buffered:
            records = self._work(shard, partial(Engine.flush, reason="state_ttl"))
        self._changes(shard)
        for detector in _keyed_detectors(engine):
            detector.drop(key)
        return records

    # The cache.

    def notes(self, name: Any) -> dict[str, Any]:
        """Plain data of a runtime that is saved with an engine."""
        return self._entry(name).notes

    def _entry(self, name: Any, incarnation: int = 0) -> _Entry:
        """An engine, in the cache."""
        entry = self._cache.get(name)
        if entry is None:
            entry = self._load(name, self._states.get(name), incarnation)
            if self._trace is not None and entry.engine is not None:
                entry.engine.trace = self._trace.of(name)
            self._cache[name] = entry
            self._known[name] = None
            while len(self._cache) > self._capacity:
                self.evict(next(iter(self._cache)))
        self._cache.move_to_end(name)
        return entry

    def _load(self, name: Any, state: bytes | None, made: int) -> _Entry:
        has_engine = name is not None or not self.keyed
        if state is None:
            incarnation = made if self.timeouts.ttl is not None and not self.shards else 0
            return _Entry(self.factory.engine() if has_engine else None, incarnation=incarnation)
        self._current.add(name)
        entry = None if self._live is None else self._live[0].take(self._live[1], name, state)
        if entry is None:
            self.loaded += 1
            engine, *own = codec.load(STATE_KIND, STATE_VERSION, state)
            entry = _Entry(self.factory.engine(engine) if has_engine else None, *own)
        if entry.engine is not None and entry.engine.waiting:
            self._buffering.add(name)
        return entry

    def _changes(self, name: Any) -> None:
        """An engine is about to change: its saved state is outdated, and belongs to the snapshot under way."""
        self._into_snapshot(name)
        self._current.discard(name)
        if self._in_memory:
            self._states.pop(name, None)

    def evict(self, name: Any, keep: bool = False) -> int:
        """Move an engine from the cache to the states; return the size of its state in bytes.

        With ``keep`` it stays alive for later :class:`KeyedEngines` of this process, where these share engines.
        """
        state = self._state(name)
        entry = self._cache.pop(name, None)
        self._current.discard(name)
        if keep and self._live is not None and entry is not None:
            self._live[0].keep(self._live[1], name, state, entry)
        return len(state)

    def _state(self, name: Any) -> bytes:
        """The state of an engine, saved anew if it has changed."""
        if name not in self._cache or name in self._current:
            state = self._states.get(name)
            assert state is not None
            return state
        entry = self._cache[name]
        if name in self._outdated:
            self._refresh(name)
        engine = None if entry.engine is None else entry.engine.save()
        own = (entry.rows, entry.changes, entry.rejected, entry.incarnation, entry.notes, entry.epoch, entry.grown)
        content = (engine, *own)
        state = codec.dump(STATE_KIND, STATE_VERSION, content, where="the state of a key")
        self._states[name] = state
        self._current.add(name)
        return state

    def drop(self, names: Iterable[Any]) -> None:
        """Drop engines whose state has expired, with all that is buffered in them."""
        for name in list(names):
            self._into_snapshot(name)
            if name in self._outdated:
                self._refresh(name)
            if self._trace is not None:
                self._trace.drop(name)
            for each in (self._known, self._cache, self._outdated):
                each.pop(name, None)
            self._states.pop(name, None)
            self._current.discard(name)
            self._buffering.discard(name)
            self._activity.drop(name)
            self.collector.drop(name)

    # Metrics.

    def metrics(self) -> Metrics:
        """Metrics of all engines. Where many keys had arrivals, some are those of a moment ago; counts are exact."""
        for name in list(self._outdated)[:REFRESHED]:
            self._refresh(name)
        return self.collector.metrics(self._keys())

    def _keys(self) -> int:
        if not self.shards:
            return len(self._known) - (self.keyed and None in self._known)
        each = (entry.engine for entry in self._cache.values() if entry.engine is not None)
        return sum(max(detector.keys for detector in _keyed_detectors(engine)) for engine in each)

    def _refresh(self, name: Any) -> None:
        del self._outdated[name]
        engine = self._cache[name].engine
        if engine is not None:
            self.collector.update(name, _detector_metrics(engine, engine.stats()))

    def stats(self, name: Any) -> dict[str, Any]:
        """The statistics of an engine (:meth:`slackline.Engine.stats`); under ``keyed`` what is counted beside it."""
        entry = self._entry(name)
        own: dict[str, Any] = {"rows": entry.rows, "rejected": entry.rejected, "changes": entry.changes, **entry.notes}
        if entry.incarnation:
            own["incarnation"] = entry.incarnation
        if entry.engine is None:
            return {"keyed": own}
        if self.shards:
            own |= {"shard": name, "keys": max(each.keys for each in _keyed_detectors(entry.engine))}
        stats = entry.engine.stats()
        self._outdated.pop(name, None)
        self.collector.update(name, _detector_metrics(entry.engine, stats))
        return {**stats, "keyed": own}

    # Checkpoints.

    def save(self) -> tuple[dict[str, Any], list[bytes]]:
        """All engines, as the header and the pieces of a checkpoint. Saving changes nothing."""
        return self._header(), [self._piece(name) for name in self._known]

    def snapshot(self) -> tuple[dict[str, Any], Iterator[bytes]]:
        """What :meth:`save` returns, with pieces that are made when they are asked for.

        Whatever is pushed before they are all taken is not in them. There is one snapshot at a time: pieces of an
        earlier one must not be taken any more.
        """
        left = self._left = dict.fromkeys(self._known)
        pieces = self._pieces = []

        def taken() -> Iterator[bytes]:
            while pieces or left:
                yield pieces.pop() if pieces else self._piece(left.popitem()[0])

        return self._header(), taken()

    def _into_snapshot(self, name: Any) -> None:
        """An engine is about to change: as it is, it belongs to the snapshot under way."""
        if name in self._left:
            del self._left[name]
            self._pieces.append(self._piece(name))

    def _header(self) -> dict[str, Any]:
        layout = {"keyed": self.keyed, "shards": self.shards, "buffering": list(self._buffering)}
        layout["detectors"] = list(self.factory.hierarchy.names)
        pool = None if self._pool is None else self._pool.state()
        return {**layout, "counts": self.collector.save(), "activity": self.activity(), "pool": pool}

    def _piece(self, name: Any) -> bytes:
        return codec.encode((name, self._state(name), tuple(map(tuple, self.collector.of(name)))))

    def load(self, header: Mapping[str, Any], pieces: Iterable[bytes]) -> None:
        """Resume from saved engines: they replace those of the same keys.

        Raises :class:`~slackline.core.errors.StateError` for the state of other engines. To find out, one of them is
        loaded at once, the others when their keys have arrivals.
        """
        match header:
            case {
                "keyed": bool(keyed), "shards": shards, "counts": dict(counts), "buffering": list(buffering),
                "activity": (engines, keys), "pool": pool,
            }:  # fmt: skip
                pass
            case _:
                raise StateError("the state was not saved by this release; start without it.")
        if (keyed, shards) != (self.keyed, self.shards):
            raise StateError(
                f"the state was saved with {_layout(keyed, shards)}; now there is {_layout(self.keyed, self.shards)}. "
                f"Give the key and the shards as they were, or start without the state."
            )
        first: list[Any] = []
        same = header.get("detectors", detectors_now := list(self.factory.hierarchy.names)) == detectors_now
        for piece in pieces:
            name, state, detectors = codec.decode(piece)
            if detectors and same:  # else they are of other detectors: measured again when the key has arrivals
                self.collector.update(name, (DetectorMetrics(*each) for each in detectors))
            self._into_snapshot(name)
            self._cache.pop(name, None)
            self._outdated.pop(name, None)
            self._current.discard(name)
            self._states[name] = state
            self._known[name] = None
            first = first or [name]
        self._buffering.update(buffering)
        self.collector.load(counts)
        if self._pool is not None and pool is not None:  # else the policy has changed
            self._pool.restore(pool)
        self.resume_activity(engines, keys)
        for name in first:
            self._entry(name)


def _without_key(rows: list[Event] | pa.Table, field: str) -> tuple[list[Event] | pa.Table, Any]:
    """Rows without the field that holds their keys, and the keys."""
    if isinstance(rows, pa.Table):
        if field not in rows.column_names:
            raise SchemaError(f"there is no column {field!r} for the key; the columns are {rows.column_names}.")
        return rows.drop_columns([field]), rows[field]
    payloads = [dict(event.payload) for event in rows]
    keys = [payload.pop(field, None) for payload in payloads]
    pairs = zip(rows, payloads, strict=True)
    return [Event.of(event.type, event.ts, event.source, event.seq, payload) for event, payload in pairs], keys


def rows_at(rows: list[Event] | pa.Table, places: Any) -> Any:
    """The rows at some places."""
    return rows.take(places) if isinstance(rows, pa.Table) else [rows[place] for place in _listed(places)]


def _by_key(keys: Any, shards: int | None) -> tuple[list[tuple[Any, Any, list[Any] | None]], list[tuple[Any, Any]]]:
    """The engines with the places of their rows, by first arrival, and in shards the keys of these; and what is no key,
    with its places.
    """
    groups, without = places_by_key(keys)
    if shards is None:
        return [(key, places, None) for key, places in groups.items()], without
    by_shard: dict[str, tuple[list[Any], list[Any]]] = {}
    for key, places in groups.items():
        found = by_shard.setdefault(shard_of(key, shards), ([], []))
        found[0].extend(_listed(places))
        found[1].extend([key] * len(places))
    parts: list[tuple[Any, Any, list[Any] | None]] = []
    for name, (places, part_keys) in by_shard.items():
        order = np.argsort(places, kind="stable").tolist()
        parts.append((name, [places[at] for at in order], [part_keys[at] for at in order]))
    return parts, without


def places_by_key(keys: Any) -> tuple[dict[Any, Any], list[tuple[Any, Any]]]:
    """Each key with the numbers of its rows, by first arrival; and what is no key, likewise."""
    if isinstance(keys, pa.ChunkedArray):
        keys = keys.combine_chunks()
    if isinstance(keys, pa.Array):
        codes = keys if isinstance(keys, pa.DictionaryArray) else keys.dictionary_encode(null_encoding="encode")
        if not codes.null_count:
            found = list(split(pa.array(np.arange(len(codes))), codes))
            return {k: at for k, at in found if is_key(k)}, [(k, at) for k, at in found if not is_key(k)]
        keys = keys.to_pylist()
    places: dict[Any, list[int]] = {}
    without: list[tuple[Any, list[int]]] = []
    for place, key in enumerate(keys):
        if is_key(key):
            places.setdefault(key, []).append(place)
        else:
            without.append((key, [place]))
    return places, without


def _slice(values: Any, start: int, size: int) -> Any:
    """Some of the values of a push; all, without copying, where these are all."""
    if values is None or size == len(values):
        return values
    return values.slice(start, size) if hasattr(values, "slice") else values[start : start + size]


def _without(estimators: dict[str, PooledEstimator], names: Sequence[str]) -> Mapping[str, PooledEstimator]:
    return {name: each for name, each in estimators.items() if name not in names} if names else estimators


def _listed(places: Any) -> list[int]:
    return places if isinstance(places, list) else places.to_pylist()


def is_key(key: Any) -> bool:
    """Whether a value can be a key: text or a whole number."""
    return isinstance(key, str | int) and not isinstance(key, bool)


def _keys_of(rows: list[Event] | pa.Table) -> Iterable[Any]:
    """The keys in rows of a shard."""
    if isinstance(rows, pa.Table):
        return pc.unique(rows[KEY]).to_pylist() if KEY in rows.column_names else ()
    return {separated(event)[0] for event in rows}


def _keyed_detectors(engine: Engine) -> list[KeyedDetector]:
    """The detectors of a shard."""
    return [each for each in engine.detectors.values() if isinstance(each, KeyedDetector)]


def _detector_metrics(engine: Engine, stats: Mapping[str, Any]) -> list[DetectorMetrics]:
    """The metrics of an engine's detectors. In a shard an event is late where it is late for its key."""
    found = [DetectorMetrics.of(each, stats["stream_time"]) for each in stats["detectors"].values()]
    for at, each in enumerate(_keyed_detectors(engine)):
        found[at] = found[at]._replace(late=each.counted, delivered=found[at].delivered - each.counted)
    return found


def _layout(keyed: bool, shards: int | None) -> str:
    return f"{shards} shards" if shards else "one engine per key" if keyed else "one engine for all events"


def _order(name: Any) -> tuple[str, Any]:
    return type(name).__name__, name
