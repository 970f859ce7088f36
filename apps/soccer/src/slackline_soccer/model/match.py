"""A match as the detectors need to know it: the field, who wears which transmitter, which team defends which goal.

**The field**: lines, goals and penalty areas, in millimetres. The goal at the low end of *along* (see
:mod:`slackline_soccer.tracking.game`) is goal 0, the other one goal 1.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from slackline import ConfigError, EventType
from slackline_soccer.tracking.game import PLAYS, Ground, Limb, Period, Role, Sensor

#: The laws of the game: a penalty area reaches 16.5 m into the field and 16.5 m beyond each post.
PENALTY_DEPTH = 16_500.0
GOAL_WIDTH = 7_320.0
GOAL_HEIGHT = 2_440.0


@dataclass(frozen=True, slots=True)
class GoalFrame:
    """A goal: where its line is (*along*), where its posts are (*across*), how high its bar is."""

    line: float
    left: float
    right: float
    height: float = GOAL_HEIGHT


@dataclass(frozen=True, slots=True)
class Field(Ground):
    """The ground with its two goals.

    >>> FULL_SIZE.length, FULL_SIZE.width, FULL_SIZE.goals[1].line
    (105000.0, 68000.0, 52500.0)
    >>> DEBS_2013.along(x=26_000.0, y=-33_000.0)
    -33000.0
    """

    goals: tuple[GoalFrame, GoalFrame]

    def __post_init__(self) -> None:
        Ground.__post_init__(self)
        if not self.goals[0].line < self.goals[1].line:
            raise ConfigError(f"goal 0 is the one at the low end of {self.lengthwise}; got lines {self.goals}.")

    @classmethod
    def on(cls, ground: Ground) -> Field:
        """The ground with goals of the usual size in the middle of its ends."""
        middle = sum(ground.sides) / 2
        left, right = middle - GOAL_WIDTH / 2, middle + GOAL_WIDTH / 2
        low, high = ground.ends
        return cls(
            ground.x,
            ground.y,
            (GoalFrame(low, left, right), GoalFrame(high, left, right)),
            lengthwise=ground.lengthwise,
        )

    def penalty_area(self, end: int) -> tuple[float, float, float, float]:
        """``(along_low, along_high, across_low, across_high)`` of the penalty area in front of goal 0 or 1."""
        goal, line = self.goals[end], self.ends[end]
        depth = (line, line + PENALTY_DEPTH) if end == 0 else (line - PENALTY_DEPTH, line)
        low, high = self.sides
        return (*depth, max(goal.left - PENALTY_DEPTH, low), min(goal.right + PENALTY_DEPTH, high))


#: 105 m by 68 m around the centre spot.
FULL_SIZE = Field.on(Ground(x=(-52_500.0, 52_500.0), y=(-34_000.0, 34_000.0)))

#: The half-size field of the DEBS 2013 Grand Challenge.
DEBS_2013 = Field(
    x=(0.0, 52_483.0),
    y=(-33_960.0, 33_965.0),
    goals=(GoalFrame(-33_968.0, 22_560.0, 29_880.0), GoalFrame(33_941.0, 22_578.5, 29_898.5)),
    lengthwise="y",
)


#: Transmitter ids index small tables.
MAX_SID = 2**16


#: What a ball is kicked with; one position per player (tracking data) stands for both feet.
FEET = frozenset({Limb.LEFT_LEG, Limb.RIGHT_LEG, Limb.BODY})


@dataclass(frozen=True, slots=True)
class Player:
    """One of those who play; ``feet`` are the transmitters that count for hits and running."""

    name: str
    team: str
    goalkeeper: bool
    feet: tuple[int, ...]


@dataclass(frozen=True)
class Match:
    """The field, the transmitters and the periods of one match.

    ``ball_rate`` and ``player_rate`` are positions per second and transmitter; thresholds follow from them.
    """

    field: Field
    sensors: tuple[Sensor, ...]
    periods: tuple[Period, ...]
    ball_rate: float = 2000.0
    player_rate: float = 200.0
    name: str = "match"

    def __post_init__(self) -> None:
        _check(self)

    # Who is who.

    @cached_property
    def players(self) -> tuple[Player, ...]:
        """Those who play, in the order of their names; substitutes and referees are not among them."""
        worn: dict[str, list[Sensor]] = {}
        for sensor in self.sensors:
            if sensor.role in PLAYS:
                worn.setdefault(sensor.wearer, []).append(sensor)
        return tuple(
            Player(
                name,
                str(sensors[0].team),
                sensors[0].role is Role.GOALKEEPER,
                tuple(sorted(sensor.sid for sensor in sensors if sensor.limb in FEET)),
            )
            for name, sensors in sorted(worn.items())
        )

    @cached_property
    def teams(self) -> tuple[str, str]:
        first, second = sorted({player.team for player in self.players})
        return first, second

    @cached_property
    def balls(self) -> tuple[int, ...]:
        """The transmitters of the balls."""
        return tuple(sorted(sensor.sid for sensor in self.sensors if sensor.role is Role.BALL))

    @cached_property
    def sids(self) -> tuple[int, ...]:
        return tuple(sorted(sensor.sid for sensor in self.sensors))

    @cached_property
    def position(self) -> EventType:
        """The type of the positions: of known transmitters, finite, columns and units as RedFIR gives them.

        x, y, z in mm; v in µm/s and a in µm/s²; vx, vy, vz the direction of v, scaled to 10,000.
        """
        columns: dict[str, Any] = dict.fromkeys(("x", "y", "z", "v", "a", "vx", "vy", "vz"), "float32")
        return EventType("position", source="sid", sources=self.sids, finite=True, **columns)

    # Tables by transmitter id, for compiled loops; -1 and False where an id is not the kind.

    def _table(self, values: dict[int, Any], missing: Any, dtype: Any) -> NDArray[Any]:
        table = np.full(max(self.sids) + 1, missing, dtype=dtype)
        for sid, value in values.items():
            table[sid] = value
        return table

    @cached_property
    def is_ball(self) -> NDArray[np.bool_]:
        return self._table(dict.fromkeys(self.balls, True), False, np.bool_)

    @cached_property
    def foot_of(self) -> NDArray[np.int64]:
        """The player (number in ``players``) whose foot a transmitter is on."""
        return self._table({sid: n for n, player in enumerate(self.players) for sid in player.feet}, -1, np.int64)

    @cached_property
    def player_of(self) -> NDArray[np.int64]:
        """The player (number in ``players``) who wears a transmitter, on whatever limb."""
        number = {player.name: n for n, player in enumerate(self.players)}
        return self._table({s.sid: number[s.wearer] for s in self.sensors if s.wearer in number}, -1, np.int64)

    @cached_property
    def numbered_feet(self) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """``(number, first)``: the number of a transmitter's foot, -1 for all others; each player's first foot.

        The feet of player ``p`` (number in ``players``) are ``first[p]`` up to ``first[p + 1]``.
        """
        feet = [sid for player in self.players for sid in player.feet]
        number = self._table({sid: n for n, sid in enumerate(feet)}, -1, np.int64)
        return number, np.cumsum([0, *(len(player.feet) for player in self.players)])

    def period(self, ts: int) -> Period | None:
        """The period that ``ts`` is in, if the game is on."""
        return next((period for period in self.periods if period.start <= ts < period.stop), None)

    def attacks(self, team: str, ts: int) -> int | None:
        """The number of the goal that ``team`` shoots at, if the game is on."""
        period = self.period(ts)
        return None if period is None else int(period.low == team)

    # As JSON, beside a recording.

    def save(self, path: Path | str) -> None:
        described = asdict(self)
        Path(path).write_text(json.dumps(described, indent=1), encoding="utf-8")

    @classmethod
    def load(cls, path: Path | str) -> Match:
        """Read a file of :meth:`save`, or one written by hand."""
        try:
            read = json.loads(Path(path).read_text(encoding="utf-8"))
            ground = read["field"]
            return cls(
                field=Field(
                    x=tuple(ground["x"]),
                    y=tuple(ground["y"]),
                    goals=(GoalFrame(**ground["goals"][0]), GoalFrame(**ground["goals"][1])),
                    lengthwise=ground.get("lengthwise", "x"),
                ),
                sensors=tuple(_sensor(**sensor) for sensor in read["sensors"]),
                periods=tuple(Period(**period) for period in read["periods"]),
                ball_rate=read.get("ball_rate", 2000.0),
                player_rate=read.get("player_rate", 200.0),
                name=read.get("name", "match"),
            )
        except ConfigError:
            raise
        except (KeyError, TypeError, ValueError, IndexError) as error:
            raise ConfigError(
                f"{path} does not describe a match ({type(error).__name__}: {error}); it needs 'field', 'sensors' "
                f"and 'periods' as Match.save writes them."
            ) from error


def _sensor(sid: int, role: str, wearer: str, team: str | None = None, limb: str | None = None) -> Sensor:
    return Sensor(sid, Role(role), wearer, team, None if limb is None else Limb(limb))


def _check(match: Match) -> None:
    """Say what a description lacks, before anything runs on it."""
    if not match.sensors:
        raise ConfigError("a match needs transmitters; none were given.")
    for sid, times in Counter(sensor.sid for sensor in match.sensors).items():
        if times > 1:
            raise ConfigError(f"transmitter {sid} is given {times} times; each belongs to one wearer.")
        if not 0 <= sid < MAX_SID:
            raise ConfigError(f"transmitter ids are from 0 to {MAX_SID - 1}; got {sid}.")
    limbs = Counter((sensor.wearer, sensor.limb) for sensor in match.sensors)
    for (wearer, limb), times in limbs.items():
        if times > 1:
            raise ConfigError(f"{wearer!r} has {times} transmitters at {limb or 'no limb'}; expected one each.")
    _one_team_each(match.sensors)
    teams = sorted({str(s.team) for s in match.sensors if s.role in PLAYS})
    if len(teams) != 2 or any(s.team is None for s in match.sensors if s.role in PLAYS):
        raise ConfigError(f"two teams play, each with at least one player; got players of {teams or 'no team'}.")
    if not any(sensor.role is Role.BALL for sensor in match.sensors):
        raise ConfigError("a match needs a ball; no transmitter has the role 'ball'.")
    for player in match.players:
        if not player.feet:
            raise ConfigError(f"player {player.name!r} has no transmitter on a leg (or body); hits need one.")
    for period in match.periods:
        if period.low not in teams or not period.start < period.stop:
            raise ConfigError(f"a period has start < stop and one of the teams {teams} at goal 0; got {period}.")
    if not match.periods:
        raise ConfigError("a match needs at least one period: start, stop (ps), and the team that defends goal 0.")
    if not (match.ball_rate > 0 and match.player_rate > 0):
        raise ConfigError(f"rates are positions per second; got {match.ball_rate} and {match.player_rate}.")


def _one_team_each(sensors: Iterable[Sensor]) -> None:
    worn: dict[str, tuple[Role, str | None]] = {}
    for sensor in sensors:
        known = worn.setdefault(sensor.wearer, (sensor.role, sensor.team))
        if known != (sensor.role, sensor.team):
            raise ConfigError(
                f"{sensor.wearer!r} is given as {known[0]} of {known[1]} and as {sensor.role} of {sensor.team}; "
                f"a wearer has one role and one team."
            )
