"""`slackline place` and masters in nodes, over real processes."""

import json

import pytest
from tests.processes.processes import finished, wait_for

pytestmark = pytest.mark.slow

ROWS = 6_000


def badly_placed(network, recording, *more):
    """Everything is far from what it listens to."""
    pace = ("--speed", "1", "--unit", "ms")
    first = network.add("n1", str(recording), "--run", "", "--ingress", "a", "--until-end", *pace, *more)
    network.add("n2", "--run", "High", "--until-end", *more)
    network.add("n3", "--run", "Low", "--until-end", *more)
    wait_for(lambda: highs(network), "outputs")
    return first.address()


def highs(network):
    found = [output["payload"] for output in network.outputs() if output["type"] == "high"]
    return sorted((payload["n"], payload["low"]) for payload in found)


#: What one engine finds.
EXPECTED = [(n, 2 * n) for n in range(1, ROWS // 2 + 1)]


def test_place_says_what_would_move_then_moves_it_and_nothing_is_lost(network, recording):
    at = badly_placed(network, recording)
    code, out, err = finished("place", "--at", at, "--dry-run", "--seconds", "0.5")
    assert code == 0, err
    assert "detector" in out and "why" in out and "a → Low" in out and "Nothing was migrated (--dry-run)." in out
    assert network.runs() == {"n1": [], "n2": ["High"], "n3": ["Low"]}
    code, out, err = finished("place", "--at", at, "--json", "--seconds", "0.5")
    assert code == 0, err
    figures = json.loads(out)
    assert {move["detector"] for move in figures["migrations"]} >= {"Low"} and not any(
        m["error"] for m in figures["migrations"]
    )
    assert figures["after"]["cost"] < figures["before"]["cost"]
    assert network.runs() == {"n1": ["High", "Low"], "n2": [], "n3": []}
    assert all(node.wait() == 0 for node in network.nodes.values() if node.name == "n1")
    assert highs(network) == EXPECTED


def test_a_pinned_detector_goes_where_it_must(network, recording):
    at = badly_placed(network, recording)
    code, out, err = finished("place", "--at", at, "--pin", "High=n3", "--together", "--seconds", "0.5")
    assert code == 0, err
    assert "High" in network.runs()["n3"] and " migration" in out
    code, _, err = finished("place", "--at", at, "--pin", "High=n9")
    assert code == 2 and "pinned has 'High' on 'n9'; the nodes are" in err


def test_a_master_in_a_node_does_it_by_itself_and_place_stands_by(network, recording):
    at = badly_placed(network, recording, "--optimise", "master")
    wait_for(lambda: network.runs()["n1"] == ["High", "Low"], "a better placement")
    code, out, _ = finished("nodes", "--at", at)
    assert code == 0 and "n1 is the master" in out
    log_text = network.nodes["n1"].log_text()
    assert "node n1 is now the placement master" in log_text
    network.nodes["n1"].wait()
    assert highs(network) == EXPECTED


def test_where_no_node_is_nothing_can_be_placed():
    code, out, err = finished("place", "--at", "127.0.0.1:9")
    assert (code, out) == (1, "") and "cannot connect to a node at 127.0.0.1:9" in err
