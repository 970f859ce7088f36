"""How hard to kick: from where the ball should be, and when, to the velocity it needs.

Each function inverts the ball's motion (:mod:`.ball`) by bisection on that very motion, so that a pass without error
arrives where it was meant to.
"""

from __future__ import annotations

import math

import numpy as np
from numba import njit
from numpy.typing import NDArray

from slackline_soccer.simulator.ball import DRAG, GRAVITY, HALF_CONTACT, RADIUS, fly

Floats = NDArray[np.float64]


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
