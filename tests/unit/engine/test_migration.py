"""Detectors that leave a running engine and join another; what is wrong use is said, and changes nothing."""

from __future__ import annotations

from typing import Any

import pytest

import slackline as sl
from slackline.core.errors import ClosedError, ConfigError, HierarchyError, StateError


class Low(sl.Detector):
    listens, publishes = ("a",), ("low",)

    def __init__(self) -> None:
        self.n = 0

    def on_event(self, event: sl.Event) -> Any:
        self.n += 1
        yield event.derive("low", n=self.n)


class High(Low):
    listens, publishes = ("low", "a"), ("high",)

    def on_event(self, event: sl.Event) -> Any:
        self.n += 1
        yield event.derive("high", n=self.n)


def hierarchy() -> sl.Hierarchy:
    return sl.Hierarchy([Low(), High()], clock="a")


def events(start: int, stop: int) -> list[sl.Event]:
    return [sl.Event("a", 10 * i, source=f"s{i % 3}", seq=i) for i in range(start, stop)]


def test_a_detector_continues_in_another_engine() -> None:
    single = sl.Engine(hierarchy())
    expected = single.push(events(0, 100)) + single.close()
    here, there = sl.Engine(hierarchy()), sl.Engine(hierarchy(), detectors=())
    found = here.push(events(0, 50))
    there.push(events(0, 50))
    for name in ("Low", "High"):
        there.host.attach(here.host.detach(name))
    assert here.detectors == {} and list(there.detectors) == ["Low", "High"]
    found += there.push(events(50, 100)) + there.close()
    assert found == expected


def test_the_receiving_engine_learns_the_delays_of_the_sending_one() -> None:
    here, there = sl.Engine(hierarchy()), sl.Engine(hierarchy(), detectors=())
    here.push(events(0, 200))
    there.host.attach(here.host.detach("Low"))
    ours, theirs = here.stats()["types"]["a"], there.stats()["types"]["a"]
    assert theirs == ours and theirs["sources"] == 3
    assert there.stats()["stream_time"] == here.stats()["stream_time"]


def test_a_new_detector_joins_a_running_engine() -> None:
    class Third(sl.Detector):
        listens, publishes = ("high", "b"), ("third",)

        def on_event(self, event: sl.Event) -> Any:
            yield event.derive("third", of=event.type)

    target = sl.Engine(hierarchy(), policy=sl.Auto(warmup=0))
    before = target.push(events(0, 50))
    waiting = {name: len(held) for name, held in target.buffered().items()}
    assert target.host.attach(Third()) == []
    assert {name: len(held) for name, held in target.buffered().items()} == {**waiting, "Third": 0}
    after = target.push([*events(50, 100), sl.Event("b", 995)]) + target.close()
    assert {output.detector for output in before} == {"Low", "High"}
    assert {output.event["of"] for output in after if output.detector == "Third"} == {"high", "b"}
    again = sl.Engine.load(target.save(), target.hierarchy)
    assert list(again.detectors) == list(target.hierarchy.names)


def test_progress_of_a_detector_elsewhere_advances_its_listeners() -> None:
    low, high = (sl.Engine(hierarchy(), detectors=[name], policy=sl.Auto(warmup=0)) for name in ("Low", "High"))
    stream = events(0, 60)
    assert {output.detector for output in low.push(stream)} == {"Low"}
    assert high.push(stream) == []  # it waits for progress of Low
    found = high.host.receive(low.host.progress_updates())
    assert found and {output.detector for output in found} == {"High"}
    low.close()
    assert high.close() == []  # Low may have more to say
    assert len(found) + len(high.host.receive(low.host.progress_updates())) == 120


@pytest.mark.parametrize(
    ("do", "message"),
    [
        (lambda e: e.host.detach("Nobody"), "'Nobody' does not run in this engine"),
        (lambda e: e.host.attach(sl.Engine(hierarchy()).host.detach("Low")), "runs in this engine already"),
        (lambda e: e.host.attach(7), "the bytes of detach"),
        (lambda e: e.host.attach(b"pickle"), "were not saved by Slackline"),
        (lambda e: e.host.attach(e.save()), "hold a 'engine', not a 'detector'"),
        (lambda e: e.host.attach(Low()), "two detectors are called 'Low'"),
        (lambda e: e.host.receive(["low"]), "takes the ProgressUpdates"),
        (lambda e: e.host.receive([sl.ProgressUpdate("low", (), (), 0, 0, 0)]), "'Low' runs in this engine"),
        (
            lambda e: e.host.receive([sl.ProgressUpdate("zzz", (), (), 0, 0, 0)]),
            "no detector of the hierarchy publishes",
        ),
    ],
)
def test_wrong_use_is_said_and_changes_nothing(do: Any, message: str) -> None:
    target = sl.Engine(hierarchy())
    target.push(events(0, 50))
    before = target.save()
    with pytest.raises(sl.SlacklineError, match=message):
        do(target)
    assert target.save() == before


def test_a_detector_cannot_publish_what_comes_from_sensors() -> None:
    class Forger(sl.Detector):
        listens, publishes = ("low",), ("a",)

        def on_event(self, event: sl.Event) -> Any:
            yield event.derive("a")

    with pytest.raises(HierarchyError):
        sl.Engine(hierarchy()).host.attach(Forger())


def test_a_closed_engine_accepts_no_detector() -> None:
    data = sl.Engine(hierarchy()).host.detach("Low")
    target = sl.Engine(hierarchy(), detectors=["High"])
    target.close()
    with pytest.raises(ClosedError):
        target.host.attach(data)


def test_a_detector_that_cannot_be_saved_stays() -> None:
    class Stubborn(Low):
        def __init__(self) -> None:
            super().__init__()
            self.name = "Low"
            self.tool = print

    target = sl.Engine(sl.Hierarchy([Stubborn(), High()], clock="a"))
    target.push(events(0, 50))
    with pytest.raises(StateError, match="tool"):
        target.host.detach("Low")
    assert list(target.detectors) == ["Low", "High"]
    single = sl.Engine(hierarchy())
    single.push(events(0, 50))
    assert target.push(events(50, 90)) == single.push(events(50, 90))


def test_an_engine_knows_which_detectors_there_are() -> None:
    with pytest.raises(ConfigError, match=r"detectors=\['Nobody'\] are not in the hierarchy"):
        sl.Engine(hierarchy(), detectors=["Nobody"])


def shuffled(stop: int) -> list[sl.Event]:
    """In order but for the last, which comes 100 late: so K is 101."""
    return [*(sl.Event("a", 10 * i) for i in range(stop)), sl.Event("a", 10 * (stop - 1) - 100)]


def test_an_engine_whose_clock_is_behind_catches_up_with_the_one_that_gave_a_detector_away() -> None:
    class Other(High):
        listens, publishes = ("a",), ("high",)

    def both() -> sl.Hierarchy:
        return sl.Hierarchy([Low(), Other()], clock="a")

    ahead, behind = (sl.Engine(both(), detectors=[name], policy=sl.Slack(margin=0)) for name in ("Low", "Other"))
    ahead.push(shuffled(100))
    behind.push(shuffled(40))
    behind.push([sl.Event("a", ts) for ts in range(400, 460, 10)])
    waiting = len(behind.buffered()["Other"])
    found = behind.host.attach(ahead.host.detach("Low"))
    behind.check_invariants()
    assert behind.stats()["stream_time"] == 990 and len(found) == waiting > 0
    assert {output.detector for output in found} == {"Other"} and not behind.buffered()["Other"]


def test_a_detector_may_join_an_engine_before_anything_has_arrived_there() -> None:
    here, there = (sl.Engine(hierarchy(), policy=sl.Auto(warmup=60), detectors=names) for names in (None, ()))
    here.push(events(0, 50))
    waiting = here.buffered()["Low"]
    assert len(waiting) == 50
    there.host.attach(here.host.detach("Low"))
    again = sl.Engine.load(there.save(), hierarchy())
    assert again.buffered()["Low"] == waiting


def test_a_detector_joins_the_one_it_listens_to_after_the_end_of_a_stream_without_stream_time() -> None:
    class Timer(Low):
        listens, publishes = ("b",), ("timed",)

    def application() -> sl.Hierarchy:
        return sl.Hierarchy([Low(), High(), Timer()], clock="b")

    single = sl.Engine(application())
    expected = single.push(events(0, 5)) + single.close()
    here, there = (sl.Engine(application(), detectors=d, sensors=s) for d, s in [(None, ()), ((), ("a", "b"))])
    there.push(events(0, 5))
    there.host.end(["a", "b"])
    assert there.stats()["stream_time"] is None  # no event of type b
    (a,) = (update for update in there.host.progress_updates() if update.type == "a")
    found = there.host.attach(here.host.detach("Low"), missed=[a])
    (low,) = (update for update in there.host.progress_updates() if update.type == "low")
    found += there.host.attach(here.host.detach("High"), missed=[a, low])
    assert found == expected and len(found) == 15
    assert there.stats()["detectors"]["High"]["buffered"] == 0


def test_a_part_of_a_hierarchy_resumes_after_a_restart() -> None:
    low, high = (sl.Engine(hierarchy(), detectors=[name], policy=sl.Auto(warmup=0)) for name in ("Low", "High"))
    for engine in (low, high):
        engine.push(events(0, 40))
    low, high = (sl.Engine.load(engine.save(), hierarchy()) for engine in (low, high))
    assert (list(low.detectors), list(high.detectors)) == (["Low"], ["High"])
    assert (
        len(high.host.receive(low.host.progress_updates())) > 0
    )  # progress that was not sent before the restart is sent after it
