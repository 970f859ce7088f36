"""What the detectors of a match publish. Players and teams go by name; lengths in m, speeds in m/s, places in mm.

The level of each is what it gets in :func:`slackline_soccer.detectors`.
"""

from __future__ import annotations

from typing import Any

from slackline import EventType

_WHERE: dict[str, Any] = {"x": float, "y": float, "z": float}

#: 1: this ball is the one in play from here on.
ACTIVE_BALL = EventType("active_ball", ball=int)
#: 1: a ball was accelerated hard (m/s²), by which its velocity changed so (m/s): hit, or just bounced off the ground.
_PUSH: dict[str, Any] = {"push_x": float, "push_y": float, "push_z": float}
BALL_TURNED = EventType("ball_turned", ball=int, acceleration=float, bounce=bool, **_PUSH, **_WHERE)
#: 2: the ball in play came within a metre of a player's foot, or is no longer.
NEAR = EventType("near", ball=int, player=str, team=str, distance=float)
NOT_NEAR = EventType("not_near", ball=int, player=str, team=str, distance=float)
#: 2: when a ball turned, this player was the one at it.
CLOSEST = EventType("closest", ball=int, player=str, team=str, distance=float)
#: 2: the ball in play crossed into or out of an area: "field", "penalty_0", "penalty_1", "goal_0", "goal_1".
BALL_ENTERED = EventType("ball_entered", ball=int, area=str, **_WHERE)
BALL_LEFT = EventType("ball_left", ball=int, area=str, **_WHERE)
#: 3: a player hit the ball in play.
HIT = EventType("hit", ball=int, player=str, team=str, acceleration=float, **_WHERE)
#: 4: the ball is with this player now; None: with no player (out of play).
POSSESSION = EventType("possession", player=str, team=str, was_player=str, was_team=str)
#: 4: a hit sent the ball on its way: a metre from there it has this velocity (m/s).
KICK = EventType("kick", ball=int, player=str, team=str, hit_at=int, vx=float, vy=float, vz=float, **_WHERE)
#: 5: a hit that sends the ball towards the opponents' goal; back-dated to the hit.
SHOT = EventType("shot", player=str, team=str, goal=int, speed=float, **_WHERE)
#: 6: the ball went from one player to another (or out); its time stamp is when it got there.
PASS = EventType(
    "pass", player=str, team=str, to=str, to_team=str, successful=bool, kicked_at=int, length=float, **_WHERE
)
#: 6: another player than the shooter hit a shot before it crossed the line.
BLOCKED_SHOT = EventType("blocked_shot", player=str, team=str, blocker=str, blocker_team=str, shot_at=int)
#: 6: the ball crossed the line between the posts; the team that scored, and who hit it last.
GOAL = EventType("goal", player=str, team=str, goal=int, shot_at=int)
#: 7: there and back again: two passes between the same two players.
DOUBLE_PASS = EventType("double_pass", player=str, partner=str, team=str, started_at=int)
#: 7: the receiver of a pass stood offside when it was played, by so many metres.
OFFSIDE = EventType("offside", player=str, team=str, passer=str, kicked_at=int, by=float)

ALL = (
    ACTIVE_BALL,
    BALL_TURNED,
    NEAR,
    NOT_NEAR,
    CLOSEST,
    BALL_ENTERED,
    BALL_LEFT,
    HIT,
    POSSESSION,
    KICK,
    SHOT,
    PASS,
    BLOCKED_SHOT,
    GOAL,
    DOUBLE_PASS,
    OFFSIDE,
)
