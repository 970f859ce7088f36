"""Law 11 for processes: three nodes give the events that engines in one process give for the same excerpt of a match.

``change`` and ``detected_at`` are each node's own (``tests/unit/cluster/test_agrees.py``), and nodes have no keys.
"""

from __future__ import annotations

from pathlib import Path

import pytest
from tests import match_app
from tests.processes.processes import LIMIT, Network

pytestmark = pytest.mark.slow

OWN = ("key", "change", "detected_at")


def test_a_match_through_three_processes_agrees(tmp_path: Path) -> None:
    recording, names = str(match_app.write(tmp_path / "in.jsonl")), list(match_app.hierarchy().names)
    with Network(tmp_path / "nodes", match_app.APP) as network:
        common = (*match_app.ENGINE, "--until-end")
        more = ("--source", "sid", "--unit", "us", "--ingress", "position", *common)
        network.add("n1", "--run", ",".join(names[::3]), *more, application=(match_app.APP, recording))
        network.add("n2", "--run", ",".join(names[1::3]), *common)
        network.add("n3", "--run", ",".join(names[2::3]), *common)
        for node in network.nodes.values():
            assert node.wait(LIMIT) == 0, node.log_text()
        assert not any(node.late() or node.records("quarantine") for node in network.nodes.values())
        found = match_app.comparable(network.outputs(), *OWN)
    assert found == match_app.comparable(match_app.embedded(), *OWN)
