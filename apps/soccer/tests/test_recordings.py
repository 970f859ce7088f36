"""Recordings are recognised, and tracking data become positions: two players a team, who run; a ball that rolls."""

import gzip
from collections import Counter

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest

from slackline.core.errors import ConfigError, SchemaError
from slackline_soccer import data
from slackline_soccer.recordings import CANONICAL, RecordingError, mapping_of, open_recording
from slackline_soccer.tracking import SECOND
from slackline_soccer.tracking import files as recording_files
from slackline_soccer.tracking.game import Role

MAPPING = {
    "objects": [
        {"object": "ball", "role": "ball"},
        {"object": "h1", "role": "goalkeeper", "team": "home"},
        {"object": "h2", "role": "player", "team": "home"},
        {"object": "a1", "role": "goalkeeper", "team": "away"},
        {"object": "a2", "role": "player", "team": "away"},
    ]
}
RATE = 25


def mapping(**more):
    return mapping_of({**MAPPING, **more})


def tracking(seconds=4.0, rate=RATE):
    """Columns ts (s), object, x, y, z (m, from the centre): frame by frame, object by object."""
    t = np.arange(round(seconds * rate)) / rate
    places = {
        "ball": (-40 + 10 * t, 0 * t),
        "h1": (-50 + 0 * t, 1 + 0 * t),
        "h2": (-30 + 5 * t, 20 - 2 * t),
        "a1": (50 + 0 * t, -1 + 0 * t),
        "a2": (30 - 4 * t, -20 + 3 * t),
    }
    rows = [
        {"ts": float(t[n]), "object": name, "x": float(x[n]), "y": float(y[n]), "z": 0.1}
        for n in range(len(t))
        for name, (x, y) in places.items()
    ]
    return pa.Table.from_pylist(rows)


def write_csv(table, path):
    lines = [",".join(table.column_names)]
    for row in table.to_pylist():
        lines.append(",".join("" if value is None else str(value) for value in row.values()))
    path.write_text("\n".join(lines) + "\n")
    return path


def whole(recording):
    return pa.concat_tables(recording.tables())


@pytest.fixture(scope="module")
def excerpt():
    """The lines of the DEBS excerpt, without its header."""
    with gzip.open(data.debs_excerpt(), "rt") as lines:
        return lines.read().splitlines()[1:]


def test_the_excerpt_of_the_debs_match_is_recognised():
    recording = open_recording(data.debs_excerpt())
    found = whole(recording)
    assert recording.format == "DEBS 2013" and found.schema == CANONICAL and found.num_rows == 12_500
    assert found.slice(0, 1).to_pylist() == [
        {
            "sid": 40, "ts": 13_240_232_395_153_129, "x": 33_700, "y": -25_145, "z": -250,
            "v": 2_404_630, "a": 1_343_967, "vx": -7067, "vy": 7068, "vz": -300,
        }
    ]  # fmt: skip
    assert set(found["sid"].to_pylist()) == set(recording.match.sids)


def test_the_full_game_has_no_header_and_is_recognised_too(tmp_path, excerpt):
    path = tmp_path / "full-game.gz"
    path.write_bytes(gzip.compress("\n".join(excerpt).encode()))
    assert whole(open_recording(path)).equals(whole(open_recording(data.debs_excerpt())))
    plain = tmp_path / "full-game"
    plain.write_text("\n".join(excerpt))
    assert whole(open_recording(plain)).equals(whole(open_recording(data.debs_excerpt())))


def test_the_debs_match_has_eight_players_a_team_and_four_balls():
    match = open_recording(data.debs_excerpt()).match
    assert Counter(player.team for player in match.players) == {"A": 8, "B": 8}
    assert match.balls == (4, 8, 10, 12)
    assert [sensor.sid for sensor in match.sensors if sensor.role is Role.REFEREE] == [105, 106]
    assert [player.feet for player in match.players if player.name == "A1"] == [(13, 14)]


def test_the_goalkeepers_stand_in_front_of_the_goals_that_the_periods_give_them():
    recording = open_recording(data.debs_excerpt())
    match, found = recording.match, whole(recording)
    (keeper,) = [player for player in match.players if player.goalkeeper and player.team == "B"]
    (other,) = [player for player in match.players if player.goalkeeper and player.team == "A"]
    y = {player.name: np.mean(found["y"].to_numpy()[np.isin(found["sid"], player.feet)]) for player in (keeper, other)}
    ts = found["ts"][0].as_py()
    assert y[keeper.name] < y[other.name]
    assert match.period(ts) == match.periods[1] and match.periods[1].low == "B"
    assert match.attacks("B", ts) == 1 and match.attacks("B", match.periods[0].start) == 0


def test_rows_of_a_debs_file_that_make_no_position_are_counted(tmp_path, excerpt):
    lines = list(excerpt[:100])
    lines[3] = lines[3].replace(",", ",x", 1)
    lines[5] = "1,2,3"
    lines[7] = "8,13240232395153129,,0,0,0,0,0,0,0,0,0,0"
    lines[9] = "8,99999999999999999999999,0,0,0,0,0,0,0,0,0,0,0"
    path = tmp_path / "full-game.csv"
    path.write_text("\n".join(lines))
    recording = open_recording(path)
    assert whole(recording).num_rows == 96
    assert recording.set_aside.reasons == {
        "ts is missing or no number": 2,
        "3 values instead of 13": 1,
        "x is missing or no number": 1,
    }


def simulated(folder, excerpt_match):
    """A folder as the simulator leaves it, in two files."""
    (folder / "positions").mkdir(parents=True)
    excerpt_match.save(folder / "match.json")
    table = whole(open_recording(data.debs_excerpt())).append_column("arrival", pa.array(range(12_500)))
    pq.write_table(table.slice(0, 6000), folder / "positions" / "00000.parquet")
    pq.write_table(table.slice(6000), folder / "positions" / "00001.parquet")
    return table


def test_a_simulated_match_is_a_folder(tmp_path):
    match = open_recording(data.debs_excerpt()).match
    table = simulated(tmp_path / "m", match)
    recording = open_recording(tmp_path / "m")
    assert recording.format == "simulated match" and recording.match == match and recording.truth is None
    assert whole(recording).select(CANONICAL.names).equals(table.select(CANONICAL.names).combine_chunks())
    pq.write_table(pa.table({"ts": [1]}), tmp_path / "m" / "truth.parquet")
    assert open_recording(tmp_path / "m").truth == tmp_path / "m" / "truth.parquet"


def test_a_simulated_match_that_lacks_something_is_an_error(tmp_path):
    match = open_recording(data.debs_excerpt()).match
    table = simulated(tmp_path / "m", match)
    pq.write_table(table.drop(["v"]), tmp_path / "m" / "positions" / "00001.parquet")
    with pytest.raises(SchemaError, match="lacks the columns v"):
        open_recording(tmp_path / "m")
    for file in (tmp_path / "m" / "positions").iterdir():
        file.unlink()
    with pytest.raises(RecordingError, match=r"holds no \*.parquet"):
        open_recording(tmp_path / "m")


@pytest.mark.parametrize(
    ("name", "content", "error", "complaint"),
    [
        ("m.docx", b"PK\0\3", RecordingError, "neither text nor Parquet"),
        ("m.md", b"# Notes", ConfigError, "m.md is not a known recording; it has # Notes. Understood are"),
        ("m.csv", b"", RecordingError, "m.csv is empty"),
        ("m.csv", b"a,b,c\n1,2,3\n", ConfigError, "it has a, b, c. Understood are"),
        ("m.csv", b"1,2,3\n", ConfigError, "3 numbers without a header. Understood are"),
        ("m.parquet", b"PAR1 no", RecordingError, "cannot read m.parquet"),
        ("m.csv.gz", b"\x1f\x8bno", RecordingError, "cannot read m.csv.gz"),
    ],
)
def test_what_is_not_understood_is_said_with_what_is(tmp_path, name, content, error, complaint):
    (tmp_path / name).write_bytes(content)
    with pytest.raises(error, match=complaint):
        open_recording(tmp_path / name)


def test_a_path_that_leads_nowhere_and_a_folder_of_something_else_are_errors(tmp_path):
    with pytest.raises(RecordingError, match="there is no"):
        open_recording(tmp_path / "none.csv")
    with pytest.raises(ConfigError, match=r"folder without match.json"):
        open_recording(tmp_path)


def test_tracking_data_needs_a_mapping_and_the_others_none(tmp_path):
    with pytest.raises(ConfigError, match="is tracking data; give a mapping"):
        open_recording(write_csv(tracking(), tmp_path / "t.csv"))
    with pytest.raises(ConfigError, match="leave the mapping out"):
        open_recording(data.debs_excerpt(), mapping())


SPAN = {"start": "15:30:00", "stop": "16:15:00"}
FRAMES = pa.array(range(500))
NAMESAKE = {"object": "h3", "team": "home", "name": "h2"}


def replace(table, **columns):
    for name, values in columns.items():
        table = table.set_column(table.column_names.index(name), name, values)
    return table


def scaled(table, *, time=None, x=1.0, y=1.0, dx=0.0, dy=0.0):
    ts = table["ts"] if time is None else pc.cast(pc.round(pc.multiply(table["ts"], float(time))), pa.int64())
    return replace(
        table, ts=ts, x=pc.multiply(pc.add(table["x"], dx), x), y=pc.multiply(pc.add(table["y"], dy), y)
    )  # fmt: skip


def test_metres_and_seconds_become_canonical_positions_with_motion(tmp_path):
    recording = open_recording(write_csv(tracking(), tmp_path / "t.csv"), mapping())
    found = whole(recording)
    assert found.schema == CANONICAL and found.num_rows == 500
    ball = found.filter(pc.equal(found["sid"], 1)).to_pylist()
    assert [row["ts"] for row in ball[:3]] == [0, SECOND // 25, 2 * SECOND // 25]
    assert ball[10]["x"] == -36_000 and ball[10]["z"] == 100
    assert ball[10]["v"] == pytest.approx(10e6) and ball[10]["vx"] == pytest.approx(10_000)
    assert recording.done() == 1 and recording.set_aside.total == 0


def test_the_match_follows_from_mapping_and_rows(tmp_path):
    match = open_recording(write_csv(tracking(), tmp_path / "t.csv"), mapping()).match
    assert (match.ball_rate, match.player_rate) == (25, 25)
    assert match.field.x == (-52_500, 52_500) and match.teams == ("away", "home")
    (period,) = match.periods
    assert period.low == "home" and match.period(0) and match.period(10**16)


def test_the_side_of_a_team_without_goalkeepers_is_where_its_players_stand(tmp_path):
    objects = [{**entry, "role": entry["role"].replace("goalkeeper", "player")} for entry in MAPPING["objects"]]
    recording = open_recording(write_csv(tracking(), tmp_path / "t.csv"), mapping_of({"objects": objects}))
    assert recording.match.periods[0].low == "home"


@pytest.mark.parametrize(
    "change",
    [
        {"time": 1e3},
        {"time": 1e6},
        {"time": 1e9},
        {"time": 1e12},
        {"x": 1000.0, "y": 1000.0},
        {"x": 100.0, "y": 100.0},
    ],
    ids=["ms", "us", "ns", "ps", "mm", "cm"],
)
def test_units_are_recognised(tmp_path, change):
    expected = whole(open_recording(write_csv(tracking(), tmp_path / "t.csv"), mapping()))
    path = tmp_path / "t.parquet"
    pq.write_table(scaled(tracking(), **change), path)
    found = whole(open_recording(path, mapping()))
    assert found["ts"] == expected["ts"]
    np.testing.assert_allclose(found["x"], expected["x"], rtol=1e-6)
    np.testing.assert_allclose(found["v"], expected["v"], rtol=1e-4, atol=1e3)


def test_fractions_of_the_field_are_recognised(tmp_path):
    table = scaled(tracking(), dx=52.5, dy=34.0, x=1 / 105, y=1 / 68)
    recording = open_recording(write_csv(table, tmp_path / "t.csv"), mapping())
    assert recording.match.field.x == (0, 105_000) and recording.match.field.y == (0, 68_000)
    first = whole(recording).to_pylist()[0]
    assert (first["x"], first["y"]) == (12_500, 34_000)


def test_a_zero_in_the_corner_is_recognised(tmp_path):
    recording = open_recording(write_csv(scaled(tracking(), dx=52.5, dy=34.0), tmp_path / "t.csv"), mapping())
    assert recording.match.field.x == (0, 105_000)
    assert recording.match.periods[0].low == "home"


def test_what_the_mapping_says_is_not_guessed(tmp_path):
    said = mapping(time="ms", unit="cm", origin="corner", low="away", field={"length": 100, "width": 60})
    recording = open_recording(write_csv(scaled(tracking(), time=1e6), tmp_path / "t.csv"), said)
    second = whole(recording).to_pylist()[5]
    assert second["ts"] == 40_000 * SECOND // 1000 and second["x"] == pytest.approx(-39.6 * 10)
    assert recording.match.field.x == (0, 100_000) and recording.match.periods[0].low == "away"


@pytest.mark.parametrize("zone", [None, "UTC"])
@pytest.mark.parametrize("suffix", ["csv", "parquet"])
def test_dates_are_times_too_and_count_from_the_day_before(tmp_path, zone, suffix):
    base = np.datetime64("2024-05-01T15:30:00", "us")
    dates = base + np.rint(np.asarray(tracking()["ts"]) * 1e6).astype("timedelta64[us]")
    path = tmp_path / f"t.{suffix}"
    if suffix == "csv":
        texts = [str(date) + ("Z" if zone else "") for date in dates]
        write_csv(replace(tracking(), ts=pa.array(texts)), path)
    else:
        pq.write_table(replace(tracking(), ts=pa.array(dates, pa.timestamp("us", zone))), path)
    span = {what: f"2024-05-01T{time}" + ("Z" if zone else "") for what, time in SPAN.items()}
    recording = open_recording(path, mapping(periods=[span]))
    ts = whole(recording)["ts"].to_numpy()
    assert ts[0] == 86_400 * SECOND + 15.5 * 3600 * SECOND and ts[5] - ts[0] == SECOND // 25
    assert recording.match.periods[0].start == ts[0]
    assert recording.match.periods[0].stop - ts[0] == 2700 * SECOND
    assert recording.origin == int(np.datetime64("2024-04-30", "s").astype(int)) * SECOND


def test_seconds_since_1970_are_dates(tmp_path):
    table = replace(tracking(), ts=pc.add(tracking()["ts"], 1.7e9))
    recording = open_recording(write_csv(table, tmp_path / "t.csv"), mapping())
    ts = whole(recording)["ts"].to_numpy()
    assert recording.origin + int(ts[0]) == 1_700_000_000 * SECOND
    assert abs(int(ts[5] - ts[0]) - SECOND // 25) < 10**6


def test_periods_change_ends_unless_they_say(tmp_path):
    path = write_csv(tracking(), tmp_path / "t.csv")
    spans = [{"start": 0, "stop": 1}, {"start": 2, "stop": 3}, {"start": 3, "stop": 4, "low": "home"}]
    first, second, third = open_recording(path, mapping(periods=spans)).match.periods
    assert [first.low, second.low, third.low] == ["home", "away", "home"]
    assert (second.start, second.stop) == (2 * SECOND, 3 * SECOND)


def test_how_a_file_is_cut_into_tables_changes_nothing(tmp_path, monkeypatch):
    path = write_csv(tracking(20), tmp_path / "t.csv")
    expected = whole(open_recording(path, mapping()))
    monkeypatch.setattr(recording_files, "BLOCK_BYTES", 4096)
    recording = open_recording(path, mapping())
    tables = list(recording.tables())
    assert len(tables) > 5 and pa.concat_tables(tables).equals(expected.combine_chunks())


def test_a_shuffled_recording_stays_shuffled_and_has_the_same_motion(tmp_path):
    table = tracking(10)
    order = np.argsort(np.arange(len(table)) + np.random.default_rng(1).uniform(0, 60, len(table)))
    expected = whole(open_recording(write_csv(table, tmp_path / "t.csv"), mapping())).take(order)
    found = whole(open_recording(write_csv(table.take(order), tmp_path / "s.csv"), mapping()))
    assert found["ts"] == expected["ts"] and found["sid"] == expected["sid"]
    np.testing.assert_allclose(found["v"], expected["v"], rtol=1e-5, atol=10)


def test_rows_that_are_not_seen_stay_and_have_no_say_in_the_motion(tmp_path):
    x = tracking()["x"].to_pylist()
    x[50] = None  # the ball in the eleventh frame
    found = whole(open_recording(write_csv(replace(tracking(), x=pa.array(x)), tmp_path / "t.csv"), mapping()))
    assert found.num_rows == 500 and np.flatnonzero(np.isnan(found["x"])).tolist() == [50]
    ball = found.filter(pc.equal(found["sid"], 1))
    np.testing.assert_allclose(np.delete(ball["v"].to_numpy(), 10), 10e6, rtol=1e-5)


def test_rows_that_make_no_position_are_counted_and_the_others_processed(tmp_path):
    path = write_csv(tracking(), tmp_path / "t.csv")
    lines = path.read_text().splitlines()
    lines[6] = "0.04,drone,1,1,1"
    lines[7] = "0.04,h1,here,1,1"
    lines[8] = "noon,h2,1,1,1"
    lines[9] = "0.04,a1,1"
    lines[10] = ",a2,1,1,1"
    lines[11] = "0.08,,1,1,1"
    lines[12] = "1e300,h1,1,1,1"
    path.write_text("\n".join(lines))
    recording = open_recording(path, mapping())
    assert whole(recording).num_rows == 493
    assert recording.set_aside.reasons == {
        "object 'drone' is not in the mapping": 1,
        "x is no number": 1,
        "ts is missing or no time": 3,
        "3 values instead of 5": 1,
        "object is missing": 1,
    }
    assert whole(recording).num_rows == 493 and recording.set_aside.total == 7  # the same when read again


def test_heights_are_optional(tmp_path):
    found = whole(open_recording(write_csv(tracking().drop(["z"]), tmp_path / "t.csv"), mapping()))
    assert not found["z"].to_numpy().any()


def test_objects_may_be_numbers(tmp_path):
    numbers = {"ball": 0, "h1": 1, "h2": 2, "a1": 11, "a2": 12}
    objects = pa.array([numbers[name] for name in tracking()["object"].to_pylist()])
    pq.write_table(replace(tracking(), object=objects), tmp_path / "t.parquet")
    entries = [{**entry, "object": numbers[entry["object"]]} for entry in MAPPING["objects"]]
    assert whole(open_recording(tmp_path / "t.parquet", mapping_of({"objects": entries}))).num_rows == 500


def test_gzip_is_read_and_a_file_cut_off_is_an_error_that_says_where(tmp_path):
    plain = write_csv(tracking(2000), tmp_path / "t.csv").read_bytes()
    packed = gzip.compress(plain)
    (tmp_path / "t.csv.gz").write_bytes(packed)
    assert sum(t.num_rows for t in open_recording(tmp_path / "t.csv.gz", mapping()).tables()) == 250_000
    (tmp_path / "cut.csv.gz").write_bytes(packed[: len(packed) * 3 // 4])
    with pytest.raises(RecordingError, match=r"cannot read cut.csv.gz beyond row [\d,]+: .*cut off or damaged"):
        whole(open_recording(tmp_path / "cut.csv.gz", mapping()))


@pytest.mark.parametrize(
    ("change", "more", "error", "complaint"),
    [
        ({"ts": pa.array(["soon"] * 500)}, {}, SchemaError, "texts such as 'soon'"),
        ({"ts": FRAMES, "object": pa.array(["ball"] * 500)}, {}, ConfigError, "Frame numbers are no times"),
        ({"object": pa.array(["7"] * 500)}, {}, ConfigError, "none of the objects of t.csv is in the mapping"),
        ({"x": pa.array([1e9 * n for n in range(500)])}, {}, ConfigError, '"unit": "m"'),
        ({"x": pa.array([None] * 500, pa.float64())}, {}, ConfigError, "x or y is missing everywhere"),
        ({}, {"periods": [{"start": "noon", "stop": 3}]}, ConfigError, "the start of period 1"),
        ({}, {"periods": [{"start": 3, "stop": 1}]}, ConfigError, "start < stop"),
        ({}, {"objects": MAPPING["objects"][:3]}, ConfigError, "two teams play"),
        ({}, {"objects": MAPPING["objects"][1:]}, ConfigError, "needs a ball"),
        ({}, {"objects": [*MAPPING["objects"], NAMESAKE]}, ConfigError, "'h2' has 2"),
    ],
)  # fmt: skip
def test_what_cannot_be_read_is_an_error_that_says_what_to_do(tmp_path, change, more, error, complaint):
    path = write_csv(replace(tracking(), **change), tmp_path / "t.csv")
    with pytest.raises(error, match=complaint):
        open_recording(path, mapping(**more))


def test_missing_and_repeated_columns_are_named(tmp_path):
    with pytest.raises(SchemaError, match=r"lacks y; .* It has ts, object, x, z"):
        open_recording(write_csv(tracking().drop(["y"]), tmp_path / "t.csv"), mapping())
    (tmp_path / "t.csv").write_text("ts,object,x,x,y\n1,ball,1,1,1\n")
    with pytest.raises(SchemaError, match="2 columns 'x'"):
        open_recording(tmp_path / "t.csv", mapping())


def test_a_header_alone_is_no_recording(tmp_path):
    with pytest.raises(RecordingError, match="holds no positions"):
        open_recording(write_csv(tracking().slice(0, 0), tmp_path / "t.csv"), mapping())
    pq.write_table(tracking().slice(0, 0), tmp_path / "t.parquet")
    with pytest.raises(RecordingError, match="holds no positions"):
        open_recording(tmp_path / "t.parquet", mapping())
