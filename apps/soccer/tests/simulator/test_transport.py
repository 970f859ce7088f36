import gzip

import numpy as np
import pytest
from tests.recordings import recorded

from slackline.core.errors import ConfigError
from slackline_soccer.simulator import simulate
from slackline_soccer.simulator.locating import Bursts, Congestion, Line, measured_delays, read_delays
from slackline_soccer.tracking import MILLISECOND, SECOND


@pytest.fixture(scope="module")
def stream():
    """Six seconds as they arrive, with the match."""
    simulation = simulate(6, seed=4)
    table = simulation.table()
    return simulation.match, {name: table[name].to_numpy() for name in ("arrival", "sid", "ts")}


def test_over_ninety_percent_of_the_positions_are_out_of_order(stream):
    ts = stream[1]["ts"]
    earlier = np.maximum.accumulate(ts)[:-1]
    assert (ts[1:] < earlier).mean() > 0.9


def test_the_stream_is_in_arrival_order_and_no_line_overtakes(stream):
    match, columns = stream
    assert (np.diff(columns["arrival"]) >= 0).all()
    for sid in match.sids:
        assert (np.diff(columns["ts"][columns["sid"] == sid]) > 0).all()


def test_without_a_stall_balls_are_below_5_ms_and_others_between_5_and_150():
    """Bursts are drawn about 20 s apart: seed 4 has none in the first seconds."""
    simulation = simulate(2, seed=4)
    table = simulation.table()
    delay = (table["arrival"].to_numpy() - table["ts"].to_numpy()) / MILLISECOND
    ball = simulation.match.is_ball[table["sid"].to_numpy()]
    assert delay[ball].min() >= 0 and delay[ball].max() < 5.5
    assert delay[~ball].min() >= 5
    assert 100 < delay[~ball].max() < 160


def test_ten_positions_of_a_worn_transmitter_arrive_together(stream):
    match, columns = stream
    worn = next(sid for sid in match.sids if not match.is_ball[sid])
    arrival = columns["arrival"][columns["sid"] == worn]
    _, counts = np.unique(arrival, return_counts=True)
    assert (counts[:-1] % 10 == 0).all()


def test_few_packets_are_lost(stream):
    _, columns = stream
    complete = simulate(6, seed=4, delays="none").table()
    assert 0.0003 < 1 - len(columns["ts"]) / len(complete) < 0.003


def test_without_delays_everything_arrives_when_it_occurs():
    table = simulate(2, seed=4, delays="none").table()
    assert table["arrival"].equals(table["ts"])


def test_delays_do_not_change_what_is_measured():
    late, prompt = simulate(2, seed=4).table().to_pandas(), simulate(2, seed=4, delays="none").table().to_pandas()
    both = late.merge(prompt, on=["sid", "ts"], suffixes=("", "_prompt"))
    assert len(both) == len(late)
    for name in ("x", "y", "z", "v", "a", "vx", "az"):
        assert (both[name] == both[f"{name}_prompt"]).all()


def test_a_stall_holds_everything_and_lets_it_go_in_order():
    arrival = np.arange(0, 100 * SECOND, SECOND // 200)
    held = Bursts(seed=1, start=0).hold(arrival.copy())
    assert (np.diff(held) >= 0).all()
    late = (held - arrival) / MILLISECOND
    assert (late >= 0).all()
    assert 90 < late.max() <= 300
    assert 0 < (late > 0).mean() < 0.1
    runs = np.flatnonzero(np.diff((late > 0).astype(int)) == 1)
    assert len(runs) >= 2


def test_stalls_do_not_depend_on_how_arrivals_are_asked_for():
    arrival = np.arange(0, 60 * SECOND, SECOND // 100)
    at_once = Bursts(seed=1, start=0).hold(arrival.copy())
    bursts = Bursts(seed=1, start=0)
    pieces = []
    for piece in np.split(arrival, 30):
        pieces.append(bursts.hold(piece.copy()))
        bursts.forget(int(piece[0]) - SECOND)
    assert (np.concatenate(pieces) == at_once).all()


def test_a_congested_receiver_delays_players_by_up_to_half_a_second_and_no_ball():
    simulation, usual = (simulate(20, seed=4, delays=delays) for delays in ("congested", "measured"))
    table, as_usual = simulation.table(), usual.table()
    assert len(table) == len(as_usual)  # the same packets are lost
    ball = simulation.match.is_ball[table["sid"].to_numpy()]
    assert table.filter(ball).equals(as_usual.filter(usual.match.is_ball[as_usual["sid"].to_numpy()]))
    delay = (table["arrival"].to_numpy() - table["ts"].to_numpy())[~ball] / MILLISECOND
    assert 300 < delay.max() < 650 + 300  # jitter, packet and backlog, perhaps in a stall of the network
    assert 0.05 < (delay > 200).mean() < 0.6
    assert (np.diff(table["arrival"].to_numpy()) >= 0).all()


def test_congestion_does_not_depend_on_how_packets_are_asked_for_and_packets_never_overtake():
    sent = np.arange(0, 60 * SECOND, SECOND // 100)
    at_once = Congestion(seed=1, start=0).backlog(sent)
    pieces = Congestion(seed=1, start=0)
    assert (np.concatenate([pieces.backlog(piece) for piece in np.split(sent, 30)]) == at_once).all()
    assert (np.diff(sent + at_once) >= 0).all()
    assert 200 < at_once.max() / MILLISECOND <= 500


def test_a_line_never_overtakes_across_blocks():
    line = Line(seed=1, sources=1, draw=measured_delays, ball=False)
    sent = np.arange(0, 10 * SECOND, MILLISECOND)
    arrivals = [line.send(n, block, np.array([0, len(block)]))[0] for n, block in enumerate(np.split(sent, 10))]
    assert (np.diff(np.concatenate(arrivals)) >= 0).all()


def test_delays_of_a_recorded_stream_are_drawn_again():
    table = simulate(2, seed=4, delays=str(recorded("d-1"))).table()
    delays = read_delays(recorded("d-1"))
    delay = (table["arrival"].to_numpy() - table["ts"].to_numpy()) / MILLISECOND
    assert delay.min() >= 0
    assert np.median(delay) > 10
    assert delays(np.random.default_rng(1), 1000, True).min() >= 0


def test_units_of_recorded_delays_are_in_the_column_names(tmp_path):
    file = tmp_path / "delays.csv.gz"
    with gzip.open(file, "wt") as out:
        out.write("arrival_us,ts_us\n110,100\n150,110\n")
    drawn = read_delays(file)(np.random.default_rng(1), 100, False)
    assert set(drawn.tolist()) == {0, 30 * 10**6}


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("a,b\n1,2\n", "arrival_ms"),
        ("arrival_ms,ts_us\n1,2\n", "different units"),
        ("arrival_ms,ts_ms\n1,x\n", "number"),
        ("arrival_ms,ts_ms\n1,nan\n", "finite"),
        ("arrival_ms,ts_ms\n", "at least one"),
        ("arrival_ms,ts_ms\n1\n", "number"),
    ],
)
def test_a_file_without_delays_is_refused_with_a_reason(tmp_path, text, complaint):
    file = tmp_path / "delays.csv"
    file.write_text(text)
    with pytest.raises(ConfigError, match=complaint):
        simulate(1, seed=1, delays=file)


def test_unknown_delays_are_refused():
    with pytest.raises(ConfigError, match="'measured', 'congested', 'none' or a CSV"):
        simulate(1, seed=1, delays="nonsense")
