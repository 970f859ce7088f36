"""One source of eight whose clock is off, through the engine: what it costs the others, and what is corrected."""

from __future__ import annotations

from functools import cache
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pytest

import slackline as sl
from slackline.core import codec
from slackline.core.errors import ConfigError, StateError
from slackline.engine.engine import STATE_KIND, STATE_VERSION

SOURCES, BAD, SECONDS = 8, 3, 900


class Echo(sl.Detector):
    listens, publishes = ("in",), ("out",)

    def on_event(self, event: sl.Event) -> Any:
        yield event.derive("out", **event.payload)


class Stream(NamedTuple):
    """A stream in order of arrival, in milliseconds."""

    now: Any
    ts: Any
    source: Any
    made: Any  # when it really happened

    def piece(self, start: int, stop: int) -> list[sl.Event]:
        columns = (self.ts[start:stop].tolist(), self.source[start:stop].tolist(), range(start, stop))
        return [sl.Event("in", ts=ts, source=source, n=n) for ts, source, n in zip(*columns, strict=False)]

    def table(self, start: int, stop: int) -> pa.Table:
        n = np.arange(len(self.ts))
        return pa.table({"ts": self.ts[start:stop], "source": self.source[start:stop], "n": n[start:stop]})


OFFSETS = {
    "right": lambda seconds: 0 * seconds,
    "ahead": lambda seconds: 90_000 + 0 * seconds,
    "behind": lambda seconds: -90_000 + 0 * seconds,
    "drifting": lambda seconds: 20 * seconds,
    "jumping": lambda seconds: np.where(seconds > SECONDS / 4, 90_000, 0),
    "set right": lambda seconds: np.where(seconds < SECONDS / 3, 90_000, 0),
}


@cache
def stream(kind: str) -> Stream:
    """Each source sends once a second; an event takes about 80 ms, now and then up to 2 s. ``gone``: no bad source."""
    rng = np.random.default_rng(4)
    seconds = np.arange(SECONDS)[:, np.newaxis] + np.arange(SOURCES) / SOURCES
    made = 10**6 + 1000 * seconds + rng.uniform(0, 50, seconds.shape)
    now = (
        made + 20 + rng.exponential(60, made.shape) + (rng.random(made.shape) < 0.01) * rng.uniform(0, 2000, made.shape)
    )
    ts = made.copy()
    ts[:, BAD] += OFFSETS["right" if kind == "gone" else kind](seconds[:, BAD])
    source = np.broadcast_to(np.arange(SOURCES), made.shape)
    kept = (source != BAD) | (kind != "gone")
    order = np.argsort(now[kept], kind="stable")
    return Stream(*(array[kept].astype(np.int64)[order] for array in (now, ts, source, made)))


class Outcome(NamedTuple):
    """Of the second half: which share was late, and how long events waited, of the others and of the bad source."""

    late: float
    wait: float
    bad_late: float
    bad_wait: float
    skewed: dict[int, int]
    offsets: Any


@cache
def outcome(kind: str, walled: bool, **options: Any) -> Outcome:
    made = stream(kind)
    engine = sl.Engine(sl.Hierarchy([Echo()], clock="in"), **options)
    waits = np.full(len(made.ts), np.nan)
    offsets = np.zeros(len(made.ts), dtype=np.int64)
    for position, event in enumerate(made.piece(0, len(made.ts))):
        now = int(made.now[position])
        for output in engine.push(event, now=now if walled else None):
            n = output.event["n"]
            waits[n] = now - made.now[n]
            offsets[n] = output.event.payload.get("ts_given", output.event.ts) - output.event.ts
    skewed = engine.stats()["types"]["in"]["skewed"]
    late = np.zeros(len(made.ts), dtype=bool)
    late[[item.event["n"] for item in engine.late]] = True
    half = np.arange(len(late)) > len(late) // 2
    good, bad = half & (made.source != BAD), half & (made.source == BAD)
    of_bad = (late[bad].mean(), np.nanmean(waits[bad])) if bad.any() else (0.0, 0.0)
    return Outcome(late[good].mean(), np.nanmean(waits[good]), *of_bad, skewed, offsets)


WALLED = pytest.mark.parametrize("walled", [False, True], ids=["by stream time", "by wall time"])


@WALLED
@pytest.mark.parametrize("kind", ["ahead", "behind", "drifting", "jumping", "set right"])
def test_a_source_that_is_off_costs_the_others_no_more_than_if_it_were_not_there(kind: str, walled: bool) -> None:
    gone, right, found = (outcome(each, walled, skew="correct") for each in ("gone", "right", kind))
    assert found.late <= gone.late + 0.002
    assert found.wait <= 1.5 * gone.wait + (250 if kind == "drifting" else 50)  # 20 ms per second, until it is noticed
    assert found.bad_late <= right.bad_late + 0.02
    assert found.bad_wait <= 1.5 * right.bad_wait + 1_000


@WALLED
def test_without_correction_a_source_behind_makes_everybody_wait_and_is_reported(walled: bool) -> None:
    found = outcome("behind", walled, skew="report")
    assert found.wait > 80_000
    assert set(found.skewed) == {BAD} and abs(found.skewed[BAD] + 90_000) < 500
    assert not found.offsets.any()


@WALLED
@pytest.mark.parametrize("skew", ["report", "correct"])
def test_offsets_are_reported_and_those_of_right_sources_are_nothing(skew: str, walled: bool) -> None:
    assert outcome("right", walled, skew=skew).skewed == {}
    assert outcome("set right", walled, skew=skew).skewed == {}
    skewed = outcome("ahead", walled, skew=skew).skewed
    assert set(skewed) == {BAD} and abs(skewed[BAD] - 90_000) < 500


@WALLED
def test_a_corrected_event_has_the_time_at_which_it_happened_and_keeps_the_one_it_came_with(walled: bool) -> None:
    made, offsets = stream("ahead"), outcome("ahead", walled, skew="correct").offsets
    corrected = np.flatnonzero(offsets)
    assert set(made.source[corrected]) == {BAD} and len(corrected) > SECONDS / 2
    assert np.abs(made.ts[corrected] - offsets[corrected] - made.made[corrected]).max() < 500


def test_one_source_ahead_never_moves_the_clock() -> None:
    made = stream("ahead")
    engine = sl.Engine(sl.Hierarchy([Echo()], clock="in"), skew="correct")
    for start in range(0, 2_000, 50):
        engine.push(made.piece(start, start + 50))
        clk = engine.stats()["stream_time"]
        assert clk is None or clk <= made.made[: start + 50].max() + 500


def test_a_source_that_is_all_alone_moves_the_clock() -> None:
    engine = sl.Engine(sl.Hierarchy([Echo()], clock="in"), skew="correct")
    engine.push([sl.Event("in", ts=10 * i, source="only") for i in range(50)])
    assert engine.stats()["stream_time"] == 490
    engine.push([sl.Event("in", ts=500 + i % 7, source=i % 2) for i in range(20)])
    engine.push([sl.Event("in", ts=600 + 10 * i, source="only") for i in range(40)])  # the others are gone
    assert engine.stats()["stream_time"] == 990


@pytest.mark.parametrize("skew", ["report", "correct"])
@pytest.mark.parametrize("kind", ["ahead", "behind", "set right"])
@WALLED
def test_chunks_forms_and_restarts_make_no_difference(skew: str, kind: str, walled: bool) -> None:
    made, n = stream(kind), 3_600

    def run(size: int, form: str, restart: bool = False) -> Any:
        engine = sl.Engine(sl.Hierarchy([Echo()], clock="in"), skew=skew)
        outputs = []
        for start in range(0, n, size):
            stop = min(n, start + size)
            rows = made.table(start, stop) if form == "table" else made.piece(start, stop)
            outputs += engine.push(rows, now=made.now[start:stop] if walled else None)
            if restart:
                engine = sl.Engine.load(engine.save(), engine.hierarchy)
        return outputs, engine.stats(), engine.close(), engine.drain()

    one = run(1, "events")
    assert skew == "report" or any("ts_given" in output.event.payload for output in one[0])
    assert run(n, "table") == one
    assert run(77, "table", restart=True) == one
    assert run(500, "events", restart=True) == one


def test_declared_types_are_corrected_too() -> None:
    kind = sl.EventType("in", n=int)

    class Typed(Echo):
        listens = (kind,)

    made, found = stream("ahead"), []
    for form in ("table", "events"):
        engine = sl.Engine(sl.Hierarchy([Typed()], clock="in"), skew="correct")
        found.append(engine.push(made.table(0, 3_000) if form == "table" else made.piece(0, 3_000)) + engine.close())
    assert found[0] == found[1]
    assert any("ts_given" in output.event.payload for output in found[0])


def test_what_skew_may_be() -> None:
    hierarchy = sl.Hierarchy([Echo()], clock="in")
    for value in ("x", True, 90):
        with pytest.raises(ConfigError, match=r"skew=.* choose one of \['report', 'correct'\]"):
            sl.Engine(hierarchy, skew=value)  # type: ignore[arg-type]
    with pytest.raises(ConfigError, match="skew='correct' has no effect under policy='ordered'"):
        sl.Engine(hierarchy, skew="correct", policy="ordered")
    assert "skewed" not in sl.Engine(hierarchy, policy="ordered").stats()["types"]["in"]


def test_a_saved_engine_may_get_the_option_to_correct() -> None:
    made = stream("behind")
    engine = sl.Engine(sl.Hierarchy([Echo()], clock="in"), skew="report")
    engine.push(made.table(0, 2_000))
    [(source, offset)] = engine.stats()["types"]["in"]["skewed"].items()
    engine = sl.Engine.load(engine.save(), engine.hierarchy, skew="correct")
    assert engine.stats()["changed"] == {"skew": ["report", "correct"]}
    engine.push(made.table(2_000, 2_100))
    given = [e for e in engine.buffered()["Echo"] if "ts_given" in e.payload]
    assert given and all((e.source, e["ts_given"] - e.ts) == (source, offset) for e in given)


def test_a_damaged_state_is_refused() -> None:
    engine = sl.Engine(sl.Hierarchy([Echo()], clock="in"), skew="report")
    engine.push(stream("ahead").table(0, 1_000))
    state = codec.load(STATE_KIND, STATE_VERSION, engine.save())
    state["intake"]["skew"]["sources"]["in"][2, 5] = 9
    with pytest.raises(StateError, match=r"skew\.sources"):
        sl.Engine.load(codec.dump(STATE_KIND, STATE_VERSION, state), engine.hierarchy)
