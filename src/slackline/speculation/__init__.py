"""Speculation: detectors run ahead of their horizon, and go back when they were wrong (seed 001; dissertation 4)."""

from slackline.speculation.config import Speculation

__all__ = ["Speculation"]
