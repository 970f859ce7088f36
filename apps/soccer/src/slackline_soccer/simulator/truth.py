"""What really happened: written down by the play as it happens, from noise-free places and times.

No detector has a part in this. Types are named as in :mod:`slackline_soccer.model.events`; besides these there is
``shot_wide``, a shot meant for the goal that is no ``shot`` because it misses it. Definitions:

- **hit**: a player touches the ball; its time is the middle of the contact.
- **pass**: a kick that is no shot, after which the ball is next touched by another player, or leaves the field, at
  least 2 m from where it was kicked. Its time is that of the touch or of leaving; ``intent`` says what the kick was.
- **shot**: the ball, 1 m on its way, is headed to cross the goal opposed within 1.5 s of the hit.
- **possession**: from a player's hit until another player hits the ball or it leaves the field.
- **double_pass**: two successful passes between the same two, there and back, within 4 s of the first kick.
- **offside**: the receiver of a pass was, when it was kicked, in the opponents' half, nearer to their goal line than
  the ball and the second-last opponent. Not after a goal kick, throw-in or corner.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from slackline_soccer.simulator.ball import BAR, HALF_CONTACT, HALF_GOAL, HALF_LENGTH, Way
from slackline_soccer.simulator.bodies import START, TEAMS, ball_sid, player_name, team_name
from slackline_soccer.simulator.tactics import SIGNS, last_line, team_of
from slackline_soccer.tracking import MILLISECOND

Floats = NDArray[np.float64]

FREE_TRAVEL = 2.0
SHOT_WITHIN = 1500
DOUBLE_PASS_WITHIN = 4000

SCHEMA = pa.schema(
    [
        ("ts", pa.int64()),
        ("type", pa.string()),
        ("player", pa.string()),
        ("team", pa.string()),
        ("to", pa.string()),
        ("to_team", pa.string()),
        ("successful", pa.bool_()),
        ("kicked_at", pa.int64()),
        ("x", pa.float64()),
        ("y", pa.float64()),
        ("z", pa.float64()),
        ("ball", pa.int32()),
        ("area", pa.string()),
        ("goal", pa.int32()),
        ("length", pa.float64()),
        ("speed", pa.float64()),
        ("by", pa.float64()),
        ("was_player", pa.string()),
        ("was_team", pa.string()),
        ("intent", pa.string()),
    ]
)


def timestamp(ms: int) -> int:
    """The time stamp (ps) of a millisecond of the play."""
    return START + ms * MILLISECOND


@dataclass(slots=True)
class _Kick:
    """The last hit, until it is known what came of it."""

    at: int
    player: int
    place: Floats
    intent: str
    places: Floats
    shot: int | None
    speed: float


def headed_for_goal(way: Way, at: int, goal: int) -> bool:
    """Whether the ball hit at ``at`` is, 1 m on its way, headed to cross goal 0 or 1 within 1.5 s of the hit."""
    first = at - way.start
    gone = np.hypot(*(way.places[first : first + SHOT_WITHIN, :2] - way.places[first, :2]).T)
    metre = int((gone >= 1.0).argmax())
    if gone[metre] < 1.0:
        return False
    place, speed = way.places[first + metre], way.speeds[first + metre]
    line = SIGNS[1 - goal] * HALF_LENGTH
    if speed[0] * SIGNS[1 - goal] <= 0.1:
        return False
    seconds = (line - place[0]) / speed[0]
    if not 0 < seconds <= (SHOT_WITHIN - metre) / 1000:
        return False
    across = place[1] + speed[1] * seconds
    height = max(0.0, place[2] + speed[2] * seconds - 4.905 * seconds**2)
    return bool(abs(across) < HALF_GOAL and height < BAR)


class Truth:
    """The rows so far. ``ball`` is the number (0 to 3) of the ball in play."""

    def __init__(self) -> None:
        self._rows: list[dict[str, Any]] = []
        self._kick: _Kick | None = None
        self._holder: int | None = None
        #: Sender, receiver and time of the kick, as long as their team has the ball.
        self._last_pass: tuple[int, int, int] | None = None

    # Called by the play.

    def active(self, at: int, ball: int) -> None:
        self._add(at, "active_ball", ball=ball_sid(ball))

    def entered(self, at: int, ball: int, place: Floats) -> None:
        self._add(at, "ball_entered", place, ball=ball_sid(ball), area="field")

    def left(self, at: int, ball: int, place: Floats) -> None:
        """The ball in play left the field."""
        self._add(at, "ball_left", place, ball=ball_sid(ball), area="field")
        kick = self._kick
        if kick is not None:
            self._judge_shot(kick, place)
            if not self._scored(at, kick, place) and kick.shot is None:
                self._pass(at, kick, None, place)
        self._kick = None
        self._possess(at, None)

    def hit(self, at: int, player: int, way: Way, intent: str, places: Floats, ball: int) -> None:
        """``player`` hits the ball, which goes ``way`` from there; ``places`` is where all players are."""
        place = way.place(at)
        speed = float(np.linalg.norm(way.speed(at + HALF_CONTACT)))
        self._add(at, "hit", place, player, ball=ball_sid(ball), speed=speed, intent=intent)
        previous = self._kick
        if previous is not None:
            self._judge_shot(previous, place)
            if previous.player != player:
                if previous.shot is not None:
                    self._add(at, "blocked_shot", place, previous.player, to=player, kicked_at=previous.at)
                else:
                    self._pass(at, previous, player, place)
        goal = 1 - team_of(player)  # A, team 0, shoots at goal 1
        shot = goal if headed_for_goal(way, at, goal) else None
        self._kick = _Kick(at, player, place, intent, places.copy(), shot, speed)
        self._possess(at, player)

    def close(self) -> None:
        """The match is over: a shot on its way was a shot all the same."""
        if self._kick is not None:
            self._judge_shot(self._kick, None)

    def table(self, until: float) -> pa.Table:
        """All rows before ``until`` (ms), in order of time."""
        limit = START + round(until * MILLISECOND)
        rows = sorted((row for row in self._rows if row["ts"] < limit), key=lambda row: row["ts"])
        return pa.Table.from_pylist(rows, SCHEMA)

    # What follows from it.

    def _judge_shot(self, kick: _Kick, ended: Floats | None) -> None:
        """A shot counts if it got 1 m far; one that was meant but misses is written down as wide."""
        if ended is not None and kick.shot is not None and np.hypot(*(ended - kick.place)[:2]) < 1.0:
            kick.shot = None
            return
        if kick.shot is not None:
            self._add(kick.at, "shot", kick.place, kick.player, goal=kick.shot, speed=kick.speed)
        elif kick.intent == "shot":
            self._add(kick.at, "shot_wide", kick.place, kick.player, speed=kick.speed)

    def _scored(self, at: int, kick: _Kick, place: Floats) -> bool:
        if abs(place[0]) < HALF_LENGTH or abs(place[1]) >= HALF_GOAL or place[2] >= BAR:
            return False
        goal = int(place[0] > 0)
        scorers = 1 - goal
        shot_at = kick.at if kick.shot is not None else None
        self._add(at, "goal", place, kick.player, goal=goal, kicked_at=shot_at)
        self._rows[-1]["team"] = TEAMS[scorers]
        return True

    def _pass(self, at: int, kick: _Kick, to: int | None, place: Floats) -> None:
        length = float(np.hypot(*(place - kick.place)[:2]))
        if length < FREE_TRAVEL:
            return
        successful = to is not None and team_of(to) == team_of(kick.player)
        self._add(at, "pass", place, kick.player, to=to, kicked_at=kick.at, length=length, intent=kick.intent)
        self._rows[-1]["successful"] = successful
        if not successful or to is None:
            return
        self._offside(at, kick, to)
        if self._last_pass is not None and self._last_pass[:2] == (to, kick.player):
            started = self._last_pass[2]
            if at - started <= DOUBLE_PASS_WITHIN:
                self._add(at, "double_pass", place, to, to=kick.player, kicked_at=started)
        self._last_pass = kick.player, to, kick.at

    def _offside(self, at: int, kick: _Kick, to: int) -> None:
        if kick.intent in ("throw_in", "goal_kick", "corner"):
            return
        team = team_of(to)
        receiver = SIGNS[team] * kick.places[to, 0]
        by = receiver - max(last_line(kick.places, team), SIGNS[team] * kick.place[0], 0.0)
        if by > 0:
            self._add(at, "offside", kick.place, to, to=kick.player, kicked_at=kick.at, by=float(by))

    def _possess(self, at: int, player: int | None) -> None:
        if player == self._holder:
            return
        was = self._holder
        if was is None or player is None or team_of(was) != team_of(player):
            self._last_pass = None
        self._add(at, "possession", None, player)
        if was is not None:
            self._rows[-1].update(was_player=player_name(was), was_team=team_name(was))
        self._holder = player

    def _add(
        self,
        at: int,
        type: str,
        place: Floats | None = None,
        player: int | None = None,
        to: int | None = None,
        kicked_at: int | None = None,
        **more: Any,
    ) -> None:
        row: dict[str, Any] = {"ts": timestamp(at), "type": type, **more}
        if place is not None:
            row.update(x=float(place[0]) * 1000, y=float(place[1]) * 1000, z=float(place[2]) * 1000)
        if player is not None:
            row.update(player=player_name(player), team=team_name(player))
        if to is not None:
            row.update(to=player_name(to), to_team=team_name(to))
        if kicked_at is not None:
            row["kicked_at"] = timestamp(kicked_at)
        self._rows.append(row)
