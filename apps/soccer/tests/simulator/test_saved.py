import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from slackline.core.errors import ConfigError
from slackline_soccer.recordings import open_recording
from slackline_soccer.simulator import save, simulate


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
