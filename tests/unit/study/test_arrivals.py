"""Arrival times of a recording that are missing, wrong or doubtful: what is said, and what the figures are then."""

import numpy as np
import pytest

from slackline.runtime.schema import RecordSchema
from slackline.study import load_stream, study

#: Milliseconds since 1970.
START = 1_700_000_000_000
N = 400


def stream(tmp_path, arrival, ts=None, unit="ms"):
    """Two sources with an event every 10 s; written and read as a file."""
    ts = START + 10_000 * np.arange(N) if ts is None else ts
    path = tmp_path / "stream.csv"
    rows = (f"{a},{t},{i % 2}" for i, (a, t) in enumerate(zip(arrival, ts, strict=True)))
    path.write_text("\n".join(["arrival,ts,source", *rows]))
    return load_stream(path, RecordSchema(arrival="arrival", ts="ts", source="source", unit=unit))


USUAL = START + 10_000 * np.arange(N) + 150


def test_usual_arrival_times_raise_no_doubt(tmp_path):
    usual = stream(tmp_path, USUAL)
    assert (usual.warnings, usual.notes, usual.timed) == ((), (), True)


@pytest.mark.parametrize(
    ("hours", "said"), [(2, "2 h ahead of"), (-5, "5 h behind"), (5.75, "5.75 h ahead of"), (-9.5, "9.5 h behind")]
)
def test_a_lag_of_whole_quarters_of_an_hour_looks_like_a_time_zone(tmp_path, hours, said):
    [warning] = stream(tmp_path, USUAL + int(hours * 3_600_000)).warnings
    assert warning.startswith(f"arrival times are {said} event times: is one of them local time?")


def test_lags_that_vary_or_are_no_quarter_are_no_zone(tmp_path):
    assert stream(tmp_path, USUAL + 4_000_000).warnings == ()
    late = USUAL + 7_200_000 + 600_000 * (np.arange(N) % 3)
    assert "local time" not in " ".join(stream(tmp_path, np.maximum.accumulate(late)).warnings)


def test_a_slow_collector_is_noted_and_changes_no_figure_of_ours(tmp_path):
    slow, usual = stream(tmp_path, USUAL - 1_300), stream(tmp_path, USUAL)
    [note] = slow.notes
    assert note.startswith("most events arrive before they happen (median lag -1.15 s)") and slow.warnings == ()
    figures = [
        {(p.policy, str(p.params)): p.waits for p in study(each).policies if p.policy != "adwin"}
        for each in (slow, usual)
    ]
    assert figures[0] == figures[1]


def test_times_that_are_no_dates_have_no_zone_and_no_negative_lag(tmp_path):
    assert stream(tmp_path, 10_000 * np.arange(N) + 3, unit="ms").warnings == ()
    assert stream(tmp_path, 10_000 * np.arange(N) + 3, unit="ms").notes == ()


@pytest.mark.parametrize("arrival", [10 * np.arange(N), 2_000_000 * np.arange(N)], ids=["seconds", "microseconds"])
def test_arrival_times_that_pass_at_another_pace_are_doubted(tmp_path, arrival):
    [warning] = stream(tmp_path, arrival).warnings
    assert "the event times 3,990 s: if they are not both in ms, convert one; if the recording holds a" in warning


def test_arrival_times_that_stand_still_for_a_while_are_doubted(tmp_path):
    stopped = np.minimum(USUAL, USUAL[200])
    [warning] = stream(tmp_path, stopped).warnings
    assert warning.startswith("the arrival times stand still from row 201 for 200 rows, while event times move on by")


def test_a_batch_of_old_events_that_arrive_at_once_is_not_doubted(tmp_path):
    ts, arrival = START + 10_000 * np.arange(N), USUAL.copy()
    ts[150:300], arrival[150:300] = START + np.arange(150), arrival[150]
    assert stream(tmp_path, arrival, ts).warnings == ()


def test_one_arrival_time_far_ahead_is_reported_with_its_row(tmp_path):
    wrong = USUAL.copy()
    wrong[100] += 365 * 24 * 3_600_000
    warnings = stream(tmp_path, wrong).warnings
    assert "run backwards at 1 of 400 rows" in warnings[0]
    assert "So 299 rows have the arrival time of an earlier row; if that of row 101" in warnings[0]


def test_few_rows_raise_no_doubt(tmp_path):
    ts = START + 10_000 * np.arange(50)
    assert stream(tmp_path, np.arange(50), ts).warnings == ()


@pytest.mark.parametrize("given", [False, True], ids=["none", "all the same"])
def test_without_arrival_times_waits_are_in_stream_time_and_no_policy_uses_them(tmp_path, given):
    ts = 1_000 * np.arange(N)
    ts[10::10] -= 2_500
    still = stream(tmp_path, np.full(N, 77), ts)
    path, schema = tmp_path / "stream.csv", RecordSchema(ts="ts", source="source", unit="ms")
    recorded = still if given else load_stream(path, schema)
    said = recorded.warnings if given else recorded.notes
    assert said[-1].endswith(
        "waits are in stream time, and policies that need arrival times (timer, adwin) are left out"
    )
    assert not recorded.timed and recorded.arrival.tolist() == np.maximum.accumulate(ts).tolist()
    result = study(recorded)
    assert {"timer", "adwin"}.isdisjoint(p.policy for p in result.policies)
    bound = next(p.waits for p in result.policies if p.params == {"bound": 1_000})
    assert bound.late_share == pytest.approx(0.0975) and bound.p50_wait == 1_000


def test_keys_without_arrival_times_are_ordered_by_themselves(tmp_path):
    path = tmp_path / "keys.csv"
    path.write_text("ts,key\n" + "\n".join(f"{10 * i},{'ab'[i % 2]}" for i in range(200)))
    recorded = load_stream(path, RecordSchema(ts="ts", source="key", key="key", unit="ms"))
    assert study(recorded).default.waits.late_share == 0
