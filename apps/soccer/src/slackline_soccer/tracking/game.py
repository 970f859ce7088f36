"""Who takes part in a game, what they wear, and when the game is on."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class Role(StrEnum):
    """What somebody does in a game; a goalkeeper is a player of a sport that has one."""

    BALL = "ball"
    PLAYER = "player"
    GOALKEEPER = "goalkeeper"
    REFEREE = "referee"
    SUBSTITUTE = "substitute"


#: The roles of those who play.
PLAYS = (Role.PLAYER, Role.GOALKEEPER)


class Limb(StrEnum):
    LEFT_LEG = "left_leg"
    RIGHT_LEG = "right_leg"
    LEFT_ARM = "left_arm"
    RIGHT_ARM = "right_arm"
    BODY = "body"


@dataclass(frozen=True, slots=True)
class Sensor:
    """One transmitter: its id, and who or what wears it. ``wearer`` is unique per ball, player and referee."""

    sid: int
    role: Role
    wearer: str
    team: str | None = None
    limb: Limb | None = None


@dataclass(frozen=True, slots=True)
class Period:
    """From ``start`` up to ``stop`` (ps) the game is on and team ``low`` defends the low end of the ground."""

    start: int
    stop: int
    low: str
