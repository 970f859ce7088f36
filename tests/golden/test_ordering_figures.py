"""The worked examples of [Order] (and [Thesis, 3.2 to 3.3]), step by step.

The stream of Figure 3(b)/4 as in the text: A0 A2 C1 A4 B3 C5 A6 B10 A11 B14 E20 C12, and the detector of Figure
3(a): D when C comes after A with no B in between.
"""

from __future__ import annotations

from tests.golden.figures import NearKick

import slackline as sl


class Steps:
    """Pushes the figure's events one by one and returns what each one releases."""

    def __init__(self, clock: tuple[str, ...] = ("A",), **options: object) -> None:
        options = {"policy": sl.Slack(margin=0), "late": "deliver", "max_jump": None, **options}
        self.engine = sl.Engine(sl.Hierarchy([NearKick()], clock=clock), **options)
        self.detector = self.engine.detectors["D"]
        self.found: list[sl.Output] = []

    def push(self, *names: str) -> list[str]:
        before = len(self.detector.seen)
        for name in names:
            self.found += self.engine.push([sl.Event(name[0], ts=int(name[1:]), source=name[0])])
        return self.detector.seen[before:]

    @property
    def K(self) -> int:
        return self.engine.stats()["detectors"]["D"]["K"]


def test_figure_4_event_by_event() -> None:
    steps = Steps()
    assert steps.push("A0") == ["A0"]  # no measurements yet, K is 0: passed at once
    assert steps.push("A2") == ["A2"]
    assert (steps.push("C1"), steps.K) == ([], 0)  # waits until A4 updates the clock
    assert (steps.push("A4"), steps.K) == (["C1"], 3)  # its delay is 4-1, and 1+3 <= 4: relayed
    assert steps.push("B3") == []
    assert steps.push("C5") == []
    assert (steps.push("A6"), steps.K) == (["B3"], 3)  # B3's delay is 6-3: K holds, B3 goes
    assert steps.engine.buffered() == {"D": [sl.Event("A", 4, "A"), sl.Event("C", 5, "C"), sl.Event("A", 6, "A")]}
    assert steps.push("B10") == []
    assert steps.push("A11") == ["A4", "C5", "A6"]  # A4 waits until the clock is at least 7
    assert [output.event.ts for output in steps.found] == [1, 5]  # D1 from the late C1, D5 from A4/C5


def test_a4_is_held_until_the_clock_reaches_7() -> None:
    steps = Steps()
    steps.push("A0", "A2", "C1", "A4", "B3")
    assert "A4" not in steps.push("A6")
    assert steps.push("A7") == ["A4"]


def test_without_ordering_the_detector_is_wrong() -> None:
    """II-B: ignoring order, D is wrongly made of A2/C1 and missed for A4/C5."""
    detector = NearKick()
    names = ["A0", "A2", "C1", "A4", "B3", "C5", "A6"]
    found = [e.ts for n in names for e in detector.on_event(sl.Event(n[0], ts=int(n[1:])))]
    assert found == [1]


def test_a_fixed_K_of_3_orders_the_first_part() -> None:
    """II-C: with an a-priori K of 3 the sorted order comes out, and D is made of A4/C5 (and A0/C1)."""
    steps = Steps(policy=sl.Auto(timeout=3, warmup=3), late="divert")
    steps.push("A0", "A2", "C1", "A4", "B3", "C5", "A6")
    steps.found += steps.engine.close()
    assert steps.detector.seen == ["A0", "C1", "A2", "B3", "A4", "C5", "A6"]
    assert [output.event.ts for output in steps.found] == [1, 5]


FIRST_PART = ("A0", "A2", "C1", "A4", "B3", "C5", "A6", "B10", "A11", "B14")


def test_a_sudden_jump_of_the_clock_by_E20_makes_C12_late() -> None:
    """II-D.1: when any event sets the clock, E20 sets A11 and B14 free and C12 is processed out of order."""

    class WithE(NearKick):
        listens = ("A", "B", "C", "E")

    hierarchy = sl.Hierarchy([WithE()], clock=("A", "B", "C", "E"))
    engine = sl.Engine(hierarchy, policy=sl.Slack(margin=0), max_jump=None)
    for name in (*FIRST_PART, "E20", "C12"):
        engine.push([sl.Event(name[0], ts=int(name[1:]), source=name[0])])
    assert engine.detectors["D"].seen[-2:] == ["A11", "B14"]
    assert [(late.event.type, late.event.ts) for late in engine.late if late.event.ts > 1] == [("C", 12)]


def test_with_a_designated_clock_type_E20_does_no_harm() -> None:
    """II-E.1: clk_A is still 11 when C12 arrives; it is put in order and D is made of A11/C12."""
    steps = Steps(late="divert")
    steps.push(*FIRST_PART)
    assert steps.engine.stats()["stream_time"] == 11
    steps.engine.push([sl.Event("E", ts=20)])  # no detector listens to E: quarantined, stream time stays
    steps.push("C12", "A15", "A20")
    assert [late.event.ts for late in steps.engine.late] == [1]  # only C1, at the very start
    assert [q.event.type for q in steps.engine.quarantined] == ["E"]
    steps.found += steps.engine.close()
    assert steps.detector.seen[-5:] == ["A11", "C12", "B14", "A15", "A20"]
    assert steps.found[-1].event == sl.Event("D", 12, "D", 1)


def test_K_is_retrofitted_to_4_by_B8_and_C7_before_A11() -> None:
    """II-D.2: B8 between A6 and B10 and C7 between B10 and A11: when A11 comes, K becomes 11-7."""
    steps = Steps()
    steps.push("A0", "A2", "C1", "A4", "B3", "C5", "A6", "B8", "B10")
    assert (steps.push("C7"), steps.K) == ([], 3)
    assert (steps.push("A11"), steps.K) == (["A4", "C5", "A6", "C7"], 4)
    assert [output.event.ts for output in steps.found] == [1, 5, 7]


def test_with_every_event_setting_the_clock_the_retrofit_comes_too_late_for_C7() -> None:
    """II-D.2 as in the text: the old K of 3 is still in place, A6 has gone when C7 comes, and D7 is missed."""
    steps = Steps(clock=("A", "B", "C"), late="divert")
    steps.push("A0", "A2", "C1", "A4", "B3", "C5", "A6", "B8", "B10")
    assert "A6" in steps.detector.seen
    steps.push("C7")
    assert [late.event.ts for late in steps.engine.late] == [1, 7]
    steps.push("A11")
    assert steps.K == 4


def dilemma(clock: tuple[str, ...]) -> sl.Engine:
    """[Thesis, 3.3.3], time in tenths: A has a delay of 5, B of 2.6; A and B together are an ordered stream."""

    class Orders(sl.Detector):
        listens = ("X", "Y")

        def __init__(self) -> None:
            self.seen: list[str] = []

        def on_event(self, event: sl.Event) -> None:
            self.seen.append(f"{event.type}{event.ts}")

    engine = sl.Engine(sl.Hierarchy([Orders()], clock=clock), policy=sl.Slack(margin=0), max_jump=None)
    for name in ("A0", "X1", "Y0", "A30"):
        _push_if_known(engine, name)
    assert engine.stats()["detectors"]["Orders"]["K"] == 30  # X 2.9, Y 3
    for name in ("X31", "X55", "A60", "B89", "Y50", "A90", "A130"):
        _push_if_known(engine, name)
    return engine


def _push_if_known(engine: sl.Engine, name: str) -> None:
    if name[0] in engine.hierarchy.sensor_types:
        engine.push([sl.Event(name[0], ts=int(name[1:]), source=name[0])])


def test_the_clock_dilemma_types_of_different_delay_break_the_order() -> None:
    engine = dilemma(clock=("A", "B"))
    assert engine.detectors["Orders"].seen[-1] == "X55"  # released by B8.9, before Y5 came
    assert [(late.event.type, late.event.ts) for late in engine.late if late.event.ts] == [("Y", 50)]


def test_the_clock_dilemma_is_solved_by_one_type_of_one_delay() -> None:
    engine = dilemma(clock=("A",))
    assert engine.detectors["Orders"].seen[-2:] == ["Y50", "X55"]
    assert [late.event.ts for late in engine.late] == [0]  # Y0, at the very start, before any measurement


def test_a_growing_K_reaches_the_level_above_before_a_late_event_does() -> None:
    """II-E.2: a pseudo event raises the K of the detector above, though the one below has published nothing yet."""

    class Low(sl.Detector):
        listens, publishes = ("A", "B"), ("low",)

        def on_event(self, event: sl.Event):
            if event.ts == 1000:
                yield event.derive("low")

    class High(sl.Detector):
        listens, publishes = ("A", "low"), ()

        def on_event(self, event: sl.Event) -> None: ...

    engine = sl.Engine(sl.Hierarchy([Low(), High()], clock="A"), policy=sl.Slack(margin=0), max_jump=None)
    K = lambda: {name: d["K"] for name, d in engine.stats()["detectors"].items()}  # noqa: E731
    engine.push([sl.Event("A", ts) for ts in (0, 10, 20)])
    assert K() == {"Low": 0, "High": 0}
    engine.push([sl.Event("B", 5), sl.Event("A", 30)])  # B5 has a delay of 25
    assert K() == {"Low": 25, "High": 0}
    engine.push([sl.Event("A", 40)])  # the pseudo event of 30-25=5 is measured: 40-5
    assert K() == {"Low": 25, "High": 35}
