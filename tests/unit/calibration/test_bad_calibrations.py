"""Calibrations that are cut off, edited, or of something else: each says what is wrong and what to do."""

from __future__ import annotations

import copy
import json
from pathlib import Path
from typing import Any

import pytest

import slackline as sl
from slackline.calibration import Calibration, TypeDelay, calibrate, estimate


class Low(sl.Detector):
    listens, publishes = ("a", "b"), ("low",)

    def on_event(self, event: sl.Event):
        yield event.derive("low")


class High(sl.Detector):
    listens = ("low", "a")

    def on_event(self, event: sl.Event) -> None: ...


def hierarchy(*more: sl.Detector, clock: str = "a", clock_aids: tuple[str, ...] = ()) -> sl.Hierarchy:
    return sl.Hierarchy([Low(), High(), *more], clock=clock, clock_aids=clock_aids)


DELAYS = {"a": TypeDelay(0), "b": TypeDelay(7), "low": TypeDelay(12, processing=1, back=4)}
GOOD = Calibration.made(hierarchy(), DELAYS)


def edited(*path: str, value: Any = None) -> dict[str, Any]:
    """The content of a good file with one entry changed, or left out if the value is ``...``."""
    content = copy.deepcopy(GOOD.plain())
    *above, last = path
    entry = content
    for name in above:
        entry = entry[name]
    if value is ...:
        del entry[last]
    else:
        entry[last] = value
    return content


def test_what_was_written_is_read_again(tmp_path: Path) -> None:
    path = tmp_path / "delays.json"
    GOOD.save(path)
    assert Calibration.of(path) == Calibration.of(str(path)) == Calibration.of(json.loads(path.read_text())) == GOOD
    assert Calibration.of(GOOD) is GOOD
    assert path.read_text().count("\n") == 14  # an entry to a line, to be read and compared


def test_every_way_to_cut_a_file_off_is_an_error(tmp_path: Path) -> None:
    path, whole = tmp_path / "delays.json", tmp_path / "whole.json"
    GOOD.save(whole)
    text = whole.read_text().rstrip()
    for length in range(len(text)):
        path.write_text(text[:length])
        with pytest.raises(sl.ConfigError, match=r"not all of one: .* `slackline calibrate`"):
            sl.Engine(hierarchy(), calibration=path)


@pytest.mark.parametrize(
    ("content", "word"),
    [
        (b"\xff\xfe\x00", "not JSON"),
        (b"[" * 100_000, "not JSON"),
        (b"{}", 'does not say "slackline": "calibration"'),
        (b"[]", 'does not say "slackline": "calibration"'),
        (b'{"slackline": "calibration", "version": 1, "version": 1}', "'version' occurs twice"),
        (b'{"slackline": "calibration", "version": 2}', "is of version 2, this release of Slackline reads 1"),
    ],
)
def test_a_file_that_is_none_is_an_error(tmp_path: Path, content: bytes, word: str) -> None:
    path = tmp_path / "delays.json"
    path.write_bytes(content)
    with pytest.raises(sl.ConfigError, match=word):
        sl.Engine(hierarchy(), calibration=path)


def test_a_file_that_is_not_there_or_cannot_be_written_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(sl.ConfigError, match=r"cannot read the calibration .*No such file"):
        sl.Engine(hierarchy(), calibration=tmp_path / "none.json")
    with pytest.raises(sl.ConfigError, match="cannot write"):
        GOOD.save(tmp_path / "no" / "folder.json")


@pytest.mark.parametrize(
    ("content", "word"),
    [
        (edited("types", "b", "delay", value=-1), r"type 'b': delay=-1 is not valid; .* from 0 to"),
        (edited("types", "b", "delay", value=2**62 + 1), r"type 'b': delay=4611686018427387905 is not valid"),
        (edited("types", "b", "delay", value=10**40), "type 'b': delay=1000"),
        (edited("types", "b", "delay", value=7.0), "delay=7.0 is not valid; it must be a whole number"),
        (edited("types", "b", "delay", value="7"), "delay='7' is not valid"),
        (edited("types", "b", "delay", value=True), "delay=True is not valid"),
        (edited("types", "b", "delay", value=None), "delay=None is not valid"),
        (edited("types", "b", "delay", value=float("nan")), "delay=nan is not valid"),
        (edited("types", "low", "back", value=-4), "type 'low': back=-4"),
        (edited("types", "low", "back", value=...), r"type 'low' lacks \['back'\]"),
        (edited("types", "b", "back", value=4), r"type 'b' lacks \[\] and has the unknown entries \['back'\]"),
        (edited("types", "b", value=7), "type 'b': 7 must be an object"),
        (edited("types", "b", value=...), r"lacks the types \['b'\]"),
        (edited("types", "c", value={"delay": 1}), r"has the types \['c'\], which its detectors do not know"),
        (edited("types", value=[]), "types: .* must be an object"),
        (edited("types", value={1: {"delay": 1}}), "types: .* must be an object"),
        (edited("detectors", value="Low"), "detectors: 'Low' must be an object"),
        (edited("detectors", "Low", value=[]), "detector 'Low'.* must be an object"),
        (edited("detectors", "Low", "listens", value="ab"), "listens of detector 'Low': 'ab' must be a list of names"),
        (edited("detectors", "Low", "publishes", value=[1]), "publishes of detector 'Low'.* must be a list of names"),
        (edited("detectors", "Low", "speed", value=1), r"has the unknown entries \['speed'\]"),
        (edited("clock", value="a"), "clock: 'a' must be a list of names"),
        (edited("clock", value=...), r"lacks \['clock'\]"),
        (edited("note", value="mine"), r"has the unknown entries \['note'\]"),
    ],
)
def test_what_was_edited_by_hand_is_checked_entry_by_entry(content: dict[str, Any], word: str) -> None:
    with pytest.raises(sl.ConfigError, match=word):
        sl.Engine(hierarchy(), calibration=content)


class Third(sl.Detector):
    listens = ("a",)

    def on_event(self, event: sl.Event) -> None: ...


class Low2(Low):
    name = "Low"
    listens = ("a", "b", "c")


@pytest.mark.parametrize(
    ("other", "word"),
    [
        (hierarchy(Third()), r"detector 'Third' does not exist there, and listens to \['a'\] and publishes \[\] here"),
        (
            sl.Hierarchy([Low()], clock="a"),
            r"detector 'High' listens to \['a', 'low'\] .* there, and does not exist here",
        ),
        (
            sl.Hierarchy([Low2(), High()], clock="a"),
            r"'Low' listens to \['a', 'b'\] .* there, and listens to \['a', 'b', 'c'\]",
        ),
        (hierarchy(clock="b"), r"its clock is \['a'\], here it is \['b'\]"),
        (hierarchy(clock_aids=("b",)), r"its clock_aids is \[\], here it is \['b'\]"),
    ],
)
def test_a_calibration_of_another_hierarchy_is_refused_and_says_what_differs(other: sl.Hierarchy, word: str) -> None:
    with pytest.raises(sl.ConfigError, match=f"of another hierarchy: .*{word}.*--from"):
        sl.Engine(other, calibration=GOOD)


@pytest.mark.parametrize("given", [7, 1.5, b"delays.json", [("a", 1)], object()])
def test_what_is_no_calibration_at_all_is_refused(given: Any) -> None:
    with pytest.raises(sl.ConfigError, match="give the file that `slackline calibrate` wrote"):
        sl.Engine(hierarchy(), calibration=given)


def test_a_calibration_of_input_that_is_in_order_means_nothing() -> None:
    with pytest.raises(sl.ConfigError, match="has no effect under policy='ordered'"):
        sl.Engine(hierarchy(), policy="ordered", calibration=GOOD)


# Making one.


def test_a_recording_in_which_the_clock_never_moves_gives_no_delays() -> None:
    with pytest.raises(sl.ConfigError, match=r"none of 2 arrivals is of the clock types \['a'\]; .*unknown type"):
        calibrate(hierarchy(), [sl.Event("b", 1), sl.Event("x", 2)])
    with pytest.raises(sl.ConfigError, match="none of 0 arrivals"):
        calibrate(hierarchy(), [])


@pytest.mark.parametrize(
    ("sub_delays", "word"),
    [
        ({"x": {"jitter": 1}}, r"type 'x', which the hierarchy does not have; it has \['a', 'b', 'low'\]"),
        ({"a": {"back": 1}}, r"the sub-delay of 'a'='back' is unknown; choose one of \['jitter'\]"),
        ({"low": {"jitter": 1}}, "the sub-delay of 'low'='jitter' is unknown"),
        ({"low": {"network": -1}}, "network of 'low'=-1 is not valid"),
        ({"low": {"network": 0.5}}, "network of 'low'=0.5 is not valid"),
        ({"b": {"jitter": 2**62}, "low": {"back": 2**62}}, "the delay of 'low' would be .* more than all time"),
    ],
)
def test_sub_delays_that_cannot_be_are_refused(sub_delays: dict[str, Any], word: str) -> None:
    with pytest.raises(sl.ConfigError, match=word):
        estimate(GOOD, hierarchy(), sub_delays)


def test_a_sensor_type_that_the_old_calibration_lacks_is_named() -> None:
    class Hears(Third):
        listens = ("new",)

    with pytest.raises(sl.ConfigError, match=r"does not know the sensor type 'new'.* jitter"):
        estimate(GOOD, hierarchy(Hears()))
    assert estimate(GOOD, hierarchy(Hears()), {"new": {"jitter": 9}}).types["new"] == TypeDelay(9)
