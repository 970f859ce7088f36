"""The page of synchronised recordings: order, waits, and who was waited for."""

from typing import TYPE_CHECKING

from slackline.core.extras import lazy
from slackline.report.sync.words import SyncWords

if TYPE_CHECKING:
    from slackline.report.sync.page import sync_page

__all__ = ["SyncWords", "sync_page"]

__getattr__ = lazy(__name__, {"sync_page": "slackline.report.sync.page"})
