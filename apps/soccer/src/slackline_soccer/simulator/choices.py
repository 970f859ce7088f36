"""What a player does with the ball: shoot, pass, clear or dribble on.

A choice is a velocity for the ball and what was meant by it. It is drawn from what is open to the player, so the
same situation need not end the same way twice.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from slackline_soccer.simulator.ball import (
    HALF_GOAL,
    HALF_LENGTH,
    HALF_WIDTH,
    ground_kick,
    lofted_kick,
    shot_kick,
    turned,
)
from slackline_soccer.simulator.bodies import TEAM_SIZE
from slackline_soccer.simulator.tactics import FORWARDS, SIGNS, last_line, members, team_of

Floats = NDArray[np.float64]

#: The least change of velocity (m/s) that is a touch: less would not show in the filtered acceleration.
LEAST_CHANGE = 2.4

_PASS_MEDIAN, _PASS_SPREAD = 9.0, 0.9
_SHORTEST, _LONGEST = 4.5, 48.0
#: How often the ball bounces off a player who takes it from an opponent, by what that opponent intended.
_POKED = {"shot": 0.55, "dribble": 0.3, "control": 0.2, "pass": 0.18, "corner": 0.3}


@dataclass(frozen=True, slots=True)
class PlayChoice:
    """The velocity a player gives the ball, why, its receiver, and after how long (ms) it is to be played again."""

    intent: str
    velocity: Floats
    receiver: int | None = None
    after: int | None = None


@dataclass(frozen=True, slots=True)
class Situation:
    """What the player with the ball sees."""

    player: int
    place: Floats
    incoming: Floats
    places: Floats
    speeds: Floats
    touches: int
    #: What the opponent intended who just lost the ball.
    taken: str | None = None

    @property
    def team(self) -> int:
        return team_of(self.player)

    @property
    def opponents(self) -> Floats:
        return self.places[members(1 - self.team)]

    @property
    def pressure(self) -> float:
        """How near the nearest opponent is."""
        return float(np.hypot(*(self.opponents - self.place[:2]).T).min())

    @property
    def to_goal(self) -> Floats:
        """From the ball to the middle of the opponents' goal."""
        return np.array([SIGNS[self.team] * HALF_LENGTH - self.place[0], -self.place[1]])


def choose(seen: Situation, rng: np.random.Generator) -> PlayChoice:
    """What to do with the ball in open play."""
    distance = float(np.hypot(*seen.to_goal))
    keeper = seen.player % TEAM_SIZE == 0
    if seen.taken is not None and rng.random() < _POKED.get(seen.taken, 0.0):
        return deflect(seen, rng)
    if not keeper and distance < 28.0 and rng.random() < _urge_to_shoot(seen, distance):
        return shoot(seen, rng)
    own_third = SIGNS[seen.team] * seen.place[0] < -30.0
    if own_third and seen.pressure < 2.2 and rng.random() < 0.3:
        return clear(seen, rng)
    if rng.random() < _urge_to_pass(seen, keeper):
        played = best_pass(seen, rng)
        if played is not None:
            return played
    if keeper and seen.touches > 3:
        return clear(seen, rng)
    return dribble(seen, rng)


def _urge_to_shoot(seen: Situation, distance: float) -> float:
    sideways = abs(math.atan2(seen.to_goal[1], SIGNS[seen.team] * seen.to_goal[0]))
    if sideways > 1.1:
        return 0.0
    return 0.9 if distance < 12.0 else (0.75 if distance < 20.0 else 0.45) * (1.2 - sideways)


def _urge_to_pass(seen: Situation, keeper: bool) -> float:
    base = (0.07, 0.2, 0.28, 0.36)[min(seen.touches, 3)]
    if seen.pressure < 2.5:
        base += 0.15
    return base + (0.3 if keeper else 0.0)


def best_pass(seen: Situation, rng: np.random.Generator, reach: float = _LONGEST) -> PlayChoice | None:
    """The most promising pass, or none worth playing."""
    best, chosen = -2.0, None
    for mate in range(members(seen.team).start, members(seen.team).stop):
        if mate == seen.player:
            continue
        aim = _lead(seen, mate, rng)
        way = aim - seen.place[:2]
        length = float(np.hypot(*way))
        if not _SHORTEST <= length <= reach or _threatens_goal(seen, aim):
            continue
        low, high = _openness(seen, aim, length), _openness_aloft(seen, aim, length)
        ahead = SIGNS[seen.team] * way[0] / length
        taste = (math.log(length / _PASS_MEDIAN) / _PASS_SPREAD) ** 2
        score = 0.7 * min(max(low, high), 1.5) + 1.0 * ahead - 0.6 * taste + rng.gumbel(0.0, 0.45)
        if mate % TEAM_SIZE == 0:
            score -= 1.2
        if score > best:
            best, chosen = score, (mate, aim, length, high > low)
    return None if chosen is None else _play(seen, *chosen, rng)


def _lead(seen: Situation, mate: int, rng: np.random.Generator) -> Floats:
    """Where to play the ball for a team mate: into his run."""
    aim = seen.places[mate] + 0.7 * seen.speeds[mate]
    # A forward may be sent behind the defence.
    deep = mate % TEAM_SIZE in FORWARDS and rng.random() < 0.35
    aim[0] += SIGNS[seen.team] * (rng.uniform(5.0, 10.0) if deep else rng.uniform(0.0, 2.0))
    return np.clip(aim, (-HALF_LENGTH + 1.5, -HALF_WIDTH + 1.0), (HALF_LENGTH - 1.5, HALF_WIDTH - 1.0))


def _openness(seen: Situation, aim: Floats, length: float) -> float:
    """How many metres an opponent lacks to reach the ball on its way (negative: he would get it)."""
    along = (aim - seen.place[:2]) / length
    offset = seen.opponents - seen.place[:2]
    forward = np.clip(offset @ along, 0.0, length)
    apart = np.hypot(*(offset - forward[:, None] * along).T)
    seconds = forward / (10.0 + 0.2 * length)
    lacking = apart - 0.6 - 4.8 * np.maximum(seconds - 0.3, 0.0)
    return float(lacking.min())


def _openness_aloft(seen: Situation, aim: Floats, length: float) -> float:
    """The same for a ball through the air: players can reach it only where it comes down."""
    if length < 16.0:
        return -np.inf
    return float(np.hypot(*(seen.opponents - aim).T).min()) - 4.5


def _threatens_goal(seen: Situation, aim: Floats) -> bool:
    """Whether a pass to there could be taken for a shot."""
    way = aim - seen.place[:2]
    ahead = SIGNS[seen.team] * way[0]
    if ahead <= 0.5 or seen.to_goal[0] * SIGNS[seen.team] > 34.0:
        return False
    across = seen.place[1] + way[1] / ahead * abs(seen.to_goal[0])
    return bool(abs(across) < HALF_GOAL + 1.5)


def _play(seen: Situation, mate: int, aim: Floats, length: float, aloft: bool, rng: np.random.Generator) -> PlayChoice:
    """Along the ground or through the air; never quite as meant."""
    error = rng.normal(0.0, 0.045 if aloft else 0.03) + (rng.normal(0.0, 0.03) if seen.pressure < 2.0 else 0.0)
    target = seen.place[:2] + (aim - seen.place[:2]) * math.exp(rng.normal(0.0, 0.05))
    if aloft:
        velocity = lofted_kick(seen.place, seen.place[:2] + 0.92 * (target - seen.place[:2]), rng.uniform(0.4, 0.65))
        return PlayChoice("pass", turned(velocity, error), mate)
    ms = 1000.0 * length / (10.0 + 0.2 * length) * math.exp(rng.normal(0.0, 0.08))
    return PlayChoice("pass", turned(ground_kick(seen.place, target, round(ms)), error), mate, round(ms))


def shoot(seen: Situation, rng: np.random.Generator) -> PlayChoice:
    """At the goal: low or half high, and often enough clearly wide."""
    side = rng.choice((-1.0, 1.0))
    distance = float(np.hypot(*seen.to_goal))
    wide = rng.random() < 0.1 + 0.01 * distance
    across = side * (rng.uniform(HALF_GOAL + 1.2, HALF_GOAL + 4.0) if wide else rng.uniform(0.6, HALF_GOAL - 0.6))
    height = rng.uniform(0.15, 0.8) if rng.random() < 0.85 else rng.uniform(1.2, 1.8)
    aim = np.array([SIGNS[seen.team] * HALF_LENGTH, across, height])
    speed = float(np.clip(rng.normal(23.0, 2.5), 18.0, 30.0))
    return PlayChoice("shot", shot_kick(seen.place, aim, speed))


def deflect(seen: Situation, rng: np.random.Generator) -> PlayChoice:
    """Anything but in control: a block, a parry, a foot in between. The ball goes off to some side."""
    back = -seen.incoming[:2]
    if np.hypot(*back) < 1.0:
        back = np.array([SIGNS[seen.team], 0.0])
    way = turned(np.array([*back / np.hypot(*back), 0.0]), rng.choice((-1.0, 1.0)) * rng.uniform(0.5, 1.9))
    if seen.taken == "shot" and seen.player % TEAM_SIZE == 0 and rng.random() < 0.6:
        way = _past_the_post(seen)
    elif abs(seen.place[1]) > 20.0 and rng.random() < 0.7:  # near the line it is put out
        way = turned(np.array([0.0, np.sign(seen.place[1]), 0.0]), rng.normal(0.0, 0.4))
    velocity = way * rng.uniform(6.0, 11.0)
    velocity[2] = rng.uniform(0.0, 4.0) if rng.random() < 0.5 else 0.0
    return PlayChoice("deflection", velocity)


def _past_the_post(seen: Situation) -> Floats:
    """From the goalkeeper to two metres beside the nearer post."""
    side = 1.0 if seen.place[1] > 0 else -1.0
    way = np.array([-SIGNS[seen.team] * HALF_LENGTH, side * (HALF_GOAL + 2.0)]) - seen.place[:2]
    return np.array([*way / np.hypot(*way), 0.0])


def clear(seen: Situation, rng: np.random.Generator) -> PlayChoice:
    """Away with it, high and far."""
    angle = rng.normal(0.0, 0.7)
    flat = turned(np.array([SIGNS[seen.team] * rng.uniform(17.0, 22.0), 0.0, 0.0]), angle)
    flat[2] = rng.uniform(7.0, 11.0)
    return PlayChoice("clearance", flat)


def dribble(seen: Situation, rng: np.random.Generator) -> PlayChoice:
    """A soft touch to where there is room; also the first touch that takes a pass under control."""
    after = 20 * int(rng.integers(24, 44))
    pace = _pace(seen, rng)
    best, chosen = -np.inf, np.array([SIGNS[seen.team], 0.0])
    first = rng.uniform(0.0, 2 * math.pi)
    for turn in np.arange(16) * (math.pi / 8) + first:
        way = np.array([math.cos(turn), math.sin(turn)])
        score = _room(seen, way, pace * after / 1000) + rng.gumbel(0.0, 0.35)
        if score > best:
            best, chosen = score, way
    aim = seen.place[:2] + chosen * pace * after / 1000
    velocity = _firm(ground_kick(seen.place, aim, after), seen.incoming, rng)
    return PlayChoice("dribble" if seen.touches else "control", velocity, seen.player, after)


def _pace(seen: Situation, rng: np.random.Generator) -> float:
    if not seen.touches:  # first get it under control
        return float(rng.uniform(1.4, 2.8))
    open_field = seen.pressure > 6.0
    return float(np.clip(rng.normal(4.3 if open_field else 2.7, 0.8), 1.3, 6.0))


def _room(seen: Situation, way: Floats, distance: float) -> float:
    end = seen.place[:2] + way * distance
    if abs(end[0]) > HALF_LENGTH - 2.0 or abs(end[1]) > HALF_WIDTH - 1.5:
        return -50.0
    apart = float(np.hypot(*(seen.opponents - end).T).min())
    running = seen.speeds[seen.player]
    going = float(way @ running) * 0.35
    ahead = SIGNS[seen.team] * way[0]
    near_goal = SIGNS[seen.team] * seen.to_goal[0] < 16.0
    return min(apart, 4.0) * 0.8 + going + (0.2 if near_goal else 1.3) * ahead


def _firm(velocity: Floats, incoming: Floats, rng: np.random.Generator) -> Floats:
    """A touch has to be felt: turn it until it changes the ball's velocity enough."""
    side = rng.choice((-1.0, 1.0))
    for step in range(13):
        turn = turned(velocity, side * step * math.pi / 12)
        if np.linalg.norm(turn - incoming) >= LEAST_CHANGE:
            return turn
    return turned(velocity, math.pi) * 1.5


def restart(seen: Situation, kind: str, rng: np.random.Generator) -> PlayChoice:
    """The ball is put back into play."""
    sign = SIGNS[seen.team]
    if kind == "corner":
        aim = np.array([sign * rng.uniform(40.0, 46.0), rng.uniform(-8.0, 8.0)])
        distances = np.hypot(*(seen.places[members(seen.team)] - aim).T)
        distances[seen.player % TEAM_SIZE] = distances[0] = np.inf
        mate = members(seen.team).start + int(distances.argmin())
        velocity = lofted_kick(seen.place, aim, rng.uniform(0.45, 0.65))
        return PlayChoice(kind, turned(velocity, rng.normal(0.0, 0.04)), mate)
    reach = {"throw_in": 18.0, "kick_off": 22.0}.get(kind, _LONGEST)
    played = best_pass(seen, rng, reach)
    if played is not None and kind == "throw_in" and played.receiver is not None:
        ahead = sign * seen.places[played.receiver, 0] - max(last_line(seen.places, seen.team), sign * seen.place[0], 0)
        played = played if ahead <= 0.5 else None
    if played is None:
        played = clear(seen, rng)
    return PlayChoice(kind, played.velocity, played.receiver, played.after)
