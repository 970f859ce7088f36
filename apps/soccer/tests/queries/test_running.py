"""Query 1 against its definition, written out in plain Python, and on examples whose answers are known."""

from __future__ import annotations

import numpy as np
import pytest
from apps.soccer.tests.queries.small import (
    excerpt,
    feed,
    feed_with_restart,
    of_type,
    small_match,
    steady,
    together,
    walk,
)

from slackline.core.errors import SlacklineError
from slackline_soccer.queries.running import INTENSITIES, LIMITS, TICK, TICKS, WINDOWS, RunningAnalysis
from slackline_soccer.tracking import SECOND


def speed_of(player, samples, start, now):
    """m/s: the mean over feet of the mean over what each said in the last second, but not before the period."""
    feet = []
    for sid in player.feet:
        said = [v for ts, v in samples[sid] if max(now - SECOND, start) <= ts < now]
        if said:
            feet.append(sum(said) / len(said))
    return sum(feet) / len(feet) / 1e6 if feet else None


def by_definition(match, given):
    """(rows of `running` per tick, ended runs, seconds): everything, tick by tick, from the definition."""
    running_at, runs, seconds = {}, [], []
    for period in sorted(match.periods, key=lambda one: one.start):
        inside = (given["ts"] >= period.start) & (given["ts"] < period.stop)
        if not inside.any():
            continue
        ts, sids, v = (given[name][inside] for name in ("ts", "sid", "v"))
        samples = {sid: list(zip(ts[sids == sid].tolist(), v[sids == sid].tolist(), strict=True)) for sid in match.sids}
        first = (int(ts[0]) - period.start) // TICK + 1
        last = (min(int(given["ts"][-1]), period.stop) - period.start) // TICK
        over = bool((given["ts"] >= period.stop).any())
        current = {}
        second = {}
        for number in range(first, last + 1):
            now = period.start + number * TICK
            for player in match.players:
                speed = speed_of(player, samples, period.start, now)
                kind = None if speed is None else sum(speed * 3.6 > limit for limit in LIMITS)
                run = current.get(player.name)
                if run and run["kind"] != kind:
                    runs.append((now, current.pop(player.name)))
                if kind is None:
                    continue
                run = current.setdefault(
                    player.name,
                    {"player": player.name, "kind": kind, "start": now - TICK, "distance": 0.0, "top": 0.0},
                )
                run["stop"] = now
                run["distance"] += speed / TICKS
                run["top"] = max(run["top"], speed)
                time, distance = second.get((player.name, kind), (0.0, 0.0))
                second[player.name, kind] = time + 1 / TICKS, distance + speed / TICKS
            running_at[now] = {name: dict(run) for name, run in sorted(current.items())}
            if number % TICKS == 0:
                seconds.append((now, second))
                second = {}
        if over:
            runs += [(period.stop, run) for _, run in sorted(current.items())]
            if second:
                seconds.append((period.stop, second))
    return running_at, runs, seconds


def assert_same_run(found, expected):
    seconds = (expected["stop"] - expected["start"]) / SECOND
    assert found["intensity"] == INTENSITIES[expected["kind"]]
    assert found["start"] == expected["start"]
    assert found["distance"] == pytest.approx(expected["distance"], abs=1e-4)
    assert found["speed"] == pytest.approx(expected["distance"] / seconds, abs=1e-4)
    assert found["top"] == pytest.approx(expected["top"], abs=1e-4)


def assert_as_defined(match, given):
    events = feed(RunningAnalysis(match), given)
    running_at, runs, seconds = by_definition(match, given)
    running = of_type(events, "running")
    assert [event.ts for event in running] == list(running_at)
    for event, expected in zip(running, running_at.values(), strict=True):
        assert list(event["player"]) == list(expected)
        for number, run in enumerate(expected.values()):
            names = ("intensity", "start", "distance", "speed", "top")
            assert_same_run({name: event[name][number] for name in names}, run)
    ended = of_type(events, "run")
    assert [(event.ts, event["player"], event["stop"]) for event in ended] == [
        (ts, run["player"], run["stop"]) for ts, run in runs
    ]
    for event, (_, run) in zip(ended, runs, strict=True):
        assert_same_run(event, run)
    totals = of_type(events, "running_total")
    assert [event.ts for event in totals] == [ts for ts, _ in seconds]
    for number, event in enumerate(totals):
        assert_totals(event, [second for _, second in seconds[: number + 1]])
    return events


def assert_totals(event, seconds):
    for p, player in enumerate(event["player"]):
        for w, window in enumerate(event["window"]):
            inside = seconds[-window:] if window else seconds
            for kind in range(len(INTENSITIES)):
                spans = [second[player, kind] for second in inside if (player, kind) in second]
                assert event["time"][p][w][kind] == pytest.approx(sum(time for time, _ in spans), abs=1e-6)
                assert event["distance"][p][w][kind] == pytest.approx(sum(way for _, way in spans), abs=1e-3)


@pytest.mark.parametrize("seed", range(3))
def test_random_walks_are_analysed_as_defined(seed):
    match = small_match((1.0, 9.37), (12.0, 17.0))
    events = assert_as_defined(match, walk(match, 0.0, 20.0, seed, silent=0.2))
    assert len({event["intensity"] for event in of_type(events, "run")}) >= 4


def test_what_is_older_than_a_minute_leaves_the_window_of_a_minute():
    match = small_match((0.0, 80.0), player_rate=4.0, ball_rate=1.0)
    assert_as_defined(match, walk(match, 0.0, 75.0, seed=5))


def test_the_excerpt_of_the_debs_match_is_analysed_as_defined():
    match, given = excerpt()
    events = assert_as_defined(match, given)
    running = of_type(events, "running")
    assert len(running) == 41
    assert running[-1]["player"] == tuple(player.name for player in match.players)


def test_nine_metres_in_three_seconds_are_a_trot():
    match = small_match((0.0, 100.0))
    given = together(*(steady(match, sid, 0.0, 3.1, speed=3.0) for sid in (5, 6)))
    running = of_type(feed(RunningAnalysis(match), given), "running")
    (last,) = (event for event in running if event.ts == 3 * SECOND)
    assert last["player"] == ("A1",) and last["team"] == ("A",) and last["intensity"] == ["trot"]
    assert (last["start"], last["distance"], last["speed"], last["top"]) == ([0], [9.0], [3.0], [3.0])


@pytest.mark.parametrize(
    ("kmh", "kind"),
    [
        (0.0, "standing"),
        (0.99, "standing"),
        (1.01, "trot"),
        (11.01, "low"),
        (14.01, "medium"),
        (17.01, "high"),
        (23.99, "high"),
        (24.01, "sprint"),
    ],
)
def test_the_class_follows_from_the_speed(kmh, kind):
    match = small_match((0.0, 100.0))
    events = feed(RunningAnalysis(match), together(steady(match, 9, 0.0, 2.0, speed=kmh / 3.6)))
    assert {event["intensity"][0] for event in of_type(events, "running")} == {kind}


def test_both_legs_count_the_same_however_often_they_send():
    match = small_match((0.0, 100.0))
    given = together(steady(match, 5, 0.0, 2.0, speed=2.0, rate=50.0), steady(match, 6, 0.0, 2.0, speed=6.0, rate=5.0))
    assert of_type(feed(RunningAnalysis(match), given), "running")[-1]["speed"] == [4.0]


def test_arms_balls_and_referees_do_not_run():
    match = small_match((0.0, 100.0))
    given = together(*(steady(match, sid, 0.0, 2.0, speed=5.0) for sid in (3, 7, 20)))
    assert all(event["player"] == () for event in of_type(feed(RunningAnalysis(match), given), "running"))


def test_a_run_ends_when_the_player_sent_nothing_for_a_second():
    match = small_match((0.0, 100.0))
    given = together(steady(match, 9, 0.0, 2.0, speed=3.0), steady(match, 3, 0.0, 5.0, speed=1.0))
    (run,) = of_type(feed(RunningAnalysis(match), given), "run")
    silent = SECOND * 295 // 100  # a second after the last position
    assert run["start"] == 0 and run["stop"] <= silent < run["stop"] + TICK
    assert run.ts == run["stop"] + TICK


def test_a_break_ends_all_runs_and_counts_for_nothing():
    match = small_match((0.0, 2.0), (10.0, 100.0))
    events = feed(RunningAnalysis(match), together(steady(match, 9, 0.0, 12.1, speed=3.0)))
    (run,) = of_type(events, "run")
    assert (run["start"], run["stop"], run["distance"], run.ts) == (0, 2 * SECOND, 6.0, 2 * SECOND)
    last = of_type(events, "running_total")[-1]
    assert last.ts == 12 * SECOND
    assert last["time"][last["player"].index("A2")][-1] == [0.0, 4.0, 0.0, 0.0, 0.0, 0.0]
    assert last["distance"][last["player"].index("A2")][-1] == [0.0, 12.0, 0.0, 0.0, 0.0, 0.0]


def test_fewer_results_on_demand_are_some_of_all_results():
    match = small_match((0.0, 100.0))
    given = walk(match, 0.0, 13.5, seed=3)
    every = feed(RunningAnalysis(match), given)
    some = feed(RunningAnalysis(match, rate=5, every=4), given)
    assert of_type(some, "run") == of_type(every, "run")
    assert of_type(some, "running") == [e for e in of_type(every, "running") if e.ts % (SECOND // 5) == 0]
    assert of_type(some, "running_total") == [e for e in of_type(every, "running_total") if e.ts % (4 * SECOND) == 0]


def test_the_last_totals_of_a_period_are_published_whenever_it_ends():
    match = small_match((0.0, 4.7), (10.0, 12.0))
    given = walk(match, 0.0, 13.0, seed=3)
    times = [event.ts / SECOND for event in of_type(feed(RunningAnalysis(match, every=2), given), "running_total")]
    assert times == [2.0, 4.0, 4.7, 12.0]


def test_where_a_batch_ends_and_a_restart_mean_nothing():
    match = small_match((1.0, 4.5), (6.0, 8.0))
    given = walk(match, 0.0, 9.0, seed=4)
    whole = feed(RunningAnalysis(match), given)
    for size in (1, 7, 1000):
        assert feed(RunningAnalysis(match), given, size) == whole
    for at in np.linspace(1, len(given["ts"]) - 1, 7).astype(int).tolist():
        assert feed_with_restart(lambda: RunningAnalysis(match), given, at) == whole


def test_windows_are_those_of_the_challenge():
    match = small_match()
    assert WINDOWS == (60, 300, 1200)
    assert RunningAnalysis(match).totals.windows == (60, 300, 1200, 0)


@pytest.mark.parametrize("wrong", [{"rate": 0}, {"rate": 3}, {"rate": 100}, {"every": 0}])
def test_rates_that_cannot_be_are_refused(wrong):
    with pytest.raises(SlacklineError, match=next(iter(wrong))):
        RunningAnalysis(small_match(), **wrong)
