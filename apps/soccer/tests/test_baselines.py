"""Without Slackline: arrival order, fixed watermarks, and the clairvoyant bound."""

import numpy as np
import pyarrow as pa
import pytest

from slackline_soccer import load_truth, run, simulate
from slackline_soccer.baselines import arrival_order, clairvoyant, fixed_watermark, in_order
from slackline_soccer.report import approach
from slackline_soccer.tracking.positions import MILLISECOND, SECOND


@pytest.fixture(scope="module")
def congested():
    simulation = simulate(25, seed=7, delays="congested")
    return simulation, simulation.table()


def mistakes(simulation, events):
    until = simulation.match.periods[0].start + 24 * SECOND
    found = approach("x", "fixed", events, load_truth(simulation.truth), until, wait=0.0)
    return found.missed + found.invented


def test_a_fixed_watermark_drops_what_arrives_at_or_below_it():
    simulation = simulate(2, seed=4)
    table = simulation.table()
    ts = table["ts"].to_numpy()
    late, largest = 0, ts[0]
    for one in ts[1:].tolist():
        late += one <= largest - 50 * MILLISECOND
        largest = max(largest, one)
    assert fixed_watermark(table, simulation.match, 50 * MILLISECOND).dropped == late > 0
    assert fixed_watermark(table, simulation.match, SECOND).dropped == 0


def test_in_order_sorts_by_event_time():
    table = pa.table({"ts": [3, 1, 2, 2], "sid": [1, 1, 2, 1]})
    assert in_order(table)["ts"].to_pylist() == [1, 2, 2, 3] and in_order(table)["sid"].to_pylist() == [1, 1, 2, 1]


def test_a_watermark_that_drops_nothing_finds_what_is_in_the_ordered_stream_and_waits_longer(congested):
    simulation, table = congested
    long, bound = fixed_watermark(table, simulation.match, 2 * SECOND), clairvoyant(table, simulation.match)
    assert long.dropped == 0
    assert [event.ts for event in long.events] == [event.ts for event in bound.events]
    assert long.waits["hit"] > bound.waits["hit"] + SECOND


def test_nothing_is_faster_than_the_bound_and_right(congested):
    """What the page of the demo says, on a shorter match: wrong, wrong or late, right and early."""
    simulation, table = congested
    match = simulation.match
    ours = run([table], match, queries=False, late_target=0.001)
    bound = clairvoyant(table, match)
    expert = fixed_watermark(table, match, 500 * MILLISECOND)
    assert mistakes(simulation, ours.events()) == mistakes(simulation, bound.events) == 0
    assert mistakes(simulation, arrival_order(table, match).events) > 0
    assert mistakes(simulation, fixed_watermark(table, match, 150 * MILLISECOND).events) > 0
    wait = ours.summary.waits["hit"].mean
    assert bound.waits["hit"] < wait < 0.6 * expert.waits["hit"]


def test_the_bound_waits_for_the_last_earlier_position():
    simulation = simulate(6, seed=3, delays="none")
    table = simulation.table()
    prompt = clairvoyant(table, simulation.match)
    ordered = run([table], simulation.match, queries=False, policy="ordered")
    waits = {kind: waits.mean for kind, waits in ordered.summary.waits.items() if waits.count}
    assert waits.keys() == prompt.waits.keys()
    assert np.allclose([prompt.waits[kind] for kind in waits], list(waits.values()), atol=MILLISECOND)
