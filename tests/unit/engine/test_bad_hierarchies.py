"""Hierarchies and options that cannot be say what to do."""

from __future__ import annotations

from typing import Any

import pytest
from tests.unit.engine.feeding import Copy, engine

import slackline as sl
from slackline.core.errors import (
    ConfigError,
    HierarchyError,
)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: [], "at least one detector"),
        (lambda: [Copy], "pass an instance"),
        (lambda: ["Copy"], "instances of slackline.Detector"),
        (lambda: [Copy(), Copy()], "two detectors are called 'Copy'"),
        (lambda: [Copy(), named(Copy(), "other")], "both publish 'out'"),
        (lambda: [linked("a", "b"), linked("b", "a")], "form a cycle"),
        (lambda: [linked("a", "a")], "form a cycle"),
        (lambda: [linked("", "x", listens=())], "listens to nothing"),
        (lambda: [linked("", "x", listens="in")], "must be a tuple"),
        (lambda: [linked("", "x", listens=sl.EventType("in"))], "must be a tuple"),
        (lambda: [linked("", "x", listens=("in",), unsorted=None)], "must be a tuple"),
        (lambda: [linked("", "x", listens=("in",), unsorted=("other",))], "does not listen to"),
        (lambda: [bare()], "neither on_event nor on_batch"),
        (lambda: [linked("", "x", listens=("in",), state_types=[int])], "state_types must be a tuple of classes"),
        (lambda: [linked("", "x", listens=("in",), fixed="limits")], r"fixed must be a tuple of attribute names"),
        (lambda: [linked("", "x", listens=("in",), version="2")], "version is a whole number of at least 1"),
        (lambda: [linked("", "x", listens=("in",), name=7)], "the name of a detector is a string"),
    ],
)
def test_an_impossible_hierarchy_says_what_to_do(make: Any, message: str) -> None:
    with pytest.raises(HierarchyError, match=message):
        sl.Hierarchy(make(), clock="in")


@pytest.mark.parametrize(("clock", "message"), [((), "needs a clock"), ("out", "published by detector 'Copy'")])
def test_a_clock_must_be_a_sensor_type(clock: Any, message: str) -> None:
    with pytest.raises(HierarchyError, match=message):
        sl.Hierarchy([Copy()], clock=clock)


def named(detector: sl.Detector, name: str) -> sl.Detector:
    detector.name = name
    return detector


def linked(source: str, target: str, **attributes: Any) -> sl.Detector:
    return type(f"From{source}", (Copy,), {"listens": (source,), "publishes": (target,), **attributes})()


def bare() -> sl.Detector:
    return type("Bare", (sl.Detector,), {"listens": ("in",)})()


@pytest.mark.parametrize(
    "options",
    [
        {"duplicates": "divert"}, {"policy": "fast"}, {"late": "drop"}, {"on_error": "ignore"}, {"overflow": "spill"},
        {"max_buffered": 0}, {"max_jump": 0},
    ],
)  # fmt: skip
def test_an_impossible_option_names_itself(options: dict[str, Any]) -> None:
    with pytest.raises(ConfigError, match=next(iter(options))):
        engine(**options)


@pytest.mark.parametrize(
    "options", [{"margin": -1}, {"margin": "much"}, {"window": 0}, {"timeout": -1}, {"warmup": -1}, {"warmup": True}]
)
def test_an_impossible_option_of_a_policy_names_itself(options: dict[str, Any]) -> None:
    for policy in (sl.Auto, sl.Ready):
        with pytest.raises(ConfigError, match=f"{next(iter(options))}=.* is not valid; it must be"):
            policy(**options)
