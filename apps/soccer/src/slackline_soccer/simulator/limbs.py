"""Arms and legs on moving bodies, and the transmitters on balls: where each transmitter is at its own times.

A foot swings forth and back along the way its wearer faces, so that it stands still on the ground once per stride and
runs at twice the body's speed half a stride later; the mean of both feet is the body. When a foot kicks, it leaves that
rhythm for 0.2 s before and after, and is at the ball in the moment of contact.
"""

from __future__ import annotations

import math

import numpy as np
from numba import njit
from numpy.typing import NDArray

from slackline_soccer.simulator.bodies import FACING_X, FACING_Y, PHASE, STEP, SWING, VX, VY, X, Y

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

#: A kick takes a foot out of its rhythm for so long before and after the contact, in s.
REACH_TIME = 0.2

#: Columns of a touch: time (s), wearer, limb, x, y, z of where the foot is then.
TOUCH_COLUMNS = 6


@njit(cache=True)
def _cubic(p0: float, v0: float, p1: float, v1: float, u: float, h: float) -> float:
    """Between two places with given velocities, ``h`` s apart, at the share ``u``."""
    u2, u3 = u * u, u * u * u
    return (2 * u3 - 3 * u2 + 1) * p0 + (u3 - 2 * u2 + u) * h * v0 + (3 * u2 - 2 * u3) * p1 + (u3 - u2) * h * v1


@njit(cache=True)
def limb_place(bodies: Floats, begin: float, seconds: float, wearer: int, limb: int, out: Floats) -> None:
    """x, y, z (m) of a limb in its rhythm. ``bodies`` are states every step from ``begin`` (s) on."""
    h = STEP / 1000.0
    at = (seconds - begin) / h
    n = min(max(int(at), 0), len(bodies) - 2)
    u = at - n
    a, b = bodies[n, wearer], bodies[n + 1, wearer]
    x = _cubic(a[X], a[VX], b[X], b[VX], u, h)
    y = _cubic(a[Y], a[VY], b[Y], b[VY], u, h)
    fx, fy = a[FACING_X] + u * (b[FACING_X] - a[FACING_X]), a[FACING_Y] + u * (b[FACING_Y] - a[FACING_Y])
    swing = a[SWING] + u * (b[SWING] - a[SWING])
    phase = a[PHASE] + u * (b[PHASE] - a[PHASE])
    side = 1.0 if limb % 2 == 0 else -1.0
    legs = limb < 2
    # Left leg and right arm go together.
    if (limb == 1) or (limb == 2):
        phase += math.pi
    forth = swing * math.sin(phase) * (1.0 if legs else 0.5)
    apart = side * (0.13 if legs else 0.28)
    out[0] = x + forth * fx - apart * fy
    out[1] = y + forth * fy + apart * fx
    lift = max(0.0, math.cos(phase))
    out[2] = (0.12 + 0.45 * swing * lift) if legs else (1.0 + 0.25 * swing * math.sin(phase) ** 2)


@njit(cache=True)
def follow(
    bodies: Floats,
    begin: float,
    touches: Floats,
    wearers: Ints,
    limbs: Ints,
    firsts: Ints,
    seconds: Floats,
    places: Floats,
) -> None:
    """Fill ``places`` (rows of x, y, z): rows ``firsts[s]`` to ``firsts[s + 1]`` are of transmitter ``s``."""
    base = np.empty(3)
    for s in range(len(wearers)):
        for row in range(firsts[s], firsts[s + 1]):
            limb_place(bodies, begin, seconds[row], wearers[s], limbs[s], places[row])
        for k in range(len(touches)):
            if int(touches[k, 1]) != wearers[s] or int(touches[k, 2]) != limbs[s]:
                continue
            limb_place(bodies, begin, touches[k, 0], wearers[s], limbs[s], base)
            for row in range(firsts[s], firsts[s + 1]):
                off = (seconds[row] - touches[k, 0]) / REACH_TIME
                if -1.0 < off < 1.0:
                    share = 0.5 + 0.5 * math.cos(math.pi * off)
                    for axis in range(3):
                        places[row, axis] += share * (touches[k, 3 + axis] - base[axis])


@njit(cache=True)
def ride(
    balls: Floats, speeds: Floats, begin: float, firsts: Ints, seconds: Floats, places: Floats, moves: Floats
) -> None:
    """The same for the transmitters in the balls, given every ms from ``begin`` on; and their velocities."""
    h = 0.001
    for s in range(balls.shape[1]):
        for row in range(firsts[s], firsts[s + 1]):
            at = (seconds[row] - begin) / h
            n = min(max(int(at), 0), len(balls) - 2)
            u = at - n
            for axis in range(3):
                v0, v1 = speeds[n, s, axis], speeds[n + 1, s, axis]
                places[row, axis] = _cubic(balls[n, s, axis], v0, balls[n + 1, s, axis], v1, u, h)
                moves[row, axis] = v0 + u * (v1 - v0)
