"""Self-contained HTML pages: one file, no network, readable in any browser."""

from slackline.report.run import Point, RunReport, RunSection, RunTable, Series, run_page
from slackline.report.scale import Scale, params_text, share_text
from slackline.report.study import study_page, verdict

__all__ = [
    "Point",
    "RunReport",
    "RunSection",
    "RunTable",
    "Scale",
    "Series",
    "params_text",
    "run_page",
    "share_text",
    "study_page",
    "verdict",
]
