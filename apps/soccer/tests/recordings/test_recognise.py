import gzip
from collections import Counter

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from apps.soccer.tests.recordings.small import mapping, tracking, whole, write_csv

from slackline.core.errors import ConfigError, SchemaError
from slackline_soccer import data
from slackline_soccer.recordings import CANONICAL, RecordingError, open_recording
from slackline_soccer.tracking.game import Role


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
