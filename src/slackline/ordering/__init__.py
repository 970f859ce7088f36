"""Ordering: when may an event go on? Clock, delays, readiness, and the frontiers they give."""
