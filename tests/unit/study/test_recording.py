import gzip
from datetime import datetime

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from slackline.core.errors import ConfigError, SchemaError
from slackline.runtime.schema import RecordSchema
from slackline.runtime.source import SourceError
from slackline.study import load_recording

TIMES = RecordSchema(ts="ts", arrival="at", unit="ms")


def write(folder, name, text):
    path = folder / name
    path.write_bytes(gzip.compress(text.encode()) if name.endswith(".gz") else text.encode())
    return path


def test_files_are_streams_and_their_arrivals_interleave(tmp_path):
    a = write(tmp_path, "a.csv", "ts,at\n1,10\n2,30\n")
    b = write(tmp_path, "b.csv.gz", "ts,at\n3,10\n4,20\n")
    recording = load_recording([a, b], TIMES)
    assert recording.names == ("a", "b")
    assert recording.stream.arrival.tolist() == [10, 10, 20, 30]
    # What arrives at once stays in the order of the files.
    assert recording.stream.ts.tolist() == [1, 3, 4, 2] and recording.stream.source.tolist() == [0, 1, 1, 0]


@pytest.mark.parametrize("name", ["a.jsonl", "a.ndjson", "a.jsonl.gz"])
def test_json_lines_are_read(tmp_path, name):
    path = write(tmp_path, name, '{"ts": 1, "at": 5}\n{"at": 6, "ts": 2, "more": [1]}\n')
    assert load_recording([path], TIMES).stream.ts.tolist() == [1, 2]


def test_iso_times_in_json_become_integers_of_the_unit(tmp_path):
    path = write(tmp_path, "a.jsonl", '{"ts": "1970-01-01T00:00:01.5Z"}\n{"ts": "1970-01-01T00:00:02Z"}\n')
    assert load_recording([path], RecordSchema(ts="ts", unit="ms")).stream.ts.tolist() == [1500, 2000]


def test_a_column_splits_a_file_into_streams(tmp_path):
    path = write(tmp_path, "a.csv", "ts,at,who\n1,1,x\n2,2,007\n3,3,x\n")
    recording = load_recording([path], RecordSchema(ts="ts", arrival="at", source="who", unit="ms"))
    assert recording.names == ("x", "007") and recording.stream.source.tolist() == [0, 1, 0]


def test_streams_of_several_files_are_named_by_file_and_column(tmp_path):
    paths = [write(tmp_path, f"{name}.csv", "ts,at,who\n1,1,x\n") for name in ("a", "b")]
    assert load_recording(paths, RecordSchema(ts="ts", arrival="at", source="who", unit="ms")).names == ("a/x", "b/x")


def test_without_arrival_an_event_arrives_when_its_stream_has_come_that_far(tmp_path):
    a = write(tmp_path, "a.csv", "ts\n5\n3\n9\n")
    b = write(tmp_path, "b.csv", "ts\n4\n6\n")
    recording = load_recording([a, b], RecordSchema(ts="ts", unit="ms"))
    assert not recording.recorded_arrival
    assert recording.stream.arrival.tolist() == [4, 5, 5, 6, 9]
    assert recording.stream.ts.tolist() == [4, 5, 3, 6, 9]


def test_without_arrival_streams_of_one_file_do_not_hold_each_other_back(tmp_path):
    path = write(tmp_path, "a.csv", "ts,who\n9,x\n2,y\n3,y\n")
    recording = load_recording([path], RecordSchema(ts="ts", source="who", unit="ms"))
    assert recording.stream.arrival.tolist() == [2, 3, 9]


def test_arrivals_that_run_backwards_are_corrected_and_reported_with_the_file(tmp_path):
    path = write(tmp_path, "a.csv", "ts,at\n1,7\n2,5\n3,9\n")
    recording = load_recording([path], TIMES)
    assert recording.stream.arrival.tolist() == [7, 7, 9]
    assert recording.warnings[0].startswith("a.csv: the arrival times run backwards at 1 of 3 rows")


def test_two_files_of_one_name_are_refused_and_both_are_named(tmp_path):
    (tmp_path / "more").mkdir()
    a = write(tmp_path, "a.csv", "ts,at\n1,1\n")
    b = write(tmp_path / "more", "a.csv.gz", "ts,at\n1,1\n")
    with pytest.raises(ConfigError, match=r"two files would be the stream 'a': .*a\.csv and .*a\.csv\.gz"):
        load_recording([a, b], TIMES)


@pytest.mark.parametrize(
    ("bad", "why"),
    [
        ("ts,at\n,2\n", "record 2: field 'ts': the event time is missing"),
        ("ts,at\n-4,2\n", "record 2: field 'ts': the event time -4 is not a whole number from 0 to 2**62"),
        ("ts,at\n4.5,2\n", "record 2: field 'ts': the event time 4.5 is not a whole number from 0 to 2**62"),
        ("ts,at\nnoon,2\n", "record 2: field 'ts': 'noon' is neither an integer nor a time in ISO 8601"),
        ("ts,at\n4,\n", "record 2: field 'at': the event time is missing"),
    ],
)
def test_rows_without_a_time_are_quarantined_with_an_example(tmp_path, bad, why):
    path = write(tmp_path, "a.csv", "ts,at\n1,1\n" + bad.split("\n", 1)[1] + "3,3\n")
    recording = load_recording([path], TIMES)
    assert recording.stream.ts.tolist() == [1, 3]
    assert recording.quarantined == {"a": 1}
    assert why in recording.first_quarantined and recording.first_quarantined.startswith("a.csv, ")


@pytest.mark.parametrize("unit", ["s", "ms", "us"])
def test_arrow_time_stamps_that_the_unit_cannot_hold_are_quarantined(tmp_path, unit):
    moments = [datetime(2000, 1, 1), datetime(2600, 1, 1), datetime(1969, 12, 31, 23, 59, 59)]
    pq.write_table(pa.table({"ts": pa.array(moments, pa.timestamp(unit))}), tmp_path / "a.parquet")
    recording = load_recording([tmp_path / "a.parquet"], RecordSchema(ts="ts", unit="ns"))
    assert recording.stream.ts.tolist() == [946_684_800 * 10**9]
    assert (
        recording.quarantined == {"a": 2}
        and "19880899200000000000 is not a whole number" in recording.first_quarantined
    )


def test_an_arrow_time_stamp_just_before_1970_is_not_rounded_into_it(tmp_path):
    pq.write_table(pa.table({"ts": pa.array([-1, 1_999], pa.timestamp("us"))}), tmp_path / "a.parquet")
    recording = load_recording([tmp_path / "a.parquet"], RecordSchema(ts="ts", unit="ms"))
    assert recording.stream.ts.tolist() == [1] and recording.quarantined == {"a": 1}


@pytest.mark.parametrize(
    "kind", [pa.string(), pa.large_string(), pa.string_view(), pa.dictionary(pa.int8(), pa.string())]
)
def test_times_in_text_of_any_arrow_type_are_read(tmp_path, kind):
    texts = ["7", "1970-01-01T00:00:00.009"]
    table = pa.table({"ts": pa.array(texts, pa.string()).cast(kind), "at": [1, 2]})
    pq.write_table(table, tmp_path / "a.parquet")
    assert load_recording([tmp_path / "a.parquet"], TIMES).stream.ts.tolist() == [7, 9]


@pytest.mark.parametrize(
    ("name", "text", "why"),
    [
        ("a.csv", "ts,at\n1,1\n2,2\n3", "a.csv, line 4: 1 fields, but the header names 2"),
        ("a.jsonl", '{"ts": 1, "at": 1}\n{"ts": 2, "at": 2}\n{"ts": 2, "a', "a.jsonl, line 3: not JSON"),
    ],
)
def test_a_line_that_was_cut_off_is_quarantined(tmp_path, name, text, why):
    recording = load_recording([write(tmp_path, name, text)], TIMES)
    assert recording.stream.ts.tolist() == [1, 2] and recording.quarantined == {"a": 1}
    assert recording.first_quarantined.startswith(why)


@pytest.mark.parametrize("missing", ["", None])
def test_rows_that_name_no_stream_are_quarantined(tmp_path, missing):
    path = tmp_path / "a.parquet"
    pq.write_table(pa.table({"ts": [1, 2, 3], "who": pa.array([missing, "x", "y"], pa.string())}), path)
    recording = load_recording([path], RecordSchema(ts="ts", source="who", unit="ms"))
    assert recording.names == ("x", "y") and recording.stream.source.tolist() == [0, 1]
    assert recording.quarantined == {"a": 1} and "field 'who' holds no source" in recording.first_quarantined


def test_a_file_with_a_header_only_is_a_stream_that_never_delivered(tmp_path):
    a = write(tmp_path, "a.csv", "ts,at\n1,1\n")
    b = write(tmp_path, "b.csv", "ts,at\n")
    recording = load_recording([a, b], TIMES)
    assert recording.names == ("a", "b") and recording.failed == ()


def truncated_parquet(folder):
    path = folder / "b.parquet"
    pq.write_table(pa.table({"ts": list(range(1000)), "at": list(range(1000))}), path)
    path.write_bytes(path.read_bytes()[:-200])
    return path


def truncated_gzip(folder):
    path = write(folder, "b.csv.gz", "ts,at\n" + "".join(f"{i},{i * i}\n" for i in range(5000)))
    path.write_bytes(path.read_bytes()[:-2000])
    return path


@pytest.mark.parametrize(
    ("make", "why"),
    [
        (lambda folder: write(folder, "b.csv", ""), "the file is empty"),
        (lambda folder: write(folder, "b.csv", "tz,at\n1,1\n"), "Did you mean 'tz'"),
        (lambda folder: write(folder, "b.csv", "ts,at\nnoon,1\n"), "none of its 1 records is an event"),
        (truncated_parquet, "cannot read"),
        (truncated_gzip, "cannot read"),
    ],
)
def test_a_file_that_cannot_be_read_fails_and_the_others_are_read(tmp_path, make, why):
    a = write(tmp_path, "a.csv", "ts,at\n1,1\n")
    recording = load_recording([make(tmp_path), a], TIMES)
    assert recording.names == ("a",) and len(recording.stream) == 1
    (failed,) = recording.failed
    assert failed.name == "b" and why in failed.reason


def test_if_no_file_can_be_read_the_error_says_why(tmp_path):
    with pytest.raises(SchemaError, match=r"no stream holds an event: a: a\.csv has no field 'ts'"):
        load_recording([write(tmp_path, "a.csv", "x,at\n1,1\n")], TIMES)


def test_rows_all_quarantined_are_an_error_with_the_first(tmp_path):
    with pytest.raises(SourceError, match=r"the event time -1 is not a whole number from 0 to 2\*\*62"):
        load_recording([write(tmp_path, "a.csv", "ts,at\n-1,1\n")], TIMES)


def test_a_file_whose_rows_name_no_source_fails(tmp_path):
    a = write(tmp_path, "a.csv", "ts,who\n1,x\n")
    b = write(tmp_path, "b.csv", "ts,who\n")
    recording = load_recording([a, b], RecordSchema(ts="ts", source="who", unit="ms"))
    assert recording.names == ("a/x",) and "names no stream" in recording.failed[0].reason


def test_an_unknown_ending_or_unit_is_wrong_use(tmp_path):
    with pytest.raises(ConfigError, match=r"the format of .*a\.xlsx is unknown"):
        load_recording([tmp_path / "a.xlsx"], TIMES)
    with pytest.raises(ConfigError, match="unit='hours' is unknown"):
        RecordSchema(ts="ts", unit="hours")
