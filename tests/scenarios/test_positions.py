import numpy as np
import pyarrow as pa
import pytest

from scenarios.positions import position_chunks, positions
from slackline.core.errors import ConfigError


@pytest.fixture(scope="module")
def table() -> pa.Table:
    return positions(seconds=10, seed=3)


def columns(table: pa.Table) -> dict[str, np.ndarray]:
    return {name: table[name].to_numpy() for name in ("arrival", "ts", "source", "seq", "x", "z")}


def test_the_columns_have_the_promised_types(table):
    assert table.schema == pa.schema(
        {
            "arrival": pa.int64(),
            "ts": pa.int64(),
            "type": pa.dictionary(pa.int8(), pa.string()),
            "source": pa.int32(),
            "seq": pa.int64(),
            "x": pa.float32(),
            "y": pa.float32(),
            "z": pa.float32(),
        }
    )
    assert all(column.null_count == 0 for column in table.columns)


def test_there_are_36_000_positions_a_second_of_144_sources(table):
    c = columns(table)
    assert len(table) == pytest.approx(360_000, rel=0.005)
    counts = np.bincount(c["source"])
    assert len(counts) == 144
    assert np.all(np.abs(counts[:4] - 20_000) <= 1)
    assert np.all(np.abs(counts[4:] - 2_000) <= 10)


def test_balls_and_players_have_their_own_type(table):
    balls = np.array(table["type"].to_pylist()) == "ball"
    assert np.array_equal(balls, columns(table)["source"] < 4)


def test_one_type_for_all_can_be_asked_for():
    assert set(positions(seconds=0.1, seed=1, type="position")["type"].to_pylist()) == {"position"}


def test_rows_come_in_arrival_order_and_each_source_in_its_own(table):
    c = columns(table)
    assert np.all(np.diff(c["arrival"]) >= 0)
    for source in (0, 3, 4, 143):
        mine = c["source"] == source
        assert np.array_equal(c["seq"][mine], np.arange(mine.sum()))
        gaps = np.unique(np.diff(c["ts"][mine]))
        assert gaps.tolist() == [500 if source < 4 else 5_000]


def test_about_93_per_cent_are_out_of_order_and_none_is_later_than_145_ms(table):
    ts = columns(table)["ts"]
    ahead = np.maximum.accumulate(ts)
    assert np.mean(ts < ahead) == pytest.approx(0.93, abs=0.01)
    assert 120_000 < np.max(ahead - ts) <= 145_000


def test_ball_jitter_is_below_5_ms_and_other_delays_run_from_5_to_145_ms(table):
    c = columns(table)
    delay = c["arrival"] - c["ts"]
    balls = c["source"] < 4
    assert delay[balls].min() >= 0 and delay[balls].max() < 5_000
    assert delay[~balls].min() >= 5_000 and delay[~balls].max() <= 145_000
    # A heavy tail: the worst is several times the typical delay.
    assert delay[~balls].max() > 3 * np.median(delay[~balls])


def test_ten_positions_of_a_transmitter_arrive_together(table):
    c = columns(table)
    mine = c["source"] == 77
    arrival, seq = c["arrival"][mine], c["seq"][mine]
    for packet in range(len(seq) // 10):
        assert len(set(arrival[seq // 10 == packet])) == 1


def test_phases_differ(table):
    c = columns(table)
    first = c["ts"][(c["seq"] == 0) & (c["source"] >= 4)]
    assert len(set((first % 5_000).tolist())) > 100


def test_payloads_stay_on_the_field(table):
    c = columns(table)
    assert np.all(np.abs(c["x"]) <= 52.5) and np.all((c["z"] >= 0) & (c["z"] <= 3.0))


def test_a_seed_repeats_to_the_bit_and_another_differs(table):
    assert positions(seconds=1.5, seed=3).equals(positions(seconds=1.5, seed=3))
    assert not positions(seconds=1.5, seed=3).equals(positions(seconds=1.5, seed=4))


@pytest.mark.parametrize("rows", [1_000, 36_000, 77_777, 10_000_000])
def test_chunks_put_together_equal_the_whole(rows):
    whole = positions(seconds=3.3, seed=5)
    chunks = list(position_chunks(seconds=3.3, seed=5, rows=rows))
    assert {len(chunk) for chunk in chunks[:-1]} <= {rows}
    assert 0 < len(chunks[-1]) <= rows
    assert pa.concat_tables(chunks).combine_chunks().equals(whole)


def test_a_longer_session_begins_like_a_shorter_one():
    short, long = positions(seconds=2, seed=5), positions(seconds=4, seed=5)
    # Up to the end of the shorter session nothing differs.
    same = int(np.searchsorted(short["arrival"].to_numpy(), 2_000_000))
    assert same > 60_000
    assert short.slice(0, same).equals(long.slice(0, same))


@pytest.mark.parametrize(
    "wrong", [{"seconds": 0}, {"seconds": -1}, {"rows": 0}, {"ball_sources": 0, "other_sources": 0}]
)
def test_impossible_sessions_are_refused(wrong):
    with pytest.raises(ConfigError, match="must be positive"):
        next(position_chunks(**({"seconds": 1, "seed": 1} | wrong)))
