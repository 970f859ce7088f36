"""Whose unit it is: the user's, the times' own, the names', or the default."""

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from slackline.core.errors import SchemaError
from slackline.core.time import PER_SECOND
from slackline.runtime.schema import RecordSchema
from slackline.runtime.source import SourceError
from slackline.runtime.units import epoch_unit
from slackline.study import load_stream

SECOND = 1_415_624_021


def load(tmp_path, unit=None, **columns):
    """A stream of two columns: arrival, time stamp."""
    path = tmp_path / "stream.parquet"
    arrival, ts = columns
    pq.write_table(pa.table({**columns, "source": ["a"] * len(columns[ts])}), path)
    return load_stream(path, RecordSchema(arrival=arrival, ts=ts, source="source", unit=unit))


@pytest.mark.parametrize("unit", PER_SECOND)
def test_dates_show_their_unit(tmp_path, unit):
    times = [SECOND * PER_SECOND[unit], (SECOND + 1) * PER_SECOND[unit]]
    stream = load(tmp_path, at=times, ts=times)
    assert stream.unit == unit and stream.ts.tolist() == times
    assert stream.notes == (f"event times are taken as {unit}, which makes 'at' 2014-11-10; --unit overrides",)
    assert stream.warnings == ()


@pytest.mark.parametrize("unit", PER_SECOND)
def test_a_date_is_one_in_one_unit_only(unit):
    first, beyond = 946_684_800 * PER_SECOND[unit], 4_102_444_800 * PER_SECOND[unit]
    assert epoch_unit(first) == epoch_unit(beyond - 1) == unit
    assert epoch_unit(first - 1) is None and epoch_unit(beyond) is None


def test_numbers_as_text_show_their_unit_too(tmp_path):
    assert load(tmp_path, at=["1415624021690"], ts=["1415624021600"]).unit == "ms"


def test_numbers_that_are_no_dates_are_taken_as_microseconds_and_that_is_said(tmp_path):
    stream = load(tmp_path, at=[1_058_690], ts=[1_000_000])
    assert stream.unit == "us"
    assert stream.notes == (
        "event times are taken as us, by default: 'at' is 1,058,690, which is no date in any unit; --unit overrides",
    )


def test_the_names_of_columns_decide_where_times_do_not(tmp_path):
    stream = load(tmp_path, at_ms=[1_058_690], ts_ms=[1_000_000])
    assert stream.unit == "ms" and "by the name of 'at_ms'" in stream.notes[0]
    assert load(tmp_path, at_ms=[1_058_690], ts_s=[1_000]).unit == "us"
    # A date is better evidence than a name.
    assert load(tmp_path, at_ms=[SECOND], ts_ms=[SECOND]).unit == "s"


def test_time_stamps_need_no_unit_and_follow_the_numbers_beside_them(tmp_path):
    stamps = np.array(["2014-11-10T12:53:41.5"], "datetime64[us]")
    alone = load(tmp_path, at=stamps, ts=["2014-11-10T12:53:41Z"])
    assert (alone.unit, alone.notes, alone.warnings) == ("us", (), ())
    beside = load(tmp_path, at=stamps, ts=[1_415_624_021_000])
    assert beside.unit == "ms" and beside.arrival.tolist() == [1_415_624_021_500]


def test_a_given_unit_that_makes_strange_dates_is_questioned_and_kept(tmp_path):
    times = [SECOND * 1_000_000]
    stream = load(tmp_path, "s", at=times, ts=times)
    assert stream.unit == "s" and stream.notes == ()
    assert stream.warnings == (
        "in s the times of column 'ts' are of the year 44,861,309, in us of 2014-11-10: is us meant? "
        "s is used, as given",
    )


def test_a_given_unit_that_fits_or_cannot_be_checked_causes_no_warning(tmp_path):
    for times, unit in (([SECOND * 1_000], "ms"), ([1_058_690], "ns")):
        stream = load(tmp_path, unit, at=times, ts=times)
        assert (stream.unit, stream.notes, stream.warnings) == (unit, (), ())


def test_columns_in_different_units_are_refused_until_a_unit_is_given(tmp_path):
    columns = {"at": [SECOND * 1_000], "ts": [SECOND]}
    with pytest.raises(SchemaError, match=r"'at' is in ms \(2014-11-10\) and 'ts' is in s \(2014-11-10\).*convert one"):
        load(tmp_path, **columns)
    assert "is s meant?" in load(tmp_path, "ms", **columns).warnings[0]


def test_the_median_of_the_first_rows_decides_so_a_clock_that_was_not_set_does_no_harm(tmp_path):
    times = [0, 17, *[SECOND * 1_000] * 5]
    assert load(tmp_path, at=[SECOND * 1_000] * 7, ts=times).unit == "ms"


def test_bad_times_are_reported_as_such_not_as_units(tmp_path):
    for ts in (["noon", "5"], ["noon", "noon"]):
        with pytest.raises(
            SourceError, match="record 1: field 'ts': 'noon' is neither an integer nor a time in ISO 8601"
        ):
            load(tmp_path, at=[1, 2], ts=ts)
