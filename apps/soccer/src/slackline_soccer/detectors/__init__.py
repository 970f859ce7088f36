"""The detectors of a match, each assuming order, from positions up to blocked shots and beyond.

level 1   which ball is in play; when a ball turns
level 2   which players are near the ball, which was at it when it turned, which areas it is in
level 3   hits
level 4   possession, and whether the hit sent the ball on its way
level 5   shots
level 6   passes, blocked shots, goals
level 7   double passes, offside
"""

from __future__ import annotations

from slackline import Detector
from slackline_soccer.detectors.ball import ActiveBall, BallAreas, BallTurned
from slackline_soccer.detectors.hits import ClosestPlayer, Kick, PlayerHitsBall
from slackline_soccer.detectors.passes import DoublePass, Offside, Pass, Possession
from slackline_soccer.detectors.proximity import Proximity
from slackline_soccer.detectors.shots import BlockedShot, Goal, ShotOnGoal
from slackline_soccer.model.match import Match

__all__ = [
    "ActiveBall",
    "BallAreas",
    "BallTurned",
    "BlockedShot",
    "ClosestPlayer",
    "DoublePass",
    "Goal",
    "Kick",
    "Offside",
    "Pass",
    "PlayerHitsBall",
    "Possession",
    "Proximity",
    "ShotOnGoal",
]


def detectors(match: Match) -> list[Detector]:
    """One of each, for this match."""
    return [
        ActiveBall(match),
        BallTurned(match),
        Proximity(match),
        BallAreas(match),
        ClosestPlayer(match),
        PlayerHitsBall(match),
        Possession(match),
        Kick(match),
        ShotOnGoal(match),
        Pass(match),
        BlockedShot(match),
        Goal(match),
        DoublePass(match),
        Offside(match),
    ]
