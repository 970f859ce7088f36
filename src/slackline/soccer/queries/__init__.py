"""The four queries of the DEBS 2013 Grand Challenge, as detectors (dissertation 6.1)."""

from __future__ import annotations

from slackline.core.detector import Detector
from slackline.soccer.match import Match
from slackline.soccer.queries.heatmap import HeatMaps
from slackline.soccer.queries.possession import PossessionAnalysis
from slackline.soccer.queries.running import RunningAnalysis
from slackline.soccer.queries.seconds import Seconds
from slackline.soccer.queries.shots import ShotMotion
from slackline.soccer.queries.tables import heatmap_table, query_tables

__all__ = [
    "HeatMaps",
    "PossessionAnalysis",
    "RunningAnalysis",
    "Seconds",
    "ShotMotion",
    "heatmap_table",
    "queries",
    "query_tables",
]


def queries(match: Match) -> list[Detector]:
    """All four with their usual rates; they listen to positions and to what the match's detectors publish."""
    return [RunningAnalysis(match), Seconds(match), PossessionAnalysis(match), HeatMaps(match), ShotMotion(match)]
