"""The detectors of a match, one per file, each assuming order."""

from slackline_soccer.detectors.active_ball import ActiveBall
from slackline_soccer.detectors.ball_areas import BallAreas
from slackline_soccer.detectors.ball_turned import BallTurned
from slackline_soccer.detectors.closest_player import ClosestPlayer
from slackline_soccer.detectors.kick import Kick
from slackline_soccer.detectors.offside import Offside
from slackline_soccer.detectors.passes import DoublePass, Pass
from slackline_soccer.detectors.player_hits_ball import PlayerHitsBall
from slackline_soccer.detectors.possession import Possession
from slackline_soccer.detectors.proximity import Proximity
from slackline_soccer.detectors.shots import BlockedShot, Goal, ShotOnGoal

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
