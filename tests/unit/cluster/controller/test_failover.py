"""Which node resumes a lost one, and when."""

from __future__ import annotations

from typing import Any

from slackline.cluster.controller.failover import Failover


def overview(connected: dict[str, list[str]], runs: dict[str, int] | None = None, **states: str) -> dict[str, Any]:
    """Nodes with their states; by node, the nodes that it is connected with, and how many detectors it runs."""
    nodes = {
        name: {
            "state": state,
            "runs": [f"d{i}" for i in range((runs or {}).get(name, 1))],
            "enters": [],
            "connected": connected.get(name, []),
            "failover": True,
        }
        for name, state in states.items()
    }
    return {"nodes": nodes}


def test_a_node_that_stays_away_is_resumed_once_by_the_node_with_the_fewest_detectors() -> None:
    seen = overview({}, {"n1": 2}, n1="self", n2="up", n3="lost")
    n1, n2 = Failover("n1", 5.0), Failover("n2", 5.0)
    assert [n2.on_heartbeat(seen, now) for now in (0.0, 4.0, 5.0, 6.0)] == [[], [], ["n3"], []]
    assert [n1.on_heartbeat(seen, now) for now in (0.0, 5.0, 9.0)] == [[], [], []]
    assert (n1.on_heartbeat(seen, 10.0), n2.on_heartbeat(seen, 10.0)) == (["n3"], ["n3"])  # the first has failed


def test_a_node_that_returns_is_not_resumed() -> None:
    away = overview({}, n1="self", n2="lost")
    there = overview({}, n1="self", n2="up")
    policy = Failover("n1", 5.0)
    assert [policy.on_heartbeat(*each) for each in ((away, 0.0), (there, 3.0), (away, 5.0), (away, 9.0))] == [[]] * 4
    assert policy.on_heartbeat(away, 10.0) == ["n2"]


def test_a_node_that_any_other_is_connected_to_is_not_resumed() -> None:
    policy = Failover("n1", 0.0)
    assert policy.on_heartbeat(overview({"n2": ["n1", "n3"]}, n1="self", n2="up", n3="lost"), 1.0) == []
    assert policy.on_heartbeat(overview({"n2": ["n1"]}, n1="self", n2="up", n3="lost"), 1.0) == ["n3"]


def test_less_than_half_of_the_cluster_resumes_nothing() -> None:
    policy = Failover("n1", 0.0)
    assert policy.on_heartbeat(overview({}, n1="self", n2="lost", n3="lost"), 1.0) == []
    assert policy.on_heartbeat(overview({}, n1="self", n2="lost", n3="left"), 1.0) == ["n2"]
