"""Law 7 with many handovers: seeds that have failed once, or that show a failover after another."""

import pytest
from tests.laws.handovers import play, single
from tests.unit.cluster.protocol.joined import stream


@pytest.mark.parametrize("seed", [2, 133, 379, 395, 605, 2028])
def test_law_7_many_handovers_with_crashes_partitions_and_failovers_change_nothing(seed: int) -> None:
    arrivals = stream(200)
    assert play(seed, arrivals, single(arrivals))["handovers"] > 5
