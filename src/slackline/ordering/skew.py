"""Sources whose clocks are off: how far, since when, and are we sure?

**Lag.** When an event arrives, it lags behind a reference by ``reference - ts``: wall time where arrivals carry it,
stream time (before it came) otherwise. Delays make lags larger, so the least of some is the one to look at. A source's
lag is the median of the least lags of its last three blocks of at least ``BLOCK`` events: a median, so that one absurd
time stamp, or one pause of the stream, says nothing.

**Off.** The usual lag of a type is the median of its sources' lags, its spread the distance within which *more than
half* of them are: where no majority agrees, nobody is off. At least ``FEWEST`` sources must have been heard of lately.
A source is off when its distance from the usual lag is

- large: more than ``FACTOR`` times the spread, which would be five standard deviations were lags normally distributed,
  and more than ``FACTOR`` mean steps of the clock, since who comes first in a round is not ahead;
- steady: ``FACTOR`` times as large as the differences between its three blocks. A backlog that is worked off shrinks;
- as old as it is large: 90 seconds off for 90 seconds. A delay that looks like that would have to last as long.

The offset follows when it has changed by more than the spread, as in a drift, and goes when the distance is under half
of what was needed, or when ``BLOCK`` events in a row fit better without it: the clock was set right.

**Correcting** takes the offset off the time stamps of a source that is off, except of events that are not off: so those
after its clock was set right are left alone from the first one on.

**Reporting** must cost next to nothing: after the first ``ALL`` arrivals of the stream one in ``ONE_IN`` is looked at,
chosen by a hash of its position, so that no rhythm of the sources escapes it and chunks make no difference.

**What cannot be known.** A source that is always late by the same time looks like one whose clock is behind by it.
"""

from __future__ import annotations

import zlib
from typing import Any

import numpy as np
from numba import njit

from slackline.core.arrays import Ints
from slackline.core.event import Source
from slackline.core.time import MAX_TS
from slackline.ordering import checked
from slackline.ordering.clock import CLK, REJECTED, Clock, tick, tick_agreed
from slackline.ordering.constants import NEVER
from slackline.ordering.input import SensorInput

BLOCK = 8
FACTOR = 8
FEWEST = 3
#: Rounds, in each of which about every source ends a block, after which a silent one does not count for the usual lag.
LATELY = 16
ALL = 4096
ONE_IN = 16
_HASH, _SHIFT = 0x9E37_79B9_7F4A_7C15, 60  # of 64 bits the upper four are all zero one time in ONE_IN
#: Lags beyond are all the same: so the distance of two of them fits 64 bits.
LIMIT = 2**60

#: Of a source: who, of which type; its open block; its last three blocks: least lags and beginnings; its offset.
#: and what was taken off its last time stamp.
WHO, KIND, N, LEAST_LAG, SINCE, BLOCKS, LAG = range(7)
START, OFFSET, RETURNED, ROUND, TAKEN = 9, 12, 13, 14, 15
FIELDS = 16
#: Of a type: the usual lag, its spread, whether they are known.
USUAL, SPREAD, KNOWN = range(3)
#: Of all: whether the reference is wall time, how many sources were heard of, blocks ended in this round, rounds.
ON_WALL, HEARD, ENDED, ROUNDS = range(4)

_SOURCE_LEAST: Ints = np.zeros(FIELDS, dtype=np.int64)
_SOURCE_MOST: Ints = np.full(FIELDS, 2**62, dtype=np.int64)
_LAGS = [LEAST_LAG, *range(LAG, LAG + 3), OFFSET, TAKEN]
_SOURCE_LEAST[_LAGS], _SOURCE_MOST[_LAGS] = -2 * LIMIT, 2 * LIMIT
_SOURCE_LEAST[[SINCE, ROUND]] = NEVER, -1
_SOURCE_MOST[[WHO, BLOCKS, RETURNED]] = 2**32, 3, BLOCK
_NEW: Ints = np.zeros(FIELDS, dtype=np.int64)
_NEW[[SINCE, ROUND]] = NEVER, -1
_LEAST: Ints = np.zeros(4, dtype=np.int64)
_MOST: Ints = np.array([1, *[2**62] * 3], dtype=np.int64)


class Skews:
    """The lags of all sources of an engine, and what follows from them."""

    def __init__(self, types: list[str], corrects: bool) -> None:
        self.corrects = corrects
        self.ints: Ints = _LEAST.copy()
        self.kinds: Ints = np.zeros((0, 3), dtype=np.int64)
        self.sources: Ints = np.zeros((4, FIELDS), dtype=np.int64)
        self._used = 0
        #: By type: its number, and the rows of its sources in ``sources``, by the sources' numbers.
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

    def rows_of(self, channel: SensorInput) -> Ints:
        """The rows of a type's sources, by the sources' numbers."""
        if channel.name not in self._rows:
            self._extend([channel.name])
        rows = self._rows[channel.name]
        if len(rows) < len(channel.senders.names):
            rows = self._make_room(channel.name, channel.senders.names[len(rows) :])
        return rows

    def _make_room(self, name: str, sources: list[Source]) -> Ints:
        first, self._used = self._used, self._used + len(sources)
        if self._used > len(self.sources):
            more = np.zeros((2 * self._used, FIELDS), dtype=np.int64)
            more[:first] = self.sources[:first]
            self.sources = more
        self.sources[first : self._used] = _NEW
        self.sources[first : self._used, KIND] = self._number[name]
        self.sources[first : self._used, WHO] = [zlib.crc32(repr(source).encode()) for source in sources]
        self._rows[name] = np.concatenate((self._rows[name], np.arange(first, self._used)))
        return self._rows[name]

    def tick(
        self, clock: Clock, channel: SensorInput, slot: int, ts: int, position: int, wall: int
    ) -> tuple[int, int, bool]:
        """One event at the clock, at a wall time (NEVER: not known).

        What becomes of it, its time stamp, and whether something else is taken off that than off its source's last.
        """
        key, role = channel.key | slot, channel.role
        if not self.corrects and position >= ALL and (position * _HASH & 2**64 - 1) >> _SHIFT:
            return clock.tick(ts, role, key), ts, False
        row = int(self.rows_of(channel)[slot])
        before = int(self.sources[row, TAKEN])
        stamp = int(take(self.ints, self.kinds, self.sources, row, ts, wall, clock.ints, clock.mean_step))
        if not self.corrects:
            return clock.tick(ts, role, key), ts, False
        fate = clock.tick_agreed(stamp, role, key, int(self.sources[row, WHO]))
        return fate, stamp, int(self.sources[row, TAKEN]) != before

    def run(
        self, clock: Clock, rows: Ints, ts: Ints, roles: Ints, key: Ints, first: int, now: Ints,
        wall: int, clk: Ints,
    ) -> tuple[Ints, Ints, Ints]:  # fmt: skip
        """The same for a chunk, ``now`` being the wall times, if any, and ``wall`` that before: fills ``clk``.

        Returns the time stamps, the rows that the clock does not believe, and those where something else is taken off.
        """
        stamps = ts.copy() if self.corrects else ts
        rejected, anew = run_ticks(
            self.ints, self.kinds, self.sources, rows, stamps, first, now, wall, clock.ints, clock.mean_step,
            roles, key, clock.max_jump, clk, self.corrects,
        )  # fmt: skip
        return stamps, np.flatnonzero(rejected), np.flatnonzero(anew)

    def skewed(self, channel: SensorInput) -> dict[Source, int]:
        """The sources of a type that are off, and by how much; ahead is positive."""
        rows = self.rows_of(channel)  # makes room for those that were not met before
        offsets = self.sources[rows, OFFSET].tolist()
        return {source: offset for source, offset in zip(channel.senders.names, offsets, strict=False) if offset}

    def state(self) -> dict[str, Any]:
        sources = {name: self.sources[rows] for name, rows in self._rows.items()}
        return {"ints": self.ints, "kinds": self.kinds, "sources": sources}

    def restore(self, state: Any) -> None:
        """Go on from what ``state`` gave."""
        saved = checked.entry(state, "skew", "sources")
        if type(saved) is not dict or set(saved) != set(self._rows):
            raise checked.wrong("skew.sources", "is not of the types there are")
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
def _take(ints, kinds, sources, row, ts, wall, clock, mean_step):  # type: ignore[no-untyped-def]
    reference = clock[CLK] if wall == NEVER else wall
    if reference == NEVER:
        return ts
    if wall != NEVER and ints[ON_WALL] == 0:
        _begin_anew(ints, kinds, sources)
    # No view of the row here: most events need no more than this, and a view would double the time.
    lag = min(max(reference - ts, -LIMIT), LIMIT)
    n = sources[row, N]
    if n == 0:
        if sources[row, SINCE] == NEVER:
            ints[HEARD] += 1
        sources[row, SINCE] = reference
        sources[row, LEAST_LAG] = lag
    elif lag < sources[row, LEAST_LAG]:
        sources[row, LEAST_LAG] = lag
    sources[row, N] = n + 1
    if n + 1 < BLOCK and sources[row, OFFSET] == 0 and sources[row, TAKEN] == 0:
        return ts
    return _look(ints, kinds, sources, row, ts, lag, reference, mean_step[0])


@njit(cache=True)
def take(ints, kinds, sources, row, ts, wall, clock, mean_step):  # type: ignore[no-untyped-def]
    """One event: its lag, and at the end of a block what that says. Returns the time stamp as corrected."""
    return _take(ints, kinds, sources, row, ts, wall, clock, mean_step)


@njit(cache=True)
def _look(ints, kinds, sources, row, ts, lag, reference, step):  # type: ignore[no-untyped-def]
    """Correct a time stamp; end a block, if it is as long as it has to be, and judge."""
    s = sources[row]
    kind = kinds[s[KIND]]
    scale = max(kind[SPREAD], int(min(max(step, 1.0), float(LIMIT))))  # differences up to there mean nothing
    stamp = ts
    if s[OFFSET] != 0:
        stamp = _corrected(kind, s, ts, lag, scale)
    s[TAKEN] = ts - stamp
    if s[N] >= BLOCK:
        distance = _abs(s[LEAST_LAG] - kind[USUAL]) if kind[KNOWN] else 0
        if reference - s[SINCE] >= distance // 3:
            _end_block(ints, kinds, sources, s)
            _judge(s, kind, reference, scale)
    return stamp


@njit(cache=True)
def _corrected(kind, s, ts, lag, scale):  # type: ignore[no-untyped-def]
    """The time stamp of an event whose source is off; and whether that source is back."""
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
def _begin_anew(ints, kinds, sources):  # type: ignore[no-untyped-def]
    """Wall time is known from now on: lags are others."""
    ints[ON_WALL] = 1
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
    if ints[ENDED] >= ints[HEARD]:
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
    """Whether a source is off, after one more block."""
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
    ints, kinds, sources, rows, ts, first, now, wall, clock, mean_step, role, key, max_jump, clk, corrects
):
    rejected, anew = np.zeros(len(ts), dtype=np.bool_), np.zeros(len(ts), dtype=np.bool_)
    for p in range(len(ts)):
        if len(now) > 0:
            wall = max(wall, now[p])
        row = rows[p]
        if row >= 0:
            if corrects:
                before = sources[row, TAKEN]
                ts[p] = _take(ints, kinds, sources, row, ts[p], wall, clock, mean_step)
                anew[p] = sources[row, TAKEN] != before
                who = sources[row, WHO]
                fate = tick_agreed(clock, mean_step, ts[p], role[p], key[p], who, max_jump)
            else:
                if first + p < ALL or (np.uint64(first + p) * np.uint64(_HASH)) >> np.uint64(_SHIFT) == 0:
                    _take(ints, kinds, sources, row, ts[p], wall, clock, mean_step)
                fate = tick(clock, mean_step, ts[p], role[p], key[p], max_jump)
            rejected[p] = fate == REJECTED
        clk[p] = clock[CLK]
    return rejected, anew
