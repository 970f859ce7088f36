"""Law 7 where nodes decide themselves where detectors run: whatever they move, and whatever befalls them meanwhile."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import settings as profile
from hypothesis import strategies as st
from tests.unit.cluster.controller.optimised import found, notices_with, optimised
from tests.unit.cluster.protocol.joined import single, stream, tower

from slackline.cluster.simulation import Link, Partition

EVENTS = 400
EXAMPLES = profile().max_examples
some = profile(max_examples=EXAMPLES // 10 if EXAMPLES > 100 else max(2, EXAMPLES // 20))

NODES = ("n1", "n2", "n3")
TIMES = st.floats(3.0, 12.0).map(lambda at: round(at, 2))


@st.composite
def placements(draw: st.DrawFn) -> dict[str, list[str]]:
    """Detectors anywhere, but not all where their inputs are."""
    where = draw(st.tuples(*[st.sampled_from(NODES)] * 3).filter(lambda nodes: set(nodes) != {"n1"}))
    return {
        node: [name for name, at in zip(("Low", "High", "Top"), where, strict=True) if at == node] for node in NODES
    }


@pytest.mark.parametrize("optimise", ["master", "neighbours"])
@some
@given(
    places=placements(),
    loss=st.sampled_from([0.0, 0.1]),
    latency=st.sampled_from([0.002, 0.02, 0.1]),
    crash=st.none() | st.tuples(st.sampled_from(NODES), TIMES, st.sampled_from([0.3, 3.0])),
    apart=st.none() | st.tuples(st.sampled_from(NODES), TIMES, st.sampled_from([0.5, 4.0])),
    together=st.booleans(),
    seed=st.integers(0, 1000),
)
def test_law_7_what_nodes_decide_changes_nothing_that_is_found(
    optimise, places, loss, latency, crash, apart, together, seed
) -> None:
    network = optimised(
        optimise,
        EVENTS,
        places,
        Link(latency, loss=loss),
        seed,
        together=together,
        checkpoint_every=0.3,
        gap_timeout=0.02,
    )
    if crash is not None:
        network.crash(crash[0], crash[1], crash[1] + crash[2])
    if apart is not None:
        network.partition(Partition(apart[1], apart[1] + apart[2], frozenset({apart[0]})))
    network.settle()
    network.check_invariants()
    assert notices_with(network, "migrated from"), "something has moved"
    assert found(network) == single(tower(), stream(EVENTS))
