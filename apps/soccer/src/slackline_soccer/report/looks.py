"""Colours and words that mean the same in every figure of a match."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from slackline.report import ACCENT
from slackline_soccer.model.match import Match
from slackline_soccer.tracking import MILLISECOND, SECOND

#: Blue and orange can be distinguished with any kind of colour vision, and in grey.
TEAMS = ("#1f5fa8", "#e07b00")
NEUTRAL = "#8a949e"
#: The policy of the run, and that of [Order] as the reference.
POLICIES = {"auto": ACCENT, "slack": "#8a949e", "ready": "#009e73"}
#: Slow to fast.
RUNNING = ("#e4e8ec", "#b9cfdd", "#7fb2c9", "#f2c14e", "#e57f2e", "#b3261e")
TRUTH = "#1f2933"

WORDS = {
    "hit": "hits",
    "pass": "passes",
    "double_pass": "double passes",
    "shot": "shots on goal",
    "blocked_shot": "blocked shots",
    "goal": "goals",
    "offside": "offsides",
    "possession": "possession",
    "ball_left": "ball out of an area",
    "ball_entered": "ball into an area",
    "ball_turned": "ball turned",
    "active_ball": "ball in play",
    "near": "near the ball",
    "not_near": "no longer near",
    "closest": "closest player",
    "kick": "kicks",
    "run": "runs (query 1)",
    "running": "current runs (query 1)",
    "running_total": "running totals (query 1)",
    "possession_player": "possession, players (query 2)",
    "possession_team": "possession, teams (query 2)",
    "heatmap": "heat maps (query 3)",
    "shot_motion": "shots followed (query 4)",
}


def words(kind: str) -> str:
    """An event type in plain words.

    >>> words("blocked_shot"), words("corner_kick")
    ('blocked shots', 'corner kick')
    """
    return WORDS.get(kind, kind.replace("_", " "))


def judged_words(kind: str) -> str:
    """The same for events that are compared with the truth: of the areas a ball may leave it knows the field alone.

    >>> judged_words("ball_left"), judged_words("hit")
    ('ball out of field', 'hits')
    """
    return "ball out of field" if kind == "ball_left" else words(kind)


def team_color(match: Match, team: str | None) -> str:
    return TEAMS[match.teams.index(team)] if team in match.teams else NEUTRAL


def ms(time: Any) -> Any:
    """A time, or a column of them, in milliseconds."""
    return time / MILLISECOND


def seconds(match: Match, ts: float) -> float:
    """Match time: seconds since the first period began."""
    return (ts - match.periods[0].start) / SECOND


def clock(match: Match, ts: float) -> str:
    """Match time as people write it, with tenths, because much happens within one second."""
    tenths = round(seconds(match, ts) * 10)
    sign, tenths = ("-", -tenths) if tenths < 0 else ("", tenths)
    return f"{sign}{tenths // 600}:{tenths // 10 % 60:02d}.{tenths % 10}"


def counted(number: int, one: str, many: str) -> str:
    """
    >>> counted(1, "pass", "passes"), counted(1234, "pass", "passes")
    ('1 pass', '1,234 passes')
    """
    return f"{number:,} {one if number == 1 else many}"


def listed(parts: Iterable[str]) -> str:
    """
    >>> listed(["a", "b", "c"]), listed(["a"])
    ('a, b and c', 'a')
    """
    *first, last = parts
    return f"{', '.join(first)} and {last}" if first else last
