"""Who takes part in a simulated match, and who wears which transmitter.

144 transmitters as in [Thesis, 3.4]: four balls at 2000 Hz; 22 players, four officials and nine substitutes with one
on each leg and each arm at 200 Hz. Together 36,000 positions a second.

Bodies: where each is, how fast, which way it faces, and the phase of its stride; and the transmitters on them.

Bodies are steered: each has a place to go to, a greatest speed for it, and perhaps a time to be there. Acceleration is
bounded, so a running player needs room to turn.

Limbs are added when positions are sampled. A foot swings forth and back along the way its wearer faces, so that it
stands still on the ground once per stride and runs at twice the body's speed half a stride later; the mean of both feet
is the body. When a foot kicks, it leaves that rhythm for 0.2 s before and after, and is at the ball in the moment of
contact.
"""

from __future__ import annotations

import math

import numpy as np
from numba import njit
from numpy.typing import NDArray

from slackline_soccer.model.match import FULL_SIZE, Match
from slackline_soccer.tracking import SECOND
from slackline_soccer.tracking.game import Limb, Period, Role, Sensor

#: Time stamps do not begin at zero, as those of a real system do not.
START = 10 * SECOND

TEAMS = ("A", "B")
TEAM_SIZE = 11
PLAYERS = len(TEAMS) * TEAM_SIZE
OFFICIALS = 4
SUBSTITUTES = 9
BALLS = 4

BALL_RATE = 2000.0
PLAYER_RATE = 200.0

LIMBS = (Limb.LEFT_LEG, Limb.RIGHT_LEG, Limb.LEFT_ARM, Limb.RIGHT_ARM)
_FIRST_WORN = 11


def player_name(number: int) -> str:
    """The name of player ``number`` (0 to 21).

    >>> player_name(0), player_name(21)
    ('A1', 'B11')
    """
    return f"{team_name(number)}{number % TEAM_SIZE + 1}"


def team_name(number: int) -> str:
    """The team of player ``number``."""
    return TEAMS[number // TEAM_SIZE]


def ball_sid(ball: int) -> int:
    """The transmitter in ball 0 to 3.

    >>> ball_sid(0)
    1
    """
    return ball + 1


def worn_sid(wearer: int, limb: int) -> int:
    """The transmitter of wearer 0 to 34 (players, officials, substitutes) on limb 0 to 3 of ``LIMBS``."""
    return _FIRST_WORN + len(LIMBS) * wearer + limb


def wearers() -> list[tuple[str, Role, str | None]]:
    """Name, role and team of all, in the order of their numbers."""
    names: list[tuple[str, Role, str | None]] = []
    for number in range(PLAYERS):
        role = Role.GOALKEEPER if number % TEAM_SIZE == 0 else Role.PLAYER
        names.append((player_name(number), role, team_name(number)))
    names += [(f"R{number}", Role.REFEREE, None) for number in range(1, OFFICIALS + 1)]
    names += [(f"S{number}", Role.SUBSTITUTE, TEAMS[number % 2]) for number in range(1, SUBSTITUTES + 1)]
    return names


def make_match(seconds: float, name: str) -> Match:
    """The match as detectors get it: one period in which A defends goal 0."""
    sensors = [Sensor(ball_sid(ball), Role.BALL, f"ball-{ball + 1}") for ball in range(BALLS)]
    for wearer, (who, role, team) in enumerate(wearers()):
        sensors += [Sensor(worn_sid(wearer, n), role, who, team, limb) for n, limb in enumerate(LIMBS)]
    return Match(
        field=FULL_SIZE,
        sensors=tuple(sensors),
        periods=(Period(START, START + round(seconds * SECOND), TEAMS[0]),),
        ball_rate=BALL_RATE,
        player_rate=PLAYER_RATE,
        name=name,
    )


Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

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
        if deadlines[n] < 0.0:  # the pace changes gradually
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

    A body keeps its velocity for a moment (reaction), then speeds up; it cannot play a ball above its height.
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


# Limbs and balls: where each transmitter is at its own times.

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
