import numpy as np
import pytest

from scenarios.delayed_keys import HELD, LAG, delayed_keys
from slackline.core.errors import ConfigError
from slackline.study.policies import fixed


def columns(table, *names):
    return [table[name].to_numpy() for name in names]


def test_the_same_seed_gives_the_same_readings_and_another_others():
    assert delayed_keys(3, 6, 20).equals(delayed_keys(3, 6, 20))
    assert not delayed_keys(3, 6, 20).equals(delayed_keys(4, 6, 20))


def test_half_of_the_keys_lag_behind_by_an_amount_of_their_own_and_arrive_in_order_of_arrival():
    table = delayed_keys(1, 40, 50)
    key, arrival, ts, lag = columns(table, "key", "arrival", "ts", "lag")
    lags = {k: set(lag[key == k].tolist()) for k in set(key.tolist())}
    assert all(len(each) == 1 for each in lags.values())
    assert sum(each != {0} for each in lags.values()) == 20 and np.max(lag) < LAG
    assert (np.diff(arrival) >= 0).all() and (arrival - ts - lag).max() < HELD + 2_000


def test_one_watermark_loses_the_delayed_keys_and_a_watermark_per_key_nothing():
    table = delayed_keys(1, 40, 300)
    key, ts, lag = columns(table, "key", "ts", "lag")
    late = fixed(ts, 5_000).late
    assert late[lag > 6_000].mean() > 0.9 and late[lag == 0].mean() < 0.01
    assert not any(fixed(ts[key == k], 5_000).late.any() for k in set(key.tolist()))


def test_there_is_no_half_of_one_key():
    with pytest.raises(ConfigError, match="keys"):
        delayed_keys(1, keys=1)
