"""Hierarchies: how they show themselves, and clock types that no detector listens to."""

from __future__ import annotations

import logging

import pytest

import slackline as sl
from slackline.core.errors import HierarchyError


class Hot(sl.Detector):
    listens, publishes = ("reading", "threshold"), ("hot",)

    def on_event(self, event):
        return []


def test_a_hierarchy_and_a_detector_show_what_is_connected() -> None:
    assert repr(Hot()) == "<Hot: reading, threshold -> hot>"
    hierarchy = sl.Hierarchy([Hot()], clock="reading", clock_aids="threshold")
    assert repr(hierarchy) == (
        "Hierarchy([<Hot: reading, threshold -> hot>], clock=('reading',), clock_aids=('threshold',))"
    )


def test_all_sensor_types_set_stream_time_unless_clock_types_are_named() -> None:
    class Alarm(Hot):
        listens, publishes = ("hot", "reading"), ("alarm",)

    assert sl.Hierarchy([Hot(), Alarm()]).clock == ("reading", "threshold")
    assert sl.Hierarchy([Hot(), Alarm()], clock_aids="threshold").clock == ("reading",)
    with pytest.raises(HierarchyError, match="needs a clock"):
        sl.Hierarchy([Hot()], clock=())


def test_the_package_has_a_version() -> None:
    assert sl.__version__[0].isdigit()


def test_a_misspelled_clock_type_is_refused_with_the_closest_name() -> None:
    with pytest.raises(HierarchyError, match=r"'raeding'; did you mean 'reading'\? .*\['reading', 'threshold'\]"):
        sl.Hierarchy([Hot()], clock="raeding")
    with pytest.raises(HierarchyError, match=r"did you mean 'threshold'"):
        sl.Hierarchy([Hot()], clock="reading", clock_aids=("treshold",))


def test_a_clock_type_that_no_detector_listens_to_is_warned_about_unless_declared(caplog) -> None:
    with caplog.at_level(logging.WARNING, "slackline"):
        sl.Hierarchy([Hot()], clock=sl.EventType("second"))
        sl.Hierarchy([Hot()], clock=sl.EventType("raeding"))
        assert not caplog.records
        hierarchy = sl.Hierarchy([Hot()], clock="second")
    assert "no detector listens to clock type 'second'" in caplog.text
    assert hierarchy.sensor_types == ("reading", "second", "threshold")


def test_a_detector_that_joins_later_does_not_make_the_clock_suspicious() -> None:
    class Other(Hot):
        listens, publishes = ("seconds",), ("other",)

    assert sl.Hierarchy([Hot()], clock="second").extended(Other()).clock == ("second",)
