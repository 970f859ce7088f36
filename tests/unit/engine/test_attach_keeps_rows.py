"""A detector that joins leaves the rows that wait for others as they are: columns, shared by their readers."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest

import slackline as sl


class Count(sl.Detector):
    listens, publishes = ("a",), ("one",)

    def __init__(self) -> None:
        self.n = 0

    def on_event(self, event: sl.Event):
        self.n += 1
        yield event.derive(self.publishes[0], n=self.n, x=event["x"])


class Other(Count):
    publishes = ("two",)


def rows(start: int, stop: int) -> pa.Table:
    """Rows out of order."""
    numbers = np.arange(start, stop)
    shuffled = numbers + np.random.default_rng(start).integers(0, 40, len(numbers))
    order = np.argsort(shuffled, kind="stable")
    names = ["s0"] * len(numbers)
    return pa.table(
        {"ts": 10 * numbers[order], "type": ["a"] * len(numbers), "source": names, "seq": numbers[order],
         "x": numbers[order] / 2}
    )  # fmt: skip


def engine(detectors: list[str]) -> sl.Engine:
    hierarchy = sl.Hierarchy([Count(), Other()], clock="a")
    return sl.Engine(hierarchy, policy=sl.Slack(margin=2.0), late="divert", detectors=detectors)


@pytest.mark.parametrize("saved", [False, True])
def test_attach_leaves_waiting_rows_as_columns_and_changes_no_output(saved: bool) -> None:
    here, there, alone = engine(["Other"]), engine(["Count"]), engine(["Count", "Other"])
    found, expected = [], []
    for start in range(0, 5_000, 500):
        if start == 2_500:
            shared = here._topology.sensors["a"].shared_rows
            waiting = len(shared)
            here.host.attach(there.host.detach("Count"))
            operators = {each.name: each for each in here._topology.operators}
            assert waiting and shared is here._topology.sensors["a"].shared_rows
            assert len(shared) == waiting and shared.events is None and not operators["Other"].buffer.heap
            assert operators["Count"].buffer.buffered == operators["Other"].buffer.buffered
            here.check_invariants()
            if saved:
                here = sl.Engine.load(here.save(), sl.Hierarchy([Count(), Other()], clock="a"))
        for one in (here, there):
            found += one.push(rows(start, start + 500))
        expected += alone.push(rows(start, start + 500))
    found += here.close()
    expected += alone.close()
    for name in ("Count", "Other"):
        assert [o.event for o in found if o.detector == name] == [o.event for o in expected if o.detector == name]
