"""A corner kick through three processes that really work: the one with too much to do gives detectors away."""

import json
import re
from collections import Counter

import pyarrow.parquet as pq
import pytest
from tests.processes.processes import Network
from tests.processes.test_three_processes import comparable

import slackline as sl
from scenarios.corner_kick import ENTERS, PLACES, hierarchy
from scenarios.corner_live import LIMIT, save
from slackline.runtime.output import RecordBuilder

pytestmark = pytest.mark.slow

#: Seconds of midfield play, and of all. All processes share one machine, with whatever else runs there.
QUIET, UNTIL = 6.0, 20.0


def alone(path):
    """What a single engine finds."""
    made = hierarchy(lambda seconds: None)
    engine = sl.Engine(made, sensors=made.sensor_types)
    found = engine.push(pq.read_table(path)) + engine.host.end(made.sensor_types)
    return {comparable(json.loads(record.json())) for record in RecordBuilder(None).events(found, 0)}


def test_a_process_that_nears_its_limit_gives_detectors_away_and_nothing_changes(tmp_path):
    recording = tmp_path / "corner.parquet"
    save(recording, QUIET, UNTIL)
    with Network(tmp_path, "scenarios.corner_live:recorded", str(recording)) as network:
        for name, runs in PLACES.items():
            ingress = "position" if name == ENTERS else ""
            pace = ("--speed", "1", "--until-end", "--shed", "--limit", str(LIMIT))
            network.add(name, "--run", ",".join(runs), "--ingress", ingress, *pace)
        n1 = network.nodes["n1"]
        assert [node.wait() for node in network.nodes.values()] == [0, 0, 0], n1.log_text()
        log_text = "".join(node.log_text() for node in network.nodes.values())
        moved = Counter(re.findall(r"detector '(\w+)' migrated from", log_text.partition("shutting down;")[0]))
        assert set(moved) & set(PLACES["n1"]), f"nothing has moved: {n1.log_text()}"
        assert max(moved.values()) <= 2
        # On a busy machine one may be taken for dead, and what it runs found twice: the same then, as law 7 has it.
        assert set(map(comparable, network.outputs())) == alone(recording)
