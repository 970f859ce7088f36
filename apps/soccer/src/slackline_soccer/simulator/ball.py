"""The balls: how one moves from a hit on, and where each of them has been.

Time is in whole milliseconds, lengths in metres. A hit is a contact of 10 ms in which the velocity changes smoothly.
Then the ball flies (gravity, drag), bounces, slides and rolls. A ball on the ground slides first, with strong friction,
until 5/7 of its speed is left, and rolls from there on: that is why a dribbler has to push it again and again.
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
