"""The speculation benchmark on a few seconds: whatever the machine, its figures must hang together."""

import importlib.util
import json
import sys

import pytest

from slackline.cli.bench import benchmarks_folder
from slackline_soccer import simulate

pytestmark = pytest.mark.slow

SECONDS = 4.0
PLAIN, FIXED, ADAPTIVE = 1.0, 0.25, "auto"


@pytest.fixture(scope="module")
def bench():
    spec = importlib.util.spec_from_file_location("bench_speculation", benchmarks_folder() / "speculation.py")
    module = sys.modules[spec.name] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    yield module
    del sys.modules[spec.name]


@pytest.fixture(scope="module")
def simulation(bench):
    return simulate(seconds=SECONDS, seed=bench.SEED)


@pytest.fixture(scope="module")
def runs(bench, simulation):
    table = simulation.table()
    return {alpha: bench.live(simulation.match, table, "auto", alpha) for alpha in (PLAIN, FIXED, ADAPTIVE)}


def test_every_run_comes_to_the_answer_of_plain_buffering(runs):
    assert runs[PLAIN]["_answer"]
    for run in runs.values():
        assert run["_answer"] == runs[PLAIN]["_answer"]
        assert run["inserts"] - run["retractions"] == len(run["_answer"])


def test_speculation_finds_no_pass_later_and_all_of_them_sooner_on_average(runs):
    def waits(alpha):
        return {found.at: found.wait for found in runs[alpha]["_detections"] if found.type == "pass"}

    plain, fixed = waits(PLAIN), waits(FIXED)
    assert plain and len(plain) == runs[PLAIN]["passes"]
    assert all(fixed[at] <= wait for at, wait in plain.items())
    assert runs[FIXED]["mean_ms"] < runs[PLAIN]["mean_ms"]


def test_plain_buffering_takes_nothing_back_and_does_nothing_twice(runs):
    plain = runs[PLAIN]
    assert plain["retraction"] is None and plain["alpha_mean"] == 1.0
    assert plain["retractions"] == plain["replays"] == plain["replayed"] == plain["snapshots"] == 0
    assert runs[FIXED]["replayed"] > 0 and runs[FIXED]["snapshot_kb"] > 0


def test_a_run_is_looked_at_twice_a_second(bench, runs):
    for alpha, run in runs.items():
        moments = run["_moments"]
        assert [moment.at for moment in moments] == pytest.approx([0.5 * n for n in range(1, len(moments) + 1)])
        assert abs(len(moments) - 2 * SECONDS) <= 2
        assert all(0 <= moment.alpha <= moment.highest_alpha <= 1 and moment.busy > 0 for moment in moments)
        assert alpha == ADAPTIVE or {moment.alpha for moment in moments} == {alpha}
        # The rest is found by close().
        assert 0 < sum(moment.inserts for moment in moments) <= run["inserts"]
        assert sum(moment.retractions for moment in moments) <= run["retractions"]
        assert sum(moment.finals for moment in moments) <= len(run["_answer"])


def test_one_json_object_without_the_series_and_a_page_with_them(
    bench, simulation, runs, monkeypatch, tmp_path, capsys
):
    def short(match, table, policy, alpha, retraction="auto"):
        one = runs.get(alpha, runs[FIXED])
        return {**one, "policy": policy, "alpha": alpha, "retraction": None if alpha == PLAIN else retraction}

    monkeypatch.setattr(bench, "simulate", lambda **_: simulation)
    monkeypatch.setattr(bench, "live", short)
    page = tmp_path / "page.html"
    assert bench.main(["--json", "--seconds", str(SECONDS), "--html", str(page)]) == 0
    figures = json.loads(capsys.readouterr().out)
    means = {"slack_mean", "slack_adaptive_mean", "auto_mean", "auto_adaptive_mean"}
    others = {"full_touched", "on_demand_touched", "net_equal", "auto_retraction", "runs"}
    assert set(figures) == means | others
    assert figures["net_equal"] is True and len(figures["runs"]) == 12
    documented = "policy alpha retraction mean_ms p95_ms passes inserts retractions replays replayed snapshots"
    assert list(figures["runs"][0]) == f"{documented} snapshot_kb busy busy_max alpha_mean".split()
    text = page.read_text("utf-8")
    assert "All runs" in text and "retracted" in text and "on-demand retraction" in text
