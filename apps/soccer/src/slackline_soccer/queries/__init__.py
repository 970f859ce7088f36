"""The four queries of the DEBS 2013 Grand Challenge, as detectors [Thesis, 6.1]."""

from __future__ import annotations

from slackline import Detector
from slackline_soccer.model.match import Match
from slackline_soccer.queries.ball import PossessionAnalysis, ShotMotion
from slackline_soccer.queries.clock import Seconds
from slackline_soccer.queries.heatmap import HeatMaps
from slackline_soccer.queries.running import RunningAnalysis
from slackline_soccer.queries.tables import heatmap_table, query_tables

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
