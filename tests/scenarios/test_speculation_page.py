import json
import re

import pytest

from _speculation_page import Detection, Moment, Run, SpeculationReport, per_second, speculation_page, styles_of

SECTIONS = (
    "Waits, α, and load",
    "Insertions and retractions",
    "cost of earlier results",
    "Retraction techniques",
    "All runs",
)


def made(policy, alpha, mean, *, retraction="auto", busy=0.3, retractions=2, **more):
    """A run of three seconds with two passes and a hit, emitted after ``mean`` ms."""
    plain = alpha == 1.0
    moments = [
        Moment(half / 2, 1.0 if plain else 0.25, 1.0 if plain else 0.5, busy, 0.0, 4, 0 if plain else retractions, 3)
        for half in range(1, 7)
    ]
    detections = [Detection("pass", 1.0, mean), Detection("pass", 2.0, mean), Detection("hit", 0.5, mean / 2)]
    figures = {
        "mean_ms": mean,
        "p95_ms": mean,
        "busy": busy,
        "inserts": 24,
        "detections": detections,
        "moments": moments,
    }
    spent = {} if plain else {"retractions": 12, "replays": 7, "replayed": 12_345, "touched": 40}
    return Run(policy, alpha, None if plain else retraction, **{**figures, **spent, **more})


USUAL = SpeculationReport(
    "A page <about> speculation",
    [
        *(made("slack", alpha, mean) for alpha, mean in ((1.0, 1000.0), (0.5, 600.0), (0.25, 400.0), (0.0, 90.0))),
        made("slack", "auto", 300.0, busy=0.84),
        made("auto", 1.0, 200.0),
        made("auto", "auto", 150.0),
        made("auto", 0.25, 180.0),
        made("auto", 0.25, 180.0, retraction="full", touched=5_000),
        made("auto", 0.25, 180.0, retraction="on_demand", touched=250),
    ],
    same_answer=True,
    touched_by="hits",
    notes=("made up.",),
)


def text_of(page):
    """What one reads, without figures."""
    body = page[page.index("<main>") :]
    text = re.sub(r"<[^>]+>", "|", re.sub(r"<script.*?</script>", "", body, flags=re.S))
    return text.replace("\u00a0", " ")


def figures(page):
    """The traces of every figure, in order."""
    decode = json.JSONDecoder().raw_decode
    starts = re.finditer(r'Plotly\.newPlot\(\s*"[^"]+",\s*(?=\[)', page)
    return [decode(page, start.end())[0] for start in starts]


def test_the_page_has_every_section_and_every_run():
    text = text_of(speculation_page(USUAL))
    for section in SECTIONS:
        assert section in text, section
    for part in ("plain buffering", "α = 0.5|", "α = 0|", "adaptive α|", "α = 0.25, full retraction|", "12,345"):
        assert part in text, part
    assert "Note: made up." in text


def test_the_conclusion_says_how_much_earlier_at_which_load_and_that_the_answer_is_the_same():
    text = text_of(speculation_page(USUAL))
    assert "emitted 1,000 ms after they occurred; with adaptive speculation after 300 ms, 70 % sooner" in text
    assert "busy factor of 0.84" in text
    assert "Under policy auto" in text and "25 % sooner" in text
    assert "exactly the result of plain buffering" in text


def test_the_conclusion_hides_nothing():
    runs = [made("slack", 1.0, 100.0), made("slack", "auto", 150.0)]
    text = text_of(speculation_page(SpeculationReport("worse", runs, same_answer=False)))
    assert "50 % later" in text and "sooner" not in text
    assert "something is wrong" in text


def test_waits_alpha_and_load_are_drawn_over_time():
    course = figures(speculation_page(USUAL))[0]
    adaptive = [trace for trace in course if trace.get("name") == "adaptive α"]
    assert [trace["y"] for trace in adaptive if trace["mode"] == "markers"] == [[300.0, 300.0], [150.0, 150.0]]
    lines = [trace["y"] for trace in adaptive if trace["mode"] == "lines"]
    assert [0.25] * 6 in lines and [0.84] * 6 in lines
    # The band up to the most cautious detector.
    assert any(trace.get("fill") == "tonexty" for trace in adaptive)
    # A line from plain buffering to adaptive α for each pass, not for the hit.
    assert any(trace["y"] == [1000.0, 300.0, None] * 2 for trace in course)


def test_a_setting_is_named_once_in_the_legend():
    course = figures(speculation_page(USUAL))[0]
    named = [trace["name"] for trace in course if trace.get("showlegend")]
    assert sorted(named) == sorted({"plain buffering", "α = 0.5", "α = 0.25", "α = 0", "adaptive α"})


def test_of_the_fixed_ones_only_the_boldest_that_waits_is_shown_at_first():
    shown = {alpha for alpha, look in styles_of(USUAL).items() if look.shown}
    assert shown == {1.0, 0.25, "auto"}
    only = styles_of(SpeculationReport("", [made("slack", 0.0, 1.0)]))
    assert only[0.0].shown


def test_settings_differ_in_colour_and_in_marker():
    found = styles_of(USUAL).values()
    assert len({look.color for look in found}) == len({look.symbol for look in found}) == 5


def test_what_was_taken_back_is_drawn_below_the_axis():
    traces = figures(speculation_page(USUAL))[1]
    back = [trace["y"] for trace in traces if trace["name"] == "retracted"]
    assert [-4, -4, -4] in back
    assert all(value <= 0 for values in back for value in values)


def test_a_moment_that_ends_with_a_second_belongs_to_it():
    moments = [Moment(at, inserts=1, retractions=2, finals=3) for at in (0.5, 1.0, 1.5, 3.5)]
    assert per_second(Run("slack", 0.5, moments=moments)) == (
        [0, 1, 2, 3],
        [(2, 4, 6), (1, 2, 3), (0, 0, 0), (1, 2, 3)],
    )
    assert per_second(Run("slack", 0.5)) == ([], [])


def test_both_ways_to_take_back_are_compared():
    page = speculation_page(USUAL)
    assert "touched 5,000 events of hits, on demand 250, 5.0 % of it" in text_of(page)
    bars = figures(page)[-1][0]
    assert dict(zip(bars["y"], bars["x"], strict=True)) == {"auto: chooses": 40, "on demand": 250, "full": 5000}


def test_the_lag_of_a_process_that_cannot_keep_up_is_shown():
    assert "Behind" not in text_of(speculation_page(USUAL))
    slow = made("slack", 0.0, 50.0, busy=1.7, moments=[Moment(0.5, 0.0, 0.0, 1.7, behind=2.34)])
    text = text_of(speculation_page(SpeculationReport("slow", [slow])))
    assert "|behind|" in text and "|2.34|" in text


def test_one_run_alone_has_a_page_without_comparisons():
    page = speculation_page(SpeculationReport("alone", [made("auto", 0.5, 100.0)]))
    text = text_of(page)
    assert SECTIONS[0] in text and SECTIONS[1] in text and SECTIONS[4] in text
    assert SECTIONS[2] not in text and SECTIONS[3] not in text and "sooner" not in text


def test_plain_buffering_alone_takes_nothing_back():
    text = text_of(speculation_page(SpeculationReport("plain", [made("slack", 1.0, 100.0)])))
    assert SECTIONS[0] in text and SECTIONS[1] not in text
    assert "α is the part" not in text


def test_runs_without_passes_have_no_waits():
    runs = [made("slack", alpha, 1.0, detections=(), mean_ms=None, p95_ms=None) for alpha in (1.0, "auto")]
    page = speculation_page(SpeculationReport("no passes", runs))
    text = text_of(page)
    assert "Large marks" not in text and "known" not in text
    assert "The busy factor is" in text and SECTIONS[2] not in text
    assert "|-|" in text


@pytest.mark.parametrize("runs", [[], [Run("slack", 0.5)], [Run("slack", 1.0), Run("slack", "auto", "auto")]])
def test_sections_without_data_are_left_out(runs):
    page = speculation_page(SpeculationReport("bare", runs))
    assert "</html>" in page and figures(page) == []
    assert (SECTIONS[4] in text_of(page)) == bool(runs)


def test_the_page_fetches_nothing_and_escapes_what_it_is_given():
    page = speculation_page(SpeculationReport("<b>evil", [made("<i>policy", 0.5, 9.0)]))
    assert not re.search(r"<(script|link|img)[^>]+(src|href)=", page)
    assert page.count("plotly.js v") == 1
    assert "<b>evil" not in page and "<i>policy" not in page
