"""Keyed detectors: a state and timers per key, bad keys, errors, TTL, checkpoints, migration."""

import gc
from datetime import timedelta
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import slackline as sl
from slackline.running.guards import CALLS, ROWS
from slackline.running.instances import MIN_SWEEP
from slackline.testing import run


class Count(sl.Detector):
    """Counts the events of each device."""

    listens, publishes, key = ("beat",), ("count",), "device"

    def __init__(self) -> None:
        self.n = 0
        self.times: list[int] = []

    def on_event(self, event: sl.Event) -> Any:
        if event.get("bad"):
            self.n += 100
            raise ValueError("bad")
        self.n += 1
        self.times.append(event.ts)
        yield event.derive("count", device=event["device"], n=self.n, times=len(self.times))


class BatchCount(Count):
    """The same, for batches; also says how many rows came at once."""

    @property
    def takes_events(self) -> bool:
        return False

    def on_batch(self, batch: sl.Batch) -> Any:
        assert len(set(batch["device"].tolist())) == 1
        for row, event in enumerate(batch):
            for each in self.on_event(event):
                yield row, each


STYLES = pytest.mark.parametrize("style", [Count, BatchCount])


def beat(ts: int, device: Any, **more: Any) -> sl.Event:
    return sl.Event("beat", ts=ts, seq=ts, device=device, **more)


def played(detector: sl.Detector, events: Any, **options: Any) -> tuple[sl.Engine, list[Any]]:
    engine = sl.Engine(sl.Hierarchy([detector]), policy="ordered", **options)
    outputs = engine.push(events) + engine.close()
    return engine, [tuple(o.event.payload.values())[:2] for o in outputs]


@STYLES
@pytest.mark.parametrize("n", [1, 10])
def test_each_key_has_a_state_of_its_own_and_results_come_in_the_order_of_rows(style: type[Count], n: int) -> None:
    events = [beat(ts, "abc"[ts % 3]) for ts in range(3 * n)]
    _, found = played(style(), events)
    assert found == [("abc"[ts % 3], 1 + ts // 3) for ts in range(3 * n)]


@STYLES
def test_a_table_gives_the_same_as_its_events(style: type[Count]) -> None:
    devices = np.random.default_rng(1).integers(0, 7, 200)
    table = pa.table({"ts": range(200), "seq": range(200), "device": devices})
    events = [beat(ts, int(device)) for ts, device in enumerate(devices)]
    assert played(style(), table)[1] == played(style(), events)[1] == played(Count(), events)[1]


@STYLES
def test_a_key_that_is_null_or_no_key_goes_to_quarantine(style: type[Count]) -> None:
    bad = [None, [1], {"a": 1}, 1.5, True, b"x", float("nan")]
    events = [beat(0, "a"), *(beat(1 + i, key) for i, key in enumerate(bad)), beat(20, "a")]
    events.append(sl.Event("beat", ts=21, seq=21))
    engine, found = played(style(), events)
    assert found == [("a", 1), ("a", 2)]
    quarantined = engine.drain().quarantined
    assert {(item.reason, item.detector) for item in quarantined} == {("no key", style.__name__)}
    null = "the key is null: the event belongs to no instance of the detector"
    is_null = [item.detail == null for item in quarantined]
    assert is_null == [True, *[False] * 5, True, True]
    assert quarantined[1].detail == "the key is [1]; a key is text or a whole number"
    assert engine.stats()["quarantined"] == {"no key": 8}


def test_whole_numbers_of_any_kind_are_one_key() -> None:
    _, found = played(Count(), [beat(0, 7), beat(1, 7.0), beat(2, np.int32(7))])
    assert [n for _, n in found] == [1, 2, 3]


def test_refused_keys_are_reported_once_with_speculation() -> None:
    events = [beat(ts, None if ts % 4 == 0 else "a") for ts in range(40)]
    engine = sl.Engine(sl.Hierarchy([Count()]), speculation=sl.Speculation(alpha=0))
    finals = [o for event in events for o in engine.push([event])] + engine.close()
    assert [o.event["n"] for o in finals if o.final] == list(range(1, 31))
    assert engine.stats()["quarantined"] == {"no key": 10}


@STYLES
def test_an_error_concerns_one_key_alone(style: type[Count]) -> None:
    events = [beat(0, "a"), beat(1, "b"), beat(2, "a", bad=True), beat(3, "a"), beat(4, "b")]
    engine, found = played(style(), events, on_error="quarantine")
    assert found == [("a", 1), ("b", 1), ("a", 2), ("b", 2)]
    assert [item.event.ts for item in engine.drain().quarantined] == [2]


@STYLES
def test_a_state_is_dropped_after_its_ttl_without_events(style: type[Count]) -> None:
    class Brief(style):  # type: ignore[misc, valid-type]
        ttl = 10

    events = [beat(0, "a"), beat(10, "a"), beat(15, "b"), beat(21, "a"), beat(25, "b"), beat(36, "b")]
    _, found = played(Brief(), events)
    assert found == [("a", 1), ("a", 2), ("b", 1), ("a", 1), ("b", 2), ("b", 1)]


def test_expired_states_take_no_room() -> None:
    class Brief(Count):
        ttl = 10

    engine = sl.Engine(sl.Hierarchy([Brief()]), policy="ordered")
    most = 0
    for start in range(0, 20 * MIN_SWEEP, 256):
        engine.push([beat(ts, ts) for ts in range(start, start + 256)])
        most = max(most, engine.stats()["detectors"]["Brief"]["keys"])
    assert most <= MIN_SWEEP + 256


def test_copies_of_states_hold_few_rows() -> None:
    engine = sl.Engine(sl.Hierarchy([Silent()]), policy="ordered")
    before = held_rows()
    for start in range(0, 200_000, 5_000):
        engine.push(pa.table({"ts": range(start, start + 5_000), "device": ["a"] * 5_000}))
    assert held_rows() - before <= CALLS * ROWS + 20_000


class Silent(sl.Detector):
    listens, key = ("beat",), "device"

    def on_batch(self, batch: sl.Batch) -> Any:
        return ()


def held_rows() -> int:
    return sum(len(each) for each in gc.get_objects() if type(each) is sl.Batch)


def test_key_and_ttl_are_no_state_where_init_sets_them() -> None:
    class InInit(Count):
        def __init__(self) -> None:
            super().__init__()
            self.key, self.ttl = "device", 10

    assert InInit().snapshot() == {"n": 0, "times": []}


def test_timers_keep_a_state_alive() -> None:
    class Alarm(sl.Detector):
        listens, publishes, key, ttl = ("beat",), ("silent",), "device", 5

        def __init__(self) -> None:
            self.beats = 0

        def on_event(self, event: sl.Event) -> Any:
            self.beats += 1
            yield sl.Timer(event.ts + 20)

        def on_timer(self, timer: sl.Timer) -> Any:
            yield timer.derive("silent", device=timer.key, beats=self.beats)

    _, found = played(Alarm(), [beat(0, "a"), beat(15, "a"), beat(50, "b"), beat(60, "a")])
    assert found == [("a", 2), ("b", 1), ("a", 1)]


@STYLES
def test_a_checkpoint_holds_each_key(style: type[Count]) -> None:
    events = [beat(ts, "abc"[ts % 3]) for ts in range(60)]
    engine = sl.Engine(sl.Hierarchy([style()]), policy="ordered")
    outputs = engine.push(events[:31])
    engine = sl.Engine.load(engine.save(), sl.Hierarchy([style()]))
    outputs += engine.push(events[31:]) + engine.close()
    assert [o.event["n"] for o in outputs] == [1 + ts // 3 for ts in range(60)]


def test_a_checkpoint_without_keys_is_refused_by_a_keyed_detector() -> None:
    class Plain(Count):
        name, key = "Count", None

    saved = sl.Engine(sl.Hierarchy([Plain()])).save()
    with pytest.raises(sl.SlacklineError, match="keyed is missing"):
        sl.Engine.load(saved, sl.Hierarchy([Count()]))


@pytest.mark.parametrize("key", [None, "source"])
def test_a_checkpoint_of_other_keys_is_refused(key: str | None) -> None:
    class Other(Count):
        name = "Count"

    Other.key = key
    engine = sl.Engine(sl.Hierarchy([Count()]))
    engine.push([beat(ts, "d") for ts in range(9)])
    with pytest.raises(sl.SlacklineError, match=rf"key='device'.*key={key!r}"):
        sl.Engine.load(engine.save(), sl.Hierarchy([Other()]))


def test_a_keyed_detector_migrates_with_its_keys_and_timers() -> None:
    class Alarm(Count):
        publishes = ("count", "silent")

        def on_event(self, event: sl.Event) -> Any:
            yield from super().on_event(event)
            yield sl.Timer(event.ts + 30)

        def on_timer(self, timer: sl.Timer) -> Any:
            yield timer.derive("silent", device=timer.key, n=self.n)

    events = [beat(ts, "ab"[ts > 10]) for ts in range(60)]
    options: dict[str, Any] = {"policy": "ordered"}
    plain = sl.Engine(sl.Hierarchy([Alarm()]), **options)
    expected = plain.push(events) + plain.close()
    first, second = (sl.Engine(sl.Hierarchy([Alarm()]), detectors=names, **options) for names in (["Alarm"], []))
    outputs = first.push(events[:20])
    second.push(events[:20])
    outputs += second.host.attach(first.host.detach("Alarm"))
    outputs += second.push(events[20:]) + second.close()
    assert [o.event for o in outputs] == [o.event for o in expected]
    assert ("a", 11) in [(o.event["device"], o.event["n"]) for o in outputs if o.event.type == "silent"]


@pytest.mark.parametrize(
    ("attributes", "message"),
    [
        ({"key": 7}, "key is the name of a payload field"),
        ({"key": ""}, "key is the name of a payload field"),
        ({"key": "device", "ttl": 0}, "ttl is a length of time"),
        ({"key": "device", "ttl": 1.5}, "ttl is a length of time"),
        ({"key": None, "ttl": 5}, "has no key"),
        ({"key": "divice", "listens": (sl.EventType("beat", device=str),)}, "'beat' declares .*did you mean 'device'"),
    ],
)
def test_keys_and_ttl_are_checked_when_the_hierarchy_is_made(attributes: dict[str, Any], message: str) -> None:
    with pytest.raises(sl.SlacklineError, match=message):
        sl.Hierarchy([type("Odd", (Count,), attributes)()])


def test_fixed_attributes_are_shared_and_others_copied() -> None:
    class Table(Count):
        fixed = ("table",)

        def __init__(self) -> None:
            super().__init__()
            self.table = object()  # could not be copied or saved

    detector = Table()
    engine, found = played(detector, [beat(0, "a"), beat(1, "b"), beat(2, "a")])
    assert found == [("a", 1), ("b", 1), ("a", 2)]
    assert detector.times == [] and engine.save()


@pytest.mark.parametrize("speculation", [None, sl.Speculation(alpha=0.5)])
def test_lengths_of_time_of_detectors_may_have_a_unit_of_their_own(speculation) -> None:
    class Counts(sl.Detector):
        listens, publishes = ("beat",), ("n",)
        key, ttl = "device", timedelta(minutes=2)

        def __init__(self):
            self.n = 0

        def on_event(self, event):
            self.n += 1
            yield event.derive("n", n=self.n)

    def detectors():
        return [Counts(), sl.Pattern("pair", sl.Step("a") >> sl.Step("b"), within="2 min")]

    words = "beat@1(device=a) beat@121(device=a) beat@242(device=a) a@1 b@121 a@200 b@321"
    found = run(detectors(), words, unit="s", speculation=speculation)
    assert [(each.ts, each["n"]) for each in found.of("n")] == [(1, 1), (121, 2), (242, 1)]
    assert [each.ts for each in found.of("pair")] == [121]
    with pytest.raises(sl.ConfigError, match=r"Counts.ttl=.* needs the unit of event times"):
        run(detectors(), words)
    never = sl.Pattern("pair", (a := sl.Step("a")) >> (b := sl.Step("b")).where(b.ts - a.ts > 200), within="2 min")
    with pytest.raises(sl.ConfigError, match=r"can never match.* longer than within=120"):
        run(never, "a@1", unit="s")
