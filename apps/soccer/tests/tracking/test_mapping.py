import json

import pytest

from slackline.core.errors import ConfigError
from slackline_soccer.model.match import Field
from slackline_soccer.recordings import load_mapping, mapping_of
from slackline_soccer.tracking.game import Limb, Role

OBJECTS = [
    {"object": "ball", "role": "ball"},
    {"object": "h1", "role": "goalkeeper", "team": "home", "name": "Ito"},
    {"object": "h7", "team": "home"},
    {"object": "a7", "role": "player", "team": "away"},
    {"object": "ref", "role": "referee"},
]


def test_objects_become_transmitters_in_the_order_of_the_mapping():
    mapping = mapping_of({"objects": OBJECTS})
    assert mapping.objects == {"ball": 1, "h1": 2, "h7": 3, "a7": 4, "ref": 5}
    keeper = mapping.sensors[1]
    assert (keeper.sid, keeper.role, keeper.wearer, keeper.team, keeper.limb) == (
        2, Role.GOALKEEPER, "Ito", "home", Limb.BODY,
    )  # fmt: skip
    assert mapping.sensors[2].role is Role.PLAYER and mapping.sensors[2].wearer == "h7"
    assert mapping.teams == ("away", "home")


def test_objects_may_be_given_by_name():
    by_name = {entry["object"]: {k: v for k, v in entry.items() if k != "object"} for entry in OBJECTS}
    assert mapping_of({"objects": by_name}) == mapping_of({"objects": OBJECTS})


def test_csv_and_json_say_the_same(tmp_path):
    (tmp_path / "m.json").write_text(json.dumps({"objects": OBJECTS}))
    lines = [
        "object,role,team,name",
        "ball,ball,,",
        "h1,goalkeeper,home,Ito",
        "h7,,home,",
        "a7,player,away,",
        "ref,referee,,",
    ]
    (tmp_path / "m.csv").write_text("\n".join(lines))
    assert load_mapping(tmp_path / "m.csv") == load_mapping(tmp_path / "m.json")


@pytest.mark.parametrize(
    ("origin", "lengthwise", "x", "y"),
    [
        ("centre", "x", (-50_000, 50_000), (-30_000, 30_000)),
        ("corner", "x", (0, 100_000), (0, 60_000)),
        ("corner", "y", (0, 60_000), (0, 100_000)),
    ],
)
def test_the_field_lies_where_the_origin_says(origin, lengthwise, x, y):
    size = {"length": 100, "width": 60, "lengthwise": lengthwise}
    field = Field.on(mapping_of({"objects": OBJECTS, "field": size}).ground(origin))
    assert (field.x, field.y) == (x, y)
    assert field.length == 100_000 and field.ends == (field.goals[0].line, field.goals[1].line)
    assert (field.goals[0].left + field.goals[0].right) / 2 == sum(field.sides) / 2


@pytest.mark.parametrize(
    ("change", "complaint"),
    [
        ({"objects": [*OBJECTS, {"object": "h7", "team": "away"}]}, "names 'h7' more than once"),
        ({"objects": []}, "at least a ball"),
        ({"objects": [{"role": "ball"}]}, "has no name"),
        ({"objects": [{"object": "x"}]}, "role of object 'x' is None; choose one of ball, player"),
        ({"objects": [{"object": "x", "role": "coach"}]}, "'coach'; choose one of"),
        ({"objects": [{"object": "x", "role": "player"}]}, "player without a team"),
        ({"objects": [{"object": "x", "role": "player", "team": "A", "limb": "tail"}]}, "limb of object 'x' is 'tail'"),
        ({"objects": [{"object": "x", "rôle": "player"}]}, "'rôle'; understood are"),
        ({"objects": "ball"}, "is a list"),
        ({"objects": ["ball"]}, "expected an object in braces"),
        ({"time": "minutes"}, "'time' is 'minutes'; choose one of s, ms"),
        ({"unit": "yd"}, "choose one of m, cm, mm"),
        ({"origin": "middle"}, "choose one of centre, corner"),
        ({"low": "nobody"}, "'nobody', which has no players"),
        ({"field": {"length": 105_000}}, "from 10 to 200 m"),
        ({"field": {"size": 1}}, "'size'; understood are"),
        ({"periods": [{"start": 0}]}, "needs 'start' and 'stop'"),
        ({"periods": [{"start": 0, "stop": 9, "low": "nobody"}]}, "which has no players"),
        ({"speed": 3}, "'speed'; understood are"),
    ],
)  # fmt: skip
def test_what_is_wrong_with_a_mapping_is_said(change, complaint):
    with pytest.raises(ConfigError, match="(?s)" + complaint.replace("(", r"\(")):
        mapping_of({"objects": OBJECTS, **change})


def test_a_name_twice_in_a_json_object_is_not_passed_over(tmp_path):
    path = tmp_path / "m.json"
    path.write_text('{"objects": {"7": {"role": "ball"}, "7": {"role": "referee"}}}')
    with pytest.raises(ConfigError, match="names '7' more than once"):
        load_mapping(path)


@pytest.mark.parametrize(
    ("name", "text", "complaint"),
    [
        ("m.json", "{", "is no JSON"),
        ("m.json", "[]", "needs a key 'objects'"),
        ("m.csv", "id,role\n1,ball\n", "needs object, role, team"),
        ("m.csv", "object,role\n1\n", "line 2: 2 values are expected"),
        ("m.csv", "object,role\n1,ball,x\n", "line 2: 2 values are expected"),
        ("m.csv", "object,role\nb,ball\nb,ball\n", "names 'b' more than once"),
    ],
)
def test_a_file_that_is_no_mapping_is_named(tmp_path, name, text, complaint):
    (tmp_path / name).write_text(text)
    with pytest.raises(ConfigError, match=complaint):
        load_mapping(tmp_path / name)


def test_a_mapping_that_is_not_there_is_named(tmp_path):
    with pytest.raises(ConfigError, match="cannot read the mapping"):
        load_mapping(tmp_path / "none.json")
