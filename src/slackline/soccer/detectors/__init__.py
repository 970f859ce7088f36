"""The detectors of a match, one per file, each assuming order."""

from slackline.soccer.detectors.active_ball import ActiveBall
from slackline.soccer.detectors.ball_areas import BallAreas
from slackline.soccer.detectors.ball_turned import BallTurned
from slackline.soccer.detectors.blocked_shot import BlockedShot
from slackline.soccer.detectors.closest_player import ClosestPlayer
from slackline.soccer.detectors.double_pass import DoublePass
from slackline.soccer.detectors.goal import Goal
from slackline.soccer.detectors.kick import Kick
from slackline.soccer.detectors.offside import Offside
from slackline.soccer.detectors.pass_ import Pass
from slackline.soccer.detectors.player_hits_ball import PlayerHitsBall
from slackline.soccer.detectors.possession import Possession
from slackline.soccer.detectors.proximity import Proximity
from slackline.soccer.detectors.shot_on_goal import ShotOnGoal

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
