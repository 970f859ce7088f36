import re
from dataclasses import replace

import numpy as np
import pytest
from apps.soccer.tests.report.made_match import make_match

from slackline_soccer.report import delays_by_kind, match_page
from slackline_soccer.report.build import path_backs
from slackline_soccer.report.hierarchy import hierarchy_figure
from slackline_soccer.report.model import Delays, DetectorWait, EventWait, MatchReport, PolicyWaits
from slackline_soccer.report.plausibility import plausibility_figure, plausibility_table
from slackline_soccer.report.waits import by_level, detector_table, level_figure, slack_figure
from slackline_soccer.tracking import MILLISECOND


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
