"""A single event: one compiled call gives what one call for each part gives."""

from __future__ import annotations

import numpy as np
import pytest

from slackline.core.detector import Detector
from slackline.core.event import Event
from slackline.core.hierarchy import Hierarchy
from slackline.core.time import FOREVER, NEVER
from slackline.engine.intake import Intake
from slackline.engine.progress import ProgressExport
from slackline.engine.results import Results
from slackline.engine.topology import Topology
from slackline.ordering.clock import JUMP_AUTO
from slackline.ordering.input import Evidence
from slackline.ordering.watermark import POLICIES
from slackline.running.runner import Runner


@pytest.mark.parametrize("now_known", [False, True])
def test_one_call_for_an_arrival_gives_what_one_call_for_each_of_its_parts_gives(now_known: bool) -> None:
    """Duplicates, clock jumps and the end of the start included, at which the call does not evaluate."""

    class Nothing(Detector):
        listens, publishes = ("a", "b"), ("c",)

        def on_event(self, event: Event) -> None:
            pass

    def engine_of() -> tuple[Topology, Intake]:
        evidence = Evidence(POLICIES["auto"], warmup=None, late_target=0.01)
        topology = Topology(Hierarchy([Nothing()]), evidence, {}, None, None, False)
        topology.add(topology.make(Runner(Nothing(), "Nothing", False)))
        results = Results(ProgressExport(topology), True, False)
        return topology, Intake(topology, results, JUMP_AUTO)

    rng = np.random.default_rng(3)
    (together, one_call), (apart, calls) = engine_of(), engine_of()
    outcomes = set()
    for position in range(2_000):
        ts = max(0, 10 * position - int(rng.exponential(2.0 ** (position % 9)))) + 10**9 * (position == 1_000)
        event = Event("ab"[int(rng.integers(2))], ts, f"s{rng.integers(5)}", int(rng.integers(position + 1)))
        now = 10 * position if now_known else NEVER
        before = calls.clk
        found, taken = one_call.admit(event, now, FOREVER), calls.admit(event, now, NEVER)
        assert taken is None or taken[3] is None
        assert (found is None, one_call.clk, one_call.changes_startup) == (
            taken is None,
            calls.clk,
            calls.changes_startup,
        )
        for topology, admitted in ((together, found), (apart, taken)):
            (operator,), clk = topology.operators, calls.clk
            if admitted is None:
                outcomes.add("refused")
            elif admitted[3] is not None:
                outcomes.add("evaluated")
                early, reached, least, K = admitted[3][2:]
                got = max(operator.buffer.watermark, early), reached, K
                operator.buffer.advance(max(got[0], least))
            else:
                operator.advance(position - 1, before)
                if calls.changes_startup:
                    outcomes.add("start")
                    topology.startup.observe(ts, before, clk, now)
                early, reached = operator.buffer.watermark, admitted[0].step(admitted[1], ts, position, before, clk)
                watermark, K = operator.evaluate(position, clk)
                expected = early, reached, K
                operator.buffer.advance(watermark)
            operator.publish_progress(clk)
        if found is not None and found[3] is not None:
            assert got == expected
        assert together.operators[0].watermark == apart.operators[0].watermark
    assert outcomes == {"refused", "evaluated", "start"}
    assert one_call.stats() == calls.stats() and calls.duplicates > 0
