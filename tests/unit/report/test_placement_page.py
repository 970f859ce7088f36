"""The page about where detectors run says what its story says."""

from __future__ import annotations

from dataclasses import replace

import pytest

from slackline.cluster.client import CompletedMigration, LoadSample, PlacementReport
from slackline.cluster.placement import Improvement, Problem, Subscription
from slackline.cluster.placement.problem import PlacementChange
from slackline.report.placement import MOST_NODES, placement_page

PROBLEM = Problem(
    {"Low": 0.5, "High": 0.4},
    {"n1": 0.6, "n2": 0.6},
    (Subscription("a", "Low", 900), Subscription("Low", "High", 4)),
    {("n1", "n2"): 0.01},
    ingress={"a": "n1"},
)
REPORT = PlacementReport(
    PROBLEM,
    before={"Low": "n2", "High": "n2"},
    after={"Low": "n1", "High": "n2"},
    changes=(PlacementChange("Low", "n2", "n1", 0.01, "nearer to a"),),
    histories={"local": (Improvement(0.01, 0.5),), "genetic": (Improvement(0.02, 0.7),)},
    solver="local",
    bound=0.4,
    loads={"n1": (LoadSample(0.0, 0.1, 0.1), LoadSample(1.0, 0.5, 0.4)), "n2": (LoadSample(0.0, 0.9, 0.9),)},
    migrations=(CompletedMigration(0.5, "Low", "n2", "n1", 0.0123),),
)


def test_the_page_shows_migrations_and_their_gain() -> None:
    page = placement_page(REPORT)
    assert "One detector migrates" in page
    assert "need 0.9, its limit is 0.6" in page  # why it was not allowed before
    assert "900/s" in page and "4.00/s" in page  # between nodes, before and after
    assert "5.00 ms" in page  # the mean of one link of 10 ms and a local subscription
    assert "genetic" in page and "local" in page and "lower bound" in page
    assert "nearer to a" in page and "12.3 ms" in page  # why, and how long it took


def test_a_placement_that_stays_says_so() -> None:
    page = placement_page(replace(REPORT, after=REPORT.before, changes=(), migrations=()))
    assert "No migration: no placement was found" in page and "None." in page


def test_without_a_search_or_loads_these_parts_are_left_out() -> None:
    page = placement_page(replace(REPORT, histories={}, loads={}, migrations=()))
    assert "The search" not in page and ">Load<" not in page


@pytest.mark.parametrize("nodes", [2, MOST_NODES + 1])
def test_many_nodes_are_a_matrix(nodes: int) -> None:
    names = [f"n{n}" for n in range(nodes)]
    latencies = {(a, b): 0.01 for a in names for b in names if a < b}
    problem = Problem({"Low": 0.1}, dict.fromkeys(names, 1.0), (Subscription("a", "Low", 3),), latencies, {"a": "n0"})
    story = replace(
        REPORT, problem=problem, before={"Low": "n1"}, after={"Low": "n0"}, histories={}, loads={}, migrations=()
    )
    page = placement_page(story)
    assert ("A circle is a node" in page) == (nodes <= MOST_NODES)
    assert ('"type":"heatmap"' in page) == (nodes > MOST_NODES)
