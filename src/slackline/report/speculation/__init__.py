"""The page on speculation: how much earlier answers come, what is taken back, and what it costs."""

from typing import TYPE_CHECKING

from slackline.core.extras import lazy
from slackline.report.speculation.model import Moment, Run, SpeculationReport, Told

if TYPE_CHECKING:
    from slackline.report.speculation.page import speculation_page

__all__ = ["Moment", "Run", "SpeculationReport", "Told", "speculation_page"]

__getattr__ = lazy(__name__, {"speculation_page": "slackline.report.speculation.page"})
