import re
from dataclasses import replace

import numpy as np
import pytest

from slackline.report import Scale, disorder, params_text, share_text, study_page, verdict
from slackline.report.study import LATER, WHOLE, _Plot
from slackline.study import STEADY, PolicyFigures, PolicyResult, RecordedStream, StudyResult, study


def waits(late, mean, steady=(None, None)):
    return PolicyFigures(late, mean, mean, mean, mean, *steady)


def made(*policies, clairvoyant=20.0, unit="ms"):
    results = tuple(PolicyResult(name, params, waits(late, mean)) for name, params, late, mean in policies)
    return StudyResult(1000, 8, 0.2, unit, (), waits(0.0, clairvoyant), results)


USUAL = made(
    ("auto", {}, 0.002, 29.0),
    ("auto", {"late_target": 0.005}, 0.003, 25.0),
    ("fixed", {"bound": 100}, 0.04, 120.0),
    ("fixed", {"bound": 400}, 0.001, 424.0),
    ("max_slack", {}, 0.0, 4152.0),
)


def test_the_page_holds_every_policy_and_its_figures():
    page = study_page(USUAL, title="d-1")
    rows = re.findall(r"<tr.*?</tr>", page)
    text = [re.sub(r"<[^>]+>", "|", row) for row in rows]
    assert len(rows) == 1 + 5 + 1
    for part in ("bound 400 ms", "target 0.5 %", "4,152", "0.20 %", "clairvoyant"):
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


def test_curves_follow_their_knob_and_points_without_events_on_time_are_left_out():
    result = made(
        ("auto", {}, 0.001, 30.0),
        ("auto", {"late_target": 0.01}, 0.008, 20.0),
        ("auto", {"late_target": 0.001}, 0.001, 30.0),
        ("quantile", {"q": 0.99, "window": 2000}, 0.01, 50.0),
        ("quantile", {"q": 0.9, "window": 2000}, 1.0, None),
        ("fixed", {"bound": 400}, 0.0, 424.0),
        ("fixed", {"bound": 0}, 0.04, 0.0),
    )
    curves = {trace.name: trace for trace in _Plot.of(result, Scale.of_study(result), WHOLE).figure().data}
    assert curves["auto, by late_target"].x == (30.0, 20.0) and curves["auto, by late_target"].y == (0.1, 0.8)
    assert len(curves["sliding quantile, by q"].x) == 1
    bounds = curves["fixed watermark, by bound"]
    # Zero has a place of its own: left of the least wait, below one event of all.
    assert 0 < bounds.x[0] < 20.0 and bounds.x[1] == 424.0
    assert bounds.y[0] == 4.0 and 0 < bounds.y[1] < 100 / result.rows


def test_the_steady_plot_is_of_the_steady_figures_and_only_there_if_these_are():
    assert "After warm-up" not in study_page(USUAL)
    rows = STEADY + 100
    ts = np.arange(rows) - 5 * (np.arange(rows) % 7 == 3)
    result = study(RecordedStream(np.arange(rows), ts + 10, np.zeros(rows, np.int64)))
    assert "After warm-up" in study_page(result)
    steady = _Plot.of(result, Scale.of_study(result), LATER).figure().data
    (bounds,) = [trace for trace in steady if trace.name == "fixed watermark, by bound"]
    none = next(p for p in result.policies if p.params == {"bound": 0})
    assert bounds.y[0] == pytest.approx(100 * none.waits.steady_late_share)


def test_the_verdict_says_what_a_watermark_needs_and_what_slackline_waits():
    assert verdict(USUAL) == (
        "Use default auto: a fixed watermark needs a delay of 400 ms for 0.20 % late events and waits 424 ms on "
        "average; slackline waits 29.0 ms, 14.6 times less."
    )


def test_the_verdict_says_plainly_when_a_watermark_is_as_good_or_better():
    like = verdict(made(("auto", {}, 0.001, 980.0), ("fixed", {"bound": 900}, 0.001, 1000.0)))
    assert like.startswith("A fixed watermark is as good here: it needs a delay of 900 ms for 0.10 % late events")
    assert "waits 1.00 s on average" in like and like.endswith("waits 980 ms.")
    better = verdict(made(("auto", {}, 0.002, 3400.0), ("fixed", {"bound": 2340}, 0.001, 2640.0)))
    assert better == (
        "A fixed watermark is better here: with a delay of 2.34 s it has 0.10 % late events and waits 2.64 s on "
        "average; slackline's auto has 0.20 % late events and waits 3.40 s on average."
    )


def test_the_verdict_compares_with_the_cheaper_of_watermark_and_timer():
    rivals = (("fixed", {"bound": 900}, 0.001, 5000.0), ("timer", {"delay": 700}, 0.001, 690.0))
    assert verdict(made(("auto", {}, 0.001, 3400.0), *rivals)) == (
        "A fixed timer is better here: with a delay of 700 ms after arrival it has 0.10 % late events and waits 690 ms "
        "on average; slackline's auto has 0.10 % late events and waits 3.40 s on average."
    )
    assert verdict(made(("auto", {}, 0.001, 100.0), *rivals)) == (
        "Use default auto: a fixed timer needs a delay of 700 ms after arrival for 0.10 % late events and waits 690 ms "
        "on average; slackline waits 100 ms, 6.90 times less."
    )
    assert "a fixed watermark needs" in verdict(made(("auto", {}, 0.001, 100.0), rivals[0]))


def test_the_page_shows_the_better_of_watermark_and_timer():
    page = study_page(
        made(("auto", {}, 0.002, 29.0), ("fixed", {"bound": 9}, 0.0, 60.0), ("timer", {"delay": 40}, 0.0, 41.0))
    )
    for part in ("mean wait, best fixed timer", "fixed timer, by delay", "delay 40 ms</td>"):
        assert part in page, part
    assert "mean wait, best fixed watermark" not in page


def test_a_published_policy_that_waits_much_longer_than_all_others_is_named_and_left_out_of_the_plot():
    policies = [("auto", {}, 0.002, 29.0), ("fixed", {"bound": 9}, 0.0, 60.0), ("percentile", {"q": 0.95}, 0.0, 150.0)]
    usual = made(*policies, ("adwin", {"threshold": 0.001}, 0.0, 179.0))
    far = made(*policies, ("adwin", {"threshold": 0.001}, 0.0, 181.0))
    assert "Too far right" not in study_page(usual)
    page = study_page(far)
    assert "Too far right to be shown: ADWIN watermark." in page and "threshold 0.001</td>" in page
    names = [trace.name for trace in _Plot.of(far, Scale.of_study(far), WHOLE).figure().data]
    assert "histogram percentile, by q" in names and "ADWIN watermark, by threshold" not in names


def test_the_verdict_says_that_the_target_is_missed_why_and_what_to_do():
    policies = (("auto", {}, 0.91, 50.0), ("fixed", {"bound": 0}, 0.95, 0.0), ("fixed", {"bound": 7_200_000}, 0.0, 9e5))
    short = verdict(replace(made(*policies), rows=30_000, span=9_000_000))
    assert short == (
        "Default auto misses its target of 0.10 % here: it has 91.0 % late events and waits 50.0 ms on average. The "
        "target needs a wait of 7,200 s, and the recording spans 9,000 s: such delays cannot be measured in so short a "
        "time. Record at least 57,600 s, start from a calibration (slackline calibrate), or use a fixed watermark of "
        "7,200 s."
    )
    long = verdict(replace(made(*policies), rows=30_000, span=900_000_000))
    assert "change faster than they can be measured" in long and "fixed watermark of 7,200 s" in long
    never = verdict(replace(made(*policies[:2]), rows=30_000, span=9_000))
    assert "No fixed watermark" in never


def test_delays_longer_than_the_recording_are_not_recommended_to_auto():
    arrival = 100_000_000 + 100 * np.arange(20_000)
    stored = np.arange(20_000) >= 2_000  # what a satellite sends after a pass without contact, for the rest of the file
    ts = np.where(stored, arrival - 40_000_000, arrival)
    result = study(RecordedStream(arrival, ts, np.zeros(20_000, np.int64)))
    assert result.misses_target and verdict(result).startswith("Default auto misses its target")
    assert "Use default auto" not in verdict(result)


def test_the_verdict_does_not_call_a_bound_of_zero_hindsight():
    text = verdict(made(("auto", {}, 0.0036, 2.7e6), ("fixed", {"bound": 0}, 0.0015, 0.0)))
    assert text.startswith("Not waiting at all is best here: a delay of 0 gives 0.15 % late events; ")
    assert "hindsight" not in text


def test_no_event_waits_in_a_stream_in_order():
    assert verdict(made(("auto", {}, 0.0, 0.0), ("fixed", {"bound": 0}, 0.0, 0.0))) == (
        "Not waiting at all is best here: a delay of 0 gives no late events; slackline's auto has no late events "
        "and waits 0 ms on average."
    )
    ts = np.arange(9)
    assert disorder(study(RecordedStream(ts, ts, np.zeros(9, np.int64)))) == "All events arrive in order."
    assert disorder(USUAL) == "20.0 % of the events arrive out of order."


def test_the_verdict_says_when_only_the_start_made_the_difference():
    def result(auto, watermark):
        policies = (
            PolicyResult("auto", {}, waits(0.0005, 22.0, (0.0003, auto))),
            PolicyResult("fixed", {"bound": 12}, waits(0.002, 13.0, (0.0003, watermark))),
            PolicyResult("fixed", {"bound": 9000}, waits(0.0005, 9440.0, (0.0, 9500.0))),
        )
        return StudyResult(5000, 8, 0.2, "ms", (), waits(0.0, 1.0, (0.0, 1.0)), policies)

    text = verdict(result(14.0, 13.5))
    assert text.startswith("Use default auto: a fixed watermark needs a delay of 9.00 s for 0.050 % late")
    assert text.endswith(
        " After the first 1,000 arrivals both wait alike: with 0.030 % late events slackline waits 14.0 ms, a fixed "
        "watermark of 12.0 ms 13.5 ms."
    )
    assert "arrivals a watermark waits less: " in verdict(result(22.0, 13.5))
    assert "arrivals" not in verdict(result(1.0, 13.5))


def test_the_verdict_names_the_policy_that_beats_both():
    result = made(
        ("auto", {}, 0.002, 50.0), ("slack", {"margin": 0.5}, 0.002, 40.0), ("fixed", {"bound": 9}, 0.0, 60.0)
    )
    assert verdict(result).endswith(
        "Least of all waits slack (margin 0.5): it has 0.20 % late events and waits 40.0 ms on average."
    )


def test_the_verdict_survives_the_absence_of_rivals_and_of_waits():
    alone = verdict(made(("auto", {}, 0.0, 5.0), ("fixed", {"bound": 1}, 0.1, 1.0)))
    assert alone.startswith(
        "No fixed watermark or timer loses as few events as auto, which has no late events and waits 5.00"
    )
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
    assert params_text(PolicyResult("fixed", {"bound": 6_614_880}, waits(0, 0)), "us") == "bound 6,615 ms"
    assert params_text(PolicyResult("auto", {"late_target": 0.0005}, waits(0, 0)), "us") == "target 0.05 %"
    assert params_text(PolicyResult("quantile", {"q": 0.999, "window": 2000}, waits(0, 0)), "us") == "q 0.999"
