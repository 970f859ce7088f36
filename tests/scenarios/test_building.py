"""A simulated building: what is planted is in it, what arrives is late but in order per device, and seeds repeat."""

from __future__ import annotations

from itertools import pairwise

import pytest

from scenarios.building import GATEWAY, HOUR, MINUTE, SECOND, building
from slackline.core.errors import ConfigError
from slackline.occurrence.dependencies import Dependencies
from slackline.occurrence.occurrences import Occurrences, Transitions


def sorted_events(day):
    return sorted(day.events, key=lambda event: (event.ts, event.type, event.source, event.seq))


def changes(day):
    """Per device (ts, state before, state after), leaving out what was lost in the outage."""
    states = {}
    for event in sorted_events(day):
        states.setdefault(event.source, []).append((event.ts, event["state"]))
    return {
        device: [(ts, before, after) for (_, before), (ts, after) in pairwise(mine) if before != after]
        for device, mine in states.items()
    }


@pytest.mark.parametrize("seed", [1, 2])
def test_planted_effects_follow_their_causes_in_time_and_as_often_as_planted(seed: int) -> None:
    day = building(seed, hours=60)
    happened = changes(day)
    for link in day.planted:
        causes = [ts for ts, *kind in happened[link.cause.device] if kind == [link.cause.before, link.cause.after]]
        causes = [ts for ts in causes if link.until is None or ts < link.until]
        effects = {ts for ts, *kind in happened[link.effect.device] if kind == [link.effect.before, link.effect.after]}
        followed = [any(ts + lag in effects for lag in range(link.least, link.most + 1)) for ts in causes]
        # A device that is active already cannot react: never more than planted, and a little less.
        assert len(causes) > 80
        assert link.probability - 0.3 < sum(followed) / len(causes) < link.probability + 0.06, link


def test_broken_link_brings_about_nothing_any_more() -> None:
    day = building(1, hours=60)
    (link,) = [link for link in day.planted if link.until is not None]
    assert link.until == 33 * HOUR
    alarms = [ts for ts, _, after in changes(day)[link.effect.device] if after == link.effect.after]
    assert sum(ts < link.until for ts in alarms) > 100
    assert sum(ts > link.until + link.most for ts in alarms) < 20  # it still beeps by itself


def test_each_device_delivers_in_order_with_the_delays_of_its_line() -> None:
    day = building(3, hours=12)
    assert list(day.arrivals) == sorted(day.arrivals) and len(day.arrivals) == len(day.events)
    most = {"wire": 200, "radio": 8 * SECOND, "gateway": GATEWAY}
    for device in day.devices:
        mine = [(arrival, event) for arrival, event in zip(day.arrivals, day.events, strict=True)]
        mine = [(arrival, event) for arrival, event in mine if event.source == device.name]
        assert {event.type for _, event in mine} == {device.type}
        assert {event["state"] for _, event in mine} <= {device.rest, device.active}
        assert [event.ts for _, event in mine] == sorted(event.ts for _, event in mine)
        assert [event.seq for _, event in mine] == sorted({event.seq for _, event in mine})
        assert all(0 < arrival - event.ts <= most[device.line] for arrival, event in mine)
        if device.line == "gateway":
            assert all(arrival % GATEWAY == 0 for arrival, _ in mine)


def test_events_arrive_out_of_order_and_in_bursts() -> None:
    day = building(3, hours=12)
    assert sum(later.ts < earlier.ts for earlier, later in pairwise(day.events)) > 0.1 * len(day.events)
    assert max(day.arrivals.count(arrival) for arrival in set(day.arrivals[:500])) >= 3


def test_dead_device_delivers_nothing_and_then_comes_back() -> None:
    day = building(4)
    outage = day.outage
    times = [event.ts for event in day.events if event.source == outage.device]
    assert outage.end - outage.start > HOUR
    assert not any(outage.start <= ts < outage.end for ts in times)
    assert min(times) < outage.start and max(times) > outage.end
    seqs = [event.seq for event in day.events if event.source == outage.device]
    assert sum(later > earlier + 1 for earlier, later in pairwise(seqs)) == 1  # the numbers show that some are lost


def test_seed_repeats_to_the_bit_and_another_gives_another_day() -> None:
    assert building(5, hours=3) == building(5, hours=3)
    assert building(5, hours=3).events != building(6, hours=3).events


def test_day_without_length_is_refused() -> None:
    with pytest.raises(ConfigError, match="positive"):
        building(1, hours=0)


@pytest.mark.parametrize("seed", [21, 22])
def test_occurrence_engine_finds_all_that_is_planted_and_links_nothing_that_is_not(seed: int) -> None:
    day = building(seed)
    occurrences = Occurrences("door", silence=5 * MINUTE)
    transitions, dependencies = Transitions(), Dependencies(window=8 * HOUR, max_lag=40 * SECOND)
    outputs = [
        found
        for event in sorted_events(day)
        for occurrence in occurrences.on_event(event)
        for transition in transitions.on_event(occurrence)
        for found in dependencies.on_event(transition)
    ]
    found = {
        (one["cause"], one["cause_after"], one["effect"], one["effect_after"]): one["lag"]
        for one in outputs
        if one.type == "dependency"
    }
    for link in day.planted:
        lag = found[link.cause.device, link.cause.after, link.effect.device, link.effect.after]
        assert link.least <= lag <= link.most
    linked = {frozenset((link.cause.device, link.effect.device)) for link in day.planted}
    group = {device.name: {device.name} for device in day.devices}
    for pair in linked:
        whole = set().union(*(group[name] for name in pair))
        group.update({name: whole for name in whole})
    assert all(effect in group[cause] for cause, _, effect, _ in found)
    (broken,) = [link for link in day.planted if link.until is not None]
    lost = [one for one in outputs if one.type == "dependency_lost" and one["reason"] == "unfollowed"]
    mine = [
        one for one in lost if (one["cause_after"], one["effect_after"]) == (broken.cause.after, broken.effect.after)
    ]
    assert len(mine) == 1 and broken.until < mine[0].ts < broken.until + 8 * HOUR
