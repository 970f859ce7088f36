"""Three processes on loopback: a match, detectors migrated under load, two nodes killed; one engine's outputs."""

import json
import time

import pytest
from tests.processes.match_app import secure_match
from tests.processes.processes import LIMIT, Network, TooLate, finished

import slackline as sl
from slackline.runtime.output import RecordBuilder
from slackline_soccer import simulate
from slackline_soccer.simulator import save

pytestmark = pytest.mark.slow

#: Length of the match, and replay speeds: where a machine is so busy that the input ends too early, the next is used.
SECONDS, SPEEDS = 12.0, (0.25, 0.08)
PLACES = {
    "n1": "ActiveBall,BallTurned,Proximity,PlayerHitsBall",
    "n2": "BallAreas,Possession,Kick,ShotOnGoal,Goal",
}


@pytest.fixture(scope="module")
def match(tmp_path_factory):
    """A simulated match on disk, and what a single engine finds in it."""
    folder = tmp_path_factory.mktemp("match") / "match"
    simulation = simulate(SECONDS, seed=7)
    save(folder, simulation.match, simulation.tables(), lambda: simulation.truth)
    hierarchy, tables = secure_match(folder)
    engine = sl.Engine(hierarchy, sensors=hierarchy.sensor_types)
    found = [output for table in tables() for output in engine.push(table)]
    found += engine.host.end(hierarchy.sensor_types)
    build, late = RecordBuilder(None), engine.drain().late
    records = [json.loads(record.json()) for record in build.events(found, 0)]
    return folder, sorted(map(comparable, records)), len(list(build.late(late)))


def comparable(output):
    """What must be the same wherever a detector runs; when it was found depends on progress."""
    assert output["op"] == "insert" and output["final"]
    return output["id"], output["ts"], json.dumps(output.get("payload"), sort_keys=True)


def test_a_match_through_three_processes_with_migrations_and_kills_gives_what_one_engine_gives(tmp_path, match):
    recording, expected, late = match
    for number, speed in enumerate(SPEEDS):
        with Network(tmp_path / str(number), "match_app:secure_match", str(recording)) as network:
            try:
                migrate_and_kill(network, recording, speed)
            except TooLate:
                if speed == SPEEDS[-1]:
                    raise
                continue
            codes = [node.wait(LIMIT + SECONDS / speed) for node in network.nodes.values()]
            assert codes == [0, 0, 0], network.nodes["n2"].log_text()
        found = sorted(map(comparable, network.outputs()))
        assert len({id for id, *_ in found}) == len(found), "an event was detected twice"
        assert found == expected
        assert sum(node.late() for node in network.nodes.values()) == late
        return


def migrate_and_kill(network, recording, speed):
    """Start three nodes, migrate detectors between them and kill two, all of it before the input ends."""
    hierarchy, _ = secure_match(recording)
    rest = [name for name in hierarchy.names if name not in ",".join(PLACES.values()).split(",")]
    pace = ("--speed", str(speed), "--unit", "ps", "--until-end")
    network.add("n1", "--run", PLACES["n1"], "--ingress", "position", *pace)
    network.add("n2", "--run", PLACES["n2"], *pace)
    network.add("n3", "--run", ",".join(rest), *pace)
    n1, n2, _ = network.nodes.values()
    network.wait_for_outputs()
    code, out, err = finished("migrate", "Possession", "n1", "--at", n1.address(), "--json")
    if code:
        network.check_running()
    assert code == 0, err
    assert json.loads(out)["from"] == "n2"
    for detector, node in (("Pass", "n2"), ("Proximity", "n2")):
        network.move(detector, node)
    for killed, moves in ((n2, [("ShotOnGoal", "n1"), ("Pass", "n1")]), (n1, [("Kick", "n1")])):
        where = killed.address()
        time.sleep(1.0)  # until the previous owner knows that a migration is complete; otherwise both own the detector
        killed.kill()
        if "input ended" in n1.log_text():
            raise TooLate("the kill came after the end of the input")
        killed.start("--listen", where)
        for detector, node in moves:
            network.move(detector, node)
    # On a busy machine a node's lease may expire, and a detector that was just migrated there is restored elsewhere.
    assert sorted(name for runs in network.runs().values() for name in runs) == sorted(hierarchy.names)


def test_a_node_that_is_stopped_hands_its_detectors_on_first(tmp_path, match):
    recording, expected, _ = match
    with Network(tmp_path, "match_app:secure_match", str(recording)) as network:
        pace = ("--speed", "0.5", "--unit", "ps", "--until-end")
        hierarchy, _ = secure_match(recording)
        away = ["Possession", "Pass", "Proximity"]
        stay = [name for name in hierarchy.names if name not in away]
        n1 = network.add("n1", "--run", ",".join(stay), "--ingress", "position", *pace)
        n2 = network.add("n2", "--run", ",".join(away), *pace)
        network.wait_for_outputs()
        n2.stop()
        assert n2.wait(30) == 0
        assert "n2: stopped" in n2.log_text() and "node n2 left the cluster" in n1.log_text()
        assert set(away) <= set(network.runs()["n1"])
        assert n1.wait() == 0
        assert sorted(map(comparable, network.outputs())) == expected
