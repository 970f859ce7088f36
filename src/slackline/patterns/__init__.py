"""Patterns: sequences of events as detectors (docs/concepts/patterns.md)."""

from slackline.patterns.expressions import Expression
from slackline.patterns.pattern import Pattern
from slackline.patterns.steps import Step

__all__ = ["Expression", "Pattern", "Step"]
