"""Events become occurrences of states, with what they shared their time with."""

from __future__ import annotations

import random

import numpy as np
import pytest

import slackline as sl
from slackline.core import codec
from slackline.core.errors import ConfigError
from slackline.occurrence.occurrences import NotAStateError, Occurrences, OpenState, OutOfOrderError


def reports(*rows, **more):
    """Events from (ts, device, state)."""
    return [sl.Event("report", ts=ts, source=device, state=state, **more) for ts, device, state in rows]


def found(events, detector=None):
    detector = detector or Occurrences("report")
    return [one for event in events for one in detector.on_event(event)]


def brief(occurrences):
    return [(one["device"], one["state"], one["start"], one["end"], one["next"]) for one in occurrences]


def random_day(seed, devices=6, events=300, repeats=True):
    """Changing and repeated states, many of them at the same time."""
    rng = random.Random(seed)
    rows = sorted((rng.randrange(2 * events), f"d{rng.randrange(devices)}") for _ in range(events))
    return [
        sl.Event("report", ts=ts, source=device, seq=n, state=rng.choice("abc" if repeats else "abcdefghij"))
        for n, (ts, device) in enumerate(rows)
    ]


def test_state_lasts_until_another_is_reported() -> None:
    occurrences = found(reports((0, "lamp", "off"), (8, "lamp", "on"), (20, "lamp", "off")))
    assert brief(occurrences) == [("lamp", "off", 0, 8, "on"), ("lamp", "on", 8, 20, "off")]
    assert [(one.type, one.ts, one["duration"]) for one in occurrences] == [
        ("occurrence", 8, 8),
        ("occurrence", 20, 12),
    ]


def test_event_that_repeats_the_state_continues_it() -> None:
    assert brief(found(reports((0, "lamp", "on"), (5, "lamp", "on"), (9, "lamp", "off")))) == [
        ("lamp", "on", 0, 9, "off")
    ]


def test_state_that_never_ends_is_held_and_gives_no_occurrence() -> None:
    detector = Occurrences("report")
    assert found(reports((3, "lamp", "on"), (5, "door", "open"), (9, "lamp", "on")), detector) == []
    assert detector.open_states() == [OpenState("lamp", "on", 3), OpenState("door", "open", 5)]


def test_two_states_at_one_time_give_an_occurrence_of_no_duration_that_overlaps_with_nothing() -> None:
    events = reports(
        (0, "door", "open"), (0, "lamp", "off"), (4, "lamp", "on"), (4, "lamp", "dim"), (6, "door", "closed")
    )
    off, on, opened = found(events)
    assert (on["state"], on["duration"], on["overlaps"], on["overlapping"]) == ("on", 0, [], 0)
    assert off["overlaps"] == [{"device": "door", "state": "open", "shared": 4}]
    assert [(one["state"], one["shared"]) for one in opened["overlaps"]] == [("off", 4), ("dim", 2)]


def test_devices_that_only_touch_do_not_overlap() -> None:
    events = reports((0, "lamp", "on"), (5, "lamp", "off"), (5, "door", "open"), (7, "door", "closed"))
    on, opened = found(events)
    assert (on["overlaps"], on["overlapping"]) == ([], 0)
    assert opened["overlaps"] == [{"device": "lamp", "state": "off", "shared": 2}]


def naive_overlaps(events):
    """Every occurrence with the time it shared with every other, the long way: also those still open, up to its end."""
    spans, since = [], {}
    for event in events:
        state, start = since.get(event.source, (None, None))
        if state != event["state"]:
            if state is not None:
                spans.append((event.source, state, start, event.ts))
            since[event.source] = event["state"], event.ts
    for device, (state, start) in since.items():
        spans.append((device, state, start, float("inf")))
    shared = {}
    for device, state, start, end in spans:
        others = [min(end, span[3]) - max(start, span[2]) for span in spans if span[0] != device]
        shared[device, state, start, end] = sorted((time for time in others if time > 0), reverse=True)
    return shared


@pytest.mark.parametrize("most", [1, 3, 8, 1000])
@pytest.mark.parametrize("seed", range(6))
def test_overlaps_are_those_that_shared_most_and_all_are_counted(seed: int, most: int) -> None:
    events = random_day(seed, repeats=seed % 2 == 0)
    naive = naive_overlaps(events)
    occurrences = found(events, Occurrences("report", overlaps=most))
    assert len(occurrences) > 100
    for one in occurrences:
        expected = naive[one["device"], one["state"], one["start"], one["end"]] if one["duration"] else []
        assert [other["shared"] for other in one["overlaps"]] == expected[:most]
        assert one["overlapping"] == len(expected)


def test_what_is_remembered_of_the_past_stays_small_however_long_a_state_lasts() -> None:
    rng = random.Random(1)
    detector = Occurrences("report", overlaps=4)
    kept = 0
    found(reports((0, "door", "open")), detector)
    for ts in range(1, 4000):
        found(reports((ts, f"d{rng.randrange(50)}", rng.random())), detector)
        kept = max(kept, len(detector.overlaps.retained))
    (opened,) = found(reports((4000, "door", "closed")), detector)
    assert opened["overlapping"] > 3000 and len(opened["overlaps"]) == 4
    assert kept < 100


def shrinking(number):
    """One device stays as it is, two others change faster and faster."""
    rows, ts = [(0, "door", "open")], 0
    for n in range(number):
        ts += number - n
        rows.append((ts, f"d{n % 2}", n))
    return reports(*rows, (ts + 1, "door", "closed"))


def test_what_is_remembered_is_bounded_even_if_each_state_is_shorter_than_the_last() -> None:
    detector = Occurrences("report", overlaps=4)
    for event in shrinking(1_000):
        detector.on_event(event)
        assert len(detector.overlaps.retained) <= 2 * 4 * 3  # three devices


@pytest.mark.parametrize("most", [1, 4])
def test_overlaps_are_exact_even_if_what_is_remembered_was_cut(most: int) -> None:
    events = shrinking(200)
    naive = naive_overlaps(events)
    occurrences = found(events, Occurrences("report", overlaps=most))
    assert occurrences[-1]["device"] == "door" and occurrences[-1]["overlapping"] == 200
    for one in occurrences:
        expected = naive[one["device"], one["state"], one["start"], one["end"]]
        assert [other["shared"] for other in one["overlaps"]] == expected[:most]


def test_equal_durations_and_what_is_over_are_not_remembered() -> None:
    detector = Occurrences("report", overlaps=4)
    found(reports((0, "door", "open"), *((ts, f"d{ts % 5}", ts) for ts in range(200))), detector)
    assert len(detector.overlaps.retained) <= 4  # all last 5, and the door is open all the time
    detector = Occurrences("report", overlaps=1000)
    found(reports(*((ts, f"d{ts % 5}", ts) for ts in range(200))), detector)
    assert len(detector.overlaps.retained) <= 5  # ended before the oldest open one began


def test_silence_is_noticed_behind_one_that_sent_earlier_and_again() -> None:
    events = reports((0, "lamp", "on"), (1, "door", "open"), (9, "lamp", "on"), (15, "lift", "up"))
    assert brief(found(events, Occurrences("report", silence=10))) == [("door", "open", 1, 11, None)]


def test_silence_may_have_a_unit_of_its_own() -> None:
    rows = [{"ts": ts, "source": who, "state": "on"} for ts, who in ((0, "lamp"), (1_000, "door"), (20_000, "lift"))]
    for unit, ends in (("ms", [10_000, 11_000]), ("us", [])):
        engine = sl.Engine(sl.Hierarchy([Occurrences("report", silence="10 s")]), unit=unit)
        outputs = engine.push(rows) + engine.close()
        assert [output.event["end"] for output in outputs] == ends
    with pytest.raises(sl.ConfigError, match="needs the unit of event times"):
        sl.Engine(sl.Hierarchy([Occurrences("report", silence="10 s")]))
    with pytest.raises(sl.ConfigError, match="a length of time of at least 1"):
        Occurrences("report", silence="ten")


def test_silent_device_is_no_longer_in_its_state() -> None:
    events = reports(
        (0, "lamp", "on"), (4, "door", "open"), (9, "door", "open"), (30, "door", "open"), (31, "lamp", "on")
    )
    lamp, door = found(events, Occurrences("report", silence=10))
    assert brief([lamp, door]) == [("lamp", "on", 0, 10, None), ("door", "open", 4, 19, None)]
    assert (lamp.ts, door.ts) == (30, 30)  # noticed with the next event of any device
    assert lamp["overlaps"] == [{"device": "door", "state": "open", "shared": 6}]
    assert door["overlaps"] == [{"device": "lamp", "state": "on", "shared": 6}]


def test_word_just_in_time_breaks_the_silence() -> None:
    assert (
        found(reports((0, "lamp", "on"), (10, "lamp", "on"), (20, "lamp", "on")), Occurrences("report", silence=10))
        == []
    )
    (one,) = found(reports((0, "lamp", "on"), (11, "lamp", "on")), Occurrences("report", silence=10))
    assert brief([one]) == [("lamp", "on", 0, 10, None)]


def test_subclass_may_derive_the_state_by_a_rule() -> None:
    class Warm(Occurrences):
        def state_of(self, event):
            return "warm" if event["degrees"] >= 20 else "cold"

    events = [sl.Event("report", ts=ts, source="hall", degrees=degrees) for ts, degrees in [(0, 18), (5, 19), (7, 22)]]
    assert brief(found(events, Warm("report"))) == [("hall", "cold", 0, 7, "warm")]


def test_state_may_be_in_another_field_and_of_numpy() -> None:
    events = [sl.Event("report", ts=ts, source=7, level=np.int64(ts)) for ts in (1, 2)]
    (one,) = found(events, Occurrences("report", state="level"))
    assert (one["device"], one["state"], type(one["state"])) == (7, 1, int)


def test_equal_numbers_are_one_state_named_as_it_was_first() -> None:
    (one,) = found(reports((0, "lamp", 1), (5, "lamp", True), (6, "lamp", 1.0), (7, "lamp", 0)))
    assert brief([one]) == [("lamp", 1, 0, 7, 0)] and type(one["state"]) is int
    (one,) = found(reports((0, "lamp", True), (5, "lamp", "True")))  # a text is never equal to a number
    assert one["state"] is True and one["next"] == "True"


@pytest.mark.parametrize("state", [None, [1], {"a": 1}, float("nan"), float("inf"), b"on"])
def test_what_cannot_be_a_state_is_refused_and_changes_nothing(state) -> None:
    detector = Occurrences("report")
    found(reports((0, "lamp", "on")), detector)
    before = codec.encode(detector.snapshot())
    with pytest.raises(NotAStateError, match="finite float"):
        found(reports((5, "lamp", state)), detector)
    assert codec.encode(detector.snapshot()) == before


def test_event_without_state_source_or_in_the_past_is_refused() -> None:
    detector = Occurrences("report")
    found(reports((5, "lamp", "on")), detector)
    with pytest.raises(KeyError, match="no field 'state'"):
        detector.on_event(sl.Event("report", ts=6, source="lamp"))
    with pytest.raises(NotAStateError, match="no source"):
        detector.on_event(sl.Event("report", ts=6, state="on"))
    with pytest.raises(OutOfOrderError, match="got the older"):
        found(reports((4, "lamp", "off")), detector)
    assert brief(found(reports((7, "lamp", "off")), detector)) == [("lamp", "on", 5, 7, "off")]


def test_engine_quarantines_events_without_a_state_and_continues() -> None:
    events = reports((0, "lamp", "on"), (1, "lamp", float("nan")), (2, "lamp", "off"))
    engine = sl.Engine(sl.Hierarchy([Occurrences("report")], clock="report"), on_error="quarantine")
    outputs = engine.push(events) + engine.close()
    assert brief([output.event for output in outputs]) == [("lamp", "on", 0, 2, "off")]
    assert [(one.event.ts, one.detector) for one in engine.quarantined] == [(1, "Occurrences")]


@pytest.mark.parametrize(
    "options", [{"silence": 0}, {"silence": 1.5}, {"silence": True}, {"overlaps": -1}, {"overlaps": "all"}]
)
def test_options_that_cannot_be_are_refused(options) -> None:
    with pytest.raises(ConfigError, match="whole number"):
        Occurrences("report", **options)


def test_no_event_types_are_refused() -> None:
    with pytest.raises(ConfigError, match="event types"):
        Occurrences()


def run(events, cut, *, restart=False, **options):
    """All events through an engine that waits until all have come, ``cut`` at a time."""
    engine = sl.Engine(sl.Hierarchy([Occurrences("report", silence=40)], clock="report"), **options)
    outputs = []
    for start in range(0, len(events), cut):
        outputs += engine.push(events[start : start + cut])
        if restart:
            engine = sl.Engine.load(engine.save(), sl.Hierarchy([Occurrences("report", silence=40)], clock="report"))
    outputs += engine.close()
    assert not engine.late
    return [(output.id, output.event) for output in outputs]


@pytest.mark.parametrize("cut", [1, 7, 100])
def test_arrival_cuts_and_restarts_change_nothing(cut: int) -> None:
    events = random_day(3)
    whole = run(events, len(events), policy="ordered")
    assert any(one["next"] is None for _, one in whole) and len(whole) > 100
    assert run(events, cut, policy="ordered") == whole
    assert run(events, cut, restart=True, policy="ordered") == whole
    shuffled = random.Random(cut).sample(events, len(events))
    assert run(shuffled, cut, policy=sl.Auto(warmup=len(events)), restart=True) == whole
