import re
from dataclasses import replace

import numpy as np
import pytest
from apps.soccer.tests.report.made_match import START, headings, make_match, named

from slackline_soccer.accuracy import Accuracy
from slackline_soccer.model.match import DEBS_2013, FULL_SIZE
from slackline_soccer.plausibility import Distribution, Figure, Plausibility
from slackline_soccer.report import match_page
from slackline_soccer.report.accuracy import accuracy_table, conclusion, sameness_figure, timeline_figure
from slackline_soccer.report.looks import clock
from slackline_soccer.report.model import (
    DetectorNode,
    Heat,
    Mark,
    MatchReport,
    PassLine,
    PolicyWaits,
    PossessionSpan,
    Sameness,
    Shot,
    Timeline,
    Verdict,
)
from slackline_soccer.report.pitch import Plane, draw_lines, heat_figure, pitch, play_figure
from slackline_soccer.tracking import MILLISECOND, SECOND
from slackline_soccer.tracking.game import Period

SECTIONS = {
    "shots": "The match",
    "heat": "Where they were",
    "timeline": "What happened when",
    "verdicts": "Is it right?",
    "possession": "Possession",
    "runners": "Running",
    "hierarchy": "From positions to goals",
    "waits": "Latency",
    "delays": "Delays of the positions",
    "plausibility": "Is the simulated match like a real one?",
}


@pytest.fixture(scope="module")
def page(report):
    return match_page(report)


# The page.


def test_the_page_has_every_section_in_order(page):
    found = headings(page)
    places = [found.index(title) for title in SECTIONS.values()]
    assert places == sorted(places)


def test_the_page_fetches_nothing_and_holds_the_plot_library_once(page):
    assert not re.search(r"<(script|link|img)[^>]+(src|href)=", page)
    assert page.count("plotly.js v") == 1
    assert len(page.encode()) < 8e6


@pytest.mark.parametrize("part", SECTIONS)
def test_a_section_without_data_is_left_out_and_the_others_stay(report, part):
    empty = None if part in ("timeline", "plausibility") else ()
    more = {"shots": {"passes": ()}, "verdicts": {"sameness": ()}}.get(part, {})
    without = replace(report, **{part: empty}, **more)
    found = headings(match_page(without))
    assert SECTIONS[part] not in found
    assert set(SECTIONS.values()) - {SECTIONS[part]} <= set(found)


def test_a_report_of_nothing_is_still_a_page():
    page = match_page(MatchReport("Nothing", make_match()))
    assert "<h1>Nothing</h1>" in page and headings(page) == []


def test_sections_with_empty_content_are_left_out():
    match = make_match()
    page = match_page(
        MatchReport(
            "Nothing",
            match,
            timeline=Timeline(),
            heat=[Heat("N01", "North", np.zeros((8, 13)))],
            waits=[PolicyWaits("auto", ())],
            plausibility=Plausibility((Distribution("x", "m", (0, 1), (0,), (1,), 0, 1, "s"),), ()),
        )
    )
    assert headings(page) == []


def test_names_and_texts_are_escaped():
    match = make_match()
    evil = "<b>evil</b>"
    page = match_page(
        MatchReport(
            evil, match, evil, facts=[(evil, evil)], notes=[evil], attributions=[evil],
            shots=[Shot(START, evil, "North", (0.0, 0.0), 1, "goal")],
            passes=[PassLine(START, evil, evil, "North", (0.0, 0.0), (1.0, 1.0), True)],
            timeline=Timeline(
                [Mark(START, "hit", evil, "North")], (), [PossessionSpan(START, START + SECOND, "North", evil)]
            ),
            plausibility=Plausibility(
                (Distribution(evil, evil, (0, 1), (1,), (1,), 1, 1, evil, evil),),
                (Figure(evil, evil, 1, {evil: 1}, evil),), evil,
            ),
            hierarchy=[DetectorNode(evil, 1, ("position",), {evil: 3})],
        )
    )  # fmt: skip
    body = page.split("</script>", 1)[1]
    assert evil not in body and "\\u003cb\\u003eevil" not in body


# The most important sentence.


def test_the_conclusion_says_what_is_the_same_late_and_true(report):
    assert conclusion(report) == (
        "All 826 events that Slackline published equal those of the ordered stream, field by field. In arrival order "
        "62 do. No position was late. Of the 141 events that truly happened, 138 were found, and 3 invented."
    )


def test_the_conclusion_hides_nothing(report):
    less = Sameness("near", 2, ordered=90, found=88, same=80)
    text = conclusion(replace(report, late=468, sameness=[less]))
    assert "80 of the 88 events that Slackline published equal those of the ordered stream (90 events)" in text
    assert "468 positions were late (0.020 %)." in text and "arrival" not in text
    assert conclusion(MatchReport("t", make_match())) == ""


def test_disorder_is_shown_type_by_type_lowest_level_on_top(report):
    figure = sameness_figure([*report.sameness, Sameness("goal", 6, 1, 1, 1)])
    (arrival,) = named(figure, "arrival order")
    (ordered,) = named(figure, "Slackline")
    assert [name.split("  ")[0] for name in arrival.y] == ["shots on goal", "hits", "near the ball"]
    assert ordered.x == (100.0, 100.0, 100.0)
    assert arrival.x == pytest.approx((100 / 7, 100 * 61 / 153, 0.0))


def test_a_type_that_did_not_happen_has_no_score():
    table = accuracy_table([Verdict(Accuracy("goal", 0, 0, 0)), Verdict(Accuracy("hit", 4, 5, 3))])
    cells = [re.findall(r"<td.*?>(.*?)</td>", row) for row in re.findall(r"<tr>.*?</tr>", table)[1:]]
    assert cells[0] == ["goals", "0", "0", "0", "-", "-", "-"]
    assert cells[1] == ["hits", "5", "4", "3", "0.750", "0.600", "0.667"]


# The pitch.


@pytest.mark.parametrize("field", [FULL_SIZE, DEBS_2013], ids=["along x", "along y"])
def test_the_pitch_lies_lengthwise_and_in_proportion(field):
    figure, plane = pitch(field)
    draw_lines(figure, plane)
    (lines,) = figure.data
    xs, ys = ([c for c in column if c is not None] for column in (lines.x, lines.y))
    assert max(xs) - min(xs) > field.length / 1000 > max(ys) - min(ys) - 0.001
    assert figure.layout.yaxis.scaleanchor == "x" and figure.layout.yaxis.scaleratio == 1
    assert plane.goal(0)[0] < 0 < plane.goal(1)[0]


@pytest.mark.parametrize("field", [FULL_SIZE, DEBS_2013], ids=["along x", "along y"])
def test_a_field_is_turned_not_mirrored(field):
    plane = Plane(field)
    origin, along_x, along_y = (np.array(plane.point(*p)) for p in ((0.0, 0.0), (1000.0, 0.0), (0.0, 1000.0)))
    assert np.linalg.det(np.array([along_x - origin, along_y - origin])) == pytest.approx(1.0)


def test_a_heat_map_is_turned_with_its_field():
    match = make_match(DEBS_2013)
    grid = np.zeros((2, 4))
    grid[0, 3] = 1.0  # at low x and high y
    (heat, *_) = heat_figure(MatchReport("t", match, heat=[Heat("North", "North", grid)])).data
    i, j = np.argwhere(np.asarray(heat.customdata) == 100)[0]
    place = heat.x0 + j * heat.dx, heat.y0 + i * heat.dy
    low_x, high_y = match.field.x[0] + match.field.width / 4, match.field.y[1] - match.field.length / 8
    assert place == pytest.approx(Plane(match.field).point(low_x, high_y), abs=0.01)


def test_the_list_of_heat_maps_shows_one_at_a_time_teams_first(report):
    figure = heat_figure(report)
    maps = [trace for trace in figure.data if trace.type == "heatmap"]
    choices = figure.layout.updatemenus[0].buttons
    assert [choice.label for choice in choices][:3] == ["North", "South", "N01 (North)"]
    assert [trace.visible for trace in maps] == [True] + [False] * (len(maps) - 1)
    for number, choice in enumerate(choices):
        shown = choice.args[0]["visible"]
        assert shown[: len(maps)] == [other == number for other in range(len(maps))]
        assert len(shown) == len(figure.data) and all(shown[len(maps) :])


def test_shots_stand_where_they_were_hit_with_how_they_ended():
    match = make_match()
    shots = [
        Shot(START + SECOND, "N09", "North", (40_000.0, 5_000.0), 1, "goal", 25.0, [(52_500.0, 1_000.0)]),
        Shot(START + SECOND, "S09", "South", (-40_000.0, 0.0), 0, "blocked"),
    ]
    figure = play_figure(MatchReport("t", match, shots=shots))
    (goal,) = named(figure, "North: goal")
    assert (goal.x, goal.y) == ((40.0,), (5.0,)) and "90 km/h" in goal.text[0] and "0:01.0" in goal.text[0]
    (blocked,) = named(figure, "South: shot, blocked")
    assert blocked.marker.symbol != goal.marker.symbol and blocked.marker.color != goal.marker.color
    flights = {trace.line.dash: trace.x for trace in figure.data if trace.mode == "lines" and trace.line.width == 3}
    assert flights == {"solid": (40.0, 52.5, None), "dash": (-40.0, -52.5, None)}


def test_passes_point_to_where_they_went():
    match = make_match()
    passes = [
        PassLine(START, "N02", "N03", "North", (0.0, 0.0), (10_000.0, 0.0), True, 10.0),
        PassLine(START, "N02", None, "North", (0.0, 0.0), (0.0, 34_000.0), False, 34.0, 1.25),
    ]
    figure = play_figure(MatchReport("t", match, passes=passes))
    line, head = named(figure, "North: pass")
    assert line.x == (0.0, 10.0, None) and head.marker.angle == (90.0,) and "N03, 10 m" in head.text[0]
    assert "out of play" in named(figure, "North: pass, lost")[1].text[0]
    (offside,) = named(figure, "offside")
    assert offside.y == (34.0,) and "by 1.2 m" in offside.text[0]


def test_directions_are_shown_only_while_they_hold():
    match = make_match()
    shots = [Shot(START, "N09", "North", (0.0, 0.0), 1, "goal")]
    texts = [a.text for a in play_figure(MatchReport("t", match, shots=shots)).layout.annotations]
    assert texts == ["<b>North ▶</b>", "<b>◀ South</b>"]
    halves = (*match.periods, Period(START + 100 * SECOND, START + 200 * SECOND, "South"))
    both = replace(match, periods=halves)
    assert not play_figure(MatchReport("t", both, shots=shots)).layout.annotations


# The timeline.


def test_truth_is_open_found_is_filled_and_rows_say_how_many():
    match = make_match()
    hit = Mark(START + 2 * SECOND, "hit", "N05", "North")
    timeline = Timeline([hit], [hit, Mark(START + 4 * SECOND, "hit", "S05", "South"), Mark(START, "shot_wide")])
    figure = timeline_figure(MatchReport("t", match, timeline=timeline))
    (found,) = named(figure, "found: North")
    true = named(figure, "true")
    assert sorted(x for trace in true for x in trace.x) == [2.0, 4.0]
    assert {trace.marker.symbol for trace in true} == {"circle-open"} and found.marker.symbol is None
    assert (found.x, found.y) == (true[0].x, true[0].y)
    assert true[0].y != true[1].y  # a lane for each team
    assert list(figure.layout.yaxis.ticktext) == ["hits"]
    assert [a.text for a in figure.layout.annotations] == ["1 of 2"]


def test_possession_is_bands_in_the_colours_of_the_teams():
    match = make_match()
    spans = [
        PossessionSpan(START, START + 3 * SECOND, "North", "N05"),
        PossessionSpan(START + 3 * SECOND, START + 5 * SECOND),
    ]
    figure = timeline_figure(MatchReport("t", match, timeline=Timeline(possession=spans, true_possession=spans)))
    bars = [trace for trace in figure.data if trace.type == "bar"]
    found = [(bar.base, bar.x, bar.y) for bar in bars]
    assert found == [((start,), (length,), (row,)) for row in (0, 1) for start, length in ((0.0, 3.0), (3.0, 2.0))]
    assert "N05" in bars[0].text[0] and "out of play" in bars[1].text[0]


def test_a_long_match_is_shown_in_minutes():
    match = make_match()
    marks = [Mark(START + s * SECOND, "hit", "N05", "North") for s in (0, 600)]
    figure = timeline_figure(MatchReport("t", match, timeline=Timeline(marks)))
    assert figure.layout.xaxis.title.text == "match time (min)" and named(figure, "found: North")[0].x == (0.0, 10.0)
    assert clock(match, START + 601 * SECOND + 270 * MILLISECOND) == "10:01.3"
