import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.unit.cluster.placement.problems import problems

from slackline.cluster.placement.kernels import (
    below,
    costs_of,
    fill_prices,
    loads_of,
    move,
    shuffle,
    swap_gain,
    total,
    uniform,
)
from slackline.cluster.placement.local import exchange_gain


def state(places, costs):
    loads, prices = loads_of(costs, places), np.empty(costs.alone.shape)
    fill_prices(costs, places, prices)
    return loads, prices


@given(problems(), st.data())
def test_costs_as_arrays_are_the_objective(problem, data):
    costs = costs_of(problem)
    homes = st.sampled_from(list(problem.nodes))
    placement = {name: problem.pinned.get(name) or data.draw(homes) for name in problem.detectors}
    assert total(costs, problem.places(placement)) == pytest.approx(problem.objective(placement), abs=1e-12)


@given(problems(detectors=8, nodes=4), st.data())
def test_after_any_moves_and_swaps_what_was_kept_up_to_date_is_what_it_is_from_scratch(problem, data):
    costs = costs_of(problem)._replace(alone=np.nan_to_num(costs_of(problem).alone, posinf=7.0))
    size, nodes = costs.alone.shape
    number, node = st.integers(0, size - 1), st.integers(0, nodes - 1)
    places = np.array(data.draw(st.lists(node, min_size=size, max_size=size)), np.int64)
    loads, prices = state(places, costs)
    value = total(costs, places)
    steps = st.one_of(st.tuples(number, node), st.tuples(number, number, st.just("swap")))
    for step in data.draw(st.lists(steps, max_size=12)):
        if len(step) == 2:
            value += prices[step[0], step[1]] - prices[step[0], places[step[0]]]
            move(costs, places, loads, prices, *step)
        else:
            one, another, _ = step
            here, there = places[one], places[another]
            if here == there:
                continue
            value += swap_gain(costs, places, prices, one, another)
            move(costs, places, loads, prices, one, there)
            move(costs, places, loads, prices, another, here)
    anew_loads, anew_prices = state(places, costs)
    assert value == pytest.approx(total(costs, places), abs=1e-9)
    np.testing.assert_allclose(loads, anew_loads, atol=1e-9)
    np.testing.assert_allclose(prices, anew_prices, atol=1e-9)


@given(problems(detectors=8, nodes=4), st.data())
def test_what_an_exchange_of_two_nodes_gains_is_what_it_is_from_scratch(problem, data):
    costs = costs_of(problem)._replace(alone=np.nan_to_num(costs_of(problem).alone, posinf=7.0))
    size, nodes = costs.alone.shape
    node = st.integers(0, nodes - 1)
    places = np.array(data.draw(st.lists(node, min_size=size, max_size=size)), np.int64)
    here, there = data.draw(node), data.draw(node)
    if here == there:
        return
    members, counts = np.zeros((nodes, size), np.int64), np.bincount(places, minlength=nodes)
    for each in range(nodes):
        members[each, : counts[each]] = np.flatnonzero(places == each)
    exchanged = np.where(places == here, there, np.where(places == there, here, places))
    gain = exchange_gain(costs, places, here, there, members, counts)
    assert gain == pytest.approx(total(costs, exchanged) - total(costs, places), abs=1e-9)


def test_random_numbers_are_spread_evenly_and_repeat():
    random = np.array([5], np.uint64)
    drawn = [uniform(random) for _ in range(4000)]
    assert 0 <= min(drawn) < 0.01 and 0.99 < max(drawn) < 1 and abs(np.mean(drawn) - 0.5) < 0.02
    assert set(np.bincount([below(random, 3) for _ in range(3000)]) // 900) == {1}
    order = np.arange(10)
    shuffle(random, order)
    assert sorted(order) == list(range(10)) != order.tolist()
    assert uniform(np.array([5], np.uint64)) == drawn[0]
