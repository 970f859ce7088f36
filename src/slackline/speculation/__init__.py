"""Speculation: detectors run ahead of their horizon, and go back when they were wrong [Speculation; Thesis, 4]."""

from slackline.speculation.config import Speculation

__all__ = ["Speculation"]
