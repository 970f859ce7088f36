"""The page of a match: pitch, timeline, truth, running, waits, delays."""

from slackline_soccer.report.build import approach, delays_by_kind, hierarchy_nodes, match_report, policy_waits
from slackline_soccer.report.looks import WORDS, counted
from slackline_soccer.report.page import match_page
from slackline_soccer.report.waits import comparison

__all__ = [
    "WORDS",
    "approach",
    "comparison",
    "counted",
    "delays_by_kind",
    "hierarchy_nodes",
    "match_page",
    "match_report",
    "policy_waits",
]
