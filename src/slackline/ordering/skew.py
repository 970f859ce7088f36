"""Clock skew: which sources have wrong clocks, by how much, and since when.

**Lag.** When an event arrives, it lags behind a reference by ``reference - ts``: arrival time where it is known, stream
time (before the event) otherwise. Delays make lags larger, so the smallest of several is the one to use. A source's lag
is the median of the smallest lags of its last three blocks of at least ``BLOCK`` events: a median, so that one absurd
time stamp, or one pause of the stream, has no effect.

**Skewed.** The usual lag of a type is the median of its sources' lags, its spread the distance within which *more than
half* of them are: where no majority agrees, no source is skewed. At least ``FEWEST`` sources must have delivered
lately. A source is skewed when its distance from the usual lag is

- large: more than ``FACTOR`` times the spread, which would be five standard deviations if lags were normally
  distributed, and more than ``FACTOR`` mean steps of stream time, since being first in a round is not being ahead;
- steady: ``FACTOR`` times as large as the differences between its three blocks. A backlog being worked off shrinks;
- as old as it is large: 90 seconds off for 90 seconds. A delay that looks like skew would have to last as long.

The offset is updated when it has changed by more than the spread, as in a drift, and removed when the distance is under
half of the threshold, or when ``BLOCK`` events in a row fit better without it: the clock was set right.

**Correcting** subtracts the offset from the time stamps of a skewed source, except for events that do not show it: so
those after its clock was set right are left alone from the first one on.

**Reporting** must cost next to nothing: after the first ``ALL`` arrivals of the stream one in ``ONE_IN`` is sampled, by
a hash of its position, so that no rhythm of the sources escapes it and chunks make no difference.

**Limit.** A source that is always late by the same time cannot be distinguished from one whose clock is behind.
"""

from __future__ import annotations

import zlib
from typing import Any

import numpy as np
from numba import njit

from slackline.core.batch import Ints
from slackline.core.event import Source
from slackline.core.time import MAX_TS, NEVER
from slackline.ordering import checked
from slackline.ordering.borrowed import borrowed
from slackline.ordering.clock import CLK, REJECTED, Clock, tick, tick_agreed
from slackline.ordering.input import SensorInput

BLOCK = 8
FACTOR = 8
FEWEST = 3
#: Rounds, in each of which about every source ends a block, after which a silent source does not count.
LATELY = 16
ALL = 4096
ONE_IN = 16
_MULTIPLIER, _SHIFT = 0x9E37_79B9_7F4A_7C15, 60  # the upper four of 64 bits are all zero one time in ONE_IN
#: Lags are clipped here, so that the distance of two of them fits 64 bits.
LIMIT = 2**60

#: Of a source: its hash and type; its open block; smallest lags and starts of its last three blocks; its offset,
#: and the correction of its last time stamp.
HASH, KIND, N, LEAST_LAG, SINCE, BLOCKS, LAG = range(7)
START, OFFSET, RETURNED, ROUND, CORRECTION = 9, 12, 13, 14, 15
FIELDS = 16
#: Of a type: the usual lag, its spread, whether they are known.
USUAL, SPREAD, KNOWN = range(3)
#: Of all: whether the reference is arrival time, the number of sources, blocks ended in this round, rounds.
BY_ARRIVAL_TIME, SOURCES, ENDED, ROUNDS = range(4)

_SOURCE_LEAST: Ints = np.zeros(FIELDS, dtype=np.int64)
_SOURCE_MOST: Ints = np.full(FIELDS, 2**62, dtype=np.int64)
_LAGS = [LEAST_LAG, *range(LAG, LAG + 3), OFFSET, CORRECTION]
_SOURCE_LEAST[_LAGS], _SOURCE_MOST[_LAGS] = -2 * LIMIT, 2 * LIMIT
_SOURCE_LEAST[[SINCE, ROUND]] = NEVER, -1
_SOURCE_MOST[[HASH, BLOCKS, RETURNED]] = 2**32, 3, BLOCK
_NEW: Ints = np.zeros(FIELDS, dtype=np.int64)
_NEW[[SINCE, ROUND]] = NEVER, -1
_LEAST: Ints = np.zeros(4, dtype=np.int64)
_MOST: Ints = np.array([1, *[2**62] * 3], dtype=np.int64)


class Skews:
    """The lags and offsets of all sources of an engine."""

    def __init__(self, types: list[str], corrects: bool) -> None:
        self.corrects = corrects
        self.ints: Ints = _LEAST.copy()
        self.kinds: Ints = np.zeros((0, 3), dtype=np.int64)
        self.sources: Ints = np.zeros((4, FIELDS), dtype=np.int64)
        self._used = 0
        #: By type: its number, and the rows of its sources in ``sources``, by slot.
        self._number: dict[str, int] = {}
        self._rows: dict[str, Ints] = {}
        self._extend(types)

    def _extend(self, types: list[str]) -> None:
        for name in types:
            self._number[name] = len(self._number)
            self._rows[name] = np.empty(0, dtype=np.int64)
        more = np.zeros((len(self._number), 3), dtype=np.int64)
        more[: len(self.kinds)] = self.kinds
        self.kinds = more

    def rows_of(self, input: SensorInput) -> Ints:
        """The rows of a type's sources, by slot."""
        if input.name not in self._rows:
            self._extend([input.name])
        rows = self._rows[input.name]
        if len(rows) < len(input.sources.names):
            rows = self._add_rows(input.name, input.sources.names[len(rows) :])
        return rows

    def _add_rows(self, name: str, sources: list[Source]) -> Ints:
        first, self._used = self._used, self._used + len(sources)
        if self._used > len(self.sources):
            more = np.zeros((2 * self._used, FIELDS), dtype=np.int64)
            more[:first] = self.sources[:first]
            self.sources = more
        self.sources[first : self._used] = _NEW
        self.sources[first : self._used, KIND] = self._number[name]
        self.sources[first : self._used, HASH] = [zlib.crc32(repr(source).encode()) for source in sources]
        self._rows[name] = np.concatenate((self._rows[name], np.arange(first, self._used)))
        return self._rows[name]

    def tick(
        self, clock: Clock, input: SensorInput, slot: int, ts: int, position: int, arrival_time: int
    ) -> tuple[int, int, bool]:
        """One event at the clock, at an arrival time (NEVER: not known).

        Returns the clock's outcome, the corrected time stamp, and whether the correction differs from that of the
        source's last event.
        """
        key, role = input.key | slot, input.role
        if not self.corrects and position >= ALL and (position * _MULTIPLIER & 2**64 - 1) >> _SHIFT:
            return clock.tick(ts, role, key), ts, False
        row = int(self.rows_of(input)[slot])
        before = int(self.sources[row, CORRECTION])
        stamp = int(observe(self.ints, self.kinds, self.sources, row, ts, arrival_time, clock.ints, clock.mean_step))
        if not self.corrects:
            return clock.tick(ts, role, key), ts, False
        outcome = clock.tick_agreed(stamp, role, key, int(self.sources[row, HASH]))
        return outcome, stamp, int(self.sources[row, CORRECTION]) != before

    def run(
        self, clock: Clock, rows: Ints, ts: Ints, roles: Ints, key: Ints, first: int, now: Ints,
        arrival_time: int, clk: Ints,
    ) -> tuple[Ints, Ints, Ints]:  # fmt: skip
        """The same for a chunk with arrival times ``now`` (empty: not known) after the latest one: fills ``clk``.

        Returns the corrected time stamps, the rows that the clock rejects, and those where a correction changes.
        """
        stamps = ts.copy() if self.corrects else ts
        rejected, changed = run_ticks(
            self.ints, self.kinds, self.sources, rows, stamps, first, now, arrival_time, clock.ints, clock.mean_step,
            roles, key, clock.max_jump, clk, self.corrects,
        )  # fmt: skip
        return stamps, np.flatnonzero(rejected), np.flatnonzero(changed)

    def skewed(self, input: SensorInput) -> dict[Source, int]:
        """The skewed sources of a type and their offsets; ahead is positive."""
        rows = self.rows_of(input)  # adds rows for new sources
        offsets = self.sources[rows, OFFSET].tolist()
        return {source: offset for source, offset in zip(input.sources.names, offsets, strict=False) if offset}

    def state(self) -> dict[str, Any]:
        sources = {name: self.sources[rows] for name, rows in self._rows.items()}
        return {"ints": self.ints, "kinds": self.kinds, "sources": sources}

    def restore(self, state: Any) -> None:
        saved = checked.entry(state, "skew", "sources")
        if type(saved) is not dict or set(saved) != set(self._rows):
            raise checked.wrong("skew.sources", "is not of the types of this engine")
        self._number = {name: number for number, name in enumerate(saved)}
        self.ints = checked.ints(state, "skew", "ints", (len(_LEAST),), _LEAST, _MOST)
        self.kinds = checked.ints(
            state, "skew", "kinds", (len(saved), 3), np.array([-LIMIT, 0, 0]), np.array([LIMIT, 2 * LIMIT, 1])
        )
        tables = []
        for name, number in self._number.items():
            table = checked.ints(saved, "skew.sources", name, (None, FIELDS), _SOURCE_LEAST, _SOURCE_MOST)
            if (table[:, KIND] != number).any():
                raise checked.wrong("skew.sources", "holds sources of another type")
            self._rows[name] = np.arange(self._used, self._used + len(table))
            self._used += len(table)
            tables.append(table)
        self.sources = np.concatenate(tables)


@njit(cache=True, inline="always")
def _abs(x):  # type: ignore[no-untyped-def]
    return x if x >= 0 else -x


@njit(cache=True, inline="always")
def _observe(ints, kinds, sources, row, ts, arrival_time, clock, mean_step):  # type: ignore[no-untyped-def]
    reference = clock[CLK] if arrival_time == NEVER else arrival_time
    if reference == NEVER:
        return ts
    if arrival_time != NEVER and ints[BY_ARRIVAL_TIME] == 0:
        _restart(ints, kinds, sources)
    # No view of the row here: most events end below, and a view would double the time.
    lag = min(max(reference - ts, -LIMIT), LIMIT)
    n = sources[row, N]
    if n == 0:
        if sources[row, SINCE] == NEVER:
            ints[SOURCES] += 1
        sources[row, SINCE] = reference
        sources[row, LEAST_LAG] = lag
    elif lag < sources[row, LEAST_LAG]:
        sources[row, LEAST_LAG] = lag
    sources[row, N] = n + 1
    if n + 1 < BLOCK and sources[row, OFFSET] == 0 and sources[row, CORRECTION] == 0:
        return ts
    return _end_or_correct(ints, kinds, sources, row, ts, lag, reference, mean_step[0])


@njit(cache=True)
def observe(ints, kinds, sources, row, ts, arrival_time, clock, mean_step):  # type: ignore[no-untyped-def]
    """Account for one event; returns its corrected time stamp."""
    return _observe(ints, kinds, sources, row, ts, arrival_time, clock, mean_step)


@njit(cache=True)
def _end_or_correct(ints, kinds, sources, row, ts, lag, reference, step):  # type: ignore[no-untyped-def]
    """Correct a time stamp; end the block if it is long enough, and judge the source."""
    s = sources[row]
    kind = kinds[s[KIND]]
    scale = max(kind[SPREAD], int(min(max(step, 1.0), float(LIMIT))))  # smaller differences are noise
    stamp = ts
    if s[OFFSET] != 0:
        stamp = _corrected(kind, s, ts, lag, scale)
    s[CORRECTION] = ts - stamp
    if s[N] >= BLOCK:
        distance = _abs(s[LEAST_LAG] - kind[USUAL]) if kind[KNOWN] else 0
        if reference - s[SINCE] >= distance // 3:
            _end_block(ints, kinds, sources, s)
            _judge(s, kind, reference, scale)
    return stamp


@njit(cache=True)
def _corrected(kind, s, ts, lag, scale):  # type: ignore[no-untyped-def]
    """The corrected time stamp of an event of a skewed source; ends the skew if its clock was set right."""
    offset = s[OFFSET]
    if not kind[KNOWN]:
        return min(max(ts - offset, 0), MAX_TS)
    distance = _abs(lag - kind[USUAL])
    if distance >= _abs(lag - kind[USUAL] + offset):
        s[RETURNED] = 0
    else:
        s[RETURNED] += 1
        if s[RETURNED] == BLOCK:
            s[OFFSET] = s[RETURNED] = s[N] = s[BLOCKS] = 0
    return min(max(ts - offset, 0), MAX_TS) if distance // FACTOR > scale else ts


@njit(cache=True)
def _restart(ints, kinds, sources):  # type: ignore[no-untyped-def]
    """Arrival times are known from now on: discard lags against stream time."""
    ints[BY_ARRIVAL_TIME] = 1
    kinds[:, KNOWN] = 0
    sources[:, N] = 0
    sources[:, BLOCKS] = 0


@njit(cache=True)
def _end_block(ints, kinds, sources, s):  # type: ignore[no-untyped-def]
    for b in range(2, 0, -1):
        s[LAG + b] = s[LAG + b - 1]
        s[START + b] = s[START + b - 1]
    s[LAG] = s[LEAST_LAG]
    s[START] = s[SINCE]
    s[BLOCKS] = min(3, s[BLOCKS] + 1)
    s[N] = 0
    s[ROUND] = ints[ROUNDS]
    ints[ENDED] += 1
    if ints[ENDED] >= ints[SOURCES]:
        ints[ENDED] = 0
        ints[ROUNDS] += 1
        for k in range(len(kinds)):
            _compare(ints, kinds[k], k, sources)


@njit(cache=True)
def _compare(ints, kind, number, sources):  # type: ignore[no-untyped-def]
    """The usual lag of a type and its spread."""
    lags = np.empty(len(sources), dtype=np.int64)
    n = 0
    for i in range(len(sources)):
        s = sources[i]
        if s[KIND] == number and s[BLOCKS] == 3 and ints[ROUNDS] - s[ROUND] <= LATELY:
            lags[n] = _median(s)
            n += 1
    kind[KNOWN] = n >= FEWEST
    if n < FEWEST:
        return
    lags = np.sort(lags[:n])
    kind[USUAL] = lags[(n - 1) // 2]
    kind[SPREAD] = np.sort(np.abs(lags - kind[USUAL]))[n // 2]


@njit(cache=True, inline="always")
def _median(s):  # type: ignore[no-untyped-def]
    a, b, c = s[LAG], s[LAG + 1], s[LAG + 2]
    return max(min(a, b), min(max(a, b), c))


@njit(cache=True)
def _judge(s, kind, reference, scale):  # type: ignore[no-untyped-def]
    """Set or clear the offset of a source, after one more block."""
    if s[BLOCKS] < 3 or not kind[KNOWN]:
        return
    ahead = kind[USUAL] - _median(s)
    distance = _abs(ahead)
    if distance // FACTOR > scale:
        differences = max(s[LAG], s[LAG + 1], s[LAG + 2]) - min(s[LAG], s[LAG + 1], s[LAG + 2])
        sure = differences <= distance // FACTOR and reference - s[START + 2] >= distance
        if sure and _abs(ahead - s[OFFSET]) > scale:
            s[OFFSET] = ahead
            s[RETURNED] = 0
    elif distance // (FACTOR // 2) <= scale:
        s[OFFSET] = 0


@njit(cache=True)
def run_ticks(  # type: ignore[no-untyped-def]
    ints, kinds, sources, rows, ts, first, now, arrival_time, clock, mean_step, role, key, max_jump, clk, corrects
):
    rejected, changed = np.zeros(len(ts), dtype=np.bool_), np.zeros(len(ts), dtype=np.bool_)
    ints, kinds, sources, rows = borrowed(ints), borrowed(kinds), borrowed(sources), borrowed(rows)
    ts, now, role, key = borrowed(ts), borrowed(now), borrowed(role), borrowed(key)
    clock, mean_step, clk = borrowed(clock), borrowed(mean_step), borrowed(clk)
    for p in range(len(ts)):
        if len(now) > 0:
            arrival_time = max(arrival_time, now[p])
        row = rows[p]
        if row >= 0:
            if corrects:
                before = sources[row, CORRECTION]
                ts[p] = _observe(ints, kinds, sources, row, ts[p], arrival_time, clock, mean_step)
                changed[p] = sources[row, CORRECTION] != before
                source = sources[row, HASH]
                outcome = tick_agreed(clock, mean_step, ts[p], role[p], key[p], source, max_jump)
            else:
                if first + p < ALL or (np.uint64(first + p) * np.uint64(_MULTIPLIER)) >> np.uint64(_SHIFT) == 0:
                    _observe(ints, kinds, sources, row, ts[p], arrival_time, clock, mean_step)
                outcome = tick(clock, mean_step, ts[p], role[p], key[p], max_jump)
            rejected[p] = outcome == REJECTED
        clk[p] = clock[CLK]
    return rejected, changed
