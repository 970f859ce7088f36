"""A query's progress becomes the vitals that other hosts tell."""

from __future__ import annotations

from typing import Any

import pytest

from slackline.runtime.progress import vitals_of

TOLD = {
    "events": 500, "found": 20, "late": 2, "late_share": 0.01, "late_target": 0.001, "wait_p50": 40_000,
    "wait_p99": 90_000, "K": 70_000, "alpha": None, "buffered": 17, "keys": 3, "state_bytes": 9_000, "quarantined": 4,
    "quarantined_bad_time_stamp": 3, "quarantined_other": 1, "quarantined_no_key": 0,
}  # fmt: skip


def progress(told: dict[str, Any] | None = None, **more: Any) -> dict[str, Any]:
    """As Spark tells of a micro-batch: 1000 records in two seconds, of which it worked for half a second."""
    return {
        "timestamp": "2026-11-17T00:00:10.250Z",
        "batchId": 3,
        "numInputRows": 1_000,
        "inputRowsPerSecond": 500.0,
        "durationMs": {"triggerExecution": 500},
        "stateOperators": [{"customMetrics": {"rocksdbSstFileSize": 1_000}}, {"customMetrics": {}}],
        "sources": [{"startOffset": "null", "endOffset": '{"logOffset":3}', "latestOffset": "null"}],
        "observedMetrics": {} if told is None else {"slackline": told},
        **more,
    }


def test_figures_and_rates_are_those_of_the_micro_batch() -> None:
    vitals = vitals_of(progress(TOLD), now=lambda: 1_794_873_612.75)
    numbers = vitals.numbers
    assert (numbers.arrivals, numbers.outputs, numbers.late, numbers.keys, numbers.buffered) == (500, 20, 2, 3, 17)
    assert (numbers.late_share, numbers.late_target, numbers.K, numbers.alpha) == (0.01, 0.001, 70_000, None)
    assert (vitals.rate, vitals.found_rate) == (250.0, 10.0), "records of many events are fewer than events"
    assert vitals.quarantined == {"bad time stamp": 3, "other": 1}
    assert (vitals.checkpoint_bytes, vitals.checkpoint_age) == (1_000, 2.0)
    assert vitals.lag is None, "nobody knows how many rows are in files that were not read"
    assert vitals.plain()["wait_p99"] == 0.09


def test_counts_go_on_and_what_a_micro_batch_does_not_say_stays() -> None:
    first = vitals_of(progress(TOLD))
    quiet = {**TOLD, "late_share": None, "wait_p50": None, "wait_p99": None, "K": None, "buffered": None, "keys": 0}
    second = vitals_of(progress(quiet, numInputRows=0, inputRowsPerSecond=0.0), first)
    assert (second.numbers.arrivals, second.numbers.outputs, second.numbers.late) == (1_000, 40, 4)
    assert second.quarantined == {"bad time stamp": 6, "other": 2}
    assert (second.numbers.wait_p50, second.numbers.K, second.numbers.buffered) == (40_000, 70_000, 17)
    assert second.rate == 1_000.0, "without rows there is no rate of rows: the time is that of the work"
    third = vitals_of(progress(), second)
    assert third.numbers.arrivals == 1_000 and third.rate == 0.0


@pytest.mark.parametrize("as_text", [True, False])
def test_the_lag_of_topics_is_what_lies_behind_what_was_read(as_text: bool) -> None:
    end: Any = {"in": {"0": 10, "1": 20}}
    latest: Any = {"in": {"0": 15, "1": 20, "2": 7}}
    if as_text:
        end, latest = str(end).replace("'", '"'), str(latest).replace("'", '"')
    sources = [{"endOffset": end, "latestOffset": latest}, {"endOffset": "12", "latestOffset": "soon"}]
    assert vitals_of(progress(TOLD, sources=sources)).lag == 12
