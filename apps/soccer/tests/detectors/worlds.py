"""Small worlds made by hand: a ball or two and a few players on straight ways, sampled like the real thing.

A way is a list of ``(seconds, x, y[, z])`` in metres, passed at constant speed in between; before its first point a
thing is not tracked. Turns are rounded over 10 ms, as long as a foot is at a ball.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import chain

import numpy as np
import pyarrow as pa

import slackline as sl
from slackline.core.batch import Batch
from slackline.core.codec import decode, encode
from slackline_soccer.model.events import ALL
from slackline_soccer.model.match import DEBS_2013, FULL_SIZE, Field, Match
from slackline_soccer.tracking import SECOND
from slackline_soccer.tracking.game import Limb, Period, Role, Sensor

Way = Sequence[tuple[float, ...]]

START = 100 * SECOND
COLUMNS = ("x", "y", "z", "v", "a", "vx", "vy", "vz")
TYPES = {kind.name: kind for kind in ALL}
__all__ = ["DEBS_2013", "FULL_SIZE"]


def make_match(
    field: Field = FULL_SIZE,
    seconds: float = 600.0,
    ball_rate: float = 2000.0,
    player_rate: float = 200.0,
    feet: bool = True,
    low: str = "A",
) -> Match:
    """Balls 1 and 2; players A1 to A4 and B1 to B4, the first of each in goal, with transmitters 11, 12, 21, 22, …"""
    sensors = [Sensor(1, Role.BALL, "ball"), Sensor(2, Role.BALL, "spare")]
    for t, team in enumerate("AB"):
        for n in range(1, 5):
            role = Role.GOALKEEPER if n == 1 else Role.PLAYER
            for limb in (Limb.LEFT_LEG, Limb.RIGHT_LEG) if feet else (Limb.BODY,):
                sid = 40 * t + 10 * n + (2 if limb is Limb.RIGHT_LEG else 1)
                sensors.append(Sensor(sid, role, f"{team}{n}", team, limb))
    period = Period(START, START + round(seconds * SECOND), low)
    return Match(field, tuple(sensors), (period,), ball_rate, player_rate)


def sampled(way: Way, rate: float, phase: float) -> tuple[np.ndarray, np.ndarray]:
    """Times (s) and rows of x, y, z, vx, vy, vz, ax, ay, az (m, s)."""
    points = np.array([(*point, 0.0)[:4] for point in way], dtype=float)
    fine = np.arange(points[0, 0], points[-1, 0], 0.0005)
    places = np.stack([np.interp(fine, points[:, 0], points[:, axis]) for axis in (1, 2, 3)], axis=1)
    velocity = np.gradient(places, 0.0005, axis=0) if len(fine) > 1 else np.zeros_like(places)
    kernel = np.ones(20) / 20
    for axis in range(3):
        velocity[:, axis] = np.convolve(np.pad(velocity[:, axis], (10, 9), mode="edge"), kernel, mode="valid")
    acceleration = np.gradient(velocity, 0.0005, axis=0) if len(fine) > 1 else np.zeros_like(places)
    rows = np.arange(0, len(fine) - phase / 0.0005, 1 / rate / 0.0005).round().astype(int)
    rows = rows[rows < len(fine)]
    return fine[rows] + phase, np.concatenate([places, velocity, acceleration], axis=1)[rows]


def positions(match: Match, ways: Mapping[str, Way], noise: float = 0.0, seed: int = 0) -> pa.Table:
    """The positions of everything that has a way, in order: ``sid``, ``ts`` and the columns of ``match.position``."""
    rng = np.random.default_rng(seed)
    parts = []
    for sensor in match.sensors:
        if sensor.wearer not in ways:
            continue
        rate = match.ball_rate if sensor.role is Role.BALL else match.player_rate
        phase = 0.00007 * (sensor.sid % 7) if rate > 100 else 0.0
        times, rows = sampled(ways[sensor.wearer], rate, phase)
        places, velocity, acceleration = 1000 * rows[:, :3], rows[:, 3:6], rows[:, 6:]
        if sensor.limb in (Limb.LEFT_LEG, Limb.RIGHT_LEG):
            places[:, 1] += 100.0 if sensor.limb is Limb.LEFT_LEG else -100.0
        places += noise * rng.standard_normal(places.shape)
        speed = np.linalg.norm(velocity, axis=1)
        direction = 10_000 * velocity / np.maximum(speed, 1e-9)[:, None]
        columns = [
            *places.T,
            1e6 * speed,
            1e6 * np.linalg.norm(acceleration, axis=1),
            *direction.T,
        ]
        ts = START + np.round(times * 1e9).astype(np.int64) * 1000
        parts.append((np.full(len(ts), sensor.sid), ts, *(column.astype(np.float32) for column in columns)))
    table = pa.table(
        {name: np.concatenate([part[n] for part in parts]) for n, name in enumerate(("sid", "ts", *COLUMNS))}
    )
    return table.sort_by([("ts", "ascending"), ("sid", "ascending")])


def as_batch(table: pa.Table) -> Batch:
    """A table of positions as a detector gets it."""
    sid = np.asarray(table["sid"])
    names, slots = np.unique(sid, return_inverse=True)
    columns = {name: np.asarray(table[name]) for name in COLUMNS}
    seq = np.full(len(sid), -1, dtype=np.int64)
    return Batch("position", np.asarray(table["ts"]), slots, seq, columns, names.tolist())


def event(type: str, at: float, **payload: object) -> sl.Event:
    """An event at so many seconds after the start."""
    return sl.Event(type, START + round(at * SECOND), **payload)


def seconds(found: sl.Event) -> float:
    return (found.ts - START) / SECOND


def inputs(detector: sl.Detector, table: pa.Table | None, events: Iterable[sl.Event] = ()) -> Iterator[Batch]:
    """Positions and single events in the total order, as runs of one type."""
    singles = sorted(events, key=lambda event: (event.ts, event.type))
    batch = None if table is None else as_batch(table)
    done = 0
    for single in singles:
        if batch is not None:
            side = "left" if single.type < "position" else "right"
            stop = int(np.searchsorted(batch.ts, single.ts, side=side))
            if stop > done:
                yield batch.slice(done, stop)
            done = max(done, stop)
        yield Batch.of_events(single.type, [single])
    if batch is not None and done < len(batch):
        yield batch.slice(done, len(batch))


def feed(
    detector: sl.Detector, table: pa.Table | None = None, events: Iterable[sl.Event] = (), cut: int | None = None
) -> list[sl.Event]:
    """What a detector publishes; ``cut`` is the most rows it gets at once."""
    found: list[sl.Event] = []
    for batch in inputs(detector, table, events):
        step = cut or len(batch)
        for start in range(0, len(batch), step):
            found += _give(detector, batch.slice(start, min(start + step, len(batch))))
    return found


def feed_with_restart(
    detectors: Sequence[sl.Detector], table: pa.Table | None = None, events: Iterable[sl.Event] = (), cut: int = 500
) -> list[sl.Event]:
    """The same, but after every cut another of the detectors continues from the saved state."""
    found: list[sl.Event] = []
    at = 0
    for batch in inputs(detectors[0], table, events):
        for start in range(0, len(batch), cut):
            current, after = detectors[at % len(detectors)], detectors[(at + 1) % len(detectors)]
            found += _give(current, batch.slice(start, min(start + cut, len(batch))))
            after.restore(decode(encode(current.snapshot())))
            at += 1
    return found


def _give(detector: sl.Detector, batch: Batch) -> list[sl.Event]:
    if detector.takes_batches:
        return [event for _, event in detector.on_batch(batch) or ()]
    return list(chain.from_iterable(detector.on_event(event) or () for event in batch))


def brief(found: Iterable[sl.Event], *fields: str) -> list[tuple[object, ...]]:
    """Type and some fields of each event."""
    return [(event.type, *(event.get(field) for field in fields)) for event in found]
