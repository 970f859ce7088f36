"""A simulated match, and the same on disk."""

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from slackline.core.errors import ConfigError
from slackline_soccer.model.match import FULL_SIZE
from slackline_soccer.recordings import open_recording
from slackline_soccer.simulator import save, simulate
from slackline_soccer.tracking import SECOND
from slackline_soccer.tracking.game import Role


def whole(simulation, rows):
    return pa.concat_tables(list(simulation.tables(rows=rows))).combine_chunks()


def test_a_match_has_144_transmitters_and_two_teams_of_eleven():
    match = simulate(5, seed=1).match
    assert len(match.sids) == 144
    assert match.field == FULL_SIZE
    assert match.teams == ("A", "B")
    assert [sum(player.team == team for player in match.players) for team in match.teams] == [11, 11]
    assert {player.name for player in match.players if player.goalkeeper} == {"A1", "B1"}
    assert len(match.balls) == 4
    assert len({s.wearer for s in match.sensors if s.role is Role.REFEREE}) == 4
    assert len({s.wearer for s in match.sensors if s.role is Role.SUBSTITUTE}) == 9


def test_columns_are_those_of_redfir():
    table = next(simulate(1, seed=1).tables())
    assert {field.name: str(field.type) for field in table.schema} == {
        "arrival": "int64",
        "sid": "int32",
        "ts": "int64",
        "x": "int32",
        "y": "int32",
        "z": "int32",
        "v": "int64",
        "a": "int64",
        **dict.fromkeys(("vx", "vy", "vz", "ax", "ay", "az"), "int16"),
    }


def test_balls_send_2000_positions_a_second_and_others_200(played):
    assert len(played.columns["ts"]) == pytest.approx(40 * 36_000, rel=0.005)
    for sid in played.match.sids:
        ts = played.of(sid, "ts")
        rate = 2000 if played.match.is_ball[sid] else 200
        assert len(ts) == pytest.approx(40 * rate, rel=0.021)
        assert len(np.unique(np.diff(ts))) == 1  # one period each


def test_time_stamps_lie_within_the_match(played):
    (period,) = played.match.periods
    assert period.start == 10**13
    assert period.stop - period.start == 40 * SECOND
    ts = played.columns["ts"]
    assert period.start <= ts.min() and ts.max() < period.stop
    assert all(period.start <= row["ts"] < period.stop for row in played.truth)


def test_directions_are_unit_vectors_scaled_to_10_000(played):
    for names in (("vx", "vy", "vz"), ("ax", "ay", "az")):
        size = np.sqrt(sum(played.columns[name].astype(float) ** 2 for name in names))
        assert np.abs(size - 10_000).max() < 2


def test_the_same_seed_gives_the_same_match_and_another_seed_another():
    first, again, other = simulate(3, seed=5), simulate(3, seed=5), simulate(3, seed=6)
    assert first.table().equals(again.table())
    assert first.truth.equals(again.truth)
    assert not first.table().equals(other.table())


def test_how_the_stream_is_cut_does_not_matter():
    expected = whole(simulate(3, seed=5), rows=10**9)
    for rows in (997, 36_000, 100_000):
        assert whole(simulate(3, seed=5), rows).equals(expected)


def test_tables_have_the_rows_that_were_asked_for():
    sizes = [len(table) for table in simulate(2, seed=5).tables(rows=10_000)]
    assert set(sizes[:-1]) == {10_000} and 0 < sizes[-1] <= 10_000


def test_a_longer_match_begins_like_a_shorter_one():
    short, long = simulate(4, seed=8, delays="none").table(), simulate(6, seed=8, delays="none").table()
    assert long.slice(0, len(short)).equals(short)


def test_truth_is_the_same_whether_or_not_positions_are_made():
    simulation = simulate(6, seed=2)
    before = simulate(6, seed=2).truth
    list(simulation.tables())
    assert simulation.truth.equals(before)


@pytest.mark.parametrize("seconds", [0, -1, float("nan"), float("inf")])
def test_a_match_without_length_is_refused(seconds):
    with pytest.raises(ConfigError, match="positive"):
        simulate(seconds, seed=1)


def test_negative_seeds_and_empty_tables_are_refused():
    with pytest.raises(ConfigError, match="seed"):
        simulate(1, seed=-1)
    with pytest.raises(ConfigError, match="row"):
        next(simulate(1, seed=1).tables(rows=0))


@pytest.fixture
def directory(tmp_path):
    simulation = simulate(2, seed=5)
    directory = tmp_path / "match"
    save(directory, simulation.match, simulation.tables(rows=30_000), lambda: simulation.truth)
    return directory


def test_a_saved_match_is_read_back_as_it_was(directory):
    simulation, recording = simulate(2, seed=5), open_recording(directory)
    assert recording.match == simulation.match
    assert pq.read_table(recording.truth).equals(simulation.truth)
    assert len(list((directory / "positions").iterdir())) == 3
    columns = ["sid", "ts", "x", "vz"]
    read = pa.concat_tables(recording.tables()).select(columns)
    assert read.equals(simulation.table().select(columns).cast(read.schema))


def test_saving_reports_its_progress_and_the_number_of_positions(tmp_path):
    simulation, sizes = simulate(1, seed=5), []
    rows = save(
        tmp_path / "m", simulation.match, simulation.tables(rows=10_000), lambda: simulation.truth,
        lambda table: sizes.append(len(table)),
    )  # fmt: skip
    assert rows == sum(sizes) == len(simulation.table())


def test_what_is_there_is_not_overwritten(directory):
    simulation = simulate(1, seed=5)
    with pytest.raises(ConfigError, match="not empty"):
        save(directory, simulation.match, simulation.tables(), lambda: simulation.truth)


def test_a_file_is_no_directory(tmp_path):
    file = tmp_path / "match"
    file.write_text("")
    with pytest.raises(ConfigError, match="is a file"):
        save(file, simulate(1, seed=5).match, [], lambda: pa.table({}))
