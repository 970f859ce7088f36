"""Sources whose clocks are off: who is, by how much, and who only looks like it."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from slackline.core.codec import decode, encode
from slackline.core.errors import StateError
from slackline.core.time import MAX_TS, NEVER
from slackline.ordering.clock import JUMP_OFF, Clock
from slackline.ordering.input import Evidence, SensorInput
from slackline.ordering.skew import ALL, BLOCKS, KIND, KNOWN, LAG, OFFSET, SOURCES, N, Skews


class Room:
    """A type, the clock, and what is known of the type's sources."""

    def __init__(self, corrects: bool = False) -> None:
        self.input = SensorInput("in", 0, Evidence(), is_clock=True)
        self.clock = Clock(JUMP_OFF)
        self.skews = Skews(["in"], corrects)
        self.position = 0

    def take(self, source: Any, ts: int, wall: int = NEVER) -> int:
        slot = self.input.sources.slot(source)
        stamp = self.skews.tick(self.clock, self.input, slot, ts, self.position, wall)[1]
        self.position += 1
        return stamp

    def off(self) -> dict[Any, int]:
        return self.skews.skewed(self.input)


def rounds(room: Room, lags: dict[Any, int], n: int, start: int = 0, walled: bool = True) -> list[dict[Any, int]]:
    """Rounds, 10 apart, in which each source sends an event that lags; the time stamps as taken."""
    found = []
    for i in range(start, start + n):
        now = 10 * i + 10_000
        found.append({s: room.take(s, now - lag, now if walled else NEVER) for s, lag in lags.items()})
    return found


FOUR = {"a": 0, "b": 1, "c": 2, "d": 1}


@pytest.mark.parametrize("walled", [True, False])
@pytest.mark.parametrize("lag", [-900, 900])
def test_a_source_is_off_when_it_has_been_for_as_long_as_it_is_off(lag: int, walled: bool) -> None:
    room = Room(corrects=True)
    rounds(room, {**FOUR, "e": lag}, 80, walled=walled)
    assert room.off() == {}
    rounds(room, {**FOUR, "e": lag}, 60, start=80, walled=walled)
    assert set(room.off()) == {"e"} and abs(room.off()["e"] + lag) <= 12


@pytest.mark.parametrize("walled", [True, False])
def test_a_source_that_only_comes_first_or_last_in_a_round_has_no_offset(walled: bool) -> None:
    room = Room()
    rounds(room, dict.fromkeys("abcdefghijkl", 0), 400, walled=walled)
    assert room.off() == {}


def test_where_no_majority_agrees_no_source_has_an_offset() -> None:
    for lags in ({"a": 0, "b": 900}, {"a": 0, "b": 0, "c": 900, "d": 900}, {"a": 0, "b": 900, "c": 1800}):
        room = Room()
        rounds(room, lags, 400)
        assert room.off() == {}, lags
    room = Room()
    rounds(room, {"a": 0, "b": 0, "c": 900}, 400)
    assert set(room.off()) == {"c"}


def test_a_backlog_that_is_worked_off_is_not_off() -> None:
    """A source comes back with an hour of events, ten times as fast as they were made."""
    room = Room()
    rounds(room, {**FOUR, "e": 0}, 50)
    made = 10_500
    for i in range(3_650, 4_050):
        now = 10 * i + 10_000
        rounds(room, FOUR, 1, start=i)
        for _ in range(10):
            made += 10
            room.take("e", min(made, now), now)
        assert room.off() == {}


def test_one_absurd_time_stamp_and_one_pause_say_nothing() -> None:
    room = Room()
    rounds(room, {**FOUR, "e": 0}, 100)
    room.take("e", 10**12, 11_000)
    rounds(room, {**FOUR, "e": 0}, 100, start=10**6)
    assert room.off() == {}


def test_delays_on_top_make_no_difference() -> None:
    rng = np.random.default_rng(1)
    room = Room()
    for i in range(600):
        for source in "abcde":
            made = 10 * i + 10_000 + (3_000 if source == "e" else 0)
            room.take(source, made, 10 * i + 10_000 + int(rng.exponential(40)))
    assert set(room.off()) == {"e"} and abs(room.off()["e"] - 3_000) < 60


def test_an_offset_follows_a_drift() -> None:
    room = Room(corrects=True)
    for i in range(4_000):
        rounds(room, {**FOUR, "e": -i // 10}, 1, start=i)
    assert abs(room.off()["e"] - 400) <= 100


@pytest.mark.parametrize("lag", [-900, 900])
def test_from_the_first_event_after_a_clock_was_set_right_time_stamps_are_left_alone(lag: int) -> None:
    room = Room(corrects=True)
    while room.off().get("e") is None:
        rounds(room, {**FOUR, "e": lag}, 1, start=room.position // 5)
    [corrected] = rounds(room, {**FOUR, "e": lag}, 1, start=room.position // 5)
    assert abs(corrected["e"] - corrected["a"]) <= 12
    after = rounds(room, {**FOUR, "e": 1}, 8, start=room.position // 5)
    assert all(0 <= each["a"] - each["e"] <= 1 for each in after)
    assert room.off() == {}


def test_reporting_looks_at_few_arrivals_and_finds_the_same() -> None:
    room = Room()
    rounds(room, FOUR, ALL)
    rounds(room, {**FOUR, "e": -900}, 4_000, start=ALL)
    assert set(room.off()) == {"e"}
    assert room.skews.sources[:, N].sum() + 8 * (room.skews.ints[3] + 2) * 5 < room.position


def test_types_are_apart_and_wall_time_begins_anew() -> None:
    room = Room()
    other = SensorInput("other", 1, Evidence(), is_clock=False)
    rounds(room, {**FOUR, "e": 900}, 200, walled=False)
    assert set(room.off()) == {"e"}
    for i in range(200, 400):
        rounds(room, FOUR, 1, start=i, walled=False)
        for source in "abc":  # 5,000 late, all of them: that is how this type is
            slot = other.sources.slot(source)
            room.skews.tick(room.clock, other, slot, 10 * i + 5_000, room.position, NEVER)
    assert room.skews.skewed(other) == {}
    room.take("a", 15_000, 77)
    assert not room.skews.kinds[:, KNOWN].any()


def streams(seed: int, n: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    source = rng.integers(0, 6, n)
    now = 10 * np.arange(n) + 5_000
    off = np.array([0, 0, 1, 0, 1_500, -1_500])[source]
    return source, np.maximum(0, now + off - rng.integers(0, 40, n)), now


@pytest.mark.parametrize("corrects", [True, False])
@pytest.mark.parametrize("walled", [True, False])
def test_one_by_one_in_chunks_and_restored_is_the_same(corrects: bool, walled: bool) -> None:
    n = ALL + 3_000
    source, ts, now = streams(2, n)
    one = Room(corrects)
    stamps = [one.take(int(s), int(t), int(w) if walled else NEVER) for s, t, w in zip(source, ts, now, strict=True)]
    other, found, start = Room(corrects), [], 0
    for size in (1, 700, 3, 2_000, n):
        cut = slice(start, min(n, start + size))
        slots = other.input.sources.slots_of(source[cut], list(range(6)))
        rows = other.skews.rows_of(other.input).take(slots)
        arrival = now[cut] if walled else np.empty(0, dtype=np.int64)
        clk, m = np.empty(len(rows), dtype=np.int64), len(rows)
        found += other.skews.run(
            other.clock, rows, ts[cut].copy(), np.ones(m, dtype=np.bool_), other.input.key | slots, start, arrival,
            NEVER, clk,
        )[0].tolist()  # fmt: skip
        start += m
        saved, other.skews = other.skews.state(), Skews(["in"], corrects)
        other.skews.restore(decode(encode(saved)))
    assert found == stamps
    assert other.off() == one.off() and set(one.off()) == {4, 5}
    assert encode(other.skews.state()) == encode(one.skews.state())


def test_the_greatest_times_fit() -> None:
    room = Room(corrects=True)
    for i in range(200):
        for source, ts in (("a", 0), ("b", i), ("c", MAX_TS - i), ("d", MAX_TS)):
            room.take(source, ts, MAX_TS if i % 2 else 0)
    assert all(0 <= stamp <= MAX_TS for stamp in rounds(room, {"a": 0}, 1)[0].values())


@pytest.mark.parametrize(
    ("name", "value"),
    [
        (BLOCKS, 4), (KIND, 1), (LAG + 1, 2**62), (OFFSET, -(2**62)), (N, -1), ("heard", -1), ("kinds", 2),
        ("types", "x"),
    ],
)  # fmt: skip
def test_a_state_that_cannot_be_is_refused(name: Any, value: Any) -> None:
    room = Room()
    rounds(room, {**FOUR, "e": -900}, 200)
    state = decode(encode(room.skews.state()))
    if name == "types":
        state["sources"][value] = state["sources"].pop("in")
    elif name == "kinds":
        state["kinds"][0, KNOWN] = value
    elif name == "heard":
        state["ints"][SOURCES] = value
    else:
        state["sources"]["in"][1, name] = value
    with pytest.raises(StateError, match="skew"):
        Skews(["in"], False).restore(state)
