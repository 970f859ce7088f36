import gzip

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from tests.recordings import PHONES, recorded

from slackline.core.errors import ConfigError, SchemaError
from slackline.runtime.schema import RecordSchema
from slackline.runtime.source import SourceError
from slackline.study import load_stream

COLUMNS = {"arrival": "arrival", "ts": "ts", "source": "source", "unit": "ms"}


def csv(tmp_path, text, name="stream.csv"):
    path = tmp_path / name
    path.write_text(text)
    return path


def parquet(tmp_path, **columns):
    path = tmp_path / "stream.parquet"
    pq.write_table(pa.table(columns), path)
    return path


def test_a_csv_keeps_its_order_and_numbers_its_sources(tmp_path):
    stream = load_stream(csv(tmp_path, "source,ts,arrival\nb,5,7\na,3,8\nb,6,9\n"), RecordSchema(**COLUMNS))
    assert stream.ts.tolist() == [5, 3, 6] and stream.arrival.tolist() == [7, 8, 9]
    assert stream.source.tolist() == [0, 1, 0]
    assert (len(stream), stream.sources, stream.late_share, stream.warnings) == (
        3,
        2,
        pytest.approx(1 / 3),
        (),
    )


def test_gzip_and_parquet_give_the_same_as_csv(tmp_path):
    text = "arrival,ts,source\n7,5,b\n8,3,a\n"
    zipped = tmp_path / "stream.CSV.gz"
    zipped.write_bytes(gzip.compress(text.encode()))
    # Arrow unzips by the ending in lower case as well as in upper case.
    a = load_stream(csv(tmp_path, text), RecordSchema(**COLUMNS))
    b = load_stream(zipped, RecordSchema(**COLUMNS))
    c = load_stream(parquet(tmp_path, arrival=[7, 8], ts=[5, 3], source=["b", "a"]), RecordSchema(**COLUMNS))
    for other in (b, c):
        assert a.ts.tolist() == other.ts.tolist() and a.source.tolist() == other.source.tolist()


def test_the_recorded_streams_have_the_known_shares():
    shares = {}
    for name in PHONES:
        stream = load_stream(recorded(name), RecordSchema(arrival="arrival_ms", ts="ts_ms", source="source", unit="ms"))
        shares[name] = (len(stream), round(stream.late_share, 3))
    assert shares == {"d-1": (9600, 0.161), "d-2": (10800, 0.339), "d-3": (9600, 0.341)}


def test_each_type_of_a_source_counts_as_a_source(tmp_path):
    path = csv(tmp_path, "arrival,ts,source,kind\n1,1,a,x\n2,2,a,y\n3,3,b,x\n4,4,a,x\n")
    stream = load_stream(path, RecordSchema(**COLUMNS, type="kind"))
    assert stream.sources == 3
    assert stream.source[0] == stream.source[3] != stream.source[1]


def test_one_row_works(tmp_path):
    stream = load_stream(csv(tmp_path, "arrival,ts,source\n7,5,b\n"), RecordSchema(**COLUMNS))
    assert (len(stream), stream.late_share) == (1, 0.0)


def test_numbers_may_name_sources(tmp_path):
    assert load_stream(csv(tmp_path, "arrival,ts,source\n7,5,12\n8,6,13\n"), RecordSchema(**COLUMNS)).sources == 2


def test_time_stamps_are_converted_to_the_unit(tmp_path):
    times = pa.array(np.array(["2024-01-01T00:00:00.5", "2024-01-01T00:00:01"], "datetime64[us]"))
    stream = load_stream(parquet(tmp_path, arrival=times, ts=times, source=["a", "a"]), RecordSchema(**COLUMNS))
    assert np.diff(stream.ts).tolist() == [500]


def test_whole_floats_are_taken_as_integers(tmp_path):
    assert load_stream(csv(tmp_path, "arrival,ts,source\n7.0,5.0,b\n"), RecordSchema(**COLUMNS)).ts.tolist() == [5]


def test_arrivals_that_run_backwards_are_corrected_and_reported(tmp_path):
    stream = load_stream(csv(tmp_path, "arrival,ts,source\n7,1,a\n5,2,a\n9,3,a\n"), RecordSchema(**COLUMNS))
    assert stream.arrival.tolist() == [7, 7, 9]
    assert "backwards at 1 of 3 rows" in stream.warnings[0]


def test_a_missing_column_is_named_with_those_there_are_and_the_closest(tmp_path):
    path = csv(tmp_path, "arrival_ms,ts_ms,source\n1,1,a\n")
    with pytest.raises(
        SchemaError, match=r"no field 'ts' for --ts; it has arrival_ms, ts_ms, source\. Did you mean 'ts_ms'\?"
    ):
        load_stream(path, RecordSchema(arrival="arrival_ms", ts="ts", source="source", unit="ms"))


def test_a_missing_column_of_a_parquet_file_is_named_too(tmp_path):
    with pytest.raises(SchemaError, match="no field 'source'"):
        load_stream(parquet(tmp_path, arrival=[1], ts=[1], sensor=["a"]), RecordSchema(**COLUMNS))


def test_a_column_that_is_there_twice_is_refused(tmp_path):
    with pytest.raises(SchemaError, match="several columns called ts"):
        load_stream(csv(tmp_path, "arrival,ts,ts,source\n1,1,1,a\n"), RecordSchema(**COLUMNS))


@pytest.mark.parametrize(
    ("value", "message"),
    [
        ("", "the event time is missing"),
        ("nan", "'nan' is neither an integer nor a time in ISO 8601"),
        ("-4", r"the event time -4 is not a whole number from 0 to 2\*\*62"),
        ("4.5", r"the event time 4.5 is not a whole number from 0 to 2\*\*62"),
        ("9223372036854775807", r"the event time 9223372036854775807 is not a whole number from 0 to 2\*\*62"),
    ],
)
def test_a_bad_time_is_refused_with_its_row(tmp_path, value, message):
    with pytest.raises(SourceError, match=rf"stream.csv, record 2: field 'ts': {message}"):
        load_stream(csv(tmp_path, f"arrival,ts,source\n1,1,a\n2,{value},a\n3,3,a\n"), RecordSchema(**COLUMNS))


def test_floats_that_lost_digits_are_refused(tmp_path):
    path = parquet(tmp_path, arrival=[1], ts=[1.4e18], source=["a"])
    with pytest.raises(SourceError, match="has lost digits"):
        load_stream(path, RecordSchema(**COLUMNS))


def test_small_and_unsigned_integers_and_dictionaries_are_read(tmp_path):
    path = tmp_path / "stream.parquet"
    source = pa.chunked_array([["a", "b"], ["c", "b", "a"]]).dictionary_encode()
    times = pa.array(range(5))
    table = pa.table({"arrival": times.cast(pa.uint64()), "ts": times.cast(pa.int16()), "source": source})
    pq.write_table(table, path, row_group_size=2)
    stream = load_stream(path, RecordSchema(**COLUMNS))
    assert stream.ts.dtype == stream.arrival.dtype == np.int64
    assert stream.source[1] == stream.source[3] and stream.source[0] == stream.source[4]
    assert stream.sources == 3


def test_an_unsigned_time_too_large_for_any_clock_is_refused(tmp_path):
    huge = pa.array([2**64 - 1], pa.uint64())
    with pytest.raises(SourceError, match="field 'ts'"):
        load_stream(parquet(tmp_path, arrival=[1], ts=huge, source=["a"]), RecordSchema(**COLUMNS))


def test_lists_are_no_names(tmp_path):
    with pytest.raises(SourceError, match=r"field 'source' holds no source, but \['a'\]"):
        load_stream(parquet(tmp_path, arrival=[1], ts=[1], source=[["a"]]), RecordSchema(**COLUMNS))


def test_words_are_no_times(tmp_path):
    with pytest.raises(
        SourceError, match=r"stream\.csv, record 1: field 'ts': 'noon' is neither an integer nor a time"
    ):
        load_stream(csv(tmp_path, "arrival,ts,source\n1,noon,a\n"), RecordSchema(**COLUMNS))


def test_a_missing_source_is_refused_with_its_row(tmp_path):
    path = parquet(tmp_path, arrival=[1, 2], ts=[1, 2], source=["a", None])
    with pytest.raises(SourceError, match=r"stream\.parquet, record 2: field 'source' holds no source, but None"):
        load_stream(path, RecordSchema(**COLUMNS))


@pytest.mark.parametrize("text", ["", "arrival,ts,source\n"])
def test_an_empty_file_is_an_error_that_says_what_a_stream_needs(tmp_path, text):
    with pytest.raises(SourceError, match="at least one row"):
        load_stream(csv(tmp_path, text), RecordSchema(**COLUMNS))


def test_a_broken_file_is_an_error_and_no_crash(tmp_path):
    path = tmp_path / "stream.parquet"
    path.write_bytes(b"PAR1 but no")
    with pytest.raises(SourceError, match="cannot read"):
        load_stream(path, RecordSchema(**COLUMNS))


def test_a_missing_file_is_an_error(tmp_path):
    with pytest.raises(SourceError, match="cannot read"):
        load_stream(tmp_path / "none.csv", RecordSchema(**COLUMNS))


def test_an_unknown_ending_is_an_error_that_lists_the_known(tmp_path):
    with pytest.raises(ConfigError, match=r"\.csv, \.tsv.*\.csv\.gz"):
        load_stream(csv(tmp_path, "x", "stream.xlsx"), RecordSchema(**COLUMNS))


def test_an_unknown_unit_is_an_error(tmp_path):
    with pytest.raises(ConfigError, match="unit='hours' is unknown"):
        load_stream(csv(tmp_path, "x"), RecordSchema(**(COLUMNS | {"unit": "hours"})))


@pytest.mark.parametrize("mark", [";", "\t"])
@pytest.mark.parametrize("name", ["stream.csv", "stream.csv.gz", "stream.tsv", "stream.tsv.gz"])
def test_the_header_shows_the_separator(tmp_path, mark, name):
    text = f"arrival{mark}ts{mark}source{mark}note, long\n7{mark}5{mark}b{mark}1,5\n8{mark}3{mark}a{mark}x\n"
    path = tmp_path / name
    path.write_bytes(gzip.compress(text.encode()) if name.endswith("gz") else text.encode())
    stream = load_stream(path, RecordSchema(**COLUMNS))
    assert stream.ts.tolist() == [5, 3] and stream.arrival.tolist() == [7, 8] and stream.sources == 2


def test_a_missing_column_of_a_file_with_semicolons_is_named_with_those_there_are(tmp_path):
    with pytest.raises(SchemaError, match="no field 'source' for --source; it has arrival, ts, sensor"):
        load_stream(csv(tmp_path, "arrival;ts;sensor\n7;5;b\n"), RecordSchema(**COLUMNS))
