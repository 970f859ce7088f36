"""The page on speculation: how much earlier answers come, what is taken back, and what it costs."""

from slackline.report.speculation.model import Moment, Run, SpeculationReport, Told
from slackline.report.speculation.page import speculation_page

__all__ = ["Moment", "Run", "SpeculationReport", "Told", "speculation_page"]
