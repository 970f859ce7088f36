"""Everybody's body: where it is, how fast, which way it faces, and the phase of its stride.

Bodies are steered: each has a place to go to, a greatest speed for it, and perhaps a time to be there. Acceleration is
bounded, so nobody turns on the spot at speed. Arms and legs are added when positions are sampled (:mod:`.limbs`).
"""

from __future__ import annotations

import math

import numpy as np
from numba import njit
from numpy.typing import NDArray

from slackline_soccer.simulator.roster import OFFICIALS, PLAYERS, SUBSTITUTES

Floats = NDArray[np.float64]

#: A step of the play, in ms; bodies move and touches happen on this grid.
STEP = 20
BODIES = PLAYERS + OFFICIALS + SUBSTITUTES

#: Columns of a body's state.
X, Y, VX, VY, FACING_X, FACING_Y, PHASE, SWING = range(8)
COLUMNS = 8

TOP_SPEED = 9.0
#: m/s²: most while running with the others, most on the way to the ball.
EASY = 3.0
HARD = 6.0
#: How soon (1/s) a body takes up the pace it wants.
_EAGERNESS = 2.0


@njit(cache=True)
def steer(state: Floats, aims: Floats, limits: Floats, efforts: Floats, deadlines: Floats) -> None:
    """Move all bodies by one step.

    ``aims`` are places, ``limits`` speeds, ``efforts`` accelerations; ``deadlines`` are seconds until a body
    must be at its aim, negative for: no hurry.
    """
    dt = STEP / 1000.0
    for n in range(len(state)):
        dx, dy = aims[n, 0] - state[n, X], aims[n, 1] - state[n, Y]
        distance = math.hypot(dx, dy)
        if deadlines[n] >= 0.0:
            wanted = min(distance / max(deadlines[n], dt), TOP_SPEED)
        else:
            # Braking in time: what can be shed on the way that is left, and softly near the aim.
            wanted = min(limits[n], 0.9 * distance, math.sqrt(2.0 * 0.7 * efforts[n] * distance))
        scale = wanted / distance if distance > 1e-6 else 0.0
        ax, ay = (dx * scale - state[n, VX]) / dt, (dy * scale - state[n, VY]) / dt
        if deadlines[n] < 0.0:  # nobody changes his pace at once
            ax, ay = _EAGERNESS * dt * ax, _EAGERNESS * dt * ay
        size = math.hypot(ax, ay)
        if size > efforts[n]:
            ax, ay = ax * efforts[n] / size, ay * efforts[n] / size
        vx, vy = state[n, VX] + ax * dt, state[n, VY] + ay * dt
        speed = math.hypot(vx, vy)
        if speed > TOP_SPEED:
            vx, vy, speed = vx * TOP_SPEED / speed, vy * TOP_SPEED / speed, TOP_SPEED
        state[n, X] += 0.5 * (state[n, VX] + vx) * dt
        state[n, Y] += 0.5 * (state[n, VY] + vy) * dt
        state[n, VX], state[n, VY] = vx, vy
        _face(state, n, vx, vy, speed, dt)
        state[n, PHASE] += 2.0 * math.pi * stride_rate(speed) * dt
        swing = 0.95 * speed / (2.0 * math.pi * stride_rate(speed))
        state[n, SWING] += 0.15 * (swing - state[n, SWING])


@njit(cache=True)
def stride_rate(speed: float) -> float:
    """Strides (two steps) per second: 0.7 at a stroll, 1.4 at 4 m/s, 2.2 in a sprint."""
    return 0.7 + 0.17 * speed


@njit(cache=True)
def _face(state: Floats, n: int, vx: float, vy: float, speed: float, dt: float) -> None:
    """Turn towards where one runs, the faster the sooner."""
    if speed < 0.2:
        return
    share = min(1.0, 6.0 * dt * min(1.0, speed))
    fx = state[n, FACING_X] + share * (vx / speed - state[n, FACING_X])
    fy = state[n, FACING_Y] + share * (vy / speed - state[n, FACING_Y])
    size = math.hypot(fx, fy)
    if size > 1e-3:
        state[n, FACING_X], state[n, FACING_Y] = fx / size, fy / size
    else:  # about-turn: any side will do
        state[n, FACING_X], state[n, FACING_Y] = -vy / speed, vx / speed


def reach_times(
    places: Floats, speeds: Floats, way: Floats, times: Floats, heights: Floats, reaches: Floats
) -> NDArray[np.intp]:
    """For each body the first row of ``way`` (x, y, z at ``times`` seconds from now) it can play; len(way) if none.

    A body goes on as it runs for a moment (reaction), then speeds up; it cannot play a ball above its height.
    """
    reaction, build_up, top = 0.28, 0.5, 7.6
    drift = np.minimum(times, reaction + 0.15)
    from_x = places[:, 0, None] + speeds[:, 0, None] * drift
    from_y = places[:, 1, None] + speeds[:, 1, None] * drift
    left = np.maximum(times - reaction, 0.0)
    covered = top * (left - build_up * (1.0 - np.exp(-left / build_up)))
    near = np.hypot(way[None, :, 0] - from_x, way[None, :, 1] - from_y) <= covered + reaches[:, None]
    near &= way[None, :, 2] < heights[:, None]
    first = near.argmax(axis=1)
    first[~near.any(axis=1)] = len(way)
    return first
