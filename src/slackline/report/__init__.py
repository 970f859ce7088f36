"""Self-contained HTML pages: one file, no network, readable in any browser; and the elements of application pages.

Summaries and number formats need nothing more than Slackline; pages have plots, which need the extra ``report``, so
they are imported on first use.
"""

from typing import TYPE_CHECKING

from slackline.core.extras import lazy
from slackline.report.explain import answer_text, explain_page, summary_text
from slackline.report.summaries import (
    POLICIES,
    Scale,
    SyncSummary,
    count_text,
    disorder,
    late_sources_text,
    number_text,
    params_text,
    share_text,
    verdict,
)

if TYPE_CHECKING:
    from slackline.report.live import LivePage, Panel, stages_of
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
    from slackline.report.study import study_page
    from slackline.report.sync import sync_page

_STYLE = ("ACCENT", "FAINT", "INK", "LEGEND", "faded")
_LIVE = ("LivePage", "Panel", "stages_of")
_ELEMENTS = ("facts", "figure_card", "heading", "html_page", "paragraph", "table_card")

__all__ = [
    "ACCENT",
    "FAINT",
    "INK",
    "LEGEND",
    "POLICIES",
    "LivePage",
    "Panel",
    "Scale",
    "SyncSummary",
    "answer_text",
    "count_text",
    "disorder",
    "explain_page",
    "facts",
    "faded",
    "figure_card",
    "heading",
    "html_page",
    "late_sources_text",
    "number_text",
    "paragraph",
    "params_text",
    "share_text",
    "stages_of",
    "study_page",
    "summary_text",
    "sync_page",
    "table_card",
    "verdict",
]

__getattr__ = lazy(
    __name__,
    {
        **dict.fromkeys((*_STYLE, *_ELEMENTS), "slackline.report.page"),
        **dict.fromkeys(_LIVE, "slackline.report.live"),
        "study_page": "slackline.report.study",
        "sync_page": "slackline.report.sync",
    },
)
