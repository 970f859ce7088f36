"""Self-contained HTML pages: one file, no network, readable in any browser; and what applications make theirs of."""

from slackline.report.page import (
    ACCENT,
    FAINT,
    INK,
    LEGEND,
    facts,
    faded,
    figure_card,
    heading,
    html_page,
    paragraph,
    table_card,
)
from slackline.report.scale import Scale, number_text, params_text, share_text
from slackline.report.series import Point, Series
from slackline.report.speculation import SpeculationReport, speculation_page
from slackline.report.study import study_page, verdict
from slackline.report.sync import SyncWords, sync_page

__all__ = [
    "ACCENT",
    "FAINT",
    "INK",
    "LEGEND",
    "Point",
    "Scale",
    "Series",
    "SpeculationReport",
    "SyncWords",
    "facts",
    "faded",
    "figure_card",
    "heading",
    "html_page",
    "number_text",
    "paragraph",
    "params_text",
    "share_text",
    "speculation_page",
    "study_page",
    "sync_page",
    "table_card",
    "verdict",
]
