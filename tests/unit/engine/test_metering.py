"""How long each detector works is measured where there is a clock."""

import pyarrow as pa

import slackline as sl


class Clock:
    """Advances with work."""

    def __init__(self) -> None:
        self.at = 0.0

    def __call__(self) -> float:
        return self.at


def worker(name: str, listens: str, publishes: str, seconds: float, clock: Clock) -> sl.Detector:
    class Worker(sl.Detector):
        fixed = ("clock",)

        def __init__(self) -> None:
            self.name, self.clock = name, clock

        def on_event(self, event: sl.Event):
            self.clock.at += seconds
            yield event.derive(publishes)

    Worker.listens, Worker.publishes = (listens,), (publishes,)
    return Worker()


def engine_of(clock: Clock | None) -> sl.Engine:
    work = clock or Clock()
    detectors = [worker("Low", "a", "low", 0.25, work), worker("High", "low", "high", 2.0, work)]
    return sl.Engine(sl.Hierarchy(detectors, clock="a"), policy="ordered", now=clock)


def test_each_detector_has_the_seconds_that_it_worked() -> None:
    for table in (False, True):
        engine = engine_of(Clock())
        events = [sl.Event("a", ts=ts) for ts in range(4)]
        engine.push(pa.table({"ts": [event.ts for event in events]}) if table else events)
        engine.close()
        cpu = {name: each["cpu"] for name, each in engine.stats()["detectors"].items()}
        assert cpu == {"Low": 1.0, "High": 8.0}


def test_without_a_clock_the_time_of_a_detector_is_unknown() -> None:
    engine = engine_of(None)
    engine.push([sl.Event("a", ts=1)])
    assert engine.stats()["detectors"]["Low"]["cpu"] is None
