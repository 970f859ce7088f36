"""The page of a match that was run, and what it says of waits."""

import re
from dataclasses import fields, replace

import numpy as np
import pytest
from apps.soccer.tests.report.made_match import START, headings, make_match

from slackline import Engine, Event
from slackline_soccer.accuracy import Accuracy
from slackline_soccer.report import delays_by_kind, hierarchy_nodes, match_page, match_report, policy_waits
from slackline_soccer.report.build import path_backs
from slackline_soccer.report.hierarchy import hierarchy_figure
from slackline_soccer.report.model import (
    Delays,
    DetectorWait,
    EventWait,
    MatchReport,
    PolicyWaits,
    PossessionShare,
    PossessionSpan,
    Sameness,
)
from slackline_soccer.report.plausibility import plausibility_figure, plausibility_table
from slackline_soccer.report.waits import by_level, detector_table, level_figure, slack_figure
from slackline_soccer.run import match_hierarchy
from slackline_soccer.summary import Summary
from slackline_soccer.tracking import MILLISECOND, SECOND


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
        PossessionSpan(START + SECOND, START + 8 * SECOND, "North", "N05"),
        PossessionSpan(START + 8 * SECOND, START + 9 * SECOND),
    ]
    assert report.possession == [PossessionShare("North", 1.0), PossessionShare("South", 0.0)] and report.verdicts == ()
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
    assert report.possession[0] == PossessionShare("North", 1.0, 1.0, None)


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


def test_delays_are_shown_per_kind_of_transmitter_with_the_share_out_of_order():
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
