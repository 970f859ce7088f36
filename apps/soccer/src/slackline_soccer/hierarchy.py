"""The detectors of a match, from positions up to blocked shots and beyond.

level 1   which ball is in play; when a ball turns
level 2   who is near the ball, who was at it when it turned, which areas it is in
level 3   who hits it
level 4   who has it, and whether the hit sent it on its way
level 5   shots
level 6   passes, blocked shots, goals
level 7   double passes, offside
"""

from __future__ import annotations

from slackline import Detector
from slackline_soccer.detectors import (
    ActiveBall,
    BallAreas,
    BallTurned,
    BlockedShot,
    ClosestPlayer,
    DoublePass,
    Goal,
    Kick,
    Offside,
    Pass,
    PlayerHitsBall,
    Possession,
    Proximity,
    ShotOnGoal,
)
from slackline_soccer.model.match import Match


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
