"""A simulated match: what happened (truth), and the positions of all transmitters in the order of their arrival.

Time runs in blocks of one second, each with its own random generators, so a match of any length needs the memory of a
few blocks and does not depend on how it is cut into tables.

**On disk**: ``match.json``, ``truth.parquet``, and ``positions/part-00000.parquet`` and on.
:func:`slackline_soccer.recordings.open_recording` reads such a directory, like any other recording.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray

from slackline import ConfigError, SlacklineError
from slackline_soccer.model.match import Match
from slackline_soccer.simulator.bodies import (
    BALL_RATE,
    BALLS,
    BODIES,
    LIMBS,
    PLAYER_RATE,
    START,
    STEP,
    TOUCH_COLUMNS,
    ball_sid,
    follow,
    make_match,
    ride,
    worn_sid,
)
from slackline_soccer.simulator.locating import (
    BALL,
    PACKET,
    WORN,
    Bursts,
    Columns,
    Congestion,
    Draw,
    Line,
    Quality,
    Receiver,
    Times,
    measured_delays,
    read_delays,
)
from slackline_soccer.simulator.play import Play, Touch
from slackline_soccer.tracking import MILLISECOND, SECOND

#: The columns of a table of positions: times in ps, places in mm, v in µm/s, a in µm/s², directions times 10,000.
SCHEMA = pa.schema(
    [("arrival", pa.int64()), ("sid", pa.int32()), ("ts", pa.int64())]
    + [(name, pa.int32()) for name in ("x", "y", "z")]
    + [(name, pa.int64()) for name in ("v", "a")]
    + [(name, pa.int16()) for name in ("vx", "vy", "vz", "ax", "ay", "az")]
)

#: How much further the play has got than what is sampled: feet know their next kick (ms).
_LEAD = 400
#: How far back rows of a block may reach: a packet's first position (ms).
_BACK = 120


def simulate(seconds: float, seed: int, delays: str | Path = "measured") -> Simulation:
    """A match of ``seconds``, the same for the same ``seed``.

    ``delays``: ``"measured"`` (as in the installation at 70 % of its capacity, [Thesis, 3.4.1]), ``"congested"`` (the
    same, but the receiver is at times fully loaded), ``"none"`` (everything arrives when it occurs) or a CSV file with
    columns ``arrival_ms`` and ``ts_ms`` whose delays are drawn anew for each packet. :mod:`.transport` has the figures.

    >>> simulation = simulate(seconds=1, seed=7)
    >>> simulation.match.balls
    (1, 2, 3, 4)
    """
    return Simulation(seconds, seed, delays)


class Simulation:
    """One simulated match. ``match`` describes it, ``truth`` has what happened, :meth:`tables` gives the stream."""

    def __init__(self, seconds: float, seed: int, delays: str | Path = "measured") -> None:
        if not (np.isfinite(seconds) and seconds > 0):
            raise ConfigError(f"cannot simulate {seconds} seconds; give a positive number.")
        if seed < 0:
            raise ConfigError(f"a seed is 0 or more; got {seed}.")
        self.seconds = seconds
        self.seed = seed
        self.delays = delays
        self.match: Match = make_match(seconds, f"simulated-{seed}")
        self._draw = _draw(delays)
        self._truth: pa.Table | None = None

    @property
    def truth(self) -> pa.Table:
        """What really happened, in order of time; see :mod:`slackline_soccer.simulator.truth`."""
        if self._truth is None:
            play = Play(self.seed)
            for block in range(self._block_count):
                play.advance((block + 1) * 1000 + _LEAD)
            self._truth = self._written(play)
        return self._truth

    def table(self) -> pa.Table:
        """All positions as one table."""
        return pa.concat_tables(list(self.tables())).combine_chunks()

    def tables(self, rows: int = 100_000) -> Iterator[pa.Table]:
        """The positions in arrival order, in tables of ``rows`` rows (the last may be shorter)."""
        if rows < 1:
            raise ConfigError(f"a table needs at least one row; got rows={rows}.")
        pending: list[pa.Table] = []
        have = 0
        for block in self._blocks():
            pending.append(block)
            have += len(block)
            if have >= rows:
                whole = pa.concat_tables(pending)
                cut = have - have % rows
                for start in range(0, cut, rows):
                    yield whole.slice(start, rows).combine_chunks()
                pending, have = [whole.slice(cut)], have - cut
        if have:
            yield pa.concat_tables(pending).combine_chunks()

    @property
    def _block_count(self) -> int:
        # One more than there are seconds: packets that begin before the end are sent after it.
        return int(np.ceil(self.seconds)) + 1

    def _written(self, play: Play) -> pa.Table:
        play.truth.close()
        return play.truth.table(self.seconds * 1000)

    def _blocks(self) -> Iterator[pa.Table]:
        play = Play(self.seed)
        film = _Film(play)
        rng = np.random.default_rng([self.seed, 30])
        congestion = Congestion(self.seed, START) if self.delays == "congested" else None
        balls = _Transmitters(self.seed, rng, [ball_sid(n) for n in range(BALLS)], BALL_RATE, 1, BALL, self._draw)
        sids = [worn_sid(wearer, limb) for wearer in range(BODIES) for limb in range(len(LIMBS))]
        worn = _Transmitters(self.seed, rng, sids, PLAYER_RATE, PACKET, WORN, self._draw, congestion)
        bursts = Bursts(self.seed, START) if self._draw is measured_delays else None
        stop = START + round(self.seconds * SECOND)
        held: list[Columns] = []
        for block in range(self._block_count):
            film.roll((block + 1) * 1000)
            made = [film.balls_at(balls, block), film.worn_at(worn, block)]
            for columns in made:
                if bursts is not None:
                    columns["arrival"] = bursts.hold(columns["arrival"])
                held.append(_pick(columns, columns["ts"] < stop))
            nothing_before = START + (block + 1) * SECOND - _BACK * MILLISECOND
            ready, held = _ripe(held, nothing_before, everything=block + 1 == self._block_count)
            if bursts is not None:
                bursts.forget(START + block * SECOND)
            yield pa.table([pa.array(ready[field.name], field.type) for field in SCHEMA], SCHEMA)
        self._truth = self._written(play)


def _seconds(ts: Times) -> NDArray[np.float64]:
    """Time stamps as seconds of the play."""
    return ((ts - START) * 1e-12).astype(np.float64)


def _draw(delays: str | Path) -> Draw | None:
    if delays in ("measured", "congested"):
        return measured_delays
    if delays == "none":
        return None
    path = Path(delays)
    if not path.is_file():
        raise ConfigError(
            f"delays must be 'measured', 'congested', 'none' or a CSV file with arrival_ms and ts_ms; "
            f"got {str(delays)!r}."
        )
    return read_delays(path)


def _pick(columns: Columns, rows: NDArray[np.bool_] | NDArray[np.intp]) -> Columns:
    return {name: column[rows] for name, column in columns.items()}


def _ripe(held: list[Columns], limit: int, *, everything: bool) -> tuple[Columns, list[Columns]]:
    """What will surely not be preceded by anything, in order, and what has to wait."""
    joined = {name: np.concatenate([part[name] for part in held]) for name in held[0]}
    order = np.argsort(joined["arrival"], kind="stable")
    cut = len(order) if everything else int(np.searchsorted(joined["arrival"], limit, sorter=order))
    return _pick(joined, order[:cut]), [_pick(joined, np.sort(order[cut:]))]


class _Transmitters:
    """Transmitters of one kind: their periods and phases, their filters, their line to the host."""

    def __init__(
        self,
        seed: int,
        rng: np.random.Generator,
        sids: list[int],
        rate: float,
        packet: int,
        quality: Quality,
        draw: Draw | None,
        congestion: Congestion | None = None,
    ) -> None:
        count = len(sids)
        self.sids = np.array(sids)
        self.packet = packet
        nominal = SECOND / rate
        # Real transmitters are not tuned to the picosecond: each has its own period.
        self.periods = np.round(nominal * rng.uniform(0.98, 1.02, count)).astype(np.int64)
        self.phases = START + rng.integers(0, round(nominal * 10), count)
        ball = quality is BALL
        heights = rng.uniform(-0.45, 0.0, count) if ball else np.clip(rng.normal(0.0, 0.22, count), -0.5, 0.5)
        offsets = np.column_stack([rng.normal(0.0, 0.02, (count, 2)), heights])
        self.receiver = Receiver(quality, offsets, self.periods)
        self.line = None if draw is None else Line(seed, count, draw, ball=ball, congestion=congestion)
        self._noise_seed = [seed, 31 if ball else 32]

    def noise(self, block: int, rows: int) -> NDArray[np.float32]:
        return np.random.default_rng([*self._noise_seed, block]).standard_normal((rows, 9), np.float32)

    def times(self, block: int) -> tuple[Times, Times, Times]:
        """Time stamps of the packets sent in a block, the first row of each transmitter, and each row's number."""
        span = self.periods * self.packet
        last = self.phases + span - self.periods  # when the first packet is complete
        begin, end = START + block * SECOND, START + (block + 1) * SECOND
        first = np.maximum(-((last - begin) // span), 0)
        stop = np.maximum(-((last - end) // span), 0)
        counts = (stop - first) * self.packet
        firsts = np.concatenate([[0], np.cumsum(counts)])
        source = np.repeat(np.arange(len(counts)), counts)
        number = np.arange(firsts[-1]) - firsts[source] + first[source] * self.packet
        return self.phases[source] + number * self.periods[source], firsts, source

    def deliver(self, block: int, ts: Times, firsts: Times, source: Times, measured: Columns) -> Columns:
        """The rows with their arrival, without those that are lost."""
        if self.line is None:
            return {"arrival": ts, "sid": self.sids[source], "ts": ts, **measured}
        sent = ts[self.packet - 1 :: self.packet]
        arrival, kept = self.line.send(block, sent, firsts // self.packet)
        columns = {"arrival": np.repeat(arrival, self.packet), "sid": self.sids[source], "ts": ts, **measured}
        return columns if kept.all() else _pick(columns, np.repeat(kept, self.packet))


class _Film:
    """The play, a little ahead, and enough of its past to sample from."""

    def __init__(self, play: Play) -> None:
        self._play = play
        self._bodies = np.empty((0, BODIES, 8))
        self._first_step = 0
        self._balls = np.empty((0, BALLS, 3))
        self._speeds = np.empty((0, BALLS, 3))
        self._first_ms = 0
        self._touches: list[Touch] = []

    def roll(self, until: int) -> None:
        """Be able to show everything before ``until`` (ms)."""
        scene = self._play.advance(until + _LEAD)
        begin = until - 1000 - _BACK - 200
        old = max(0, begin // STEP - self._first_step)
        self._bodies = np.concatenate([self._bodies[old:], np.stack(scene.bodies)])
        self._first_step += old
        gone = min(max(0, begin - self._first_ms), len(self._balls))
        self._balls = np.concatenate([self._balls[gone:], scene.balls])
        self._speeds = np.concatenate([self._speeds[gone:], scene.speeds])
        self._first_ms += gone
        self._touches = [touch for touch in self._touches if touch.at > begin - 500] + scene.touches

    def balls_at(self, them: _Transmitters, block: int) -> Columns:
        ts, firsts, source = them.times(block)
        places, moves = np.empty((len(ts), 3)), np.empty((len(ts), 3))
        seconds = _seconds(ts)
        ride(self._balls, self._speeds, self._first_ms / 1000, firsts, seconds, places, moves)
        measured = them.receiver.measure(firsts, places, moves, them.noise(block, len(ts)))
        return them.deliver(block, ts, firsts, source, measured)

    def worn_at(self, them: _Transmitters, block: int) -> Columns:
        ts, firsts, source = them.times(block)
        places = np.empty((len(ts), 3))
        wearers, which = np.divmod(np.arange(len(them.sids)), len(LIMBS))
        # The foot is a hand's breadth behind the ball's centre.
        kicks = [
            (t.at / 1000, t.player, t.foot, t.place[0] - 0.12 * t.way[0], t.place[1] - 0.12 * t.way[1], t.place[2])
            for t in self._touches
        ]
        touches = np.array(kicks).reshape(-1, TOUCH_COLUMNS)
        seconds = _seconds(ts)
        begin = self._first_step * STEP / 1000
        follow(self._bodies, begin, touches, wearers, which, firsts, seconds, places)
        measured = them.receiver.measure(firsts, places, None, them.noise(block, len(ts)))
        return them.deliver(block, ts, firsts, source, measured)


_MATCH, _TRUTH, _POSITIONS = "match.json", "truth.parquet", "positions"


def check_free(directory: Path) -> None:
    """Say so if something would be overwritten."""
    if directory.exists() and not directory.is_dir():
        raise ConfigError(f"{directory} is a file; give a directory that is empty or does not exist yet.")
    if directory.is_dir() and any(directory.iterdir()):
        raise ConfigError(f"{directory} is not empty; give another directory, or empty it first.")


def save(
    directory: Path | str,
    match: Match,
    tables: Iterable[pa.Table],
    truth: Callable[[], pa.Table],
    progress: Callable[[pa.Table], None] = lambda table: None,
) -> int:
    """Write a match to a directory that is empty or not there yet; gives the number of positions.

    ``truth`` is asked when all tables are written: a simulation knows it then without playing again. ``progress`` is
    called with each table that was written.
    """
    directory = Path(directory)
    check_free(directory)
    rows = 0
    try:
        (directory / _POSITIONS).mkdir(parents=True)
        for number, table in enumerate(tables):
            pq.write_table(table, directory / _POSITIONS / f"part-{number:05d}.parquet", compression="zstd")
            rows += len(table)
            progress(table)
        pq.write_table(truth(), directory / _TRUTH)
        match.save(directory / _MATCH)
    except OSError as cause:
        raise SlacklineError(f"cannot write the match to {directory}: {cause}.") from cause
    return rows
