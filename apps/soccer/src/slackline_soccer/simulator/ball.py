"""The balls: how one moves from a hit on, and where each of them has been.

Time is in whole milliseconds, lengths in metres. A hit is a contact of 10 ms in which the velocity changes smoothly.
Then the ball flies (gravity, drag), bounces, slides and rolls. A ball on the ground slides first, with strong friction,
until 5/7 of its speed is left, and rolls from there on: that is why a dribbler has to push it again and again.

**Kicks.** How hard to kick: from where the ball should be, and when, to the velocity it needs.

Each function inverts the ball's motion (:mod:`.ball`) by bisection on that very motion, so that a pass without error
arrives where it was meant to.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numba import njit
from numpy.typing import NDArray

Floats = NDArray[np.float64]

RADIUS = 0.11
#: How long foot and ball are in contact, and half of it, in ms.
CONTACT = 10
HALF_CONTACT = 5

GRAVITY = 9.81
DRAG = 0.0125
_SLIDING = 4.0
_ROLLING = 0.9
_BOUNCE = 0.58
_SKID = 0.86
_LEAST_BOUNCE = 0.9
#: How long a player takes to bring a ball down from half a metre or less, in ms.
_GUIDING = 340

#: Half of the field's length and width, half of the goal's width and its height.
HALF_LENGTH = 52.5
HALF_WIDTH = 34.0
HALF_GOAL = 3.66
BAR = 2.44


@njit(cache=True)
def fly(place: Floats, before: Floats, after: Floats, steps: int, guided: bool) -> tuple[Floats, Floats]:
    """Where the ball is and how fast, every ms from the beginning of the contact on (``steps`` rows of x, y, z).

    A ``guided`` ball does not fall and bounce when it was touched in the air: the player brings it down.
    """
    places = np.empty((steps, 3))
    speeds = np.empty((steps, 3))
    x, y, z = place[0], place[1], place[2]
    vx, vy, vz = before[0], before[1], before[2]
    dt = 0.001
    rolling_below = 5.0 / 7.0 * math.hypot(after[0], after[1])
    grounded = z <= RADIUS + 0.02 and after[2] < _LEAST_BOUNCE
    above = z - RADIUS if guided and not grounded else 0.0
    guiding = _GUIDING * max(1.0, math.sqrt(2.0 * above))
    down = CONTACT + int(guiding) if above > 0.0 else 0
    for n in range(steps):
        places[n, 0], places[n, 1], places[n, 2] = x, y, z
        speeds[n, 0], speeds[n, 1], speeds[n, 2] = vx, vy, vz
        if n < CONTACT:
            share = 0.5 - 0.5 * math.cos(math.pi * (n + 1) / CONTACT)
            vx = before[0] + share * (after[0] - before[0])
            vy = before[1] + share * (after[1] - before[1])
            vz = before[2] + share * (after[2] - before[2])
        elif n < down:
            above = z - RADIUS if n == CONTACT else above
            keep = 1.0 - _ROLLING * dt / max(math.hypot(vx, vy), 1.0)
            vx, vy = vx * keep, vy * keep
            vz = -above * 0.5 * math.pi / (guiding * dt) * math.sin(math.pi * (n - CONTACT + 0.5) / guiding)
            grounded = True
        else:
            speed = math.sqrt(vx * vx + vy * vy + vz * vz)
            brake = DRAG * speed + _fence(x, y, z)
            if grounded:
                flat = math.hypot(vx, vy)
                friction = _SLIDING if flat > rolling_below else _ROLLING
                keep = max(0.0, 1.0 - (brake + friction / max(flat, 1e-9)) * dt)
                vx, vy, vz = vx * keep, vy * keep, 0.0
            else:
                keep = max(0.0, 1.0 - brake * dt)
                vx, vy, vz = vx * keep, vy * keep, vz * keep - GRAVITY * dt
        x, y, z = x + vx * dt, y + vy * dt, z + vz * dt
        if z < RADIUS:
            z = RADIUS
            if vz < -_LEAST_BOUNCE and n >= CONTACT:
                vz = -_BOUNCE * vz
                vx, vy = _SKID * vx, _SKID * vy
                rolling_below = 0.92 * math.hypot(vx, vy)
            elif n >= CONTACT:
                vz = 0.0
                grounded = True
    return places, speeds


@njit(cache=True)
def _fence(x: float, y: float, z: float) -> float:
    """How strongly nets and boards slow a ball that has left the field (1/s)."""
    beyond_end = abs(x) - HALF_LENGTH
    if beyond_end > 0.8 and abs(y) < HALF_GOAL and z < BAR:
        return 7.0
    beyond = max(beyond_end, abs(y) - HALF_WIDTH)
    return 2.5 if beyond > 0.5 else 0.0


def carry(start: Floats, end: Floats, steps: int) -> tuple[Floats, Floats]:
    """Carried from one place to another without haste: no acceleration at either end."""
    share = np.linspace(0.0, 1.0, steps)[:, None]
    way = end - start
    places = start + way * (share**3 * (10 - 15 * share + 6 * share**2))
    speeds = way * (30 * share**2 * (1 - share) ** 2) / (steps * 0.001)
    return places, speeds


def inside(place: Floats) -> bool:
    """Whether a place is in the field, lines included."""
    return bool(abs(place[0]) <= HALF_LENGTH and abs(place[1]) <= HALF_WIDTH)


@dataclass(frozen=True, slots=True)
class Way:
    """Where a ball will be from ``start`` (ms) on if it is not touched; after its last row it lies still."""

    start: int
    places: Floats
    speeds: Floats

    def place(self, at: int) -> Floats:
        row: Floats = self.places[min(at - self.start, len(self.places) - 1)]
        return row

    def speed(self, at: int) -> Floats:
        row = at - self.start
        return self.speeds[row] if row < len(self.speeds) else np.zeros(3)

    @classmethod
    def resting(cls, start: int, place: Floats) -> Way:
        return cls(start, place[None, :].copy(), np.zeros((1, 3)))

    def leaves(self, since: int) -> int | None:
        """When the ball first is outside the field, if it is inside at ``since``."""
        places = self.places[since - self.start :]
        out = (np.abs(places[:, 0]) > HALF_LENGTH) | (np.abs(places[:, 1]) > HALF_WIDTH)
        first = int(out.argmax()) if len(out) else 0
        return since + first if len(out) and out[first] else None


class Ball:
    """One ball: its way, and the rows of it that are past and cannot change."""

    def __init__(self, place: Floats) -> None:
        self.way = Way.resting(0, place)
        self._done = 0
        self._places: list[Floats] = []
        self._speeds: list[Floats] = []

    def turn(self, at: int, way: Way) -> None:
        """From ``at`` on the ball goes another way."""
        self.settle(at)
        self.way = way

    def settle(self, until: int) -> None:
        """What happens before ``until`` is certain."""
        if until <= self._done:
            return
        rows = np.arange(self._done, until) - self.way.start
        moving = rows < len(self.way.places)
        rows = np.minimum(rows, len(self.way.places) - 1)
        self._places.append(self.way.places[rows])
        self._speeds.append(self.way.speeds[rows] * moving[:, None])
        self._done = until

    def take(self, until: int) -> tuple[Floats, Floats]:
        """The rows before ``until`` (ms) since the last call."""
        self.settle(until)
        places, speeds = np.concatenate(self._places), np.concatenate(self._speeds)
        count = len(places) - (self._done - until)
        self._places, self._speeds = [places[count:]], [speeds[count:]]
        return places[:count], speeds[:count]


@njit(cache=True)
def _rolled(speed: float, ms: int) -> float:
    """How far a ball gets on the ground in a time."""
    start, before = np.array([0.0, 0.0, RADIUS]), np.zeros(3)
    places, _ = fly(start, before, np.array([speed, 0.0, 0.0]), ms, False)
    return float(places[-1, 0])


@njit(cache=True)
def ground_speed(distance: float, ms: int) -> float:
    """The speed at which a ball on the ground covers ``distance`` m in ``ms``; 32 m/s if it cannot."""
    low, high = 0.5, 32.0
    for _ in range(14):
        middle = 0.5 * (low + high)
        if _rolled(middle, ms) < distance:
            low = middle
        else:
            high = middle
    return high


@njit(cache=True)
def _flown(speed: float, angle: float) -> float:
    """How far a lofted ball flies before it touches the ground."""
    start, before = np.array([0.0, 0.0, RADIUS]), np.zeros(3)
    after = np.array([speed * math.cos(angle), 0.0, speed * math.sin(angle)])
    places, _ = fly(start, before, after, 4000, False)
    for n in range(60, len(places)):
        if places[n, 2] <= RADIUS + 0.02:
            return float(places[n, 0])
    return float(places[-1, 0])


@njit(cache=True)
def loft_speed(distance: float, angle: float) -> float:
    """The speed at which a ball kicked at ``angle`` (rad) comes down after ``distance`` m; 32 m/s at most."""
    low, high = 4.0, 32.0
    for _ in range(12):
        middle = 0.5 * (low + high)
        if _flown(middle, angle) < distance:
            low = middle
        else:
            high = middle
    return high


def ground_kick(start: Floats, aim: Floats, ms: int) -> Floats:
    """A velocity along the ground that brings the ball from ``start`` to ``aim`` in ``ms``."""
    way = aim[:2] - start[:2]
    distance = float(np.hypot(way[0], way[1]))
    speed = ground_speed(distance, ms)
    return np.array([way[0], way[1], 0.0]) * (speed / max(distance, 1e-6))


def lofted_kick(start: Floats, aim: Floats, angle: float) -> Floats:
    """A velocity through the air that brings the ball down at ``aim``."""
    way = aim[:2] - start[:2]
    distance = float(np.hypot(way[0], way[1]))
    speed = loft_speed(distance, angle)
    flat = speed * math.cos(angle) / max(distance, 1e-6)
    return np.array([way[0] * flat, way[1] * flat, speed * math.sin(angle)])


def shot_kick(start: Floats, aim: Floats, speed: float) -> Floats:
    """A velocity of ``speed`` m/s that takes the ball through ``aim`` (x, y, z) if nothing is in the way."""
    way = aim - start
    distance = float(np.hypot(way[0], way[1]))
    rise, flat = 0.0, speed
    for _ in range(4):  # the steeper, the longer it takes; the longer, the steeper
        seconds = HALF_CONTACT / 1000 + math.expm1(DRAG * distance) / (DRAG * flat)
        rise = (aim[2] - start[2]) / seconds + 0.5 * GRAVITY * seconds
        flat = math.sqrt(max(speed**2 - rise**2, 1.0))
    return np.array([way[0] * flat / distance, way[1] * flat / distance, rise])


def turned(velocity: Floats, angle: float) -> Floats:
    """The velocity turned to the left by ``angle`` (rad)."""
    c, s = math.cos(angle), math.sin(angle)
    return np.array([c * velocity[0] - s * velocity[1], s * velocity[0] + c * velocity[1], velocity[2]])
