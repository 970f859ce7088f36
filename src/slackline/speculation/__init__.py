"""Speculation: detectors run ahead of their watermark, with rollback and retraction [Speculation; Thesis, 4]."""

from slackline.speculation.config import Speculation

__all__ = ["Speculation"]
