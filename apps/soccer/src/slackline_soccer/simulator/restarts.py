"""How play restarts after the ball left the field: what is due, where, for which player, and how long it takes.

The waits are somewhat shorter than in real matches (Metrica's games: 25 s on average): a short simulation should not be
spent until a ball is fetched.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from slackline_soccer.simulator.ball import BAR, HALF_GOAL, HALF_LENGTH, HALF_WIDTH, RADIUS
from slackline_soccer.simulator.roster import TEAM_SIZE
from slackline_soccer.simulator.tactics import FORWARDS, members, team_of

Floats = NDArray[np.float64]

#: The ball is put down so far inside the lines.
_INSIDE = 0.35

_SECONDS = {"throw_in": (6.0, 10.0), "goal_kick": (10.0, 14.0), "corner": (12.0, 17.0), "kick_off": (18.0, 24.0)}


@dataclass(frozen=True, slots=True)
class Restart:
    """Who takes it, where, and when (ms)."""

    kind: str
    taker: int
    spot: Floats
    at: int


def scored(place: Floats) -> bool:
    """Whether a ball that is just outside the field went through a goal."""
    return bool(abs(place[0]) >= HALF_LENGTH and abs(place[1]) < HALF_GOAL and place[2] < BAR)


def due(now: int, place: Floats, last: int, places: Floats, rng: np.random.Generator) -> Restart:
    """The restart after player ``last`` sent the ball out at ``place``."""
    end = int(place[0] > 0)
    attackers = 1 - end  # team 0 attacks the high end
    if scored(place):
        kind, team, spot = "kick_off", 1 - attackers, np.array([0.0, 0.0])
    elif abs(place[0]) < HALF_LENGTH:
        kind, team = "throw_in", 1 - team_of(last)
        spot = np.array([place[0], np.sign(place[1]) * (HALF_WIDTH - _INSIDE)])
    elif team_of(last) == attackers:
        kind, team = "goal_kick", 1 - attackers
        spot = np.array([np.sign(place[0]) * (HALF_LENGTH - 5.5), np.sign(place[1]) * 5.0])
    else:
        kind, team = "corner", attackers
        spot = np.array([np.sign(place[0]) * (HALF_LENGTH - _INSIDE), np.sign(place[1]) * (HALF_WIDTH - _INSIDE)])
    taker = _taker(kind, team, spot, places)
    low, high = _SECONDS[kind]
    walk = float(np.hypot(*(places[taker] - spot))) / 4.0 + 2.0
    wait = max(rng.uniform(low, high), walk)
    return Restart(kind, taker, np.array([*spot, RADIUS]), now + 20 * round(wait * 50))


def kick_off(team: int, at: int) -> Restart:
    return Restart("kick_off", members(team).start + FORWARDS[0], np.array([0.0, 0.0, RADIUS]), at)


def _taker(kind: str, team: int, spot: Floats, places: Floats) -> int:
    first = members(team).start
    if kind == "goal_kick":
        return first
    if kind == "kick_off":
        return first + FORWARDS[0]
    distance = np.hypot(*(places[members(team)] - spot).T)
    distance[0] = np.inf
    if kind == "corner":  # defenders stay back
        distance[1:5] = np.inf
    return first + int(distance[:TEAM_SIZE].argmin())
