"""Detectors that are held up when there is too much to do, in virtual time."""

from __future__ import annotations

import pytest

import slackline as sl


class Processor:
    """Wall time; work advances it."""

    def __init__(self) -> None:
        self.at = 0.0

    def __call__(self) -> float:
        return self.at

    def __deepcopy__(self, memo: object) -> Processor:
        return self


class Worker(sl.Detector):
    fixed = ("processor",)

    def __init__(self, name: str, listens: tuple[str, ...], seconds: float, processor: Processor, urgency: float = 0):
        self.name, self.listens, self.publishes = name, listens, (name.lower(),)
        self.seconds, self.processor, self.urgency = seconds, processor, urgency

    def on_event(self, event: sl.Event):
        self.processor.at += self.seconds
        yield event.derive(self.name.lower(), of=event.ts)


#: At 100 events per second the urgent one needs a fifth of the time, and the others 1.6 times of it.
def workers(processor: Processor) -> list[sl.Detector]:
    return [
        Worker("Slow", ("a",), 0.008, processor),
        Worker("Above", ("slow",), 0.008, processor),
        Worker("Quick", ("a",), 0.002, processor, urgency=1),
    ]


def engine_of(processor: Processor, **options: object) -> sl.Engine:
    given = {"policy": "ordered", "pause": sl.Pause(), "now": processor, **options}
    return sl.Engine(sl.Hierarchy(workers(processor), clock="a"), **given)


def live(engine: sl.Engine, processor: Processor, arrivals: list[float]) -> list[tuple[float, sl.Output]]:
    """Push events as they arrive, or as soon as there is time; outputs, with the time when they were there."""
    found = []
    for ts, arrives in enumerate(arrivals):
        while processor.at < arrives:
            if not engine.deferred:
                processor.at = arrives
                break
            processor.at += 0.001
            found += [(processor.at, output) for output in engine.push([])]
        outputs = engine.push([sl.Event("a", ts=ts)])
        found += [(processor.at, output) for output in outputs]
    return found + [(processor.at, output) for output in engine.close()]


def unpaused(events: int) -> list[sl.Output]:
    """What there is to be found."""
    plain = sl.Engine(sl.Hierarchy(workers(Processor()), clock="a"), policy="ordered")
    return plain.push([sl.Event("a", ts=ts) for ts in range(events)]) + plain.close()


def identities(outputs: list[sl.Output]) -> list[tuple[str, str]]:
    return sorted((output.id, str(output.event)) for output in outputs)


def busy(engine: sl.Engine, events: int) -> list[sl.Output]:
    """Push events one after the other, without a break."""
    return [output for ts in range(events) for output in engine.push([sl.Event("a", ts=ts)])]


QUIET = [0.05 * n for n in range(100)]
PEAK = [5 + 0.01 * n for n in range(1000)]
AFTER = [15 + 0.05 * n for n in range(800)]


def test_the_urgent_one_is_in_time_and_the_others_find_the_same_later() -> None:
    processor = Processor()
    arrivals = QUIET + PEAK + AFTER
    engine = engine_of(processor)
    found = live(engine, processor, arrivals)
    quick = [(at, output.event["of"] + 1) for at, output in found if output.detector == "Quick"]
    late = [at - arrivals[nth] for at, nth in quick if nth < len(arrivals)]  # each is certain with the next arrival
    quiet, peak = max(late[: len(QUIET) - 1]), sorted(late[len(QUIET) :])
    assert len(late) == len(arrivals) - 1 and peak[-1] < 1.5 * quiet and peak[len(peak) // 2] <= quiet
    assert identities([output for _, output in found]) == identities(unpaused(len(arrivals)))


def test_outputs_say_how_much_later_they_are() -> None:
    processor = Processor()
    found = [output for _, output in live(engine_of(processor), processor, QUIET + PEAK + AFTER)]
    delayed = {name: max(o.delayed for o in found if o.detector == name) for name in ("Slow", "Above", "Quick")}
    assert delayed["Quick"] == 0 and delayed["Slow"] > 100 and delayed["Above"] > 100
    assert found[10].delayed == 0 and found[-10].delayed == 0


def test_a_detector_that_is_behind_catches_up_when_there_is_time() -> None:
    processor = Processor()
    engine = engine_of(processor)
    busy(engine, 50)
    assert engine.deferred and engine.stats()["overload"]["deferred"] == ["Slow"]
    for _ in range(1000):
        processor.at += 0.05
        engine.push([])
    assert engine.deferred == 0 and engine.stats()["overload"]["deferred"] == []
    assert engine.stats()["overload"]["seconds"] > 0


def test_a_detector_that_is_not_called_in_between_catches_up_all_the_same() -> None:
    processor = Processor()
    engine = engine_of(processor)
    busy(engine, 50)
    assert engine.deferred > 40
    for ts in range(50, 150):
        processor.at = 2 + 0.04 * ts
        engine.push([sl.Event("a", ts=ts)])
    assert engine.deferred == 0


def test_a_flush_and_the_end_let_everybody_go() -> None:
    for end in (sl.Engine.close, lambda engine: engine.flush("test") + engine.close()):
        engine = engine_of(Processor(), pause=sl.Pause(memory=5))
        found = busy(engine, 50)
        assert engine.deferred > 40
        found += end(engine)
        assert engine.deferred == 0 and identities(found) == identities(unpaused(50))


def test_an_engine_loaded_without_pause_processes_deferred_rows_at_once() -> None:
    processor = Processor()
    engine = engine_of(processor)
    found = busy(engine, 50)
    other = sl.Engine.load(engine.save(), sl.Hierarchy(workers(processor), clock="a"), pause=None)
    found += other.push([])
    assert engine.deferred > 40 and other.deferred == 0
    assert identities(found + other.close()) == identities(unpaused(50))


def test_alpha_goes_to_one_before_any_detector_is_deferred() -> None:
    processor = Processor()
    engine = engine_of(processor, speculation={"Quick": sl.Speculation(alpha="auto")}, policy=sl.Auto(margin=0))
    for ts in range(40):
        processor.at += 0.3
        engine.push([sl.Event("a", ts=ts)])
    assert engine.stats()["detectors"]["Quick"]["alpha"] < 1
    held = []
    for ts in range(40, 60):
        engine.push([sl.Event("a", ts=ts)])
        held.append((engine.stats()["detectors"]["Quick"]["alpha"], engine.deferred))
    first = next(alpha for alpha, waiting in held if waiting)
    assert first == 1


def test_what_an_urgent_detector_rests_on_is_not_deferred() -> None:
    processor = Processor()
    detectors = [
        Worker("Below", ("a",), 0.004, processor),
        Worker("Urgent", ("below",), 0.004, processor, urgency=2),
        Worker("Other", ("a",), 0.05, processor, urgency=1),
    ]
    engine = sl.Engine(sl.Hierarchy(detectors, clock="a"), policy="ordered", pause=sl.Pause(), now=processor)
    busy(engine, 100)
    assert engine.stats()["overload"]["deferred"] == ["Other"]


def test_of_equals_those_are_deferred_whose_answers_wait_above() -> None:
    processor = Processor()
    detectors = [
        Worker("Waited", ("a",), 0.01, processor),
        Worker("Asked", ("a",), 0.01, processor),
        Worker("Top", ("waited", "b"), 0.0, processor),
    ]
    engine = sl.Engine(
        sl.Hierarchy(detectors, clock="a"), policy=sl.Ready(timeout=1000, warmup=0), pause=sl.Pause(), now=processor
    )
    engine.push([sl.Event("b", ts=0, source="b"), sl.Event("a", ts=0, source="a")])
    for ts in range(1, 100):  # b owes an event all the time, so Top waits
        engine.push([sl.Event("a", ts=ts, source="a")])
    assert engine.stats()["overload"]["deferred"] == ["Waited"]


def test_more_than_may_be_kept_is_not_deferred() -> None:
    processor = Processor()
    engine = engine_of(processor, pause=sl.Pause(keep=5))
    most = 0
    for ts in range(200):
        engine.push([sl.Event("a", ts=ts)])
        most = max(most, engine.deferred)
    assert 0 < most <= 10


def test_a_full_waiting_room_ends_the_pause() -> None:
    processor = Processor()
    detectors = [*workers(processor), Worker("Top", ("a", "slow"), 0.0, processor)]
    engine = sl.Engine(
        sl.Hierarchy(detectors, clock="a"), policy="ordered", pause=sl.Pause(), now=processor, max_buffered=40
    )
    assert busy(engine, 300)  # never a BufferLimitError


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"pause": 0.5}, "pass slackline.Pause"),
        ({"now": None}, "pass now=time.monotonic"),
        ({"policy": "slack"}, "'auto', 'ready' or 'ordered'"),
        ({"late": "deliver"}, "divert"),
    ],
)
def test_what_cannot_be_is_refused(options: dict[str, object], says: str) -> None:
    with pytest.raises(sl.ConfigError, match=says):
        engine_of(Processor(), **options)


@pytest.mark.parametrize("options", [{"share": 0}, {"share": 1}, {"memory": -1}, {"keep": 0}, {"folder": ""}])
def test_a_pause_has_sensible_numbers(options: dict[str, object]) -> None:
    with pytest.raises(sl.ConfigError, match="not valid"):
        sl.Pause(**options)


def test_urgency_is_a_number() -> None:
    with pytest.raises(sl.SlacklineError, match="urgency"):
        sl.Hierarchy([Worker("W", ("a",), 0, Processor(), urgency=float("nan"))], clock="a")
