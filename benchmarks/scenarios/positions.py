"""Positions as a real-time locating system delivers them ([Order, IV-A, Figure 6]).

Four balls at 2000 Hz and 140 transmitters at 200 Hz are 36,000 positions a second. The 140 are packaged: ten
positions of a transmitter arrive together. Each source delivers in order, and its phase is random. Measured
over ten seconds and several seeds: 93 % of all positions are out of order (an earlier arrival has a larger
time stamp), the median position is 24 ms late and the latest 145 ms.

Time runs in blocks of one second, each with its own random generator, so that a stream of any length needs
the memory of one block and does not depend on how it is cut into chunks.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from slackline.core.errors import ConfigError
from slackline_soccer.simulator.locating import Times, ball_jitter, in_order, other_jitter

BALL_PERIOD = 500
OTHER_PERIOD = 5_000
PACKET = 10
BLOCK = 1_000_000

#: The field, half of its length, width and the height of a high ball, in metres.
_EXTENT = np.array([52.5, 34.0, 1.5], np.float32)


def positions(
    *, seconds: float, seed: int, ball_sources: int = 4, other_sources: int = 140, type: str | None = None
) -> pa.Table:
    """All positions of a session in arrival order, as one table; see :func:`position_chunks`."""
    chunks = position_chunks(
        seconds=seconds, seed=seed, ball_sources=ball_sources, other_sources=other_sources, type=type
    )
    return pa.concat_tables(list(chunks), promote_options="none").combine_chunks()


def position_chunks(
    *,
    seconds: float,
    seed: int,
    ball_sources: int = 4,
    other_sources: int = 140,
    type: str | None = None,
    rows: int = 100_000,
) -> Iterator[pa.Table]:
    """The same positions in tables of ``rows`` rows (the last may be shorter), in bounded memory.

    Columns: ``arrival`` and ``ts`` (int64, microseconds), ``type`` ("ball" or "player", as a dictionary; with
    ``type`` given that one name for all), ``source`` (int32, balls first), ``seq`` (int64, per source),
    ``x``, ``y``, ``z`` (float32, metres).
    """
    if not seconds > 0 or rows < 1 or ball_sources < 0 or other_sources < 0 or ball_sources + other_sources == 0:
        raise ConfigError(
            f"cannot simulate {seconds} seconds of {ball_sources} + {other_sources} sources in chunks of "
            f"{rows} rows: seconds and rows must be positive and there must be a source."
        )
    names = pa.array(["ball", "player"] if type is None else [type])
    world = _World(seed, ball_sources, other_sources)
    pending: list[pa.Table] = []
    have = 0
    for columns in world.blocks(round(seconds * 1_000_000)):
        block = _table(columns, ball_sources, names)
        pending.append(block)
        have += len(block)
        if have >= rows:
            whole = pa.concat_tables(pending).combine_chunks()
            cut = have - have % rows
            for start in range(0, cut, rows):
                yield whole.slice(start, rows)
            pending, have = [whole.slice(cut)], have - cut
    if have or not pending:
        yield pa.concat_tables(pending).combine_chunks()


@dataclass(frozen=True, slots=True)
class _Columns:
    """Rows of some events; the payload is computed last."""

    arrival: Times
    ts: Times
    source: NDArray[np.int32]
    seq: Times
    xyz: NDArray[np.float32]

    def take(self, rows: NDArray[np.intp] | NDArray[np.bool_]) -> _Columns:
        return _Columns(self.arrival[rows], self.ts[rows], self.source[rows], self.seq[rows], self.xyz[:, rows])


def _join(parts: list[_Columns]) -> _Columns:
    return _Columns(
        np.concatenate([p.arrival for p in parts]),
        np.concatenate([p.ts for p in parts]),
        np.concatenate([p.source for p in parts]),
        np.concatenate([p.seq for p in parts]),
        np.concatenate([p.xyz for p in parts], axis=1),
    )


class _World:
    """The sources: their phases, their paths and when their last event arrived."""

    def __init__(self, seed: int, balls: int, others: int) -> None:
        rng = np.random.default_rng([seed, 0])
        self.seed = seed
        self.balls = balls
        self.others = others
        self.ball_phase = rng.integers(0, BALL_PERIOD, (balls, 1))
        self.other_phase = rng.integers(0, OTHER_PERIOD * PACKET, (others, 1))
        # When the line of each source is free again: nothing overtakes, across blocks too.
        self.ball_free = np.zeros((balls, 1), np.int64)
        self.other_free = np.zeros((others, 1), np.int64)
        # Everybody runs a Lissajous figure: smooth, inside the field, no state.
        self.speed = rng.uniform(0.05, 0.6, (3, balls + others)).astype(np.float32)
        self.turn = rng.uniform(0, 2 * np.pi, (3, balls + others)).astype(np.float32)

    def blocks(self, end: int) -> Iterator[_Columns]:
        """Blocks of arrivals, in order, of all events with ``ts < end``."""
        held: list[_Columns] = []
        for index in range(-(-end // BLOCK)):
            made = self._make(index)
            if made.ts.max(initial=0) >= end:
                made = made.take(made.ts < end)
            held.append(made)
            rows = _join(held)
            # Whatever happens later arrives later: the next block starts here.
            limit = (index + 1) * BLOCK
            rows = rows.take(np.argsort(rows.arrival, kind="stable"))
            cut = int(np.searchsorted(rows.arrival, limit))
            everything = np.arange(len(rows.ts))
            yield rows.take(everything[:cut])
            held = [rows.take(everything[cut:])]
        yield held[0]

    def _make(self, index: int) -> _Columns:
        """The events that occur in one block, source by source, with their arrival times."""
        rng = np.random.default_rng([self.seed, 1, index])
        parts = []
        if self.balls:
            per_block = BLOCK // BALL_PERIOD
            seq = np.arange(index * per_block, (index + 1) * per_block)
            ts = self.ball_phase + seq * BALL_PERIOD
            arrival = in_order(ts, ball_jitter(rng, ts.shape))
            arrival = np.maximum(arrival, self.ball_free)
            self.ball_free = arrival[:, -1:].copy()
            parts.append(self._columns(0, seq, ts, arrival))
        if self.others:
            per_block = BLOCK // OTHER_PERIOD
            seq = np.arange(index * per_block, (index + 1) * per_block)
            ts = self.other_phase + seq * OTHER_PERIOD
            sent = ts[:, PACKET - 1 :: PACKET]
            packet = in_order(sent, other_jitter(rng, sent.shape))
            packet = np.maximum(packet, self.other_free)
            self.other_free = packet[:, -1:].copy()
            parts.append(self._columns(self.balls, seq, ts, np.repeat(packet, PACKET, axis=1)))
        return _join(parts)

    def _columns(self, first: int, seq: Times, ts: Times, arrival: Times) -> _Columns:
        sources, count = ts.shape
        these = slice(first, first + sources)
        # Seconds as float32 would lose the ball's half milliseconds after hours; the phase is taken before.
        angle = ts[None] * 1e-6 * self.speed[:, these, None] + self.turn[:, these, None]
        xyz = np.sin(np.remainder(angle, 2 * np.pi).astype(np.float32)) * _EXTENT[:, None, None]
        xyz[2] += _EXTENT[2]
        return _Columns(
            arrival.ravel(),
            ts.ravel(),
            np.repeat(np.arange(first, first + sources, dtype=np.int32), count),
            np.tile(seq, sources),
            xyz.reshape(3, -1),
        )


def _table(columns: _Columns, balls: int, names: pa.Array) -> pa.Table:
    is_player = (columns.source >= balls) & (len(names) > 1)
    x, y, z = (np.ascontiguousarray(axis) for axis in columns.xyz)
    return pa.table(
        {
            "arrival": columns.arrival,
            "ts": columns.ts,
            "type": pa.DictionaryArray.from_arrays(pa.array(is_player.astype(np.int8)), names),
            "source": columns.source,
            "seq": columns.seq,
            "x": x,
            "y": y,
            "z": z,
        }
    )
