import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest

from scenarios.kicks import kick_sites, kicks
from slackline.core.errors import ConfigError


def hits(rows):
    """Who kicks while near, taking the rows as they come."""
    near, found = set(), []
    for row in rows:
        if row["type"] == "near":
            near.add(row["player"])
        elif row["type"] == "not_near":
            near.discard(row["player"])
        else:
            found += [(row["ts"], player) for player in sorted(near)]
    return found


def in_order(table):
    return sorted(table.to_pylist(), key=lambda row: (row["ts"], row["type"], row["source"], row["seq"]))


@pytest.mark.parametrize("seed", range(5))
def test_the_sorted_stream_gives_exactly_the_truth(seed):
    table, truth = kicks(seed, 300)
    assert len(truth) > 100
    assert hits(in_order(table)) == truth


def test_taking_events_as_they_come_gives_wrong_hits():
    table, truth = kicks(1, 600)
    wrong = set(hits(table.to_pylist())) ^ set(truth)
    assert len(wrong) > 0.1 * len(truth)


def test_some_kicks_hit_with_two_players_near_and_some_with_none():
    table, truth = kicks(1, 600)
    kicked = pc.filter(table["ts"], pc.equal(table["type"], "kick")).to_pylist()
    per_kick = [sum(ts == kick for ts, _ in truth) for kick in kicked]
    assert {0, 1, 2} <= set(per_kick)


def test_each_source_delivers_in_order_with_the_delays_of_the_paper():
    table, _ = kicks(2, 300)
    arrival = table["arrival"].to_numpy()
    assert np.all(np.diff(arrival) >= 0)
    delay = arrival - table["ts"].to_numpy()
    is_kick = np.array(table["type"].to_pylist()) == "kick"
    assert delay[is_kick].min() >= 1_000 and delay[is_kick].max() <= 2_000
    assert delay[~is_kick].min() >= 5_000 and delay[~is_kick].max() <= 45_000
    for source in set(table["source"].to_pylist()):
        mine = table.filter(pc.equal(table["source"], source))
        assert mine["seq"].to_pylist() == list(range(len(mine)))
        assert np.all(np.diff(mine["ts"].to_numpy()) > 0)


def test_sites_are_independent_and_each_keeps_its_truth():
    table, truth = kick_sites(3, 120, 3)
    assert np.all(np.diff(table["arrival"].to_numpy()) >= 0)
    assert sorted(truth) == ["site-0", "site-1", "site-2"]
    assert len({tuple(found) for found in truth.values()}) == 3
    for site, known in truth.items():
        assert hits(in_order(table.filter(pc.equal(table["site"], site)))) == known


def test_a_seed_repeats_to_the_bit():
    assert kicks(4, 60)[0].equals(kicks(4, 60)[0])
    assert kicks(4, 60)[1] != kicks(5, 60)[1]


def test_a_session_too_short_for_any_encounter_is_empty_but_typed():
    table, truth = kicks(1, 0.1)
    assert len(table) == 0 and truth == []
    assert table.schema.field("player").type == pa.int64()


def test_a_session_without_length_is_refused():
    with pytest.raises(ConfigError, match="positive"):
        kicks(1, 0)
