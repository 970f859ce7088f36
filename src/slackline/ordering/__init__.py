"""Ordering: when may an event go on? Clock, delays, readiness, and the input watermarks they give."""

from slackline.ordering.compiled import announce_compilation

announce_compilation()
