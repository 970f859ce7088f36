"""Self-contained HTML pages: one file, no network, readable in any browser; and what applications make theirs of.

The words and numbers of a result need nothing more than Slackline; pages have plots, which come with the extra
``report``, so they are imported when somebody asks for one.
"""

from typing import TYPE_CHECKING

from slackline.core.extras import lazy
from slackline.report.scale import Scale, number_text, params_text, share_text
from slackline.report.series import Point, Series
from slackline.report.speculation import SpeculationReport
from slackline.report.sync import SyncWords
from slackline.report.verdict import disorder, verdict

if TYPE_CHECKING:
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
    from slackline.report.speculation import speculation_page
    from slackline.report.study import study_page
    from slackline.report.sync import sync_page

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
    "disorder",
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

_LOOKS = ("ACCENT", "FAINT", "INK", "LEGEND", "faded")
_PIECES = ("facts", "figure_card", "heading", "html_page", "paragraph", "table_card")

__getattr__ = lazy(
    __name__,
    {
        **dict.fromkeys((*_LOOKS, *_PIECES), "slackline.report.page"),
        "speculation_page": "slackline.report.speculation.page",
        "study_page": "slackline.report.study",
        "sync_page": "slackline.report.sync.page",
    },
)
