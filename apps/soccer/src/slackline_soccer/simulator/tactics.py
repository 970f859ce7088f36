"""Where each player wants to be: a 4-4-2 that shifts with the ball, presses it, and stays onside most of the time.

Each team thinks in its own frame, in which it attacks towards positive x.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from slackline_soccer.simulator.bodies import BODIES, EASY, HARD, OFFICIALS, PLAYERS, SUBSTITUTES, TEAM_SIZE, X, Y

Floats = NDArray[np.float64]

#: In the team's own frame: goalkeeper, back four, midfield four, two forwards.
FORMATION = np.array(
    [
        (-47.0, 0.0),
        *((-21.0, 19.0), (-24.0, 6.5), (-24.0, -6.5), (-21.0, -19.0)),
        *((-3.0, 22.0), (-7.0, 7.0), (-7.0, -7.0), (-3.0, -22.0)),
        *((13.0, 7.0), (13.0, -7.0)),
    ]
)
FORWARDS = (9, 10)
#: How far from his place a player strays (m), and how far beyond the last defender a forward stands: mean, spread.
_WHIM = 2.5
_DARING = (-0.3, 1.2)
#: Where a marker stands at a corner kick, from the player he marks.
_GOAL_SIDE = np.array([1.8, 0.6])
#: How often players look where to go, in ms.
THINKING = 100
#: Team 0 attacks towards positive x, team 1 the other way.
SIGNS = (1.0, -1.0)


def team_of(player: int) -> int:
    return player // TEAM_SIZE


def members(team: int) -> slice:
    return slice(team * TEAM_SIZE, (team + 1) * TEAM_SIZE)


def last_line(places: Floats, team: int) -> float:
    """Where the second-last player of the team defending against ``team`` is, in the frame of ``team``."""
    ahead = np.sort(SIGNS[team] * places[members(1 - team), 0])
    return float(ahead[-2])


class Tactics:
    """Aims, speeds and efforts of all bodies, renewed ten times a second."""

    def __init__(self, rng: np.random.Generator) -> None:
        self._rng = rng
        self.aims = np.zeros((BODIES, 2))
        self.limits = np.full(BODIES, 2.0)
        self.efforts = np.full(BODIES, EASY)
        self.deadlines = np.full(BODIES, -1.0)
        self._wander = rng.normal(0.0, _WHIM, (PLAYERS, 2))
        self._focus = np.zeros(2)
        #: How far beyond the last defender each forward dares to stand (mostly short of him).
        self._daring = rng.normal(*_DARING, PLAYERS)
        self._lane = rng.uniform(-0.8, 0.8, SUBSTITUTES)
        self._turn = rng.uniform(0.0, 60.0, SUBSTITUTES)

    def first_places(self) -> Floats:
        """Where the players stand before the kick-off."""
        for team in (0, 1):
            aims = FORMATION * (SIGNS[team], SIGNS[team])
            aims[:, 0] = SIGNS[team] * np.minimum(FORMATION[:, 0] * 0.9, -2.0)
            self.aims[members(team)] = aims
        self._others(np.zeros(2), self.aims[:PLAYERS], 0)
        return self.aims.copy()

    def think(self, now: int, state: Floats, ball: Floats, owner: int | None, *, live: bool) -> None:
        """New aims: ``ball`` is where the game is (x, y), ``owner`` the team that has it. To be called often."""
        places = state[:PLAYERS, X : Y + 1]
        self.deadlines[:] = -1.0
        self.efforts[:] = EASY
        self._drift(ball)
        for team in (0, 1):
            self._shape(team, places, self._focus, owner)
        if live and owner is not None:
            self._press(1 - owner, places, ball)
            self._support(owner, places, ball)
        elif live:
            self._press(0, places, ball)
            self._press(1, places, ball)
        self._others(self._focus, places, now)

    def _drift(self, ball: Floats) -> None:
        """Players are a little off their places, and follow the ball late: whims change every few seconds."""
        self._focus += (ball - self._focus) * (THINKING / 500.0)
        for player in np.flatnonzero(self._rng.random(PLAYERS) < THINKING / 5000.0):
            self._wander[player] = self._rng.normal(0.0, _WHIM, 2)
            self._daring[player] = self._rng.normal(*_DARING)

    def _shape(self, team: int, places: Floats, ball: Floats, owner: int | None) -> None:
        sign, mine = SIGNS[team], members(team)
        x, y = sign * ball[0], sign * ball[1]
        push = 0.0 if owner is None else (7.0 if owner == team else -2.0)
        aim_x = FORMATION[:, 0] + 0.52 * x + push + self._wander[mine, 0]
        aim_y = 0.88 * FORMATION[:, 1] + 0.38 * y + self._wander[mine, 1]
        if owner == team:  # midfield joins the attack
            aim_x[5:9] += 0.25 * max(x, 0.0)
        aim_x = np.clip(aim_x, -46.0, 48.0)
        line = max(last_line(places, team), 0.0, x)
        for forward in FORWARDS:
            onside = line + self._daring[mine.start + forward]
            # With the ball they wait at the last defender's shoulder, and sometimes beyond it.
            aim_x[forward] = max(min(onside, x + 28.0), 4.0) if owner == team else min(aim_x[forward], onside)
        aim_x[1:9] = np.minimum(aim_x[1:9], line - 1.5)
        # The goalkeeper stays between ball and goal, further out when the ball is far.
        away = float(np.hypot(x + 52.5, y))
        out = min(1.0 + 0.08 * away, 9.0) / max(away, 1.0)
        aim_x[0], aim_y[0] = -52.5 + out * (x + 52.5), out * y
        self.aims[mine, 0] = sign * aim_x
        self.aims[mine, 1] = sign * np.clip(aim_y, -33.0, 33.0)
        distance = np.hypot(*(self.aims[mine] - places[mine]).T)
        self.limits[mine] = np.clip(0.55 + 0.34 * distance, 0.9, 7.6)

    def _press(self, team: int, places: Floats, ball: Floats) -> None:
        """The nearest goes at the ball, the next one covers behind him."""
        field = np.arange(team * TEAM_SIZE + 1, (team + 1) * TEAM_SIZE)
        distance = np.hypot(*(places[field] - ball).T)
        order = np.argsort(distance)
        goal = np.array([-SIGNS[team] * 52.5, 0.0])
        back = goal - ball
        back /= max(float(np.hypot(*back)), 1.0)
        for rank, gap in ((0, 1.6), (1, 5.0)):
            player = field[order[rank]]
            self.aims[player] = ball + gap * back
            self.limits[player] = (6.2, 4.5)[rank]
            self.efforts[player] = 4.0

    def _support(self, team: int, places: Floats, ball: Floats) -> None:
        """The nearest team mates offer themselves for a short pass."""
        field = np.arange(team * TEAM_SIZE + 1, (team + 1) * TEAM_SIZE)
        distance = np.hypot(*(places[field] - ball).T)
        order = np.argsort(distance)
        for rank, gap in ((1, 7.0), (2, 10.0)):
            player = field[order[rank]]
            away = self.aims[player] - ball
            apart = max(float(np.hypot(*away)), 1.0)
            self.aims[player] = ball + away * (gap / apart)

    def stand_off(self, spot: Floats, taking: int, *, halves: bool) -> None:
        """The ball is dead: opponents keep their distance; before a kick-off all are in their own half."""
        for team in (0, 1):
            mine = members(team)
            if halves:
                self.aims[mine, 0] = SIGNS[team] * np.minimum(SIGNS[team] * self.aims[mine, 0], -1.0)
            if team != taking:
                away = self.aims[mine] - spot
                distance = np.hypot(*away.T)[:, None]
                near = distance < 8.0
                pushed = spot + away * (8.0 / np.maximum(distance, 0.5))
                if halves:
                    pushed[:, 0] = SIGNS[team] * np.minimum(SIGNS[team] * pushed[:, 0], -6.0)
                self.aims[mine] = np.where(near, pushed, self.aims[mine])

    def line_up(self, corner: Floats, attackers: int) -> None:
        """Before a corner kick: attackers in front of the goal, a defender goal-side of each of them."""
        end = np.sign(corner[0])
        spots = np.array([(-6.0, 5.0), (-7.5, 0.0), (-9.0, -4.0), (-12.0, 7.0), (-13.0, -2.0), (-16.0, 2.0)])
        spots = np.array([52.5, 0.0]) + spots
        for spot, attacker, defender in zip(spots, (9, 2, 10, 3, 6, 7), (2, 3, 1, 4, 6, 7), strict=True):
            self.aims[attackers * TEAM_SIZE + attacker] = end * spot
            self.aims[(1 - attackers) * TEAM_SIZE + defender] = end * (spot + _GOAL_SIDE)
        self.limits[:PLAYERS] = np.maximum(self.limits[:PLAYERS], 3.5)

    def _others(self, ball: Floats, places: Floats, now: int) -> None:
        """Referee behind play, assistants at the second-last defenders, substitutes along the line."""
        referee = PLAYERS
        self.aims[referee] = 0.8 * ball + (0.0, 9.0 if ball[1] < 0 else -9.0)
        self.aims[referee + 1] = np.clip(last_line(places, 0), 0.0, 52.0), 35.2
        self.aims[referee + 2] = -np.clip(last_line(places, 1), 0.0, 52.0), -35.2
        self.aims[referee + 3] = 3.0 * np.sin(now / 9000.0), -37.5
        self.limits[referee : referee + OFFICIALS] = (4.0, 4.5, 4.5, 1.2)
        subs = slice(PLAYERS + OFFICIALS, BODIES)
        beat = np.sin(now / 1000.0 / 12.0 + self._turn)
        self.aims[subs, 0] = np.where(np.arange(SUBSTITUTES) % 2, 24.0, -24.0) + 14.0 * beat
        self.aims[subs, 1] = -37.0 - 1.5 * self._lane - 0.6 * np.arange(SUBSTITUTES)
        self.limits[subs] = np.where(np.arange(SUBSTITUTES) < 5, 2.6, 0.8)

    def send(self, player: int, aim: Floats, seconds: float) -> None:
        """This one has to be there by then."""
        self.aims[player] = aim
        self.efforts[player] = HARD
        self.deadlines[player] = max(seconds, 0.0)
