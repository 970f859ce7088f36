"""Law 7 over a bus that retains: handovers of state and positions alone, and nodes find what one node finds."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from tests.laws.nets import Net, nets, play
from tests.laws.test_law_7_nodes import FAULTS, exact, in_order, some
from tests.laws.worlds import cuts, settings, worlds


@st.composite
def bus_worlds(draw: st.DrawFn, faults: tuple[str, ...], spread: bool) -> Net:
    """A world without ``unsorted`` inputs, on nodes with a bus between them."""
    world = draw(worlds())
    assume(not any(plan.unsorted for plan in world.plans))
    return draw(nets(world, draw(cuts(len(world.events))), spread, faults, retains=True))


@pytest.mark.parametrize("faults", FAULTS, ids="+".join)
@some
@given(data=st.data(), options=settings())
def test_law_7_nodes_on_a_bus_find_what_one_node_finds(faults: Any, data: Any, options: dict[str, Any]) -> None:
    options = exact(options)
    net = data.draw(bus_worlds(faults, spread=False))
    network = net.network(options)
    single, many = play(net.alone().network(options)), play(network)
    assert many.found == single.found
    assert many.seen == single.seen
    assert (many.late, many.quarantined) == (single.late, single.quarantined)
    assert not network.forwarded


@pytest.mark.parametrize("faults", FAULTS, ids="+".join)
@some
@given(data=st.data(), options=settings())
def test_law_7_sensors_may_enter_anywhere_on_a_bus(faults: Any, data: Any, options: dict[str, Any]) -> None:
    options = {**exact(options), "skew": None}
    net = data.draw(bus_worlds(faults, spread=True))
    network = net.network(options)
    many = play(network)
    let_in = [event for event in net.world.events if event not in many.late and event not in many.quarantined]
    assert many.seen == in_order(net, let_in)
    assert not network.forwarded
