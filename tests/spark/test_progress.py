"""The progress of a query becomes the metrics that every runtime has."""

from __future__ import annotations

from typing import Any

import pytest

from slackline.spark.metrics import metrics_of_progress

SEEN = {
    "events": 500, "outputs": 20, "late": 2, "duplicates": 7, "late_share": 0.01, "late_target": 0.001,
    "latency_p50": 40_000, "latency_p99": 90_000,
    "K": 70_000, "alpha": None, "buffered": 17, "keys": 3, "state_bytes": 9_000,
    "quarantined": 4,
    "quarantined_bad_time_stamp": 3, "quarantined_other": 1, "quarantined_no_key": 0,
}  # fmt: skip


def progress(seen: dict[str, Any] | None = None, **more: Any) -> dict[str, Any]:
    """As Spark reports a micro-batch: 1000 records in two seconds, of which it worked for half a second."""
    return {
        "timestamp": "2026-11-17T00:00:10.250Z",
        "batchId": 3,
        "numInputRows": 1_000,
        "inputRowsPerSecond": 500.0,
        "durationMs": {"triggerExecution": 500},
        "stateOperators": [{"customMetrics": {"rocksdbSstFileSize": 1_000}}, {"customMetrics": {}}],
        "sources": [{"startOffset": "null", "endOffset": '{"logOffset":3}', "latestOffset": "null"}],
        "observedMetrics": {} if seen is None else {"slackline": seen},
        **more,
    }


def test_figures_and_rates_are_those_of_the_micro_batch() -> None:
    seen = metrics_of_progress(progress(SEEN), now=lambda: 1_794_873_612.75)
    assert (seen.events, seen.outputs, seen.late, seen.duplicates, seen.keys, seen.buffered) == (500, 20, 2, 7, 3, 17)
    assert (seen.late_share, seen.late_target, seen.K, seen.alpha) == (0.01, 0.001, 70_000, None)
    assert (seen.event_rate, seen.output_rate) == (250.0, 10.0), "records of many events are fewer than events"
    assert seen.quarantined == {"bad time stamp": 3, "other": 1}
    assert (seen.checkpoint_bytes, seen.checkpoint_age) == (1_000, 2.0)
    assert seen.lag is None, "the number of rows in files that were not read is unknown"
    assert seen.plain()["latency_p99"] == 0.09


def test_counts_continue_and_figures_without_a_value_stay() -> None:
    first = metrics_of_progress(progress(SEEN))
    quiet = {
        **SEEN,
        "late_share": None,
        "latency_p50": None,
        "latency_p99": None,
        "K": None,
        "buffered": None,
        "keys": 0,
    }
    second = metrics_of_progress(progress(quiet, numInputRows=0, inputRowsPerSecond=0.0), first)
    assert (second.events, second.outputs, second.late) == (1_000, 40, 4)
    assert second.quarantined == {"bad time stamp": 6, "other": 2}
    assert (second.latency_p50, second.K, second.buffered) == (40_000, 70_000, 17)
    assert second.event_rate == 1_000.0, "without rows there is no rate of rows: the time is that of the work"
    third = metrics_of_progress(progress(), second)
    assert third.events == 1_000 and third.event_rate == 0.0


@pytest.mark.parametrize("as_text", [True, False])
def test_the_lag_of_topics_is_what_lies_behind_what_was_read(as_text: bool) -> None:
    end: Any = {"in": {"0": 10, "1": 20}}
    latest: Any = {"in": {"0": 15, "1": 20, "2": 7}}
    if as_text:
        end, latest = str(end).replace("'", '"'), str(latest).replace("'", '"')
    sources = [{"endOffset": end, "latestOffset": latest}, {"endOffset": "12", "latestOffset": "soon"}]
    assert metrics_of_progress(progress(SEEN, sources=sources)).lag == 12
