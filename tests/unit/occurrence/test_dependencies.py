"""Which transitions regularly follow which: found with the right figures, not found by chance, lost when they end."""

from __future__ import annotations

import json
import random
from itertools import pairwise
from math import comb

import pytest

import slackline as sl
from slackline.core.errors import ConfigError
from slackline.occurrence.dependencies import Dependencies, sign_test
from slackline.occurrence.occurrences import Occurrences, OutOfOrderError, Transitions

HOUR = 3_600


def transition(ts, device, before="off", after="on"):
    return sl.Event("transition", ts=ts, device=device, before=before, after=after, lasted=1)


def pulses(rng, device, end, per_hour):
    """A device that goes on and off at random times."""
    times = sorted(rng.randrange(end) for _ in range(round(per_hour * end / HOUR)))
    return [(ts, device, *(("off", "on") if n % 2 == 0 else ("on", "off"))) for n, ts in enumerate(times)]


def found(rows, detector=None, **options):
    detector = detector or Dependencies(**{"window": 8 * HOUR, "max_lag": 30, **options})
    events = [transition(*row) for row in sorted(rows)]
    return [one for event in events for one in detector.on_event(event)]


def ends(event):
    return (event["cause"], event["cause_after"], event["effect"], event["effect_after"])


def planted(rng, end, *, per_hour=12, probability=0.8, lags=(4, 8), cause="a", effect="b"):
    """The cause goes on at random times, and the effect a little later, if at all."""
    rows = []
    for ts in range(0, end - 60, HOUR // per_hour):
        ts += rng.randrange(HOUR // per_hour // 2)
        rows.append((ts, cause))
        if rng.random() < probability:
            rows.append((ts + rng.randint(*lags), effect))
    return rows


@pytest.mark.parametrize("seed", range(3))
def test_planted_dependency_is_found_with_its_lag_and_confidence(seed: int) -> None:
    rng = random.Random(seed)
    detector = Dependencies(window=8 * HOUR, max_lag=30)
    rows = planted(rng, 10 * HOUR) + [row for n in range(4) for row in pulses(rng, f"decoy{n}", 10 * HOUR, 20)]
    assert [ends(event) for event in found(rows, detector)] == [("a", "on", "b", "on")]
    (one,) = detector.holding()
    assert 4 <= one.lag <= 8 and 1 <= one.spread <= 4
    assert one.causes == pytest.approx(96, abs=4)
    assert one.confidence == one.support / one.causes == pytest.approx(0.8, abs=0.12)
    assert one.chance < 0.1 and one.p_value < 1e-9


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("by_day", [False, True])
def test_devices_that_have_nothing_to_do_with_each_other_give_no_dependency(seed: int, by_day: bool) -> None:
    # By day, all are busy in the same hours. A base rate over the whole window would take that for a dependency.
    rng = random.Random(seed)
    rows = [row for n in range(12) for row in pulses(rng, f"d{n}", 16 * HOUR, 40)]
    if by_day:
        rows = [row for row in rows if row[0] // HOUR % 8 < 2]
    assert found(rows, max_lag=60, min_confidence=0.05) == []


def sessions(rng, *, gap, length=300, shape=lambda _: 1.0, number=100):
    """Somebody is in the room for a while, once an hour, and uses two devices, each without regard to the other."""
    rows = []
    for start in range(0, number * HOUR, HOUR):
        for device in ("coffee", "printer"):
            ts = start + rng.expovariate(1 / gap)
            while ts < start + length:
                if rng.random() < shape((ts - start) / length):
                    rows.append((int(ts), device))
                ts += rng.expovariate(1 / gap)
    return rows


@pytest.mark.parametrize(
    "max_lag, gap, more",
    [
        (30, 10, {}),
        (60, 30, {}),
        (30, 20, {}),
        (30, 10, {"length": 60}),
        (30, 5, {"shape": lambda part: part}),  # more and more is done, and then they leave
        (30, 5, {"shape": lambda part: 1 - part}),
    ],
)
@pytest.mark.parametrize("seed", range(2))
def test_devices_used_in_the_same_sessions_give_no_dependency(seed: int, max_lag: int, gap: int, more: dict) -> None:
    # Before the first use in a session nothing happened: that is no control for the time after it.
    rows = sessions(random.Random(seed), gap=gap, **more)
    assert found(rows, window=1_000 * HOUR, max_lag=max_lag) == []


@pytest.mark.parametrize("gap", [10, 60])
def test_planted_dependency_is_found_in_sessions_even_if_its_causes_are_close_together(gap: int) -> None:
    rng = random.Random(1)
    causes = [(ts, "a") for ts, device in sessions(rng, gap=gap) if device == "coffee"]
    rows = causes + [(ts + rng.randint(3, 6), "b") for ts, _ in causes if rng.random() < 0.9]
    assert [ends(event) for event in found(rows, window=1_000 * HOUR)] == [("a", "on", "b", "on")]


def test_figures_are_those_of_the_causes_that_have_settled() -> None:
    # 16 causes, 100 apart; all but the third are followed, after 11, 12, 14, 15 ... The last is still waiting.
    rows = [(100 * n, "a") for n in range(1, 17)] + [(100 * n + 10 + n, "b") for n in range(1, 17) if n != 3]
    detector = Dependencies(window=10_000, max_lag=30, min_support=5)
    (event,) = found(rows, detector)
    assert ends(event) == ("a", "on", "b", "on") and event.type == "dependency"
    one = detector.holding()[0]
    assert (one.support, one.causes, one.lag, one.chance) == (14, 15, 18, 0.0)
    assert one.spread == 22 - 15
    # The first has no past to compare with; of the other 14, 13 were followed and none preceded.
    assert one.p_value == pytest.approx(sign_test(13, 0))


def test_each_cause_counts_its_first_follower_only() -> None:
    rows = [(100 * n + lag, device) for n in range(20) for lag, device in [(0, "a"), (5, "b"), (9, "b")]]
    detector = Dependencies(window=10_000, max_lag=30)
    found(rows, detector)
    one = next(one for one in detector.holding() if one.cause == "a")
    assert (one.support, one.causes, one.lag) == (19, 19, 5)


def test_transitions_of_one_device_or_of_one_time_are_no_pair() -> None:
    rows = [(100 * n + lag, *row) for n in range(30) for lag, *row in [(0, "a"), (7, "a", "on", "off"), (0, "b")]]
    assert {(ends(event)[0], ends(event)[2]) for event in found(rows)} == {("b", "a")}  # b, then a goes off
    assert found([row for row in rows if row[1] == "a"]) == []
    assert found([row for row in rows if row[0] % 100 == 0]) == []


def test_one_effect_proves_nothing_for_a_whole_burst_of_causes() -> None:
    burst = [(0, "a"), (2, "a"), (4, "a"), (6, "a"), (8, "a"), (10, "b")]
    rows = [(500 * n + lag, device) for n in range(7) for lag, device in burst]
    detector = Dependencies(window=10_000, max_lag=30, min_support=5)
    assert found(rows, detector) == []
    ((cause, tally),) = [one for one in detector.following.kinds.items() if one[0][0] == "a"]
    assert (tally.settled, tally.whole) == (30, 25)
    pair = detector.following.pairs[cause]["b", "off", "on"]
    assert (pair.followed, pair.preceded, pair.after, pair.before) == (30, 0, 5, 0)


def test_what_was_never_in_one_window_does_not_count_together_after_a_pause() -> None:
    rows = [(ts + lag, device) for ts in (0, 40, 80) for lag, device in [(0, "a"), (5, "b")]] + [(200, "c")]
    options = {"max_lag": 30, "min_support": 3, "significance": 1.0}
    assert found(rows, window=100, **options) == []
    assert [event.type for event in found(rows, window=115, **options)] == ["dependency", "dependency_lost"]


def test_chain_shows_its_ends_too() -> None:
    rows = [(200 * n + lag, device) for n in range(30) for lag, device in [(0, "a"), (5, "b"), (12, "c")]]
    lags = {(event["cause"], event["effect"]): event["lag"] for event in found(rows)}
    assert lags == {("a", "b"): 5, ("b", "c"): 7, ("a", "c"): 12}


def test_dependency_is_lost_when_the_effects_stay_away() -> None:
    rng = random.Random(1)
    rows = planted(rng, 10 * HOUR, probability=1.0)
    rows = [row for row in rows if row[1] == "a" or row[0] < 5 * HOUR]
    begun, lost = found(rows, window=2 * HOUR)
    assert (begun.type, lost.type, lost["reason"]) == ("dependency", "dependency_lost", "unfollowed")
    assert 5 * HOUR < lost.ts < 7 * HOUR and lost["confidence"] < 0.5 and ends(lost) == ends(begun)


def test_dependency_is_lost_when_its_cause_has_become_rare() -> None:
    rows = planted(random.Random(1), 3 * HOUR, probability=1.0) + [(ts, "clock") for ts in range(0, 9 * HOUR, 600)]
    begun, lost = found(rows, window=2 * HOUR)
    assert (lost.type, lost["reason"], lost["confidence"]) == ("dependency_lost", "rare", 1.0)
    assert ends(begun) == ends(lost)


def test_dependency_is_lost_when_the_effect_happens_all_the_time() -> None:
    rng = random.Random(2)
    rows = planted(rng, 10 * HOUR, probability=1.0)
    rows += [(ts, "b") for ts in range(5 * HOUR, 10 * HOUR, 10)]
    events = [event for event in found(rows, window=2 * HOUR) if event["cause"] == "a"]
    assert [(event.type, event.get("reason")) for event in events] == [
        ("dependency", None),
        ("dependency_lost", "chance"),
    ]
    assert events[1]["chance"] > 0.5


def test_dependency_of_which_too_little_is_left_to_say_is_lost_as_rare() -> None:
    # Many causes, then ten in a window, all but two of them followed: as regular as before, but it could be chance.
    regular = [(100 * n + lag, device) for n in range(30) for lag, device in [(0, "a"), (5, "b")]]
    seldom = [
        (4_000 + 300 * n + lag, device) for n in range(12) for lag, device in [(0, "a"), (5, "b")] if n % 5 or lag == 0
    ]
    begun, lost = found(regular + seldom, window=3_100)
    assert (begun.type, lost.type, lost["reason"]) == ("dependency", "dependency_lost", "rare")
    assert lost["causes"] >= 10 and lost["p_value"] > 0.001


def test_dependency_at_the_edge_does_not_come_and_go() -> None:
    rows = planted(random.Random(3), 100 * HOUR, probability=0.5)
    events = found(rows, min_confidence=0.5)
    assert 1 <= len(events) <= 5


def naive(rows, now, window, max_lag):
    """Support, causes and lags of every pair, the long way, from all transitions in the window."""
    settled = [row for row in rows if row[0] + max_lag < now and row[0] + window >= now]
    counts = {}
    for ts, device in settled:
        kinds = {other: at - ts for at, other in reversed(rows) if other != device and 0 < at - ts <= max_lag}
        for other, lag in kinds.items():
            counts.setdefault((device, other), []).append(lag)
    return {pair: sorted(lags) for pair, lags in counts.items()}, settled


@pytest.mark.parametrize("seed", range(4))
def test_counts_kept_as_they_change_are_those_counted_afresh(seed: int) -> None:
    rng = random.Random(seed)
    rows = sorted((rng.randrange(3_000), f"d{rng.randrange(5)}") for _ in range(400))
    detector = Dependencies(window=700, max_lag=40)
    for n, row in enumerate(rows):
        detector.on_event(transition(*row))
        if n % 20:
            continue
        counts, settled = naive(rows[: n + 1], row[0], 700, 40)
        following = detector.following
        held = {
            (cause[0], effect[0]): following.lags(cause, effect)
            for cause, effects in following.pairs.items()
            for effect, pair in effects.items()
            if pair.followed
        }
        assert held == counts
        assert all(
            pair.followed == len(following.lags(cause, effect)) and 0 <= pair.after <= pair.followed
            for cause, effects in following.pairs.items()
            for effect, pair in effects.items()
        )
        assert [cause.ts for cause in following.settled] == [ts for ts, _ in settled]
        assert sum(tally.settled for tally in following.kinds.values()) == len(settled)
        assert following.size == sum(cause.size for cause in (*following.settled, *following.waiting))
        assert detector.frequent == sum(tally.seen >= 10 for tally in following.kinds.values())


@pytest.mark.parametrize("seed", range(4))
def test_read_backwards_what_came_after_came_before(seed: int) -> None:
    # The law that the comparison rests on. Many transitions are at the same time or max_lag apart.
    rng = random.Random(seed)
    rows = [(100 + rng.randrange(400), f"d{rng.randrange(4)}") for _ in range(150)]

    def counts(rows):
        detector = Dependencies(window=10_000, max_lag=8)
        found([(0, "first"), *rows, (600, "last")], detector)
        return {
            (cause[0], effect[0]): (pair.followed, pair.preceded, pair.after, pair.before)
            for cause, effects in detector.following.pairs.items()
            for effect, pair in effects.items()
        }

    backwards = counts([(600 - ts, device) for ts, device in rows])
    assert counts(rows) == {pair: (b, a, d, c) for pair, (a, b, c, d) in backwards.items()}
    for (cause, effect), (*_, after, before) in backwards.items():
        mine = sorted(row for row in rows if row[1] in (cause, effect))
        stretches = 1 + sum(later[0] - earlier[0] > 8 for earlier, later in pairwise(mine))
        assert abs(after - before) <= stretches


def test_after_a_long_pause_nothing_old_is_left() -> None:
    detector = Dependencies(window=1_000, max_lag=30, min_support=5)
    rows = [(50 * n + lag, device) for n in range(18) for lag, device in [(0, "a"), (5, "b")]]
    begun, lost = found([*rows, (10**6, "c")], detector)
    assert (begun.type, lost.type, lost["reason"]) == ("dependency", "dependency_lost", "rare")
    following = detector.following
    assert (following.pairs, list(following.settled), list(following.kinds)) == ({}, [], [("c", "off", "on")])
    assert (detector.held, detector.frequent, following.size) == ({}, 0, 1)


def test_limit_shortens_the_window_and_says_so() -> None:
    rng = random.Random(4)
    rows = planted(rng, 20 * HOUR, probability=1.0) + pulses(rng, "decoy", 20 * HOUR, 60)
    detector = Dependencies(window=8 * HOUR, max_lag=30, max_size=300)
    events = found(rows, detector)
    cuts = [event for event in events if event.type == "dependencies_cut"]
    assert [event.type for event in events if event.type != "dependencies_cut"] == ["dependency"]
    assert 1 <= len(cuts) <= 3 and detector.cut > len(cuts)
    assert cuts[0]["max_size"] == 300 and 0 < cuts[0]["reaches"] < 8 * HOUR
    assert detector.following.size <= 300


def test_limit_holds_even_if_everything_happens_at_once() -> None:
    detector = Dependencies(window=1_000, max_lag=100, max_size=50)
    events = found([(0, "first"), *((200 + n, f"d{n}") for n in range(60))], detector)
    assert detector.following.size <= 50 and detector.cut > 0
    assert [event.type for event in events] == ["dependencies_cut"]
    # What came before these is partly forgotten, so none may serve for the comparison with what comes after.
    assert not any(cause.whole for cause in detector.following.waiting)


@pytest.mark.parametrize("after, before", [(4, 0), (9, 2), (0, 5), (2, 9), (7, 7), (6, 7), (30, 25), (1, 1)])
def test_p_value_is_the_exact_tail(after: int, before: int) -> None:
    throws = after + before
    ways = sum(comb(throws, heads) for heads in range(after, throws + 1))
    assert sign_test(after, before) == pytest.approx(ways / 2**throws, rel=1e-9)


def test_p_value_of_many_throws_neither_overflows_nor_vanishes() -> None:
    assert sign_test(60_000, 1_000) < 1e-300
    assert sign_test(50_000, 50_000) == pytest.approx(0.5, abs=0.01)
    assert sign_test(1_000, 60_000) == sign_test(0, 60_000) == 1.0


@pytest.mark.parametrize(
    "options",
    [
        {"window": 60},
        {"window": "1 h"},
        {"max_lag": 0},
        {"min_support": 1},
        {"min_confidence": 0},
        {"min_confidence": 1.1},
        {"significance": float("nan")},
        {"max_size": 0},
    ],
)
def test_options_that_cannot_be_are_refused(options) -> None:
    with pytest.raises(ConfigError):
        Dependencies(**{"window": 1_000, "max_lag": 30, **options})


def test_older_transition_is_refused() -> None:
    detector = Dependencies(window=1_000, max_lag=30)
    detector.on_event(transition(7, "a"))
    with pytest.raises(OutOfOrderError, match="late='divert'"):
        detector.on_event(transition(6, "b"))


def hierarchy():
    detectors = [
        Dependencies(window=HOUR, max_lag=30, min_support=5),
        Transitions(),
        Occurrences("report", silence=900),
    ]
    return sl.Hierarchy(detectors, clock="report")


def run(events, cut, *, restart=False, **options):
    engine = sl.Engine(hierarchy(), **options)
    outputs = []
    for start in range(0, len(events), cut):
        outputs += engine.push(events[start : start + cut])
        if restart:
            engine = sl.Engine.load(engine.save(), hierarchy())
    outputs += engine.close()
    assert not engine.late
    return {output.id: output.event for output in outputs}


@pytest.mark.parametrize("cut", [3, 50])
def test_arrival_cuts_and_restarts_change_nothing_from_events_to_dependencies(cut: int) -> None:
    rng = random.Random(5)
    reports = [(ts, device, "on") for ts, device, *_ in planted(rng, 3 * HOUR, per_hour=20, probability=0.9)]
    reports += [(ts + 10, device, "off") for ts, device, _ in reports]
    reports = [row for row in reports if row[1] == "a" or row[0] < 1.5 * HOUR]
    events = [sl.Event("report", ts, device, n, state=state) for n, (ts, device, state) in enumerate(sorted(reports))]
    whole = run(events, len(events), policy="ordered")
    assert {"occurrence", "transition", "dependency", "dependency_lost"} == {event.type for event in whole.values()}
    payloads = [dict(event.payload) for event in whole.values()]
    assert json.loads(json.dumps(payloads)) == payloads
    assert run(events, cut, policy="ordered") == whole
    assert run(events, cut, policy="ordered", restart=True) == whole
    shuffled = random.Random(cut).sample(events, len(events))
    assert run(shuffled, cut, policy=sl.Auto(warmup=len(events)), restart=True) == whole
