"""Self-contained HTML pages: one file, no network, readable in any browser."""

from slackline.report.match import MatchReport, match_page
from slackline.report.scale import Scale, params_text, share_text
from slackline.report.series import Point, Series
from slackline.report.speculation import SpeculationReport, speculation_page
from slackline.report.study import study_page, verdict
from slackline.report.sync import SyncWords, sync_page

__all__ = [
    "MatchReport",
    "Point",
    "Scale",
    "Series",
    "SpeculationReport",
    "SyncWords",
    "match_page",
    "params_text",
    "share_text",
    "speculation_page",
    "study_page",
    "sync_page",
    "verdict",
]
