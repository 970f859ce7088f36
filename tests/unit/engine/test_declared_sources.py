"""Sources that are declared are waited for at the start, so that slower ones among them are not late."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest

from slackline import Auto, Detector, Engine, EventType, Hierarchy

#: Microseconds. Four quick sources, and sixty whose events take 50 ms.
QUICK, SLOW, LAG = 4, 60, 50_000


class Watch(Detector):
    publishes = ()

    def __init__(self, declared: bool, names: range) -> None:
        self.listens = (EventType("at", sources=names if declared else None),)  # type: ignore[misc]

    def on_event(self, event: object) -> None:
        pass


def stream(seed: int, slow: int = SLOW) -> pa.Table:
    """Two seconds: a quick source sends every half millisecond, a slow one every five."""
    rng = np.random.default_rng(seed)
    ts = [np.arange(0, 2_000_000, 500) + 100 * n for n in range(QUICK)]
    ts += [rng.integers(0, 5_000) + np.arange(0, 2_000_000, 5_000) for _ in range(slow)]
    source = np.repeat(np.arange(QUICK + slow), [len(each) for each in ts])
    times = np.concatenate(ts)
    delay = rng.integers(100, 1_000, len(times)) + np.where(
        source >= QUICK, LAG + rng.integers(0, 9_000, len(times)), 0
    )
    order = np.argsort(times + delay, kind="stable")
    return pa.table({"type": ["at"] * len(times), "ts": times[order], "source": source[order]})


def outcome(table: pa.Table, *, declared: bool, chunk: int = 1_000, missing: int = 0, **options: object) -> list[int]:
    """The positions of late events, and at the end that of the push with which the first event was released."""
    engine = Engine(Hierarchy([Watch(declared, range(QUICK + SLOW + missing))]), **options)  # type: ignore[arg-type]
    late, first = [], None
    for start in range(0, len(table), chunk):
        engine.push(table.slice(start, chunk))
        late += [item.position for item in engine.drain()[0]]
        if first is None and engine.stats()["detectors"]["Watch"]["delivered"]:
            first = start
    assert first is not None
    return [*late, first]


@pytest.mark.parametrize("seed", [1, 2])
def test_slow_sources_are_not_late_at_the_start_if_they_are_declared(seed: int) -> None:
    table = stream(seed)
    *late, _ = outcome(table, declared=False)
    assert len(late) > 100, "the stream is too easy"
    *late, first = outcome(table, declared=True)
    assert len(late) <= 0.001 * len(table)
    assert first < len(table) / 2


def test_the_start_does_not_depend_on_pushes() -> None:
    table = stream(3).slice(0, 6_000)
    *late, first = outcome(table, declared=True)
    *alone, first_alone = outcome(table, declared=True, chunk=1)
    assert alone == late
    assert 0 <= first_alone - first < 1_000


def test_declared_sources_that_never_deliver_do_not_stop_the_others() -> None:
    table = stream(4)
    *_, first = outcome(table, declared=True, missing=1)
    assert 64 * (QUICK + SLOW + 1) - 1_000 <= first < len(table) / 2


def test_a_warm_up_that_is_given_is_all_that_is_waited_for() -> None:
    *_, first = outcome(stream(5), declared=True, missing=9, policy=Auto(warmup=100))
    assert first <= 1_000
