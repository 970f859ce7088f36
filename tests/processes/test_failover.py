"""A node that is killed and never restarted: another one resumes it, without an operator."""

import json
import signal

import pytest
from tests.processes.processes import LIMIT, SMALL, Network, wait_for

from slackline.connectors.store import Store

pytestmark = pytest.mark.slow

EVENTS, SPEED = 3000, 150  # 20 s of input


@pytest.fixture
def recording(tmp_path):
    path = tmp_path / "a.jsonl"
    lines = (json.dumps({"type": "a", "ts": 1_000_000 * i, "source": "s", "seq": i}) for i in range(EVENTS))
    path.write_text("\n".join(lines) + "\n")
    return path


def started(tmp_path, recording):
    """Three nodes with a shared folder; each has found something, but for the ingress."""
    network = Network(tmp_path / "shared", SMALL)
    shared = ("--shared-folder", str(tmp_path / "shared"), "--failover-after", "1", "--until-end")
    network.add(
        "n1", "--run", "", *shared, "--ingress", "a", "--speed", str(SPEED), application=(SMALL, str(recording))
    )
    network.add("n2", "--run", "Low", *shared)
    network.add("n3", "--run", "High", *shared)
    wait_for(lambda: network.nodes["n3"].outputs(), "an output of High")
    return network


@pytest.mark.parametrize("lost", ["n2", "n1"], ids=["detector", "ingress"])
@pytest.mark.parametrize("kill", [signal.SIGKILL, signal.SIGSTOP], ids=["killed", "hung"])
def test_a_node_that_stays_away_is_resumed_with_detectors_and_input(tmp_path, recording, lost, kill):
    with started(tmp_path, recording) as network:
        victim = network.nodes[lost]
        victim.process.send_signal(kill)
        others = [node for name, node in network.nodes.items() if name != lost]
        successor = wait_for(
            lambda: next((node for node in others if f"resuming node {lost}" in node.log_text()), None),
            "the failover",
        )
        if kill == signal.SIGSTOP:  # it lives again, and is fenced
            wait_for(lambda: f"node {lost} reconnected" in "".join(node.log_text() for node in others), "its return")
            victim.process.send_signal(signal.SIGCONT)
            assert victim.wait() != 0
            assert "taken over" in victim.log_text() or "fenced" in victim.log_text()
        for node in others:
            assert node.wait(LIMIT) == 0, node.log_text()
        assert f"resumed node {lost} stopped" in successor.log_text()
        high = [record["payload"]["n"] for record in network.outputs() if record["type"] == "high"]
        low = [record["payload"]["n"] for record in network.outputs() if record["type"] == "low"]
    assert sorted(low) == list(range(2, EVENTS + 1, 2))
    assert sorted(high) == list(range(1, EVENTS // 2 + 1))


@pytest.mark.parametrize("kill", [signal.SIGKILL, signal.SIGSTOP], ids=["killed", "hung"])
def test_nodes_share_a_file_system_without_locks_and_appends(tmp_path, recording, kill):
    uri = f"file://{tmp_path}/shared"
    shared = ("--shared-folder", uri, "--failover-after", "1", "--until-end")
    with Network(tmp_path / "logs", SMALL) as network:
        first = ("--run", "", *shared, "--ingress", "a", "--speed", str(SPEED))
        network.add("n1", *first, application=(SMALL, str(recording)))
        victim = network.add("n2", "--run", "Low", *shared)
        network.add("n3", "--run", "High", *shared)
        wait_for(lambda: numbers(Store.of(uri), "high"), "an output of High")
        victim.process.send_signal(kill)
        others = [network.nodes["n1"], network.nodes["n3"]]
        wait_for(lambda: [node for node in others if "resuming node n2" in node.log_text()], "the failover")
        if kill == signal.SIGSTOP:
            wait_for(lambda: "node n2 reconnected" in "".join(node.log_text() for node in others), "its return")
            victim.process.send_signal(signal.SIGCONT)
            assert victim.wait() != 0
        for node in others:
            assert node.wait(LIMIT) == 0, node.log_text()
    assert numbers(Store.of(uri), "low") == list(range(2, EVENTS + 1, 2))
    assert numbers(Store.of(uri), "high") == list(range(1, EVENTS // 2 + 1))


def numbers(shared, kind):
    """The numbers of outputs of a kind, of all nodes."""
    files = [
        (folder, name)
        for node in ("n1", "n2", "n3")
        for folder in [shared.child(node).child("outputs")]
        for name in folder.names()
    ]
    lines = [json.loads(line) for folder, name in files for line in (folder.read(name) or b"").splitlines()]
    return sorted(record["payload"]["n"] for record in lines if record["type"] == kind)
