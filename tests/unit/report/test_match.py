import re
from dataclasses import fields, replace

import numpy as np
import pytest
from tests.unit.report.made_match import START, make_match, make_report

from slackline import Engine, Event
from slackline.report import MatchReport, match_page
from slackline.report.match import (
    Delays,
    DetectorWait,
    EventWait,
    Heat,
    Mark,
    Node,
    Pass,
    PolicyWaits,
    Sameness,
    Shares,
    Shot,
    Span,
    Timeline,
    Verdict,
    delays_by_kind,
    hierarchy_nodes,
    match_report,
    policy_waits,
)
from slackline.report.match.accuracy import accuracy_table, conclusion, sameness_figure
from slackline.report.match.heat import heat_figure
from slackline.report.match.hierarchy import hierarchy_figure
from slackline.report.match.looks import clock
from slackline.report.match.measures import path_backs
from slackline.report.match.pitch import Plane, draw_lines, pitch
from slackline.report.match.plausibility import plausibility_figure, plausibility_table
from slackline.report.match.play import play_figure
from slackline.report.match.timeline import timeline_figure
from slackline.report.match.waits import by_level, detector_table, level_figure, slack_figure
from slackline.soccer.accuracy import Accuracy
from slackline.soccer.field import DEBS_2013, FULL_SIZE
from slackline.soccer.match import MILLISECOND, SECOND, Period
from slackline.soccer.plausibility import Distribution, Figure, Plausibility
from slackline.soccer.run import match_hierarchy
from slackline.soccer.summary import Summary

SECTIONS = {
    "shots": "The match",
    "heat": "Where they were",
    "timeline": "What happened when",
    "verdicts": "Is it right?",
    "possession": "Possession",
    "runners": "Running",
    "hierarchy": "From positions to goals",
    "waits": "How long one waits for the answer",
    "delays": "How late the positions are",
    "plausibility": "Is the simulated match like a real one?",
}


@pytest.fixture(scope="module")
def report():
    return make_report()


@pytest.fixture(scope="module")
def page(report):
    return match_page(report)


def headings(page):
    return re.findall(r"<h[23]>(.*?)</h[23]>", page)


def named(figure, name):
    return [trace for trace in figure.data if trace.name == name]


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
            passes=[Pass(START, evil, evil, "North", (0.0, 0.0), (1.0, 1.0), True)],
            timeline=Timeline([Mark(START, "hit", evil, "North")], (), [Span(START, START + SECOND, "North", evil)]),
            plausibility=Plausibility(
                (Distribution(evil, evil, (0, 1), (1,), (1,), 1, 1, evil, evil),),
                (Figure(evil, evil, 1, {evil: 1}, evil),), evil,
            ),
            hierarchy=[Node(evil, 1, ("position",), {evil: 3})],
        )
    )  # fmt: skip
    body = page.split("</script>", 1)[1]
    assert evil not in body and "\\u003cb\\u003eevil" not in body


# The most important sentence.


def test_the_conclusion_says_what_is_the_same_late_and_true(report):
    assert conclusion(report) == (
        "The 826 events found in the shuffled stream are the same, field by field, as those found in the perfectly "
        "ordered one. In order of arrival, without Slackline, it is 62. No position came too late. Of the 141 events "
        "that truly happened, 138 were found, and 3 invented."
    )


def test_the_conclusion_hides_nothing(report):
    less = Sameness("near", 2, ordered=90, found=88, same=80)
    text = conclusion(replace(report, late=468, sameness=[less]))
    assert "Of the 88 events found in the shuffled stream and the 90 found in the perfectly ordered one, 80 are" in text
    assert "468 positions (0.020 %) came too late" in text and "of arrival" not in text
    assert conclusion(MatchReport("t", make_match())) == ""


def test_disorder_is_shown_type_by_type_lowest_level_on_top(report):
    figure = sameness_figure([*report.sameness, Sameness("goal", 6, 1, 1, 1)])
    (arrival,) = named(figure, "in order of arrival")
    (ordered,) = named(figure, "put in order")
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
        Pass(START, "N02", "N03", "North", (0.0, 0.0), (10_000.0, 0.0), True, 10.0),
        Pass(START, "N02", None, "North", (0.0, 0.0), (0.0, 34_000.0), False, 34.0, 1.25),
    ]
    figure = play_figure(MatchReport("t", match, passes=passes))
    line, head = named(figure, "North: pass")
    assert line.x == (0.0, 10.0, None) and head.marker.angle == (90.0,) and "N03, 10 m" in head.text[0]
    assert "out of play" in named(figure, "North: pass, lost")[1].text[0]
    (offside,) = named(figure, "offside")
    assert offside.y == (34.0,) and "by 1.2 m" in offside.text[0]


def test_directions_are_told_only_while_they_hold():
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
    spans = [Span(START, START + 3 * SECOND, "North", "N05"), Span(START + 3 * SECOND, START + 5 * SECOND)]
    figure = timeline_figure(MatchReport("t", match, timeline=Timeline(possession=spans, true_possession=spans)))
    bars = [trace for trace in figure.data if trace.type == "bar"]
    found = [(bar.base, bar.x, bar.y) for bar in bars]
    assert found == [((start,), (length,), (row,)) for row in (0, 1) for start, length in ((0.0, 3.0), (3.0, 2.0))]
    assert "N05" in bars[0].text[0] and "out of play" in bars[1].text[0]


def test_a_long_match_is_told_in_minutes():
    match = make_match()
    marks = [Mark(START + s * SECOND, "hit", "N05", "North") for s in (0, 600)]
    figure = timeline_figure(MatchReport("t", match, timeline=Timeline(marks)))
    assert figure.layout.xaxis.title.text == "match time (min)" and named(figure, "found: North")[0].x == (0.0, 10.0)
    assert clock(match, START + 601 * SECOND + 270 * MILLISECOND) == "10:01.3"


# Waits and delays.


def waits(policy="auto"):
    detectors = [
        DetectorWait("A", 1, 80 * MILLISECOND, 10 * MILLISECOND, 40 * MILLISECOND, 300, 2),
        DetectorWait("B", 1, 80 * MILLISECOND, 30 * MILLISECOND, 90 * MILLISECOND, 100),
        DetectorWait("C", 2, 0, 0, 0, 0),
    ]
    events = [
        EventWait("near", 2, 9, 20 * MILLISECOND, 50 * MILLISECOND),
        EventWait("shot", 3, 2, 70 * MILLISECOND, 80 * MILLISECOND, 60 * MILLISECOND),
        EventWait("pass", 3, 0, 0, 0),
    ]
    return PolicyWaits(policy, detectors, events)


def test_a_level_waits_as_its_events_do():
    first, second, third = by_level(waits())
    assert (first.mean, first.largest) == (15.0, 90.0)  # 300 events of 10 ms and 100 of 30 ms
    assert (second.mean, second.detection) == (None, 20.0)
    assert (third.detection, third.detection_largest, third.back) == (70.0, 80.0, 60.0)


def test_the_bound_of_auto_is_drawn_for_the_levels_above_two():
    figure = level_figure([waits(), waits("slack")])
    (bound,) = [trace for trace in figure.data if trace.type == "scatter"]
    assert bound.x == (3,) and bound.y == pytest.approx((1.3 * 20 + 60,))
    assert not [trace for trace in level_figure([waits("slack")]).data if trace.type == "scatter"]


def test_detectors_stand_side_by_side_policy_beside_policy():
    table = detector_table([waits(), replace(waits("slack"), detectors=waits().detectors[:1])])
    rows = [re.findall(r"<td.*?>(.*?)</td>", row) for row in re.findall(r"<tr>.*?</tr>", table)[1:]]
    assert rows[0] == ["A", "1", "80.0", "10.0", "40.0", "2", "80.0", "10.0", "40.0", "2"]
    assert rows[1][-4:] == ["-"] * 4


def test_k_over_time_is_the_largest_of_a_level(report):
    figure = slack_figure(report.waits, report.match)
    lines = [trace for trace in figure.data if trace.name == "level 2"]
    assert len(lines) == 2 and lines[0].y[-1] < lines[1].y[-1]
    (auto, _) = lines
    of_level = {d.detector for d in report.waits[0].detectors if d.level == 2}
    points = [p for s in report.waits[0].series if s.detector in of_level for p in s.points]
    assert max(auto.y) == pytest.approx(max(p.slack for p in points) / MILLISECOND)


def test_delays_are_told_per_kind_of_transmitter_with_what_arrives_out_of_order():
    match = make_match()
    ball, player = match.balls[0], match.players[0].feet[0]
    sid = np.array([ball, ball, player, ball])
    ts = np.array([10, 30, 20, 40]) * MILLISECOND
    balls, others = delays_by_kind(match, sid, ts, np.array([12, 31, 50, 55]) * MILLISECOND)
    assert (balls.delays / MILLISECOND).tolist() == [2, 1, 15] and balls.out_of_order == 0.0
    assert (others.delays / MILLISECOND).tolist() == [30] and others.out_of_order == 1.0


def test_delays_of_nothing_have_a_table_and_no_plot():
    page = match_page(MatchReport("t", make_match(), delays=[Delays("balls", np.zeros(3))]))
    assert "balls" in page and "Plotly.newPlot(" not in page.split("</script>", 1)[1]


def test_back_settings_add_up_along_the_longest_path():
    backs = path_backs(make_match(), {"ball_turned": 3, "shot": 50, "pass": 1})
    assert backs["hit"] == 3 and backs["shot"] == 53
    assert backs["pass"] == 54 and backs["goal"] == 53  # both listen to shots


def test_the_hierarchy_is_drawn_from_positions_upwards(report):
    figure = hierarchy_figure(report.hierarchy)
    height = {re.sub("<.*", "", a.text.removeprefix("<b>")): a.y for a in figure.layout.annotations}
    assert height == {"positions": 0, "BallTurned": 1, "Proximity": 2, "PlayerHitsBall": 3, "ShotOnGoal": 4}
    texts = " ".join(a.text for a in figure.layout.annotations)
    assert "110 × hit" in texts and "0 × shot" not in texts


def test_simulated_stands_beside_recorded(report):
    figure = plausibility_figure(report.plausibility)
    assert {trace.name for trace in figure.data} == {"simulated", "recorded"} and len(figure.data) == 6
    for trace in figure.data:
        assert sum(trace.y[:-1]) == pytest.approx(100, abs=0.1) and len(trace.x) == len(trace.y)
    rows = re.findall(r"<tr>.*?</tr>", plausibility_table(report.plausibility))
    cells = [re.findall(r"<t[dh].*?>(.*?)</t[dh]>", row) for row in rows]
    assert cells == [
        ["figure", "simulated", "game 1", "game 3"],
        ["successful passes, per minute", "9.50", "9.10", "8.60"],
        ["ball in play, share of time", "71.0 %", "62.0 %", "-"],
    ]


# From a run.


def some_events():
    """A hit, a pass that is offside, a shot and its goal; as detectors publish them."""
    at = [START + n * SECOND for n in range(10)]
    spot = {"x": 1000.0, "y": 2000.0, "z": 0.0}
    return [
        Event("possession", at[1], player="N05", team="North", was_player=None, was_team=None),
        Event("hit", at[1], ball=4, player="N05", team="North", acceleration=90.0, **spot),
        Event("pass", at[3], player="N05", team="North", to="N09", to_team="North", successful=True, kicked_at=at[1],
              length=12.5, x=9000.0, y=2000.0, z=0.0),
        Event("pass", at[3], player="N07", team="North", to=None, to_team=None, successful=False, kicked_at=at[2],
              length=12.5, x=9000.0, y=2000.0, z=0.0),
        Event("offside", at[3], player="N09", team="North", passer="N05", kicked_at=at[1], by=0.7),
        Event("shot", at[4], player="N09", team="North", goal=1, speed=22.0, x=9000.0, y=0.0, z=0.0),
        Event("shot_motion", at[5], player="N09", team="North", shot_at=at[4], x=9500.0, y=10.0),
        Event("goal", at[5], player="N09", team="North", goal=1, shot_at=at[4]),
        Event("shot", at[6], player="S09", team="South", goal=0, speed=22.0, x=-9000.0, y=0.0, z=0.0),
        Event("blocked_shot", at[7], player="S09", team="South", blocker="N01", blocker_team="North", shot_at=at[6]),
        Event("shot", at[7], player="S09", team="South", goal=0, speed=22.0, x=-9000.0, y=0.0, z=0.0),
        Event("blocked_shot", at[8], player="S09", team="South", blocker="N04", blocker_team="North", shot_at=at[7]),
        Event("ball_left", at[8], ball=4, area="penalty_0", **spot),
        Event("ball_left", at[8], ball=4, area="field", **spot),
        Event("possession", at[8], player=None, team=None, was_player="S09", was_team="South"),
    ]  # fmt: skip


def test_found_events_become_shots_passes_marks_and_spans():
    report = match_report(make_match(), some_events(), "t", until=START + 9 * SECOND)
    assert [shot.outcome for shot in report.shots] == ["goal", "saved", "blocked"]
    assert report.shots[0].path == [(9500.0, 10.0)]
    (made,) = report.passes  # the other one has no hit it began with
    assert (made.start, made.stop, made.offside) == ((1000.0, 2000.0), (9000.0, 2000.0), 0.7)
    assert [mark.type for mark in report.timeline.found].count("ball_left") == 1  # of the field, not of the area
    assert report.timeline.possession == [
        Span(START + SECOND, START + 8 * SECOND, "North", "N05"),
        Span(START + 8 * SECOND, START + 9 * SECOND),
    ]
    assert report.possession == [Shares("North", 1.0), Shares("South", 0.0)] and report.verdicts == ()
    assert len(match_page(report)) > 1000


def test_the_report_holds_what_was_found_against_the_truth_and_against_arrival_order():
    truth, late = some_events(), START + 8 * SECOND
    found = [event for event in truth if event.type != "goal"]
    report = match_report(make_match(), found, "t", truth=truth, in_arrival_order=[], until=late - 1)
    verdicts = {verdict.type: verdict for verdict in report.verdicts}
    assert verdicts["goal"].ordered == Accuracy("goal", found=0, true=1, matched=0)
    assert verdicts["pass"].ordered == Accuracy("pass", found=2, true=2, matched=2)
    assert verdicts["pass"].unordered == Accuracy("pass", found=0, true=2, matched=0)
    assert "ball_left" not in verdicts  # after the end
    whole = match_report(make_match(), found, "t", truth=[e for e in truth if e.get("area") != "penalty_0"])
    scores = {verdict.type: verdict.ordered for verdict in whole.verdicts}
    assert scores["ball_left"] == Accuracy("ball_left", found=1, true=1, matched=1)  # the penalty area is not judged
    assert report.possession[0] == Shares("North", 1.0, 1.0, None)


def test_events_are_the_same_only_if_all_their_fields_are():
    ordered = [Event("near", 5, player="N05", distance=0.5), Event("near", 9, player="N05", distance=0.25)]
    found = [ordered[0], Event("near", 9, player="N05", distance=np.float64(0.25), team=None)]
    naive = [ordered[0], Event("near", 9, player="N05", distance=0.75), Event("second", 9, packed=b"x")]
    report = match_report(make_match(), found, "t", ordered=ordered, in_arrival_order=naive)
    assert report.sameness == [Sameness("near", 2, 2, 2, 2, 2, 1)]


def test_nothing_found_is_a_report_too():
    report = match_report(make_match(), [], "t", truth=[])
    assert not any(getattr(report, f.name) for f in fields(report) if f.name not in ("title", "match", "timeline"))
    assert headings(match_page(report)) == []


def run_positions(match, seconds=3):
    """A ball that lies still and players who run in circles, through an engine."""
    hierarchy = match_hierarchy(match)
    engine, summary, outputs, history = Engine(hierarchy), Summary.of(match, hierarchy), [], []
    seq = 0
    for second in range(seconds):
        events = []
        for tick in range(20):
            ts = START + second * SECOND + tick * SECOND // 20
            for number, sid in enumerate(match.sids):
                angle = 0.1 * tick + number
                moving = sid not in match.balls
                place = {"x": 9000 * np.cos(angle) * moving, "y": 9000 * np.sin(angle) * moving, "z": 0.0}
                motion = {"v": 3e6 * moving, "a": 0.0, "vx": 10000.0, "vy": 0.0, "vz": 0.0}
                events.append(Event("position", ts + number, source=sid, seq=seq, **place, **motion))
            seq += 1
        outputs += engine.push(events)
        history.append(engine.stats())
    outputs += engine.close()
    history.append(engine.stats())
    for output in outputs:
        summary.add(output.event, output.detected_at - output.event.ts)
    return summary, outputs, history


def test_queries_and_statistics_of_a_run_become_maps_runners_waits_and_the_hierarchy():
    match = replace(make_match(a_side=2), ball_rate=20.0, player_rate=20.0)
    summary, outputs, history = run_positions(match)
    waits = policy_waits("auto", summary, history)
    report = match_report(
        match, [output.event for output in outputs], "t", waits=[waits], hierarchy=hierarchy_nodes(summary)
    )
    assert {heat.name for heat in report.heat} == {"N01", "N02", "S01", "S02", "North", "South"}
    assert all(heat.grid.sum() == pytest.approx(1.0) for heat in report.heat)
    assert {runner.player for runner in report.runners} == {"N01", "N02", "S01", "S02"}
    for runner in report.runners:
        assert runner.top_speed == pytest.approx(3.0) and runner.distance == pytest.approx(9.0, rel=0.35)
        assert sum(runner.seconds.values()) > 1.5
    assert {unit.detector for unit in waits.detectors} == set(history[-1]["detectors"])
    assert {event.type for event in waits.events} >= {"heatmap", "running"}
    assert "second" not in {event.type for event in waits.events}
    assert all(len(series.points) == len(history) for series in waits.series)
    assert {node.detector for node in report.hierarchy} == set(history[-1]["detectors"])
    assert "Running" in headings(match_page(report))
