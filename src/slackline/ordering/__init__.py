"""Ordering: when may an event go on? Clock, delays, readiness, and the frontiers they give."""

from slackline.ordering.replay import Replay, replay

__all__ = ["Replay", "replay"]
