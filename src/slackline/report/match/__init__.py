"""The page of a match: pitch, timeline, truth, running, waits, delays."""

from slackline.report.match.build import match_report
from slackline.report.match.measures import delays_by_kind, hierarchy_nodes, policy_waits
from slackline.report.match.model import (
    OUTCOMES,
    Delays,
    DetectorWait,
    EventWait,
    Heat,
    Mark,
    MatchReport,
    Node,
    Pass,
    PolicyWaits,
    Runner,
    Sameness,
    Shares,
    Shot,
    Span,
    Timeline,
    Verdict,
)
from slackline.report.match.page import match_page

__all__ = [
    "OUTCOMES",
    "Delays",
    "DetectorWait",
    "EventWait",
    "Heat",
    "Mark",
    "MatchReport",
    "Node",
    "Pass",
    "PolicyWaits",
    "Runner",
    "Sameness",
    "Shares",
    "Shot",
    "Span",
    "Timeline",
    "Verdict",
    "delays_by_kind",
    "hierarchy_nodes",
    "match_page",
    "match_report",
    "policy_waits",
]
