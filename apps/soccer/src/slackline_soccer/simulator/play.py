"""The game itself: who gets to the ball next, what becomes of each touch, and what is written down as true.

Time goes in steps of 20 ms; touches happen on that grid. After each touch the ball's way is known until it is touched
again, and so is the player who will (:meth:`Play._plan`): he is sent there. If he is too late the ball rolls on.

**Restarts** after the ball left the field: what is due, where, for which player, and how long it takes. The waits are
somewhat shorter than in real matches (Metrica's games: 25 s on average): a short simulation should not be spent until a
ball is fetched.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace

import numpy as np
from numpy.typing import NDArray

from slackline_soccer.simulator.ball import (
    BAR,
    HALF_CONTACT,
    HALF_GOAL,
    HALF_LENGTH,
    HALF_WIDTH,
    RADIUS,
    Ball,
    Way,
    carry,
    fly,
)
from slackline_soccer.simulator.bodies import (
    BALLS,
    BODIES,
    COLUMNS,
    FACING_X,
    PHASE,
    PLAYERS,
    STEP,
    TEAM_SIZE,
    VX,
    VY,
    X,
    Y,
    reach_times,
    steer,
)
from slackline_soccer.simulator.choices import PlayChoice, Situation, choose, restart
from slackline_soccer.simulator.tactics import FORWARDS, SIGNS, THINKING, Tactics, members, team_of
from slackline_soccer.simulator.truth import Truth

Floats = NDArray[np.float64]

#: How far ahead the ball's way is worked out, in ms.
_AHEAD = 8000
#: A ball higher than this cannot be played with the foot.
_PLAYABLE = 0.7
#: Nor than this by a goalkeeper, who plays with all he has; his foot stands for it.
_SAVEABLE = 1.2
#: How far a player reaches, in m: a goalkeeper dives.
_REACHES = np.where(np.arange(PLAYERS) % TEAM_SIZE == 0, 1.2, 0.45)
#: A dribbler loses the ball to an opponent only so near to his last touch: what goes further is a pass.
_TACKLE_REACH = 1.6
_NEVER = 10**6
#: How high each player can play the ball.
_HEIGHTS = np.where(np.arange(PLAYERS) % TEAM_SIZE == 0, _SAVEABLE, _PLAYABLE)


#: How often an opponent who could get at the ball does.
_CHANCES = {"dribble": 0.3, "control": 0.25, "shot": 0.6, "pass": 0.65}


@dataclass(frozen=True, slots=True)
class Contact:
    """Who touches the ball next, and when (ms); for a restart also which."""

    player: int
    at: int
    restart: str | None = None


@dataclass(frozen=True, slots=True)
class Touch:
    """A foot is at the ball: for the limbs. ``foot`` is 0 (left) or 1; ``way`` is where the ball is sent (unit)."""

    at: int
    player: int
    foot: int
    place: Floats
    way: Floats


@dataclass(slots=True)
class Scene:
    """What happened since the last scene: bodies every 20 ms, balls every ms, touches."""

    bodies: list[Floats] = field(default_factory=list)
    touches: list[Touch] = field(default_factory=list)
    balls: Floats = field(default_factory=lambda: np.empty((0, BALLS, 3)))
    speeds: Floats = field(default_factory=lambda: np.empty((0, BALLS, 3)))


class Play:
    """A match in progress."""

    def __init__(self, seed: int) -> None:
        self._rng = np.random.default_rng([seed, 10])
        self.now = 0
        self.truth = Truth()
        self.tactics = Tactics(np.random.default_rng([seed, 11]))
        self.state = np.zeros((BODIES, COLUMNS))
        self.state[:, X : Y + 1] = self.tactics.first_places()
        self.state[:, PHASE] = self._rng.uniform(0.0, 2 * np.pi, BODIES)
        self.state[:, FACING_X] = 1.0
        spots = [(0.0, 0.0), (-18.0, 37.0), (22.0, -36.5), (56.0, 12.0)]
        self.balls = [Ball(np.array([x, y, RADIUS])) for x, y in spots[:BALLS]]
        self.active = 0
        self._last: int | None = None
        self._touches = 0
        self._choice: PlayChoice | None = None
        self._tired: dict[int, int] = {}
        self._out_at: int | None = None
        self._dead: Restart | None = None
        self._contact: Contact | None = None
        self._sent: int | None = None
        #: Who goes for the ball too, but will not be the first.
        self._beaten: int | None = None
        self.truth.active(0, 0)
        first = kick_off(int(self._rng.integers(2)), 1600)
        self.state[first.taker, X : Y + 1] = -0.6 * SIGNS[team_of(first.taker)], 0.3
        self._call(first)
        self.scene = Scene(bodies=[self.state.copy()])

    # The clockwork.

    def advance(self, until: int) -> Scene:
        """Play on until ``until`` (ms) and give what happened since the last time."""
        while self.now < until:
            self._step()
        scene, self.scene = self.scene, Scene()
        # The next touch is at least a step away, and begins half a contact before that.
        taken = [ball.take(self.now - STEP) for ball in self.balls]
        scene.balls = np.stack([places for places, _ in taken], axis=1)
        scene.speeds = np.stack([speeds for _, speeds in taken], axis=1)
        return scene

    def _step(self) -> None:
        if self.now % THINKING == 0:
            self._think()
        self._send()
        steer(self.state, self.tactics.aims, self.tactics.limits, self.tactics.efforts, self.tactics.deadlines)
        self.now += STEP
        self.scene.bodies.append(self.state.copy())
        contact = self._contact
        if self._out_at is not None and self.now >= self._out_at and not (contact and contact.at <= self._out_at):
            self._leave()
        elif contact is not None and self.now >= contact.at:
            self._meet(contact)
        elif contact is None and self._out_at is None and self.now % (10 * STEP) == 0:
            self._plan()  # no player could reach the ball so far

    def _think(self) -> None:
        """All players look where the game is, and where to go."""
        dead = self._dead
        if dead is not None:
            focus = dead.spot
        else:
            at = self.now if self._contact is None else self._contact.at
            focus = self.balls[self.active].way.place(at)
        self.tactics.think(self.now, self.state, focus[:2], self._owner(), live=dead is None)
        if dead is not None:
            self.tactics.stand_off(dead.spot[:2], team_of(dead.taker), halves=dead.kind == "kick_off")
            if dead.kind == "corner":
                self.tactics.line_up(dead.spot[:2], team_of(dead.taker))

    def _owner(self) -> int | None:
        if self._dead is not None:
            return team_of(self._dead.taker)
        if self._contact is not None:
            return team_of(self._contact.player)
        return None if self._last is None else team_of(self._last)

    def _send(self) -> None:
        """The player who is to touch the ball goes where it will be, and stops short by a leg's reach."""
        if self._contact is None:
            return
        player = self._contact.player
        if player != self._sent:  # another than before
            self._think()
            self._sent = player
        self._send_to_ball(player, 0.3)
        if self._beaten is not None:
            self._send_to_ball(self._beaten, 0.8)

    def _send_to_ball(self, player: int, short: float) -> None:
        """To where the ball will be touched, but ``short`` m less."""
        assert self._contact is not None
        spot = self._ball_at(self._contact.at)[:2]
        gap = spot - self.state[player, X : Y + 1]
        distance = float(np.hypot(*gap))
        aim = spot - gap * min(short / max(distance, 1e-6), 1.0)
        self.tactics.send(player, aim, (self._contact.at - self.now) / 1000)

    def _ball_at(self, at: int) -> Floats:
        if self._dead is not None:
            return self._dead.spot
        return self.balls[self.active].way.place(at)

    # Touches.

    def _meet(self, contact: Contact) -> None:
        """The moment of contact: a touch, or the player came too late."""
        ball = self.balls[self.active].way.place(self.now)
        apart = float(np.hypot(*(self.state[contact.player, X : Y + 1] - ball[:2])))
        if apart <= _REACHES[contact.player] + 0.35:
            self._touch(contact)
        elif self._dead is not None:
            self._contact = Contact(contact.player, self.now + 10 * STEP, contact.restart)
        else:
            if contact.player == self._last and self._choice is not None:  # a dribbler runs after his ball
                self._choice = replace(self._choice, after=None)
            else:
                self._tired[contact.player] = self.now + 500
            self._plan()

    def _touch(self, contact: Contact) -> None:
        player = contact.player
        theirs = self._last is not None and team_of(self._last) != team_of(player)
        self._touches = self._touches + 1 if player == self._last else 0
        self._dead = None
        way = self.balls[self.active].way
        begin = self.now - HALF_CONTACT
        place, incoming = way.place(begin).copy(), way.speed(begin).copy()
        seen = Situation(
            player,
            way.place(self.now),
            incoming,
            self.state[:PLAYERS, X : Y + 1],
            self.state[:PLAYERS, VX : VY + 1],
            self._touches,
            self._choice.intent if self._choice and self._last is not None and theirs else None,
        )
        kind = contact.restart
        choice = choose(seen, self._rng) if kind is None else restart(seen, kind, self._rng)
        places, speeds = fly(place, incoming, choice.velocity, _AHEAD, choice.receiver == player)
        self.balls[self.active].turn(begin, Way(begin, places, speeds))
        self._last, self._choice = player, choice
        self._tired = {who: until for who, until in self._tired.items() if until > self.now}
        self._out_at = self.balls[self.active].way.leaves(self.now)
        self.truth.hit(self.now, player, self.balls[self.active].way, choice.intent, seen.places, self.active)
        flat = choice.velocity[:2]
        unit = flat / max(float(np.hypot(*flat)), 1e-6)
        foot = int(self._rng.integers(2))
        self.scene.touches.append(Touch(self.now, player, foot, self.balls[self.active].way.place(self.now), unit))
        self._plan()

    # Who is next.

    def _plan(self) -> None:
        """The player who touches the ball next: its receiver, or one who gets there before him."""
        choice = self._choice
        assert choice is not None and self._last is not None
        way = self.balls[self.active].way
        times = np.arange(120, 5000, 2 * STEP)
        rows = np.minimum(self.now + times - way.start, len(way.places) - 1)
        places = way.places[rows]
        last = _AHEAD if self._out_at is None else self._out_at - self.now
        playable = (places[:, 2] < _SAVEABLE) & (times < last)
        playable &= (np.abs(places[:, 0]) < HALF_LENGTH) & (np.abs(places[:, 1]) < HALF_WIDTH)
        times, places = times[playable], places[playable]
        self._contact = self._beaten = None
        if not len(times):
            return
        first = reach_times(
            self.state[:PLAYERS, X : Y + 1],
            self.state[:PLAYERS, VX : VY + 1],
            places,
            times / 1000.0,
            _HEIGHTS,
            _REACHES,
        )
        soonest = np.append(times, _NEVER)[first]
        for player, until in self._tired.items():
            if until > self.now:
                soonest[player] = _NEVER
        if choice.receiver != self._last:
            soonest[self._last] = _NEVER
        mine = self._meant_for(choice, soonest)
        if choice.receiver == self._last:  # a tackle is made at the dribbler's feet, or not at all
            gone = np.hypot(*(places[:, :2] - way.place(self.now)[:2]).T)
            reachable = np.append(gone < _TACKLE_REACH, False)[first]
            soonest[~reachable & (np.arange(PLAYERS) != self._last)] = _NEVER
        taken = self._taken_by_another(choice, soonest, mine[1])
        player, after = taken if taken is not None else mine
        self._beaten = mine[0] if taken is not None and mine[1] < _NEVER else None
        if after < _NEVER:
            self._contact = Contact(player, self.now + STEP * -(-after // STEP))

    def _meant_for(self, choice: PlayChoice, soonest: NDArray[np.int64]) -> tuple[int, int]:
        """The receiver and after how long he has the ball; if it has no receiver, the first who gets there."""
        receiver = choice.receiver
        if receiver is not None and soonest[receiver] < _NEVER:
            return receiver, max(int(soonest[receiver]), choice.after or 0)
        if choice.intent == "shot":
            return 0, _NEVER
        player = int(soonest.argmin())
        return player, int(soonest[player])

    def _taken_by_another(self, choice: PlayChoice, soonest: NDArray[np.int64], by: int) -> tuple[int, int] | None:
        """An opponent who is at the ball before, and takes his chance."""
        assert self._last is not None
        others = 1 - team_of(self._last)
        chance = _CHANCES.get(choice.intent, 0.6)
        rivals = np.arange(others * TEAM_SIZE, (others + 1) * TEAM_SIZE)
        for player in rivals[np.argsort(soonest[rivals], kind="stable")]:
            after = int(soonest[player])
            if after >= min(by, _NEVER):
                return None
            if self._rng.random() < (0.9 if choice.intent == "shot" and player % TEAM_SIZE == 0 else chance):
                return int(player), after + 20
        return None

    # Out of play.

    def _leave(self) -> None:
        """The ball is out: decide how play restarts."""
        assert self._out_at is not None and self._last is not None
        place = self.balls[self.active].way.place(self._out_at)
        self.truth.left(self._out_at, self.active, place)
        self._out_at = None
        self._call(due(self.now, place, self._last, self.state[:PLAYERS, X : Y + 1], self._rng))
        self._bring()

    def _call(self, due: Restart) -> None:
        self._dead = due
        self._contact = Contact(due.taker, due.at, due.kind)
        self._beaten = None
        self._last, self._touches, self._tired = None, 0, {}

    def _bring(self) -> None:
        """The ball, or the nearest other one, is brought to the spot."""
        assert self._dead is not None
        spot = self._dead.spot
        start, end = self.now + 2600, self._dead.at - 1000
        chosen = self.active
        if self._rng.random() < 0.45:
            apart = [float(np.hypot(*(ball.way.place(start) - spot)[:2])) for ball in self.balls]
            apart[self.active] = np.inf
            chosen = int(np.argmin(apart))
        ball = self.balls[chosen]
        places, speeds = carry(ball.way.place(start).copy(), spot, end - start)
        before = Way(self.now, *_rows(ball.way, self.now, start))
        way = Way(self.now, np.concatenate([before.places, places]), np.concatenate([before.speeds, speeds]))
        ball.turn(self.now, way)
        within = (np.abs(places[:, 0]) <= HALF_LENGTH) & (np.abs(places[:, 1]) <= HALF_WIDTH)
        entered = start + int(within.argmax())
        if chosen != self.active:
            self.truth.active(entered, chosen)
        self.truth.entered(entered, chosen, way.place(entered))
        self.active = chosen


def _rows(way: Way, start: int, stop: int) -> tuple[Floats, Floats]:
    at = np.arange(start, stop) - way.start
    rows = np.minimum(at, len(way.places) - 1)
    return way.places[rows], way.speeds[rows] * (at < len(way.places))[:, None]


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
