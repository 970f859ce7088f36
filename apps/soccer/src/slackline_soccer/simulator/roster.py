"""Who takes part in a simulated match, and who wears which transmitter.

144 transmitters as in [Thesis, 3.4]: four balls at 2000 Hz; 22 players, four officials and nine substitutes with one
on each leg and each arm at 200 Hz. Together 36,000 positions a second.
"""

from __future__ import annotations

from slackline_soccer.model.field import FULL_SIZE
from slackline_soccer.model.match import Match
from slackline_soccer.tracking.game import Limb, Period, Role, Sensor
from slackline_soccer.tracking.positions import SECOND

#: Time stamps do not begin at zero, as those of a real system do not.
START = 10 * SECOND

TEAMS = ("A", "B")
TEAM_SIZE = 11
PLAYERS = len(TEAMS) * TEAM_SIZE
OFFICIALS = 4
SUBSTITUTES = 9
BALLS = 4

BALL_RATE = 2000.0
PLAYER_RATE = 200.0

LIMBS = (Limb.LEFT_LEG, Limb.RIGHT_LEG, Limb.LEFT_ARM, Limb.RIGHT_ARM)
_FIRST_WORN = 11


def player_name(number: int) -> str:
    """The name of player ``number`` (0 to 21).

    >>> player_name(0), player_name(21)
    ('A1', 'B11')
    """
    return f"{team_name(number)}{number % TEAM_SIZE + 1}"


def team_name(number: int) -> str:
    """The team of player ``number``."""
    return TEAMS[number // TEAM_SIZE]


def ball_sid(ball: int) -> int:
    """The transmitter in ball 0 to 3.

    >>> ball_sid(0)
    1
    """
    return ball + 1


def worn_sid(wearer: int, limb: int) -> int:
    """The transmitter of wearer 0 to 34 (players, officials, substitutes) on limb 0 to 3 of ``LIMBS``."""
    return _FIRST_WORN + len(LIMBS) * wearer + limb


def wearers() -> list[tuple[str, Role, str | None]]:
    """Name, role and team of all, in the order of their numbers."""
    names: list[tuple[str, Role, str | None]] = []
    for number in range(PLAYERS):
        role = Role.GOALKEEPER if number % TEAM_SIZE == 0 else Role.PLAYER
        names.append((player_name(number), role, team_name(number)))
    names += [(f"R{number}", Role.REFEREE, None) for number in range(1, OFFICIALS + 1)]
    names += [(f"S{number}", Role.SUBSTITUTE, TEAMS[number % 2]) for number in range(1, SUBSTITUTES + 1)]
    return names


def make_match(seconds: float, name: str) -> Match:
    """The match as detectors get it: one period in which A defends goal 0."""
    sensors = [Sensor(ball_sid(ball), Role.BALL, f"ball-{ball + 1}") for ball in range(BALLS)]
    for wearer, (who, role, team) in enumerate(wearers()):
        sensors += [Sensor(worn_sid(wearer, n), role, who, team, limb) for n, limb in enumerate(LIMBS)]
    return Match(
        field=FULL_SIZE,
        sensors=tuple(sensors),
        periods=(Period(START, START + round(seconds * SECOND), TEAMS[0]),),
        ball_rate=BALL_RATE,
        player_rate=PLAYER_RATE,
        name=name,
    )
