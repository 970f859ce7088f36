"""A building whose devices depend on each other, in ways that are known: a day of doors, lights, a lift, an alarm.

Each device has two states, one at rest and one active. It becomes active by itself now and then, or because another
device did something: that is **planted**, with a lag and a probability, and is the truth. Some devices are
independent of all others. By day most things happen ten times as often as at night, so that devices which have nothing
to do with each other are still busy at the same hours.

A device reports its state when it changes, and again every minute. Its events arrive in order, but late:

- wired devices need up to 0.2 s, radio sensors seconds;
- those in the cellar and the lift report through a gateway that sends every 20 s, all at once;
- one device is dead for two hours: its events meanwhile are lost.

Times are milliseconds since midnight.
"""

from __future__ import annotations

from dataclasses import dataclass
from heapq import heappop, heappush

import numpy as np

from slackline.core.errors import ConfigError
from slackline.core.event import Event
from slackline_soccer.simulator.locating import Times, in_order

SECOND = 1_000
MINUTE = 60 * SECOND
HOUR = 60 * MINUTE

#: How often a device repeats its state, and how often the gateway sends.
REPEAT = MINUTE
GATEWAY = 20 * SECOND


@dataclass(frozen=True, slots=True)
class Device:
    """A device: its type, its states, how often an hour it becomes active by itself, and for how many seconds."""

    name: str
    type: str
    rest: str
    active: str
    per_hour: float
    stays: tuple[float, float]
    line: str  # "wire", "radio" or "gateway"
    by_day: bool = True


@dataclass(frozen=True, slots=True)
class Change:
    """A kind of transition."""

    device: str
    before: str
    after: str


@dataclass(frozen=True, slots=True)
class Planted:
    """A dependency that is there: the effect comes after ``least`` to ``most`` ms, all lags being equally likely.

    It comes with this ``probability``, if the device is at rest; and only ``until`` then, if the link breaks.
    """

    cause: Change
    effect: Change
    least: int
    most: int
    probability: float
    until: int | None = None


@dataclass(frozen=True, slots=True)
class Outage:
    """A device that delivers nothing from ``start`` to ``end``."""

    device: str
    start: int
    end: int


@dataclass(frozen=True, slots=True)
class Building:
    """A day of a building: its events in the order of arrival, when each arrived, and what is in them."""

    events: tuple[Event, ...]
    arrivals: tuple[int, ...]
    devices: tuple[Device, ...]
    planted: tuple[Planted, ...]
    outage: Outage


DEVICES = (
    Device("lobby_door", "door", "closed", "open", 10, (4, 9), "radio"),
    Device("lobby_motion", "motion", "still", "moving", 1, (20, 40), "radio"),
    Device("lobby_light", "light", "off", "on", 0.3, (60, 150), "wire"),
    Device("call_button", "button", "idle", "pressed", 8, (1, 2), "wire"),
    Device("lift", "lift", "standing", "moving", 0.5, (10, 25), "gateway"),
    Device("lift_door", "door", "closed", "open", 0.2, (6, 10), "gateway"),
    Device("meeting_door", "door", "closed", "open", 6, (3, 8), "radio"),
    Device("ventilation", "ventilation", "low", "high", 0.5, (120, 240), "wire"),
    Device("window_north", "window", "shut", "open", 5, (60, 180), "radio"),
    Device("heating", "heating", "on", "off", 0.5, (60, 180), "wire"),
    Device("cellar_door", "door", "closed", "open", 6, (5, 15), "gateway", by_day=False),
    Device("alarm", "alarm", "armed", "beeping", 0.1, (10, 20), "wire", by_day=False),
    # Decoys: independent of all others.
    Device("printer", "printer", "idle", "printing", 10, (20, 60), "wire"),
    Device("coffee", "coffee", "idle", "brewing", 8, (30, 50), "radio"),
    Device("fridge", "fridge", "off", "cooling", 4, (120, 300), "wire", by_day=False),
    Device("pump", "pump", "off", "on", 6, (60, 120), "gateway", by_day=False),
)

# Cause and its new state, effect, lag in seconds, probability. An effect always becomes active.
_LINKS = (
    ("lobby_door", "open", "lobby_motion", 1.0, 3.0, 0.92),
    ("lobby_motion", "moving", "lobby_light", 0.3, 0.9, 0.97),
    ("call_button", "pressed", "lift", 2.0, 6.0, 0.90),
    ("lift", "standing", "lift_door", 1.0, 2.0, 0.98),
    ("meeting_door", "open", "ventilation", 15.0, 30.0, 0.85),
    ("window_north", "open", "heating", 5.0, 12.0, 0.90),
    ("cellar_door", "open", "alarm", 3.0, 6.0, 0.95),
)
#: The link that breaks, as a share of the whole time; and the device that is dead for a while.
_BREAKS = ("alarm", 0.55)
_DEAD = ("window_north", 0.40, 0.48)


def building(seed: int, hours: float = 24.0) -> Building:
    """A day, or the first hours of one."""
    if not hours > 0:
        raise ConfigError(f"cannot simulate {hours} hours; give a positive number.")
    rng = np.random.default_rng([seed, 5])
    end = round(hours * HOUR)
    planted = tuple(_planted(link, end) for link in _LINKS)
    changes = _live(rng, end, planted)
    outage = Outage(_DEAD[0], round(_DEAD[1] * end), round(_DEAD[2] * end))
    rows: list[tuple[int, str, int, Event]] = []
    for device in DEVICES:
        reports = _reports(rng, end, device, changes[device.name])
        sent = np.array([ts for ts, _ in reports], np.int64)
        arrivals = in_order(sent, _delays(rng, device.line, sent)).tolist()
        for seq, ((ts, state), arrival) in enumerate(zip(reports, arrivals, strict=True)):
            if device.name != outage.device or not outage.start <= ts < outage.end:
                rows.append((arrival, device.name, seq, Event(device.type, ts, device.name, seq, state=state)))
    rows.sort(key=lambda row: row[:3])
    return Building(tuple(row[3] for row in rows), tuple(row[0] for row in rows), DEVICES, planted, outage)


def _planted(link: tuple[str, str, str, float, float, float], end: int) -> Planted:
    cause, state, effect, least, most, probability = link
    states = {device.name: (device.rest, device.active) for device in DEVICES}
    rest, active = states[cause]
    until = round(_BREAKS[1] * end) if effect == _BREAKS[0] else None
    return Planted(
        Change(cause, rest if state == active else active, state),
        Change(effect, *states[effect]),
        round(least * SECOND),
        round(most * SECOND),
        probability,
        until,
    )


def _live(rng: np.random.Generator, end: int, planted: tuple[Planted, ...]) -> dict[str, list[tuple[int, str]]]:
    """What happens: per device the times of its changes and the states it changes to."""
    devices = {device.name: device for device in DEVICES}
    effects: dict[tuple[str, str], list[Planted]] = {}
    for link in planted:
        effects.setdefault((link.cause.device, link.cause.after), []).append(link)
    changes: dict[str, list[tuple[int, str]]] = {name: [] for name in devices}
    state = {device.name: device.rest for device in DEVICES}
    due: list[tuple[int, str, str]] = []  # time, device, the state it goes to
    for device in DEVICES:
        for ts in _spontaneous(rng, end, device):
            heappush(due, (ts, device.name, device.active))
    while due:
        ts, name, after = heappop(due)
        if ts >= end or after == state[name]:  # an active device does not become active
            continue
        device, state[name] = devices[name], after
        changes[name].append((ts, after))
        if after == device.active:
            low, high = device.stays
            heappush(due, (ts + int(rng.integers(round(low * SECOND), round(high * SECOND) + 1)), name, device.rest))
        for link in effects.get((name, after), ()):
            lag, happens = int(rng.integers(link.least, link.most + 1)), rng.random() < link.probability
            if happens and (link.until is None or ts < link.until):
                heappush(due, (ts + lag, link.effect.device, link.effect.after))
    return changes


def _spontaneous(rng: np.random.Generator, end: int, device: Device) -> list[int]:
    """When a device becomes active by itself: at random, by day (7 to 19 h) ten times as often as at night."""
    times = np.sort(rng.integers(0, end, rng.poisson(device.per_hour * end / HOUR)))
    hour = times // HOUR % 24
    busy = (hour >= 7) & (hour < 19)
    happens = busy | (rng.random(len(times)) < 0.1)
    return (times[happens] if device.by_day else times).tolist()


def _reports(
    rng: np.random.Generator, end: int, device: Device, changes: list[tuple[int, str]]
) -> list[tuple[int, str]]:
    """The events of a device: its changes, and its state every minute."""
    reports: list[tuple[int, str]] = []
    waiting = iter([*changes, (end, "")])
    change, state = next(waiting), device.rest
    for ts in range(int(rng.integers(0, REPEAT)), end, REPEAT):
        while change[0] <= ts:
            reports.append(change)
            state, change = change[1], next(waiting)
        reports.append((ts, state))
    return reports + [one for one in (change, *waiting) if one[0] < end]


def _delays(rng: np.random.Generator, line: str, sent: Times) -> Times:
    if line == "wire":
        return rng.integers(20, 201, len(sent))
    if line == "radio":
        return np.minimum(200 + 300 * rng.pareto(1.2, len(sent)), 8 * SECOND).astype(np.int64)
    return GATEWAY - sent % GATEWAY  # with the next packet
