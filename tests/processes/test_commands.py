"""`slackline node`, `nodes` and `migrate` as users meet them, right and wrong."""

import json
import re
import signal
import time
import urllib.request
from pathlib import Path

import pytest
from tests.processes.processes import SMALL, Network, finished, started, wait_for

from slackline.cluster.links import Credentials

pytestmark = pytest.mark.slow

ROWS = 4_000


def two(network, recording, *pace):
    """Low where its events enter, High elsewhere."""
    first = network.add("n1", str(recording), "--run", "Low", "--ingress", "a", "--until-end", *pace)
    second = network.add("n2", "--run", "High", "--until-end")
    return first, second


def highs(network):
    return sorted(output["payload"]["low"] for output in network.outputs() if output["type"] == "high")


def test_a_file_through_two_processes_and_both_end(network, recording):
    first, second = two(network, recording)
    assert [first.wait(), second.wait()] == [0, 0], first.log_text() + second.log_text()
    assert highs(network) == list(range(2, ROWS + 1, 2))
    assert {output["detector"] for output in second.outputs()} == {"High"}


def test_a_node_alone_prints_what_it_finds_if_it_has_no_folder(recording):
    code, out, err = finished("node", SMALL, str(recording), "--name", "n1", "--until-end")
    assert code == 0, err
    found = [json.loads(line) for line in out.splitlines()]
    assert {line["kind"] for line in found} == {"event"} and len(found) == ROWS
    assert "listening at 127.0.0.1:" in err and ": stopped" in err


def test_a_node_that_may_hardly_work_finds_the_same_later(recording):
    code, out, err = finished("node", SMALL, str(recording), "--name", "n1", "--until-end", "--pause", "0.3")
    assert code == 0, err
    assert len({json.loads(line)["id"] for line in out.splitlines()}) == ROWS
    code, _, err = finished("node", SMALL, str(recording), "--name", "n1", "--pause", "1")
    assert code == 2 and "share=1 is not valid" in err


def test_nodes_shows_where_detectors_run_and_migrate_moves_one(network, recording):
    first, _ = two(network, recording, "--speed", "1", "--unit", "ms")
    at = first.address()
    wait_for(lambda: highs(network), "outputs")
    code, out, _ = finished("nodes", "--at", at)
    assert code == 0 and all(word in out for word in ("n1", "n2", "Low", "High", "ingress: a", "events/s"))
    code, out, err = finished("migrate", "High", "n1", "--at", at)
    assert code == 0 and "High migrated from n2 to n1 in" in out, err
    code, out, _ = finished("nodes", "--at", at, "--json")
    assert code == 0 and json.loads(out)["nodes"]["n1"]["runs"] == ["High", "Low"]


def test_an_unknown_detector_or_node_cannot_be_moved(network, recording):
    first, _ = two(network, recording, "--speed", "1", "--unit", "ms")
    at = first.address()
    wait_for(lambda: highs(network), "outputs")
    code, out, err = finished("migrate", "Hihg", "n1", "--at", at)
    assert (code, out) == (1, "") and "there is no detector 'Hihg'; the application has" in err
    code, out, err = finished("migrate", "High", "n7", "--at", at)
    assert (code, out) == (1, "") and "there is no node 'n7'; the cluster has" in err


def test_the_page_of_a_cluster_shows_where_detectors_run(network, recording, tmp_path):
    first, _ = two(network, recording, "--speed", "1", "--unit", "ms")
    wait_for(lambda: highs(network), "outputs")
    log = tmp_path / "page.log"
    with log.open("w") as stderr:
        watching = started(["nodes", "--at", first.address(), "--page", "0", "--unit", "ms"], stderr=stderr)
    try:
        found = wait_for(lambda: re.search(r"page to watch at (\S+)", log.read_text()), "the page")
        with urllib.request.urlopen(found[1] + "events", timeout=30) as answer:
            seen = (line.decode().partition(": ")[2] for line in answer if line.startswith(b"data: "))
            first_message, cluster, report = (json.loads(next(seen)) for _ in range(3))
    finally:
        watching.send_signal(signal.SIGINT)
        code = watching.wait(30)
    assert code == 0
    assert [stage["name"] for stage in first_message["stages"]] == ["Low", "High"]
    assert {name: node["runs"] for name, node in cluster["nodes"].items()} == {"n1": ["Low"], "n2": ["High"]}
    assert report["events"] > 0 and set(report["loads"]) == {"n1", "n2"}


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_the_page_of_a_cluster_stops_on_a_signal_also_where_a_shell_started_it_in_the_background(
    number, network, recording, tmp_path
):
    first, _ = two(network, recording, "--speed", "1", "--unit", "ms")
    log = tmp_path / "page.log"
    options = ["nodes", "--at", first.address(), "--page", "0", "--unit", "ms"]
    with log.open("w") as stderr:
        # With `command &` a shell without job control has it ignore SIGINT.
        watching = started(options, stderr=stderr, preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_IGN))
    try:
        wait_for(lambda: "page to watch at" in log.read_text(), "the page")
        watching.send_signal(number)
        assert watching.wait(30) == 0
    finally:
        watching.kill()


def test_where_no_node_is_nothing_can_be_asked():
    code, out, err = finished("nodes", "--at", "127.0.0.1:9")
    assert (code, out) == (1, "") and "cannot connect to a node at 127.0.0.1:9" in err
    code, _, err = finished("migrate", "High", "n1", "--at", "nowhere")
    assert code == 2 and "is not an address" in err


def test_a_second_node_of_a_name_is_turned_away(network, recording):
    first, second = two(network, recording, "--speed", "1", "--unit", "ms")
    wait_for(lambda: highs(network), "outputs")
    code, _, err = finished("node", SMALL, "--name", "n2", "--join", first.address())
    assert code == 1 and "another node called 'n2' exists already; give each its own --name" in err
    assert not first.ended() and not second.ended()


def test_a_node_with_another_version_of_the_application_is_turned_away(network, recording):
    first, _ = two(network, recording, "--speed", "1", "--unit", "ms")
    wait_for(lambda: highs(network), "outputs")
    for options, reason in (
        (["match_app:changed"], "runs 'match_app:changed'"),
        ([SMALL, "--engine", "late_target=0.5"], "another version of the application"),
    ):
        code, _, err = finished("node", *options, "--name", "n3", "--join", first.address())
        assert code == 1 and reason in err


def test_a_node_that_is_killed_comes_back_and_nothing_is_lost_or_found_twice(network, recording):
    first, second = two(network, recording, "--speed", "4", "--unit", "ms")
    for node in (second, first):
        wait_for(lambda: len(highs(network)) > 50, "outputs")
        where = node.address()
        node.kill()
        node.start("--listen", where)
    assert [first.wait(), second.wait()] == [0, 0], first.log_text() + second.log_text()
    assert highs(network) == list(range(2, ROWS + 1, 2))


def test_ctrl_c_stops_a_node_alone_and_it_resumes_where_it_was(network, recording):
    node = network.add("n1", str(recording), "--speed", "8", "--unit", "ms", "--until-end")
    wait_for(lambda: highs(network), "outputs")
    node.process.send_signal(signal.SIGINT)
    assert node.wait(30) == 0 and "no other node can take" in node.log_text()
    assert 0 < len(highs(network)) < ROWS / 2
    node.start()
    assert node.wait() == 0
    assert highs(network) == list(range(2, ROWS + 1, 2))


def test_with_tls_only_nodes_with_a_certificate_take_part(tmp_path, recording):
    code, out, err = finished("certificates", str(tmp_path / "tls"), "--name", "node")
    assert code == 0, err
    given = out.removeprefix("node: ").split()
    assert given[::2] == ["--tls-cert", "--tls-key", "--tls-ca"]
    with Network(tmp_path, SMALL, *given, credentials=Credentials.of(*map(Path, given[1::2]))) as network:
        first, second = two(network, recording, "--speed", "2", "--unit", "ms")
        wait_for(lambda: highs(network), "outputs")
        code, _, err = finished("nodes", "--at", first.address())
        assert code == 1 and "cannot connect to a node" in err and "Do both sides use TLS, or neither?" in err
        code, out, _ = finished("nodes", "--at", first.address(), "--json", *given)
        assert code == 0 and json.loads(out)["seen_from"] == "n1"
        assert re.search(r"connection from 127.0.0.1:\d+ refused: the TLS handshake failed", first.log_text())
        assert network.move("High", "n1")["from"] == "n2"
        assert [first.wait(), second.wait()] == [0, 0]
        assert highs(network) == list(range(2, ROWS + 1, 2))


def test_a_folder_of_another_node_is_not_taken(network, recording):
    network.add("n1", str(recording), "--until-end").wait()
    code, _, err = finished("node", SMALL, "--name", "n2", "--folder", str(network.nodes["n1"].folder))
    assert code == 2 and "holds node 'n1', not 'n2'" in err


def test_a_folder_of_another_record_schema_is_refused(network, recording):
    node = network.add("n1", str(recording), "--unit", "ms", "--until-end")
    assert node.wait() == 0, node.log_text()
    for options, why in ((["--unit", "s"], "unit was 'ms', is 's'"), (["--type", "kind"], "type was None, is 'kind'")):
        given = [SMALL, str(recording), "--name", "n1", "--folder", str(node.folder), *options]
        code, _, err = finished("node", *given)
        assert code != 0 and "another record schema" in err and why in err


def test_a_followed_file_enters_as_it_grows_and_kills_lose_and_repeat_nothing(network, tmp_path):
    path, rows = tmp_path / "live.jsonl", 900
    path.touch()
    first = network.add("n1", str(path), "--follow", "--run", "Low", "--ingress", "a", "--unit", "ms")
    second = network.add("n2", "--run", "High")
    killed = {rows // 3: first, 2 * rows // 3: second}
    with path.open("a", buffering=1) as file:
        for row in range(rows):
            file.write(json.dumps({"ts": int(time.time() * 1000), "source": "s", "seq": row}) + "\n")
            time.sleep(0.01)
            if node := killed.get(row):
                wait_for(lambda: len(highs(network)) > 20, "outputs while the file grows")
                wait_for(first.checkpointed, "a checkpoint with input")
                where = node.address()
                node.kill()
                node.start("--listen", where)
    wait_for(lambda: len(highs(network)) >= rows // 2, "the outputs of the last rows, as time passes")
    assert highs(network) == list(range(2, rows + 1, 2))
    assert first.records("late") == first.records("quarantine") == []
    first.stop()
    second.stop()
    assert [first.wait(60), second.wait(60)] == [0, 0], first.log_text() + second.log_text()
    assert "reading input from record 0" not in first.log_text()
