"""Types of another delay that help the clock along."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import slackline as sl
from slackline.core.errors import HierarchyError, StateError
from slackline.core.time import MAX_TS
from slackline.ordering.clock import ADVANCED, AIDS, CLK, GENERATION, JUMP_OFF, NO_CLOCK, REJECTED, SETS, STOOD, Clock


def wall(rng: np.random.Generator, n: int, gaps: tuple[float, float], delays: tuple[float, float]):
    """Time stamps and arrivals of events whose delays are between two bounds."""
    ts = np.cumsum(rng.uniform(*gaps, n)).astype(np.int64)
    return ts, ts + rng.uniform(*delays, n)


def merged(*streams: tuple[np.ndarray, np.ndarray]) -> list[tuple[float, int, int]]:
    """(arrival, time stamp, role) of all, in the order of arrival; the first stream sets the clock."""
    return sorted(
        (at, t, SETS + n) for n, (ts, arrival) in enumerate(streams) for t, at in zip(ts.tolist(), arrival, strict=True)
    )


@pytest.mark.parametrize(("clock_delay", "aid_delay"), [(50.0, 5.0), (5.0, 50.0), (20.0, 20.0)])
def test_an_aid_of_constant_delay_never_puts_the_clock_ahead_of_its_types(clock_delay: float, aid_delay: float) -> None:
    """What a clock event that arrives at this moment would say is an upper bound, and soon we are close to it."""
    rng = np.random.default_rng(3)
    setting = wall(rng, 60, (80, 120), (clock_delay, clock_delay))
    helping = wall(rng, 1500, (2, 6), (aid_delay, aid_delay))
    clock, alone = Clock(JUMP_OFF, aids=1), Clock(JUMP_OFF)
    behind, behind_alone = [], []
    for at, ts, role in merged(setting, helping):
        if at > setting[1][-1]:
            break
        clock.tick(ts, role, role)
        alone.tick(ts, SETS if role == SETS else NO_CLOCK, role)
        if clock.clk is not None:
            assert clock.clk <= at - clock_delay
            behind.append(at - clock_delay - clock.clk)
            behind_alone.append(at - clock_delay - (alone.clk or 0))
    assert np.mean(behind[-500:]) < 10 < 40 < np.mean(behind_alone[-500:])


def test_an_aid_whose_delay_varies_is_believed_for_the_least_of_it() -> None:
    """It puts the clock ahead now and then by a little, and less and less often."""
    rng = np.random.default_rng(4)
    setting = wall(rng, 400, (40, 60), (30, 30))
    helping = wall(rng, 6000, (2, 5), (0, 40))
    clock = Clock(JUMP_OFF, aids=1)
    ahead = []
    for at, ts, role in merged(setting, helping):
        clock.tick(ts, role, role)
        ahead.append((clock.clk or 0) - (at - 30))
    assert max(ahead[2000:]) < 10
    assert np.mean(np.array(ahead[2000:]) > 0) < 0.05


def test_an_aid_that_has_become_faster_is_found_out_by_the_next_clock_event() -> None:
    clock = Clock(JUMP_OFF, aids=1)
    for t in range(0, 100, 10):
        clock.tick(t, SETS, 0)
        clock.tick(t - 4, AIDS, 1)  # four behind
    assert (clock.tick(101, AIDS, 1), clock.clk) == (ADVANCED, 105)  # now it is not: this comes when the wall says 95
    assert (clock.tick(100, SETS, 0), clock.clk) == (STOOD, 105)
    clock.tick(109, AIDS, 1)
    assert clock.clk == 108  # from now on it is taken to be one ahead at least: 100 - 101


def test_a_slower_aid_is_believed_again_when_the_old_measurements_are_forgotten() -> None:
    clock = Clock(JUMP_OFF, aids=1)
    for t in range(0, 10 * GENERATION, 10):
        clock.tick(t, SETS, 0)
        clock.tick(t + 1, AIDS, 1)
    start = 10 * GENERATION
    for t in range(start, start + 20 * GENERATION + 20, 10):
        clock.tick(t, SETS, 0)
        clock.tick(t - 5, AIDS, 1)  # from now on it is six later
    last = start + 20 * GENERATION + 10
    assert clock.clk == last
    assert (clock.tick(last + 1, AIDS, 1), clock.clk) == (ADVANCED, last + 6)


def test_the_clock_advances_by_its_aids_when_its_own_type_is_gone() -> None:
    clock = Clock(JUMP_OFF, aids=2)
    for t in range(0, 100, 10):
        for role, lag in ((SETS, 0), (AIDS, 3), (AIDS + 1, -2)):
            clock.tick(t - lag, role, role)
    for t in range(100, 1000, 10):
        clock.tick(t, AIDS + 1, 3)
    assert clock.clk == 990 - 2


def test_an_aid_alone_does_not_start_the_clock() -> None:
    clock = Clock(JUMP_OFF, aids=1)
    assert [clock.tick(ts, AIDS, 1) for ts in (5, 6, 7)] == [STOOD] * 3
    assert clock.clk is None


def test_an_absurd_time_stamp_of_an_aid_is_not_believed() -> None:
    clock = Clock(100, aids=1)
    for t in range(0, 100, 10):
        clock.tick(t, SETS, 0)
        clock.tick(t, AIDS, 1)
    assert clock.tick(10**9, AIDS, 1) == REJECTED
    assert clock.tick(95, AIDS, 1) == ADVANCED


@given(st.lists(st.tuples(st.integers(0, 3), st.sampled_from([0, 1, 7, 2**61, MAX_TS - 1, MAX_TS])), max_size=60))
def test_the_clock_never_runs_back_nor_over(arrivals: list[tuple[int, int]]) -> None:
    """Also at the ends of time; a chunk gives what single events give; and it is saved and restored whole."""
    one, many, again = Clock(JUMP_OFF, aids=2), Clock(JUMP_OFF, aids=2), Clock(JUMP_OFF, aids=2)
    found = []
    for role, ts in arrivals:
        one.tick(ts, role, role)
        again.tick(ts, role, role)
        found.append(int(one.ints[CLK]))
        state = again.state()
        again = Clock(JUMP_OFF, aids=2)
        again.restore({name: value.copy() for name, value in state.items()})
    assert found == sorted(found) and all(clk <= MAX_TS for clk in found)
    roles, ts = (np.array([pair[i] for pair in arrivals], dtype=np.int64) for i in (0, 1))
    clk = np.empty(len(ts), dtype=np.int64)
    many.run(ts, roles, roles, clk)
    assert clk.tolist() == found
    for other in (many, again):
        assert (other.ints == one.ints).all()


@pytest.mark.parametrize(
    ("field", "value"), [(-7, -5), (-6, MAX_TS + 1), (-5, -1), (-5, GENERATION + 1), (-4, -(2**63))]
)
def test_a_state_of_aids_that_cannot_be_is_refused(field: int, value: int) -> None:
    ints = Clock(JUMP_OFF, aids=1).ints
    with pytest.raises(StateError, match="clock"):
        Clock(JUMP_OFF, aids=2).restore({"ints": ints, "mean_step": np.zeros(1)})
    ints[field] = value
    with pytest.raises(StateError, match="clock"):
        Clock(JUMP_OFF, aids=1).restore({"ints": ints, "mean_step": np.zeros(1)})


class Listener(sl.Detector):
    listens, publishes = ("a", "b"), ("c",)

    def on_event(self, event: sl.Event):
        yield event.derive("c")


def test_a_clock_aid_is_a_sensor_type_and_no_clock_type() -> None:
    assert sl.Hierarchy([Listener()], clock="a", clock_aids="z").sensor_types == ("a", "b", "z")
    with pytest.raises(HierarchyError, match=r"\['a'\] are in clock and in clock_aids"):
        sl.Hierarchy([Listener()], clock="a", clock_aids=("a", "b"))
    with pytest.raises(HierarchyError, match="'c' is published by detector 'Listener'"):
        sl.Hierarchy([Listener()], clock="a", clock_aids="c")
    more = sl.Hierarchy([Listener()], clock="a", clock_aids="b").extended(type("D", (Listener,), {"publishes": ()})())
    assert more.clock_aids == ("b",)


def test_a_full_engine_takes_what_an_aid_may_set_free() -> None:
    engine = sl.Engine(
        sl.Hierarchy([Listener()], clock="a", clock_aids="b"), policy=sl.Slack(margin=0), max_buffered=20
    )
    for t in range(0, 100, 10):
        engine.push([sl.Event("a", t), sl.Event("b", t)])
    assert engine.stats()["stream_time"] == 90
    engine.push([sl.Event("b", t) for t in range(100, 200, 10)])
    assert engine.stats()["stream_time"] == 190
