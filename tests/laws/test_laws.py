"""Laws 1, 2, 3, 4 and 6 (docs/concepts/laws.md) over random worlds."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from typing import Any
from unittest import mock

from hypothesis import assume, given
from hypothesis import strategies as st
from tests.laws.worlds import World, cuts, push_piece, run, settings, worlds

import slackline as sl
from slackline.calibration import Calibration, TypeDelay, calibrate
from slackline.engine import engine as engine_module


@given(world=worlds(), options=settings(), data=st.data())
def test_law_1_a_detector_sees_its_input_in_the_total_order(world: World, options: dict[str, Any], data: Any) -> None:
    result = run(world, data.draw(cuts(len(world.events))), {**options, "late": "divert"})
    for plan in world.plans:
        seen = [entry for entry in result.seen[plan.name] if entry[1] not in plan.unsorted]
        assert seen == sorted(seen)
        if not plan.unsorted:  # timers come after all events up to their time, unless that has passed
            for n, at, _ in result.fired[plan.name]:
                assert all(ts > at for ts, *_ in seen[n:])


@given(world=worlds(), options=settings(), data=st.data())
def test_law_2_nothing_is_lost(world: World, options: dict[str, Any], data: Any) -> None:
    """Per detector, type and source, always: arrived = delivered + late + quarantined + duplicates + buffered."""
    pieces = data.draw(cuts(len(world.events)))
    stop = data.draw(st.integers(0, len(pieces)))
    engine = sl.Engine(world.hierarchy(), **{**options, "duplicates": "keep"})
    outputs: list[sl.Output] = []
    start = 0
    for size, form in pieces[:stop]:
        outputs += push_piece(engine, world.events[start : start + size], form, world.times(start, size))
        start += size
    late, quarantined, duplicates = engine.drain()
    assert engine.duplicates == engine.stats()["duplicates"] == len(duplicates)
    assert all(world.events[item.position] == item.event for item in duplicates)
    set_aside = Counter((item.event.type, item.event.source) for item in (*quarantined, *duplicates))
    arrived = [(e.type, e.source) for e in world.events[:start]] + [(o.event.type, o.event.source) for o in outputs]
    buffered = engine.buffered()
    for plan in world.plans:
        if plan.keyed:  # what its instances have seen is theirs
            continue
        expected = Counter(key for key in arrived if key[0] in plan.listens)
        expected -= Counter({key: n for key, n in set_aside.items() if key[0] in plan.listens})
        found = Counter((kind, source) for _, kind, source, _ in engine.detectors[plan.name].seen)
        found += Counter((e.event.type, e.event.source) for e in late if e.detector == plan.name)
        found += Counter((e.type, e.source) for e in buffered[plan.name])
        assert found == expected, plan.name


@given(world=worlds(), options=settings(), data=st.data())
def test_law_3_cutting_into_pushes_changes_nothing(world: World, options: dict[str, Any], data: Any) -> None:
    """The same outputs, late events, inputs and statistics (K, watermarks, waits, sources) as event by event."""
    n = len(world.events)
    one_by_one = run(world, [(1, "events")] * n, options)
    at_once = run(world, [(n, "table")], options)
    # Which lists are processed as a chunk is drawn, too: the drivers must agree wherever the border lies.
    border = data.draw(st.sampled_from([1, 2, 7, engine_module.CHUNK]))
    with mock.patch.multiple(engine_module, CHUNK=border, CHUNK_PER_OPERATOR=0):
        somehow = run(world, data.draw(cuts(n)), options)
    # Where wall time lets events go between two arrivals, detectors take turns there too.
    in_turn = (lambda outputs: outputs) if world.now is None else (lambda outputs: sorted(outputs, key=lambda o: o.id))
    for other in (at_once, somehow):
        assert in_turn(other.outputs) == in_turn(one_by_one.outputs)
        assert other.late == one_by_one.late
        assert other.quarantined == one_by_one.quarantined
        assert other.duplicates == one_by_one.duplicates
        assert other.seen == one_by_one.seen
        assert other.stats[-1] == one_by_one.stats[-1]
    # Also in between: after the same arrivals the engines are in the same state.
    assert at_once.stats[0] == one_by_one.stats[n - 1]


@given(world=worlds(), options=settings(), data=st.data())
def test_law_4_arrival_order_is_irrelevant_while_nothing_is_late(
    world: World, options: dict[str, Any], data: Any
) -> None:
    assume(not any(plan.unsorted for plan in world.plans))
    options = {**options, "skew": "report"}  # corrected time stamps are others, and what is off depends on arrivals
    pieces = data.draw(cuts(len(world.events)))
    result = run(world, pieces, options)
    in_order = replace(world, events=tuple(sorted(world.events, key=lambda e: (e.ts, e.type, e.source, e.seq))))
    # The sorted stream is the reference only if nothing is late there either (a detector may set events back).
    reference = run(
        in_order,
        [(len(world.events), "events")],
        {"late": options["late"], "max_jump": options["max_jump"], "policy": sl.Auto(warmup=10**6)},
    )
    for stats in (result.stats[-1], reference.stats[-1]):
        assume(not stats["quarantined"] and not any(stats["detectors"][plan.name]["late"] for plan in world.plans))
    assert result.seen == reference.seen
    key = lambda o: o.id  # noqa: E731
    assert [(o.id, o.event) for o in sorted(result.outputs, key=key)] == [
        (o.id, o.event) for o in sorted(reference.outputs, key=key)
    ]


@given(world=worlds(), options=settings(), data=st.data())
def test_law_6_restart_changes_nothing(world: World, options: dict[str, Any], data: Any) -> None:
    pieces = data.draw(cuts(len(world.events)))
    undisturbed = run(world, pieces, options)
    restarted = run(world, pieces, options, restart=True)
    assert restarted.outputs == undisturbed.outputs
    assert restarted.late == undisturbed.late
    assert restarted.duplicates == undisturbed.duplicates
    assert restarted.seen == undisturbed.seen
    assert restarted.stats[-1] == undisturbed.stats[-1]


@given(world=worlds(), options=settings(), delay=st.integers(0, 500), data=st.data())
def test_laws_1_3_and_6_hold_from_a_calibration(world: World, options: dict[str, Any], delay: int, data: Any) -> None:
    assume(not isinstance(options["policy"], sl.Ordered))
    known = {kind: TypeDelay(delay, back=delay // 3) for kind in world.types}
    options = {**options, "late": "divert", "calibration": Calibration.made(world.hierarchy(), known)}
    pieces, n = data.draw(cuts(len(world.events))), len(world.events)
    one_by_one, somehow = run(world, [(1, "events")] * n, options), run(world, pieces, options, restart=True)
    for plan in world.plans:
        seen = [entry for entry in one_by_one.seen[plan.name] if entry[1] not in plan.unsorted]
        assert seen == sorted(seen)
    in_turn = (lambda outputs: outputs) if world.now is None else (lambda outputs: sorted(outputs, key=lambda o: o.id))
    assert in_turn(somehow.outputs) == in_turn(one_by_one.outputs)
    assert (somehow.late, somehow.seen) == (one_by_one.late, one_by_one.seen)
    assert somehow.stats[-1] == one_by_one.stats[-1]


@given(world=worlds(kinds=("none", "bounded")), margin=st.sampled_from([0, 0.5, 2.0]), data=st.data())
def test_no_sensor_event_is_late_from_a_calibration_of_the_very_stream(world: World, margin: float, data: Any) -> None:
    """Under slack, which waits for what it knows; whatever the types of the clock and their delays.

    What comes after the last move of the clock is never measured.
    """
    known = calibrate(world.hierarchy(), world.events)
    start = {"policy": sl.Slack(margin=margin), "max_jump": None, "late": "divert", "calibration": known}
    result = run(world, data.draw(cuts(len(world.events))), start)
    setting = [position for position, event in enumerate(world.events) if event.type in world.clock]
    last = max(setting, key=lambda position: world.events[position].ts, default=0)
    sensors = world.hierarchy().sensor_types
    assert not [late for late in result.late if late.event.type in sensors and late.position <= last]
