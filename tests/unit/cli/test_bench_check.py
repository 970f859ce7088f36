import importlib.util
import json
import sys
from pathlib import Path

import pytest

from slackline.core.errors import ConfigError, SlacklineError

BENCHMARKS = Path(__file__).parents[3] / "benchmarks"


@pytest.fixture(scope="module")
def check():
    spec = importlib.util.spec_from_file_location("slackline_benchmark_check", BENCHMARKS / "check.py")
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    yield module
    del sys.modules[spec.name]


def entry(value, better="higher", kind="ratio", spread=0.01):
    return {"value": value, "better": better, "kind": kind, "what": "A figure.", "spread": spread}


@pytest.mark.parametrize(
    ("committed", "now", "verdict", "bound_by"),
    [
        (entry(2.0), 2.0, "within", "tolerance"),
        (entry(2.0), 1.91, "within", "tolerance"),
        (entry(2.0), 1.89, "fell", "tolerance"),
        (entry(2.0), 2.2, "improved", "tolerance"),
        (entry(2.0, "lower"), 2.09, "within", "tolerance"),
        (entry(2.0, "lower"), 2.11, "fell", "tolerance"),
        (entry(2.0, "lower"), 1.8, "improved", "tolerance"),
        (entry(2.0, spread=0.12), 1.8, "within", "spread"),
        (entry(2.0, spread=0.12), 1.7, "fell", "spread"),
        (entry(7, "lower", "exact"), 7, "within", "exact"),
        (entry(1000, "lower", "exact", spread=0.5), 1001, "fell", "exact"),
        (entry(1000, "lower", "exact"), 999, "improved", "exact"),
        (entry(0, "lower", "exact"), 0, "within", "exact"),
        (entry(0, "lower", "exact"), 1, "fell", "exact"),
        (entry(1, "higher", "exact"), 0, "fell", "exact"),
        (entry(2.0), None, "missing", "tolerance"),
        (entry(0, "lower", "exact"), None, "missing", "exact"),
    ],
)
def test_a_figure_falls_beyond_the_larger_of_5_percent_and_its_spread_and_an_exact_one_at_once(
    check, committed, now, verdict, bound_by
):
    found = check.judge("a.b", committed, now)
    assert (found.verdict, found.bound_by) == (verdict, bound_by)
    assert found.failed == (verdict in ("fell", "missing"))


def test_a_change_is_positive_where_the_figure_is_better(check):
    assert check.judge("a.b", entry(2.0), 3.0).change == 0.5
    assert check.judge("a.b", entry(2.0, "lower"), 3.0).change == -0.5


def test_all_figures_are_compared_those_that_are_missing_and_those_that_are_new(check):
    found = check.compare({"a.x": entry(1.0), "a.y": entry(1.0)}, {"a.x": 1.0, "a.z": 5.0})
    assert [(v.name, v.verdict) for v in found] == [("a.x", "within"), ("a.y", "missing"), ("a.z", "new")]


def scripted(check, *measurements, part="ordering"):
    """A run whose measurements of one part are given; and how many were taken."""
    names = list(check.figures_of([part]))
    left = [dict(zip(names, values, strict=True)) for values in measurements]
    taken = []

    def measure(asked):
        taken.append(asked)
        return left.pop(0)

    return check.Run([part], quiet=True, measure=measure), dict.fromkeys(names, entry(1.0)), taken


def test_a_fallen_ratio_is_measured_again_and_the_best_of_each_figure_counts(check):
    run, committed, taken = scripted(check, (0.8, 1.0, 1.0), (0.97, 0.7, 1.0))
    verdicts = run.check(committed)
    assert [v.now for v in verdicts] == [0.97, 1.0, 1.0]
    assert not any(v.failed for v in verdicts) and taken == ["ordering"] * 2


def test_a_ratio_that_stays_down_is_measured_three_times_and_fails(check):
    run, committed, taken = scripted(check, (0.8, 1.0, 1.0), (0.9, 1.0, 1.0), (0.7, 1.0, 1.0))
    first = run.check(committed)[0]
    assert (first.verdict, first.now) == ("fell", 0.9) and taken == ["ordering"] * 3


def test_nothing_is_measured_again_beyond_the_time_limit(check, monkeypatch):
    monkeypatch.setattr(check, "LIMIT_SECONDS", 0.0)
    run, committed, taken = scripted(check, (0.8, 1.0, 1.0))
    assert run.check(committed)[0].verdict == "fell" and taken == ["ordering"]


def test_a_fallen_exact_figure_is_not_measured_again(check):
    zeros = [0] * len(check.figures_of(["migrate"]))
    run, _, taken = scripted(check, [1, *zeros[1:]], part="migrate")
    committed = dict.fromkeys(check.figures_of(["migrate"]), entry(0, "lower", "exact"))
    assert run.check(committed)[0].verdict == "fell" and taken == ["migrate"]


def test_an_update_records_the_median_and_the_spread_of_three(check):
    run, _, taken = scripted(check, (1.0, 1.0, 0.5), (1.1, 1.0, 0.5), (1.2, 1.0, 0.5))
    first, second, _ = run.update().values()
    assert first["value"] == 1.1 and first["spread"] == pytest.approx(0.2 / 1.1, abs=1e-4)
    assert second["spread"] == 0 and len(taken) == 3


def test_an_exact_figure_that_differs_between_repeats_is_refused(check):
    figure = check.Figure("a.b", "lower", "exact", "A count.")
    with pytest.raises(SlacklineError, match="declared exact"):
        check.summary(figure, [1, 2, 1])


def test_an_update_of_one_part_keeps_the_others_and_drops_what_is_no_longer_declared(check, monkeypatch, tmp_path):
    file = tmp_path / "ratios.json"
    monkeypatch.setattr(check, "COMMITTED", file)
    with pytest.raises(ConfigError, match="--update"):
        check.read_committed(check.PARTS)
    file.write_text(json.dumps({"run.csv": entry(3.0), "run.gone": entry(1.0), "ordering.auto": entry(1.0)}))
    check.write_committed({"ordering.auto": entry(2.0)})
    assert json.loads(file.read_text()) == {"ordering.auto": entry(2.0), "run.csv": entry(3.0)}


def test_the_exit_code_says_whether_a_figure_fell(check, monkeypatch, capsys):
    names = check.figures_of(["ordering"])
    monkeypatch.setattr(check, "read_committed", lambda parts: dict.fromkeys(names, entry(1.0)))
    for value, code in ((1.0, 0), (0.5, 1)):
        monkeypatch.setattr(check.Run, "_one", lambda self, part, label, value=value: dict.fromkeys(names, value))
        assert check.main(["--only", "ordering", "--json"]) == code
        shown = json.loads(capsys.readouterr().out)
        assert shown["ok"] == (code == 0) and {figure["name"] for figure in shown["figures"]} == set(names)
        assert check.main(["--only", "ordering"]) == code
        assert ("no figure fell" in capsys.readouterr().out) == (code == 0)


def test_the_committed_file_has_exactly_the_figures_that_are_measured(check):
    committed = json.loads((BENCHMARKS / "ratios.json").read_text("utf-8"))
    declared = {figure.name: figure for figure in check.FIGURES}
    assert list(committed) == list(declared) and len(declared) == len(check.FIGURES)
    for name, kept in committed.items():
        figure = declared[name]
        assert (kept["better"], kept["kind"], kept["what"]) == (figure.better, figure.kind, figure.what)
        assert isinstance(kept["value"], int | float) and 0 <= kept["spread"] < 1


def test_every_part_has_figures_and_a_benchmark(check):
    assert {name.partition(".")[0] for name in check.figures_of(check.PARTS)} == set(check.PARTS)
    assert all((BENCHMARKS / f"{part}.py").exists() for part in check.PARTS)


def test_the_functions_that_measure_give_the_figures_that_are_declared(check):
    """The sizes are irrelevant for names: benchmarks are replaced by figures of every name."""

    class Anything(dict):
        def __missing__(self, key):
            return 2.0

    class Benchmark:
        SEED = 1

        def __getattr__(self, name):
            return lambda *_, **__: Anything()

    for part, measure in check.PARTS.items():
        assert {f"{part}.{name}" for name in measure(Benchmark())} == set(check.figures_of([part]))
