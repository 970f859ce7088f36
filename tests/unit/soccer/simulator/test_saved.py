import pyarrow as pa
import pytest

from slackline.core.errors import ConfigError
from slackline.soccer.simulator import load, save, simulate


@pytest.fixture
def directory(tmp_path):
    simulation = simulate(2, seed=5)
    directory = tmp_path / "match"
    save(directory, simulation.match, simulation.tables(rows=30_000), lambda: simulation.truth)
    return directory


def test_a_saved_match_is_read_back_as_it_was(directory):
    simulation, saved = simulate(2, seed=5), load(directory)
    assert saved.match == simulation.match
    assert saved.truth.equals(simulation.truth)
    assert len(saved.parts) == 3
    assert pa.concat_tables(list(saved.tables())).combine_chunks().equals(simulation.table())


def test_saving_tells_its_progress_and_the_number_of_positions(tmp_path):
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


def test_a_directory_without_a_match_is_refused(tmp_path, directory):
    with pytest.raises(ConfigError, match=r"lacks match.json, truth.parquet, positions"):
        load(tmp_path)
    (directory / "truth.parquet").write_text("nonsense")
    with pytest.raises(ConfigError, match=r"truth\.parquet"):
        load(directory)
