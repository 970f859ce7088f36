"""Speculation: detectors run ahead of their watermark, and go back when they were wrong [Speculation; Thesis, 4]."""

from slackline.speculation.config import Speculation

__all__ = ["Speculation"]
