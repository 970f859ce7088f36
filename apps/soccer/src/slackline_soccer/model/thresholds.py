"""Where the detectors draw their lines, and how those follow from the rates of the positions.

At the RedFIR rates (ball 2000 Hz, a transmitter on each leg) these are the figures of [Thesis, A.2, 6.1]: a mean over
10 positions, 55 m/s², 1 m. Tracking data comes at some 25 Hz with one position per player: there a kick lasts less than
a frame, so that its acceleration is spread over a frame's length; a foot is up to a step away from the position; and
a fast ball covers more than a metre between two frames.
"""

from __future__ import annotations

from dataclasses import dataclass

from slackline_soccer.model.match import Match
from slackline_soccer.tracking import MILLISECOND, SECOND
from slackline_soccer.tracking.game import Limb

#: A mean over 10 positions at 2000 Hz [Thesis, A.2].
FILTERED = 0.005
#: A ball's radius: it is out when all of it is (Law 9).
BALL_RADIUS = 110.0


@dataclass(frozen=True, slots=True)
class Thresholds:
    """Times in ps, lengths in mm, accelerations in m/s², speeds in m/s.

    >>> from slackline_soccer.tracking.game import Period, Role, Sensor
    >>> from slackline_soccer.model.match import FULL_SIZE
    >>> sensors = (
    ...     Sensor(1, Role.BALL, "ball"),
    ...     Sensor(2, Role.PLAYER, "A1", "A", Limb.LEFT_LEG),
    ...     Sensor(3, Role.PLAYER, "B1", "B", Limb.LEFT_LEG),
    ... )
    >>> match = Match(FULL_SIZE, sensors, (Period(0, SECOND, "A"),))
    >>> Thresholds.of(match).window, Thresholds.of(match).reach
    (10, 1000.0)
    """

    #: The mean filter's length, in positions.
    window: int
    #: A mean acceleration from here on is a contact; once below `calm` the next can come.
    acceleration: float
    calm: float
    #: A contact changes the velocity by so much (m/s): as much as that acceleration does in 20 ms.
    push: float
    #: A contact is published at the latest so long after it began.
    contact: int
    #: A contact is back-dated by at most this: it is published late, and the filter's delay is taken off.
    turn_back: int
    #: A ball silent for longer starts anew: nothing is known of what happened in between.
    gap: int

    #: A foot is near the ball from `reach` on, and no longer from `release` on.
    reach: float
    release: float
    #: A higher ball is out of a jumping player's reach.
    height: float
    #: Positions of players older than this say nothing.
    stale: int
    #: Two positions that make one event are at most so far apart in time: a gap sets no event back further.
    apart: int
    #: Time advances with the next position, at the latest so long after a time stamp, unless all are silent.
    step: int

    #: A ball is in an area again when so far inside.
    line: float
    #: The ball in play is lost when silent for so long: another one may take over.
    lost: int
    #: A ball is on its way when it is so far from where it was hit within this time: a slower one was not kicked.
    way: float
    on_its_way: int

    @classmethod
    def of(cls, match: Match) -> Thresholds:
        """The thresholds for a match's rates and transmitters."""
        ball_period, player_period = SECOND / match.ball_rate, SECOND / match.player_rate
        window = max(1, round(FILTERED * match.ball_rate))
        contact = max(30 * MILLISECOND, round(1.5 * ball_period))
        on_feet = any(sensor.limb in (Limb.LEFT_LEG, Limb.RIGHT_LEG) for sensor in match.sensors)
        reach = 1_000.0 if on_feet else 1_200.0
        return cls(
            window=window,
            acceleration=55.0,
            calm=40.0,
            push=1.2,
            contact=contact,
            turn_back=contact + round((window // 2 + 1) * ball_period),
            gap=max(50 * MILLISECOND, round(4 * ball_period)),
            reach=reach,
            release=1.1 * reach,
            height=2_700.0,
            stale=max(500 * MILLISECOND, round(4 * player_period)),
            apart=round(2 * max(ball_period, player_period)),
            step=round(min(ball_period, player_period)),
            line=0.0 if on_feet else 300.0,
            lost=max(SECOND, round(10 * ball_period)),
            way=1_000.0,
            on_its_way=300 * MILLISECOND,
        )
