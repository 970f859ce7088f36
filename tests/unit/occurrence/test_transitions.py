"""A device goes from one state to another."""

from __future__ import annotations

import slackline as sl
from slackline.occurrence.occurrences import Occurrences, Transitions


def transitions(rows, **options):
    """What an engine with both levels finds in events (ts, device, state)."""
    hierarchy = sl.Hierarchy([Transitions(), Occurrences("report", **options)], clock="report")
    engine = sl.Engine(hierarchy, policy="ordered")
    events = [sl.Event("report", ts=ts, source=device, state=state) for ts, device, state in rows]
    outputs = engine.push(events) + engine.close()
    return [
        (one.event.ts, one.event["device"], one.event["before"], one.event["after"], one.event["lasted"])
        for one in outputs
        if one.event.type == "transition"
    ]


def test_transition_is_known_at_the_moment_of_the_change() -> None:
    rows = [(0, "lamp", "off"), (3, "door", "open"), (8, "lamp", "on"), (9, "lamp", "on"), (20, "lamp", "off")]
    assert transitions(rows) == [(8, "lamp", "off", "on", 8), (20, "lamp", "on", "off", 12)]


def test_the_first_state_of_a_device_is_no_transition() -> None:
    assert transitions([(5, "lamp", "on"), (6, "door", "open")]) == []


def test_device_that_falls_silent_goes_to_none_and_comes_back_from_nowhere() -> None:
    rows = [(0, "lamp", "on"), (30, "door", "open"), (31, "lamp", "off"), (32, "lamp", "on")]
    assert transitions(rows, silence=10) == [(30, "lamp", "on", None, 10), (32, "lamp", "off", "on", 1)]


def test_state_of_no_duration_is_passed_through() -> None:
    rows = [(0, "lamp", "off"), (4, "lamp", "on"), (4, "lamp", "dim")]
    assert transitions(rows) == [(4, "lamp", "off", "on", 4), (4, "lamp", "on", "dim", 0)]
