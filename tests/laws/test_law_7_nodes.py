"""Law 7 over a network: nodes that share a hierarchy find what one node finds, whatever befalls them."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import assume, given
from hypothesis import settings as profile
from hypothesis import strategies as st
from tests.laws.nets import Net, nets, play
from tests.laws.worlds import cuts, settings, worlds

import slackline as sl
from slackline.ordering.policy import with_policy

# A network takes longer than an engine. The thorough profile draws some 10,300 networks, with one or two moves each.
EXAMPLES = profile().max_examples
some = profile(max_examples=EXAMPLES if EXAMPLES > 100 else max(3, EXAMPLES // 8))
fewer = profile(max_examples=EXAMPLES // 3 if EXAMPLES > 100 else max(3, EXAMPLES // 25))  # most are left out

FAULTS = [(), ("loss",), ("crash",), ("apart",), ("loss", "crash", "apart"), ("death",), ("loss", "apart", "death")]


@st.composite
def spread_worlds(
    draw: st.DrawFn, faults: tuple[str, ...], spread: bool, kinds: Any = None, in_parts: bool = False
) -> Net:
    """A world without ``unsorted`` inputs, over a network."""
    world = draw(worlds() if kinds is None else worlds(kinds))
    assume(not any(plan.unsorted for plan in world.plans))
    return draw(nets(world, draw(cuts(len(world.events))), spread, faults, in_parts=in_parts))


def exact(options: dict[str, Any]) -> dict[str, Any]:
    """Options under which what is found does not depend on the network."""
    assume(not isinstance(options["policy"], sl.Slack))
    return {**options, "late": "divert"}


@pytest.mark.parametrize("faults", FAULTS, ids="+".join)
@some
@given(data=st.data(), options=settings())
def test_law_7_a_network_finds_what_one_node_finds(faults: Any, data: Any, options: dict[str, Any]) -> None:
    """All sensors enter at one node: the same outputs, late events and all."""
    options = exact(options)
    net = data.draw(spread_worlds(faults, spread=False))
    single = play(net.alone().network(options))
    many = play(net.network(options))
    assert many.found == single.found
    assert many.seen == single.seen
    assert (many.late, many.quarantined) == (single.late, single.quarantined)


def in_order(net: Net, events: list[sl.Event]) -> dict[str, list[Any]]:
    """What the detectors see if these events come in order, in one engine."""
    engine = sl.Engine(net.world.hierarchy(declared=True), policy="ordered")
    engine.push(sorted(events, key=lambda event: event.ts))
    engine.close()
    assert not engine.late and not engine.quarantined
    return {name: detector.seen for name, detector in engine.detectors.items()}


@pytest.mark.parametrize("faults", FAULTS, ids="+".join)
@some
@given(data=st.data(), options=settings())
def test_law_7_sensors_may_enter_anywhere(faults: Any, data: Any, options: dict[str, Any]) -> None:
    """How late an event may be is decided where it enters; all detectors see the total order of what was let in."""
    options = {**exact(options), "skew": None}
    net = data.draw(spread_worlds(faults, spread=True))
    many = play(net.network(options))
    let_in = [event for event in net.world.events if event not in many.late and event not in many.quarantined]
    assert many.seen == in_order(net, let_in)


@pytest.mark.parametrize("faults", FAULTS, ids="+".join)
@some
@given(data=st.data(), options=settings())
def test_law_7_types_may_enter_in_parts(faults: Any, data: Any, options: dict[str, Any]) -> None:
    """Each at several nodes, which migrations, crashes and failover concern as any others."""
    options = {**exact(options), "skew": None}
    net = data.draw(spread_worlds(faults, spread=True, in_parts=True))
    many = play(net.network(options))
    let_in = [event for event in net.world.events if event not in many.late and event not in many.quarantined]
    assert many.seen == in_order(net, let_in)


@fewer
@given(net=spread_worlds((), spread=True, kinds=("none", "bounded")), options=settings())
def test_law_7_holds_under_slack_while_nothing_is_late(net: Net, options: dict[str, Any]) -> None:
    flat = {**options["policy"].flat(), "policy": "slack", "margin": 2.0, "timeout": None}
    options = {**options, **with_policy(flat), "late": "divert", "skew": None}
    options.pop("late_target", None)
    single, many = play(net.alone().network(options)), play(net.network(options))
    assume(not many.late and not single.late and not many.quarantined)
    assert many.found == single.found
    assert many.seen == single.seen
