from collections import Counter, defaultdict

import pytest

from scenarios.vans import SKEW, vans
from slackline.core.errors import ConfigError


def test_the_same_seed_gives_the_same_reports_and_another_others():
    assert vans(3, number=4, reports=50, skewed=1).equals(vans(3, number=4, reports=50, skewed=1))
    assert not vans(3, number=4, reports=50, skewed=1).equals(vans(4, number=4, reports=50, skewed=1))


def test_each_van_reports_so_often_and_some_reports_come_twice():
    rows = vans(1, number=20, reports=100).to_pylist()
    once = {(row["van"], row["source"], row["seq"]): row["ts"] for row in rows}
    assert set(Counter(van for van, *_ in once).values()) == {100}
    assert 1.005 < len(rows) / len(once) < 1.1
    assert all(once[row["van"], row["source"], row["seq"]] == row["ts"] for row in rows)
    doors = Counter(source for _, source, _ in once)["door"] / len(once)
    assert 0.05 < doors < 0.15, "doors are rare"


def test_reports_are_in_order_of_arrival_and_out_of_order_in_time():
    rows = vans(1, number=20, reports=100).to_pylist()
    assert [row["arrival"] for row in rows] == sorted(row["arrival"] for row in rows)
    latest: dict[str, int] = defaultdict(int)
    behind = 0
    for row in rows:
        behind += row["ts"] < latest[row["van"]]
        latest[row["van"]] = max(latest[row["van"]], row["ts"])
    assert 0.005 < behind / len(rows) < 0.2


def test_only_the_vans_whose_clocks_are_wrong_are_far_off():
    rows = vans(1, number=20, reports=100, skewed=5).to_pylist()
    off = defaultdict(lambda: SKEW * 10)
    for row in rows:
        off[row["van"]] = min(off[row["van"]], row["arrival"] - row["ts"])
    assert all(200 <= off[f"van-{van:03d}"] < 1_000 for van in range(5, 20))
    assert sum(abs(off[f"van-{van:03d}"]) > 10_000 for van in range(5)) >= 3
    assert all(abs(off[f"van-{van:03d}"]) <= SKEW + 1_000 for van in range(5))


def test_impossible_fleets_are_refused():
    with pytest.raises(ConfigError, match="skewed=3"):
        vans(1, number=2, skewed=3)
