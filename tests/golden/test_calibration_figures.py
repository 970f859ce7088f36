"""Starting well [Order, III; Thesis, 3.5], and clock types of different delays [Thesis, 3.3.6], step by step.

The stream is that of Figure 4 [Order] (3.7 in [Thesis]), where C1 is out of order since no delay is measured yet; the
sub-delays are those of [Thesis, 3.4.1]: proximity and hits are 145 ms late, shots on goal 180 ms.
"""

from __future__ import annotations

from typing import Any

import pytest
from tests.golden.figures import NearKick

import slackline as sl
from slackline.calibration import Calibration, PseudoEvent, TypeDelay, calibrate, configurations, estimate, propagate

FIGURE_4 = ("A0", "A2", "C1", "A4", "B3", "C5", "A6", "B10", "A11", "B14")


def events(*names: str) -> list[sl.Event]:
    return [sl.Event(name[0], ts=int(name[1:]), source=name[0]) for name in names]


class Above(sl.Detector):
    """What makes one type of another, set back."""

    def __init__(self, name: str, listens: tuple[str, ...], publishes: tuple[str, ...], back: int = 0) -> None:
        self.name, self.listens, self.publishes, self.back = name, listens, publishes, back

    def on_event(self, event: sl.Event):
        if event.type == self.listens[0]:
            for kind in self.publishes:
                yield event.derive(kind, ts=max(0, event.ts - self.back))


def delays(calibration: Calibration) -> dict[str, int]:
    return {kind: known.delay for kind, known in calibration.types.items()}


# Iterative delay calculation.


def test_one_run_finds_the_delays_of_the_first_level() -> None:
    """C1 is measured by A4: 3; B3 by A6: 3, and B10 by A11: 1."""
    runs = set()
    found = calibrate(sl.Hierarchy([NearKick()], clock="A"), events(*FIGURE_4), lambda run, arrivals: runs.add(run))
    assert runs == {1}
    assert delays(found) == {"A": 0, "B": 3, "C": 3, "D": 3}  # D is as late as the input of its detector waits


def test_with_the_delays_known_C1_is_not_out_of_order() -> None:
    hierarchy = sl.Hierarchy([NearKick()], clock="A")
    known = calibrate(hierarchy, events(*FIGURE_4))
    engine = sl.Engine(hierarchy, policy=sl.Slack(margin=0), max_jump=None, calibration=known)
    seen, found = engine.detectors["D"].seen, []
    for number, event in enumerate(events(*FIGURE_4)):
        found += engine.push(event)
        if number < 3:
            assert not seen  # K is 3 from the start, so A0 waits for a clock of 3
    assert (engine.late, [output.event.ts for output in found]) == ([], [1, 5])
    assert seen == ["A0", "C1", "A2", "B3", "A4", "C5", "A6"]


def three_levels() -> sl.Hierarchy:
    low = Above("low", ("B", "A"), ("l",), back=2)
    middle = Above("middle", ("l", "A"), ("m",), back=5)
    return sl.Hierarchy([low, middle, Above("high", ("m", "A"), ())], clock="A")


def slow_B(times: int) -> list[sl.Event]:
    """A at every time; B so many times, every 20 from 10 on, always four behind."""
    came = {20 * n + 14 for n in range(times)}
    names = [[f"A{t}", f"B{t - 4}"] if t in came else [f"A{t}"] for t in range(20 * times + 40)]
    return events(*[name for both in names for name in both])


def test_restart_by_restart_one_more_level_is_right() -> None:
    """After run i the types that detectors up to level i listen to are right [Order, III-A]."""
    first, second, third = configurations(three_levels(), slow_B(1))
    # B is measured one step after it came, four behind. It is late, so low has nothing to publish; that K has grown
    # to 5 is announced upwards by pseudo events, each measured one step later.
    assert delays(first) == {"A": 0, "B": 5, "l": 6, "m": 7}
    # Now l comes: its detector's input waits 5, it is set back by 2, and measured one step later. Middle stumbles.
    assert delays(second) == {"A": 0, "B": 5, "l": 8, "m": 9}
    # And m: its detector's input waits 8, it is set back by 5, and measured one step later.
    assert delays(third) == {"A": 0, "B": 5, "l": 8, "m": 14}
    assert (third.types["l"], third.types["m"]) == (TypeDelay(8, 1, 2), TypeDelay(14, 1, 5))
    assert calibrate(three_levels(), slow_B(1)) == third


def test_a_null_configuration_stumbles_where_a_calibrated_one_does_not() -> None:
    options: dict[str, Any] = {"policy": sl.Slack(margin=0), "max_jump": None}

    def late(**more: Any) -> list[str]:
        engine = sl.Engine(three_levels(), **options, **more)
        engine.push(slow_B(5))
        return [f"{item.event.type}{item.event.ts}" for item in engine.late]

    assert late() == ["B10", "l28", "m43"]  # at every level the first
    known = calibrate(three_levels(), slow_B(1))
    assert late(calibration=known) == []


def test_the_iteration_ends_as_soon_as_a_run_changes_nothing() -> None:
    """Where nothing is late nothing stumbles: the second run of three finds what the first has found."""
    in_order = events(*[f"{kind}{t}" for t in range(30) for kind in "BA"])
    first, second = configurations(three_levels(), in_order)
    assert first == second


# Semi-configured delay estimation.


def soccer(*more: sl.Detector) -> sl.Hierarchy:
    """As the text has it: a blocked shot is made of shots on goal, hits and proximity."""
    detectors = [
        Above("proximity", ("position",), ("near",)),
        Above("hits", ("position",), ("hit",)),
        Above("shots", ("hit",), ("shot",)),
        Above("blocked", ("shot", "hit", "near"), ("blocked",)),
    ]
    return sl.Hierarchy([*detectors, *more], clock="position")


OLD = Calibration.made(
    soccer(),
    {
        "position": TypeDelay(140),
        "near": TypeDelay(145, processing=5),
        "hit": TypeDelay(145, processing=5),
        "shot": TypeDelay(180, processing=5, back=30),
        "blocked": TypeDelay(190, processing=10),
    },
)


def test_pseudo_events_go_up_the_hierarchy_level_by_level() -> None:
    """At clk 1000: e.ts = clk - d_o - d_p - d_b; who receives it finds d_o + d_p + d_b + d_n."""
    sent = {event.type: event for event in propagate(OLD, soccer(), clk=1000)}
    assert sent["near"] == PseudoEvent("near", 1000 - 140 - 5, 1000)
    assert sent["hit"] == PseudoEvent("hit", 1000 - 140 - 5, 1000)
    assert sent["shot"] == PseudoEvent("shot", 1000 - 145 - 5 - 30, 1000)
    assert sent["blocked"] == PseudoEvent("blocked", 1000 - 180 - 10, 1000)
    order = list(sent)
    assert order.index("hit") < order.index("shot") < order.index("blocked") and order[-1] == "blocked"


def test_the_same_hierarchy_has_the_same_delays() -> None:
    """Of a blocked shot's input, shots are latest: 180; hits and proximity wait 35 more for them [Thesis, 3.4.1]."""
    found = estimate(OLD, soccer())
    assert found == OLD
    waits = max(found.types[kind].delay for kind in ("shot", "hit", "near"))
    assert (waits, waits - found.types["hit"].delay) == (180, 35)


def test_another_topology_changes_jitter_ordering_and_network_and_nothing_else() -> None:
    """Positions come faster and hits over a network: only these are measured, the rest follows."""
    found = estimate(OLD, soccer(), {"position": {"jitter": 40}, "hit": {"network": 20}})
    assert found.types == {
        "position": TypeDelay(40),
        "near": TypeDelay(45, processing=5),
        "hit": TypeDelay(65, processing=5, network=20),
        "shot": TypeDelay(100, processing=5, back=30),  # it waits for hits: 65
        "blocked": TypeDelay(110, processing=10),  # and a blocked shot for shots: 100
    }


def test_a_detector_that_is_new_needs_its_own_sub_delays() -> None:
    new = soccer(Above("cheers", ("blocked", "position"), ("cheer",)))
    with pytest.raises(sl.ConfigError, match=r"does not know the type 'cheer'.*processing and back"):
        estimate(OLD, new)
    assert estimate(OLD, new, {"cheer": {"processing": 1, "back": 2}}).types["cheer"] == TypeDelay(193, 1, 2)


def test_what_the_iteration_measured_the_estimation_gives_again() -> None:
    found = calibrate(three_levels(), slow_B(5))
    assert estimate(found, three_levels()) == found


# Clock types of different delays.


class Orders(sl.Detector):
    listens = ("X", "Y")

    def __init__(self) -> None:
        self.seen: list[str] = []

    def on_event(self, event: sl.Event) -> None:
        self.seen.append(f"{event.type}{event.ts}")


def test_B20_sets_the_clock_to_21_since_B_is_at_least_1_behind() -> None:
    """A0 A3 B2 A6 A9 B20: B2 came after A3 and before A6, so B is 1 to 4 behind A."""
    engine = sl.Engine(sl.Hierarchy([Orders()], clock="A", clock_aids="B"), policy=sl.Slack(margin=0), max_jump=None)
    clocks = []
    for event in events("A0", "A3", "B2", "A6", "A9", "B20"):
        engine.push(event)
        clocks.append(engine.stats()["stream_time"])
    assert clocks == [0, 3, 3, 6, 9, 21]


def test_the_clock_dilemma_does_not_come_back() -> None:
    """[Thesis, 3.3.3] in tenths, A 5 late and B 2.6: with B as an aid X5.5 waits for Y5, and later B does help."""
    engine = sl.Engine(sl.Hierarchy([Orders()], clock="A", clock_aids="B"), policy=sl.Slack(margin=0), max_jump=None)
    engine.push(events("A0", "X1", "Y0", "A30", "X31", "X55", "A60"))
    assert (engine.push(events("B89")), engine.stats()["stream_time"]) == ([], 60)  # of B nothing is known yet
    engine.push(events("Y50", "A90"))  # B is 2.9 ahead of A at most
    engine.push(events("B130"))
    assert engine.stats()["stream_time"] == 101  # 13 less 2.9; an A that came now would have 10.6
    assert engine.detectors["Orders"].seen[-3:] == ["X31", "Y50", "X55"]
    assert [late.event.ts for late in engine.late] == [0]  # Y0, at the very start
