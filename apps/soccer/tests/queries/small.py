"""Small matches and random walks for the queries, and ways to feed them: whole, in pieces, with a restart."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np

from slackline import Batch, Detector, Event
from slackline.core.codec import decode, encode
from slackline_soccer import data
from slackline_soccer.model.match import FULL_SIZE, Field, Match
from slackline_soccer.recordings import debs_match
from slackline_soccer.tracking import SECOND
from slackline_soccer.tracking.game import Limb, Period, Role, Sensor

FIELDS = ("x", "y", "z", "v", "a", "vx", "vy", "vz")
Walk = dict[str, np.ndarray]


def small_match(
    *periods: tuple[float, float], field: Field = FULL_SIZE, ball_rate: float = 100.0, player_rate: float = 20.0
) -> Match:
    """A ball and four players: two legs, one leg, a body, and one who never appears (see `walk`). Times in s."""
    sensors = (
        Sensor(3, Role.BALL, "ball"),
        Sensor(5, Role.GOALKEEPER, "A1", "A", Limb.LEFT_LEG),
        Sensor(6, Role.GOALKEEPER, "A1", "A", Limb.RIGHT_LEG),
        Sensor(7, Role.GOALKEEPER, "A1", "A", Limb.LEFT_ARM),
        Sensor(9, Role.PLAYER, "A2", "A", Limb.RIGHT_LEG),
        Sensor(10, Role.PLAYER, "B1", "B", Limb.BODY),
        Sensor(12, Role.PLAYER, "B2", "B", Limb.LEFT_LEG),
        Sensor(13, Role.PLAYER, "B2", "B", Limb.RIGHT_LEG),
        Sensor(20, Role.REFEREE, "referee", None, Limb.LEFT_LEG),
    )
    halves = tuple(
        Period(round(start * SECOND), round(stop * SECOND), "AB"[number % 2])
        for number, (start, stop) in enumerate(periods or ((0.0, 1000.0),))
    )
    return Match(field, sensors, halves, ball_rate=ball_rate, player_rate=player_rate)


def walk(match: Match, start: float, stop: float, seed: int, silent: float = 0.1, never: str = "B2") -> Walk:
    """Positions of all but ``never``, at random times and places, with silences; some are outside the field."""
    rng = np.random.default_rng(seed)
    parts = []
    for sensor in match.sensors:
        if sensor.wearer == never:
            continue
        n = round((stop - start) * (match.ball_rate if sensor.role is Role.BALL else match.player_rate))
        ts = np.sort(rng.integers(round(start * SECOND), round(stop * SECOND), n))
        # A walk that is often slow and sometimes fast, and transmitters that are silent for a while.
        pace = np.repeat(rng.choice([0.1, 1.0, 3.5, 4.2, 6.0, 8.0], n // 20 + 1), 20)[:n]
        along = np.cumsum(rng.normal(0, 30, n)) * 20
        across = np.cumsum(rng.normal(0, 30, n)) * 20
        on = np.repeat(rng.random(n // 40 + 1) >= silent, 40)[:n]
        part = {
            "ts": ts,
            "sid": np.full(n, sensor.sid),
            "x": np.mean(match.field.x) + along,
            "y": np.mean(match.field.y) + across,
            "z": rng.normal(0, 100, n),
            "v": pace * rng.uniform(0.5, 1.5, n) * 1e6,
            "a": rng.uniform(0, 1e7, n),
            "vx": rng.uniform(-7000, 7000, n),
            "vy": rng.uniform(-7000, 7000, n),
            "vz": rng.uniform(-1000, 1000, n),
        }
        parts.append({name: column[on] for name, column in part.items()})
    return ordered({name: np.concatenate([part[name] for part in parts]) for name in parts[0]})


def ordered(given: Walk) -> Walk:
    """In the total order, with the types of `Match.position`."""
    order = np.lexsort((given["sid"], given["ts"]))
    types = {"ts": np.int64, "sid": np.int64}
    return {name: column[order].astype(types.get(name, np.float32)) for name, column in given.items()}


def part(given: Walk, start: int, stop: int) -> Walk:
    return {name: column[start:stop] for name, column in given.items()}


def steady(match: Match, sid: int, start: float, stop: float, speed: float, rate: float = 20.0) -> Walk:
    """A transmitter that moves along the field with a constant speed (m/s), from its centre."""
    n = round((stop - start) * rate)
    seconds = np.arange(n) / rate
    zero = np.zeros(n)
    ts = round(start * SECOND) + np.arange(n) * round(SECOND / rate)
    given = dict.fromkeys(FIELDS, zero)
    centre = np.mean(match.field.ends)
    given |= {"ts": ts, "sid": np.full(n, sid), "x": centre + seconds * speed * 1e3, "v": zero + speed * 1e6}
    return given | {"y": zero + np.mean(match.field.sides), "vx": zero + 10_000.0}


def together(*walks: Walk) -> Walk:
    return ordered({name: np.concatenate([one[name] for one in walks]) for name in walks[0]})


def excerpt() -> tuple[Match, Walk]:
    """The excerpt of the DEBS 2013 match: 0.82 s of its second half."""
    read = np.genfromtxt(data.debs_excerpt(), delimiter=",", names=True, dtype=np.int64)
    given = {name: read[name] for name in ("ts_ps", "sid", *FIELDS)}
    return debs_match(), ordered({"ts": given.pop("ts_ps"), **given})


def batch(given: Walk) -> Batch:
    columns = {name: given[name] for name in FIELDS}
    known = list(range(200))
    return Batch("position", given["ts"], given["sid"], np.full(len(given["ts"]), -1), columns, known)


def cut(given: Walk, size: int) -> Iterator[Walk]:
    for start in range(0, len(given["ts"]), size):
        yield part(given, start, start + size)


def feed(detector: Detector, given: Walk, size: int = 10**9) -> list[Event]:
    """What a detector of positions publishes; also checks that each row that causes an event is the right one."""
    events = []
    for piece in cut(given, size):
        ts = piece["ts"]
        for row, event in detector.on_batch(batch(piece)) or ():
            assert event.ts <= ts[row], "an event is caused by a position at or after it"
            assert row == 0 or ts[row - 1] < event.ts, "and by the first such position"
            events.append(event)
    return events


def feed_with_restart(make: Callable[[], Detector], given: Walk, at: int) -> list[Event]:
    """The same, saved after ``at`` rows and restored into a new detector."""
    first, second = make(), make()
    events = feed(first, part(given, 0, at))
    second.restore(decode(encode(first.snapshot())))
    return events + feed(second, part(given, at, len(given["ts"])))


def of_type(events: list[Event], name: str) -> list[Event]:
    return [event for event in events if event.type == name]
