"""The worked examples of [Speculation] (and [Thesis, 4]), step by step."""

from __future__ import annotations

import pytest

import slackline as sl
from slackline.speculation.alpha import Controller

STREAM = ("A0", "A2", "C1", "A3", "B4", "A6", "C5", "B8", "C7", "A11", "B10", "A12", "C9")


class NearKick(sl.Detector):
    """A, then C, and no B in between, makes D at the time of A (Figures 3(a) and 9)."""

    name = "D"
    listens = ("A", "B", "C")
    publishes = ("D",)

    def __init__(self) -> None:
        self.near: int | None = None
        self.seen: list[str] = []

    def on_event(self, event: sl.Event):
        self.seen.append(f"{event.type}{event.ts}")
        if event.type == "C" and self.near is not None:
            yield event.derive("D", ts=self.near)
        elif event.type in "AB":
            self.near = event.ts if event.type == "A" else None


class Steps:
    """Pushes the figure's events one by one. ``emitted`` is what the detector has seen, in its present state."""

    def __init__(self, alpha: float = 1 / 3, retraction: str = "on_demand", **options: object) -> None:
        speculation = sl.Speculation(alpha=alpha, retraction=retraction, snapshot_every=1)
        options = {"policy": sl.Slack(margin=0, warmup=1000), "max_jump": None, **options}
        self.engine = sl.Engine(sl.Hierarchy([NearKick()], clock="A"), speculation=speculation, **options)

    def push(self, *names: str) -> list[sl.Output]:
        changes = []
        for name in names:
            changes += self.engine.push([sl.Event(name[0], ts=int(name[1:]), source=name[0])])
        return changes

    @property
    def emitted(self) -> list[str]:
        return self.engine.detectors["D"].seen

    @property
    def figures(self) -> dict[str, int]:
        return self.engine.stats()["detectors"]["D"]

    @property
    def slack(self) -> int:
        return max(figures["K"] for figures in self.engine.stats()["types"].values())

    @property
    def purged(self) -> int:
        return self.figures["delivered"]

    @property
    def snapshots(self) -> list[str]:
        """The snapshots in the buffer, named by the event before which they were taken."""
        tail = self.engine._topology.operators[0].runner.log
        return [f"s{step.piece.rows[0].ts}" for step in tail.steps if step.before is not None]


def test_figures_7_and_8_event_by_event() -> None:
    """Emissions, K, replays and snapshots. Nothing is known of delays at first, so nothing is purged here."""
    steps = Steps()
    steps.push("A0")
    assert steps.emitted == ["A0"]  # no measurements yet: emitted at once, speculatively
    steps.push("A2")
    assert (steps.emitted, steps.snapshots) == (["A0", "A2"], ["s0", "s2"])
    steps.push("C1")  # A2 was emitted too early: s2 is restored, C1 and A2 are replayed
    assert (steps.emitted, steps.figures["replays"]) == (["A0", "C1", "A2"], 1)
    assert steps.snapshots == ["s0", "s1", "s2"]
    steps.push("A3")  # K = 3 - 1 = 2; 3 + 2/3 > 3: A3 waits
    assert (steps.slack, steps.emitted) == (2, ["A0", "C1", "A2"])
    steps.push("B4")
    assert steps.emitted == ["A0", "C1", "A2"]
    steps.push("A6")  # 3.67 and 4.67 <= 6: A3 and B4 go
    assert (steps.slack, steps.emitted) == (2, ["A0", "C1", "A2", "A3", "B4"])
    steps.push("C5")  # 5.67 <= 6, and A6 has not been processed: emitted on arrival, without a replay
    assert (steps.emitted[-1], steps.figures["replays"]) == ("C5", 1)
    steps.push("B8", "C7")
    assert steps.emitted[-1] == "C5"
    steps.push("A11")  # K = 11 - 5 = 6; A6, C7 and B8 go
    assert (steps.slack, steps.emitted[-3:]) == (6, ["A6", "C7", "B8"])
    steps.push("B10")
    assert steps.emitted[-1] == "B8"
    steps.push("A12")  # 10 + 6/3 <= 12: B10 goes too early
    assert (steps.slack, steps.emitted[-1]) == (6, "B10")
    steps.push("C9")  # in front of B10: its snapshot is restored, C9 and B10 are replayed
    assert (steps.emitted[-3:], steps.figures["replays"]) == (["B8", "C9", "B10"], 2)
    assert steps.snapshots == ["s0", "s1", "s2", "s3", "s4", "s5", "s6", "s7", "s8", "s9", "s10"]
    assert steps.purged == 0


def test_figure_7_events_are_purged_where_plain_slack_lets_them_go() -> None:
    """As above with K counting from the start (as in [Order]): C1 is late there, and the rest is purged as there."""
    steps = Steps(policy=sl.Slack(margin=0))
    steps.push("A0", "A2", "C1", "A3", "B4")
    assert (steps.slack, steps.purged) == (2, 2)
    steps.push("A6")  # A3 and B4 are safe: 4 + 2 <= 6
    assert (steps.emitted, steps.snapshots, steps.purged) == (["A0", "A2", "A3", "B4"], [], 4)
    steps.push("C5")
    assert (steps.emitted[-1], steps.snapshots, steps.purged) == ("C5", ["s5"], 4)
    steps.push("B8", "C7", "A11")  # 5 + 6 <= 11: C5 goes, with its snapshot
    assert (steps.slack, steps.snapshots, steps.purged) == (6, ["s6", "s7", "s8"], 5)
    steps.push("B10", "A12")  # 6 + 6 <= 12
    assert (steps.snapshots, steps.purged) == (["s7", "s8", "s10"], 6)
    steps.push("C9")
    assert (steps.snapshots, steps.figures["replays"]) == (["s7", "s8", "s9", "s10"], 1)
    assert [late.event.ts for late in steps.engine.late] == [1]


def test_the_changelog_of_figure_7_nets_out() -> None:
    steps = Steps()
    deferred: dict[str, sl.Event] = {}
    for output in steps.push(*STREAM) + steps.engine.close():
        if output.op == "retract":
            assert deferred.pop(output.id) == output.event
        else:
            deferred[output.id] = output.event
    plain = sl.Engine(sl.Hierarchy([NearKick()], clock="A"), policy=sl.Slack(margin=0, warmup=1000), max_jump=None)
    expected = plain.push([sl.Event(name[0], ts=int(name[1:]), source=name[0]) for name in STREAM]) + plain.close()
    assert deferred == {output.id: output.event for output in expected}


def figure_9(retraction: str) -> tuple[list[str], sl.Engine, list[tuple[str, str, int]]]:
    """A3 to B8 have been processed ahead, with D3 out of A3/C5 and D6 out of A6/C7, when B4 arrives."""
    steps = Steps(alpha=0, retraction=retraction)
    before = steps.push("A3", "C5", "A6", "C7", "A8", "B8")
    assert [(o.op, o.id, o.event.ts) for o in before] == [("insert", "D:D:0", 3), ("insert", "D:D:1", 6)]
    changes = steps.push("B4")
    return steps.emitted, steps.engine, [(output.op, output.id, output.event.ts) for output in changes]


def test_figure_9_full_retraction_takes_back_all_behind_the_break() -> None:
    """-Di3 and -Di+1 6 at once; the replay makes Di 6, with the counter of the event that is no more."""
    emitted, engine, changes = figure_9("full")
    assert emitted == ["A3", "B4", "C5", "A6", "C7", "A8", "B8"]
    assert changes == [("retract", "D:D:0", 3), ("retract", "D:D:1", 6), ("insert", "D:D:0", 6)]
    assert engine.stats()["detectors"]["D"]["touched"] == 4


class Above(sl.Detector):
    """Listens to D: a level above."""

    name = "Above"
    listens, publishes = ("D",), ("E",)

    def __init__(self) -> None:
        self.seen: list[int] = []

    def on_event(self, event: sl.Event):
        self.seen.append(event.ts)
        yield event.derive("E")


@pytest.mark.parametrize(("retraction", "replays"), [("full", 1), ("on_demand", 0)])
def test_figure_9_an_event_that_changes_nothing_stops_the_cascade_on_demand(retraction: str, replays: int) -> None:
    """If B4 comes where no A is open, s5' = s5: replay and retraction are aborted, and none above is involved."""

    class Forgetful(NearKick):
        def snapshot(self):
            return {"near": self.near}

        def restore(self, state):
            self.near = state["near"]

    speculation = sl.Speculation(alpha=0, retraction=retraction, snapshot_every=1)
    hierarchy = sl.Hierarchy([Forgetful(), Above()], clock="A")
    engine = sl.Engine(hierarchy, policy=sl.Auto(margin=0, warmup=1000), max_jump=None, speculation=speculation)
    for name in ("A3", "C3", "B4", "C5", "A6", "C7", "A8", "B8"):
        engine.push([sl.Event(name[0], ts=int(name[1:]), source=name[0])])
    changes = engine.push([sl.Event("B", ts=5, source="B")])  # no player is near since B4
    assert engine.stats()["detectors"]["D"]["replays"] == 1
    assert engine.stats()["detectors"]["Above"]["replays"] == replays
    ops = [(output.op, output.event.type, output.event.ts) for output in changes]
    if retraction == "on_demand":
        assert ops == []
    else:
        assert ops == [("retract", "D", 6), ("retract", "E", 6), ("insert", "D", 6), ("insert", "E", 6)]


def test_alpha_1_is_plain_buffering_and_alpha_0_emits_on_arrival() -> None:
    plain = sl.Engine(sl.Hierarchy([NearKick()], clock="A"), policy=sl.Slack(margin=0, warmup=1000), max_jump=None)
    still = Steps(alpha=1)
    for name in STREAM:
        assert still.push(name) == plain.push([sl.Event(name[0], ts=int(name[1:]), source=name[0])])
    eager = Steps(alpha=0)
    for name in ("A0", "A2", "A3", "A6"):
        eager.push(name)
        assert eager.emitted[-1] == name


def test_a_trace_of_the_controller_as_in_section_5_2() -> None:
    """Halving to 0.125, resting in the zone, overload, halving down to the bisection line, then steps of 0.05."""
    controller = Controller()
    assert [controller.adapt(busy) for busy in (0.5, 0.6, 0.7)] == [0.5, 0.25, 0.125]
    assert [controller.adapt(busy) for busy in (0.8, 0.85, 0.9)] == [0.125] * 3  # in the zone
    assert controller.adapt(0.95) == 1.0  # overload: back to buffering at once
    assert not controller.slow
    # The bisection line is (1 - 0.125) / 2 = 0.4375: 0.25 would be below it.
    assert [controller.adapt(0.6) for _ in range(4)] == [0.5, 0.45, 0.40, 0.35]
    assert controller.slow
    assert controller.adapt(0.82) == 0.35
    assert controller.adapt(0.91) == 1.0
    assert [controller.adapt(0.3) for _ in range(3)] == [0.5, 0.45, 0.40]  # (1 - 0.35) / 2 = 0.325 > 0.25
