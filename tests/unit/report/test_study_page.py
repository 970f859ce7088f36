import re

import numpy as np
import pytest

from slackline.report import Scale, params_text, share_text, study_page, verdict
from slackline.study import PolicyResult, RecordedStream, StudyResult, study
from slackline.study.outcome import PolicyFigures


def waits(late, mean):
    return PolicyFigures(late, mean, mean, mean, mean)


def made(*policies, clairvoyant=20.0, unit="ms"):
    results = tuple(PolicyResult(name, params, waits(late, mean)) for name, params, late, mean in policies)
    return StudyResult(1000, 8, 0.2, unit, (), waits(0.0, clairvoyant), results)


USUAL = made(
    ("auto", {}, 0.002, 29.0),
    ("auto", {"timeout": 400}, 0.003, 25.0),
    ("fixed", {"bound": 100}, 0.04, 120.0),
    ("fixed", {"bound": 400}, 0.001, 424.0),
    ("max_slack", {}, 0.0, 4152.0),
)


def test_the_page_holds_every_policy_and_its_figures():
    page = study_page(USUAL, title="d-1")
    rows = re.findall(r"<tr.*?</tr>", page)
    text = [re.sub(r"<[^>]+>", "|", row) for row in rows]
    assert len(rows) == 1 + 5 + 1
    for part in ("bound 400 ms", "timeout 400 ms", "4,152", "0.20 %", "clairvoyant"):
        assert any(part in row for row in text), part


def test_the_table_goes_from_few_late_events_to_many_and_marks_the_default():
    page = study_page(USUAL)
    assert page.index("maximal K-slack</td>") < page.index("bound 400 ms</td>") < page.index("bound 100 ms</td>")
    assert page.count("<tr class=mark>") == 1
    assert "default" in page[page.index("<tr class=mark>") :][:200]


def test_the_page_fetches_nothing_and_holds_the_plot_library_once():
    page = study_page(USUAL)
    assert not re.search(r"<(script|link|img)[^>]+(src|href)=", page)
    assert page.count("plotly.js v") == 1


def test_titles_are_escaped():
    assert "<b>evil" not in study_page(USUAL, title="<b>evil</b>")


def test_the_verdict_names_the_winner_and_the_factor():
    text = verdict(USUAL)
    assert text.startswith("auto wins as it comes: 0.20 % late events and 29.0 ms mean wait")
    assert "bound 400 ms" in text and "14.6 times as long as auto" in text


def test_the_verdict_says_so_when_another_policy_is_cheaper():
    result = made(
        ("auto", {}, 0.002, 50.0), ("slack", {"margin": 0.5}, 0.002, 40.0), ("fixed", {"bound": 9}, 0.0, 60.0)
    )
    assert verdict(result).startswith("slack (margin 0.5) wins: 40.0 ms mean wait")


def test_the_verdict_survives_the_absence_of_rivals_and_of_waits():
    assert "No fixed watermark loses as few" in verdict(made(("auto", {}, 0.0, 5.0), ("fixed", {"bound": 1}, 0.1, 1.0)))
    assert "nothing to compare" in verdict(made(("auto", {}, 1.0, None)))


@pytest.mark.parametrize("rows", [1, 2, 50])
def test_even_the_smallest_stream_has_a_page(rows):
    ts = np.arange(rows)
    assert "</html>" in study_page(study(RecordedStream(ts, ts, np.zeros(rows, np.int64))))


def test_one_unit_suits_a_whole_column():
    assert Scale.of([29_000, 424_000, 4_152_000], "us").name == "ms"
    assert Scale.of([500], "ns").name == "ns"
    assert Scale.of([3], "ms").with_unit(3) == "3.00 ms"
    # Never finer than the stream itself.
    assert Scale.of([0.1, 0.2], "ms").name == "ms"
    assert Scale.of([], "us").text(0) == "0"


def test_numbers_are_short_and_parameters_in_words():
    assert [share_text(s) for s in (0.0, 0.00021, 0.0032, 0.339)] == ["0", "0.021 %", "0.32 %", "33.9 %"]
    assert params_text(PolicyResult("auto", {}, waits(0, 0)), "us") == "default"
    assert params_text(PolicyResult("fixed", {"bound": 400_000}, waits(0, 0)), "us") == "bound 400 ms"
    assert params_text(PolicyResult("quantile", {"q": 0.999, "window": 2000}, waits(0, 0)), "us") == "q 0.999"
