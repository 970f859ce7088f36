"""The change of phases, in short: thirty detectors on six nodes, and a master that finds the optimum."""

import pytest

from scenarios import phase_play
from scenarios.hierarchies import FED, thesis_phases
from scenarios.phase_play import WAYS, passing, phase_rows
from slackline.cluster.placement.local import LocalSearch
from slackline.cluster.simulation import Cpu

#: The mean latencies of [Thesis, 5.2.6], in seconds.
OPTIMUM = (0.183 / 30, 0.188 / 30)


def test_detectors_listen_to_what_they_do_in_either_phase():
    hierarchy = passing(Cpu())
    both = thesis_phases()
    for number, problem in enumerate((both.first, both.second), start=1):
        for publisher, subscriber, _ in problem.subscriptions:
            assert (FED if publisher == FED else f"{publisher}.{number}") in hierarchy.listens[subscriber]


@pytest.mark.slow
def test_a_master_is_at_the_optimum_after_the_first_search(monkeypatch):
    monkeypatch.setattr(phase_play, "PHASE", 25.0)
    ways = {"master": WAYS["master, together"]}
    rows = phase_rows(OPTIMUM, phases=1, solver=LocalSearch(), ways=ways)
    (row,) = rows
    assert row["first_ms"] > 20 and row["after_first_search"] <= 1.05 and row["taken_back"] == 0
    assert row["moves"] >= 20
