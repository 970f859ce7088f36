"""The match as it is played: what the page is given to draw."""

from __future__ import annotations

from slackline.runtime import KeyedEngines
from slackline_soccer import match_hierarchy, match_policy, simulate
from slackline_soccer.commands.live import LISTED, PUSH, Scene


def test_the_scene_has_players_ball_and_what_was_detected() -> None:
    simulation = simulate(12, 7, "congested")
    match = simulation.match
    engines = KeyedEngines(match_hierarchy(match), {"policy": match_policy(match)}, keyed=False)
    scene, scenes = Scene(match), []
    for table in simulation.tables(rows=10 * PUSH):
        scene.add(table, engines.push(table))
        scenes.append(scene.drawn())
    assert all(len(each["players"]) == len(match.players) == 22 for each in scenes)
    along, across = scenes[-1]["half"]
    assert all(abs(x) < along + 5 and abs(y) < across + 5 for x, y, *_ in scenes[-1]["players"])
    assert {team for _, _, team, _ in scenes[-1]["players"]} == {0, 1}
    assert scenes[-1]["ball"] is not None
    assert any("pass, " in text for each in scenes for text in each["events"])
    assert any(each["lines"] for each in scenes) and max(len(each["events"]) for each in scenes) <= LISTED
    assert scenes[0]["clock"] < scenes[-1]["clock"] < "0:13"
