"""The page of synchronised recordings: order, waits, and who was waited for."""

from slackline.report.sync.page import sync_page
from slackline.report.sync.words import SyncWords

__all__ = ["SyncWords", "sync_page"]
