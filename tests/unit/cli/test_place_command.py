"""`slackline place`: what it refuses, what it prints, and what it hands to the page."""

import asyncio
import json
import sys
from types import SimpleNamespace

import pytest
from tests.unit.cluster.controller.overviews import CHAIN, FakeCluster
from typer.testing import CliRunner

from slackline.cli import app
from slackline.cluster import client
from slackline.cluster.controller.global_placement import GlobalPlacement
from slackline.cluster.links import Credentials
from slackline.core.errors import SlacklineError
from slackline.runtime.address import Address

AT = ("--at", "127.0.0.1:7001")


class Pretended:
    """A network that answers as nodes do, faster."""

    def __init__(self, fake_cluster: FakeCluster, monkeypatch: pytest.MonkeyPatch) -> None:
        self.fake_cluster = fake_cluster
        self.refuses: dict[str, str] = {}
        self.now = 0.0
        monkeypatch.setattr(client, "overview", self.overview)
        monkeypatch.setattr(client, "migrate", self.migrate)
        monkeypatch.setattr(client, "INTERVAL", 0.01)
        monkeypatch.setattr(client.RemotePlacement.__init__, "__kwdefaults__", {"now": self.time})

    def time(self) -> float:
        return self.fake_cluster.at

    async def overview(self, address: Address, credentials: Credentials) -> dict:
        self.fake_cluster.advance()
        return self.fake_cluster.overview()

    async def migrate(
        self, address: Address, credentials: Credentials, detector: str, node: str, timeout: float
    ) -> dict:
        if detector in self.refuses:
            raise SlacklineError(self.refuses[detector])
        self.fake_cluster.move(detector, node)
        return {"detector": detector, "seconds": 0.01, "stopped_seconds": 0.0}


@pytest.fixture
def network(monkeypatch):
    return Pretended(FakeCluster({"n1": ["Low"], "n2": ["High"], "n3": ["Top"]}), monkeypatch)


def run(*arguments: str):
    return CliRunner().invoke(app, ["place", *AT, "--seconds", "0.05", *arguments])


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--pin", "High"], "--pin High is not valid; write DETECTOR=NODE"),
        (["--pin", "=n1"], "--pin =n1 is not valid"),
        (["--solver", "greedy"], "unknown solver 'greedy'; choose one of local, exact"),
        (["--dry-run", "--watch"], "--dry-run and --watch"),
        (["--at", "10.1.2.3:7000"], "--tls-cert"),
    ],
)
def test_wrong_use_is_refused(arguments, message):
    result = run(*arguments)
    assert (result.exit_code, result.stdout) == (2, "") and message in result.stderr


def test_a_dry_run_says_what_would_move_and_why(network):
    result = run("--dry-run")
    assert result.exit_code == 0, result.stderr
    assert "Low → High 10 ms → 0" in result.stdout and "High → Top 10 ms → 0" in result.stdout
    assert "φ changes from 0.0200 to 0.0000 (100 % less; local, 0.1 s)." in result.stdout
    assert "Mean latency of 3 subscriptions with events: 6.67 ms → 0.00 ms." in result.stdout
    assert "Nothing was migrated (--dry-run)." in result.stdout
    assert network.fake_cluster.runs == {"n1": ["Low"], "n2": ["High"], "n3": ["Top"]}


def test_detectors_are_moved_step_by_step(network):
    result = run()
    assert result.exit_code == 0, result.stderr
    assert sorted(network.fake_cluster.runs["n1"]) == ["High", "Low", "Top"]
    assert "Migrating 2 detectors in 2 steps." in result.stdout and "2 migrations in 20 ms." in result.stdout
    assert "migrated High from n2 to n1 in 10 ms" in result.stderr


def test_figures_as_json(network):
    result = run("--json", "--together")
    assert result.exit_code == 0, result.stderr
    figures = json.loads(result.stdout)
    assert figures["before"]["placement"] == {"Low": "n1", "High": "n2", "Top": "n3"}
    assert figures["after"]["placement"] == dict.fromkeys(CHAIN, "n1")
    assert sorted(figures["steps"][0]) == ["High", "Top"] and len(figures["migrations"]) == 2
    assert {change["detector"] for change in figures["changes"]} == {"High", "Top"}


def test_where_nothing_is_to_gain_nothing_moves_and_it_is_said(network):
    network.fake_cluster.runs.update(n1=["Low", "High", "Top"], n2=[], n3=[])
    result = run()
    assert result.exit_code == 0 and "No change: φ is 0.0000" in result.stdout


def test_where_no_events_are_under_way_it_is_said(network):
    network.fake_cluster.rates = dict.fromkeys(network.fake_cluster.rates, 0.0)
    result = run()
    assert result.exit_code == 0 and "No events are sent between detectors" in result.stdout


def test_a_node_that_refuses_a_detector_makes_it_fail(network):
    network.refuses = {"High": "detector 'High' did not move: its state is no data", "Top": "no"}
    result = run()
    assert result.exit_code == 1
    assert "migration of High from n2 to n1 failed: detector 'High' did not move: its state is no data" in result.stderr


def test_limits_that_cannot_be_kept_make_it_fail(network):
    network.fake_cluster.cpu = {"Low": 3.0}
    result = run()
    assert (result.exit_code, result.stdout) == (1, "") and "'Low'" in result.stderr and "limit" in result.stderr


def test_a_network_that_cannot_be_known_makes_it_fail(network):
    network.fake_cluster.states["n3"] = "lost"
    result = run()
    assert (result.exit_code, result.stdout) == (1, "") and "node n3 is lost (Top)" in result.stderr


def test_a_node_that_does_it_too_is_named(network):
    network.fake_cluster.master = "n2"
    result = run()
    assert result.exit_code == 0 and "node n2 is the placement master of the cluster" in result.stderr


def test_the_page_gets_the_whole_story(network, monkeypatch, tmp_path):
    shown = []
    page = SimpleNamespace(placement_page=lambda report: shown.append(report) or "a page")
    monkeypatch.setitem(sys.modules, "slackline.report.placement", page)
    result = run("--html", str(tmp_path / "p.html"))
    assert result.exit_code == 0, result.stderr
    (report,) = shown
    assert (tmp_path / "p.html").read_text() == "a page"
    assert report.before == {"Low": "n1", "High": "n2", "Top": "n3"} and report.after == dict.fromkeys(CHAIN, "n1")
    assert {"local", "genetic", "cuckoo_swarm"} <= set(report.histories) and report.solver == "local"
    assert [move.detector for move in report.migrations] == ["High", "Top"] and set(report.loads) == {"n1", "n2", "n3"}
    assert all(sample.load == 0.3 for samples in report.loads.values() for sample in samples)


def test_watching_continues_and_stands_by_while_a_node_does_it(network):
    notices_with = []

    async def watch() -> None:
        network.fake_cluster.master = "n2"
        watched = client.RemotePlacement(
            Address.of("127.0.0.1:7001"),
            Credentials(),
            GlobalPlacement(seconds=0.05),
            log=notices_with.append,
            on_plan=lambda _: None,
            now=network.time,
        )
        task = asyncio.create_task(watched.watch())
        await asyncio.sleep(0.3)
        assert network.fake_cluster.runs["n2"] == ["High"] and not task.done()
        network.fake_cluster.master = None
        for _ in range(100):
            await asyncio.sleep(0.05)
            if len(network.fake_cluster.runs["n1"]) == 3:
                break
        task.cancel()

    asyncio.run(watch())
    assert notices_with[0] == "standing by: node n2 is the placement master"
    assert sorted(network.fake_cluster.runs["n1"]) == ["High", "Low", "Top"]
