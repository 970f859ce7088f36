import datetime
import json

import pyarrow as pa
import pyarrow.csv as pc
import pyarrow.parquet as pq
import pytest

from slackline.core.errors import SlacklineError
from slackline.runtime.schema import RecordSchema
from slackline.study import load_recording, synchronise_recording, write_ordered


def synchronised(paths, keep="all", **options):
    return synchronise_recording(
        load_recording(paths, RecordSchema(ts="ts", arrival="at", unit="ms"), keep=keep), **options
    )


def parquet(folder, name, **columns):
    path = folder / name
    pq.write_table(pa.table(columns), path)
    return path


def two(folder):
    moment = datetime.datetime(2024, 5, 1, 12)
    a = parquet(folder, "a.parquet", ts=[1, 5], at=[1, 5], when=[moment, None], tags=[["x"], ["y", "z"]])
    b = parquet(folder, "b.parquet", ts=[3, 9], at=[6, 9], v=[0.5, 1.5])
    return [a, b]


def test_parquet_keeps_types_and_every_column_comes_along(tmp_path):
    out = tmp_path / "out.parquet"
    assert write_ordered(synchronised(two(tmp_path)), out) == [out]
    table = pq.read_table(out)
    assert table.column_names == ["position", "stream", "waited", "ts", "at", "when", "tags", "v"]
    assert table["position"].to_pylist() == [1, 2, 3, 4]
    assert table["ts"].to_pylist() == [1, 3, 5, 9] and table["stream"].to_pylist() == ["a", "b", "a", "b"]
    assert table["waited"].to_pylist() == [5, 0, 4, 0]
    assert pa.types.is_timestamp(table.schema.field("when").type)
    assert table["tags"].to_pylist() == [["x"], None, ["y", "z"], None]
    assert table["v"].to_pylist() == [None, 0.5, None, 1.5]


def test_json_lines_keep_what_is_nested(tmp_path):
    out = tmp_path / "out.jsonl"
    write_ordered(synchronised(two(tmp_path)), out)
    lines = [json.loads(line) for line in out.read_text().splitlines()]
    assert [line["ts"] for line in lines] == [1, 3, 5, 9]
    assert lines[0]["tags"] == ["x"] and lines[0]["when"].startswith("2024-05-01T12:00")


def test_csv_holds_what_is_nested_as_json(tmp_path):
    out = tmp_path / "out.csv.gz"
    write_ordered(synchronised(two(tmp_path), keep="verbatim"), out)
    assert pc.read_csv(out)["tags"].to_pylist()[2] == '["y","z"]'


def test_a_file_with_tabs_is_written_and_read(tmp_path):
    out = tmp_path / "out.tsv"
    write_ordered(synchronised(two(tmp_path), keep="verbatim"), out)
    assert out.read_text().splitlines()[0].startswith('"position"\t"stream"\t"waited"\t"ts"')
    assert load_recording([out], RecordSchema(ts="ts", source="stream", unit="ms")).stream.ts.tolist() == [1, 3, 5, 9]


def test_text_of_a_csv_file_stays_as_it_was_written(tmp_path):
    path = tmp_path / "a.csv"
    path.write_text("ts,at,phone,n,price\n1,1,007,7,3.10\n2,2,12,8,4\n")
    out = tmp_path / "out.csv"
    write_ordered(synchronised([path], keep="verbatim"), out)
    assert out.read_text().splitlines()[1:] == ['1,"a",0,1,1,"007",7,"3.10"', '2,"a",0,2,2,"12",8,"4"']


def test_late_events_go_to_a_file_of_their_own(tmp_path):
    a = parquet(tmp_path, "a.parquet", ts=[0, 10], at=[0, 10], v=["p", "q"])
    b = parquet(tmp_path, "b.parquet", ts=[0, 4], at=[0, 100], v=["r", "s"])
    out = tmp_path / "out.jsonl"
    aside = tmp_path / "out.late.jsonl"
    assert write_ordered(synchronised([a, b], max_delay=5), out) == [out, aside]
    assert len(out.read_text().splitlines()) == 3
    assert json.loads(aside.read_text()) == {"stream": "b", "lateness": 6, "ts": 4, "at": 100, "v": "s"}


def test_columns_with_our_names_are_kept_under_another(tmp_path):
    path = parquet(tmp_path, "a.parquet", ts=[1], at=[1], position=["left"], stream=["s"], stream_in=["t"])
    out = tmp_path / "out.parquet"
    write_ordered(synchronised([path]), out)
    row = pq.read_table(out).to_pylist()[0]
    assert row["position"] == 1 and row["stream"] == "a"
    assert (row["position_in"], row["stream_in"], row["stream_in_in"]) == ("left", "s", "t")


@pytest.mark.parametrize(
    ("one", "other", "kept"),
    [
        ([1], ["x"], ["1", "x"]),
        ([2**60 + 1], [0.5], [str(2**60 + 1), "0.5"]),
        ([[1]], ["x"], ["[1]", "x"]),
        (pa.array([1], pa.int8()), [2**40], [1, 2**40]),
        (pa.nulls(1), [7], [None, 7]),
    ],
)
def test_types_that_differ_between_files_meet_without_a_loss(tmp_path, one, other, kept):
    a = parquet(tmp_path, "a.parquet", ts=[1], at=[1], v=one)
    b = parquet(tmp_path, "b.parquet", ts=[2], at=[2], v=other)
    out = tmp_path / "out.parquet"
    write_ordered(synchronised([a, b]), out)
    assert pq.read_table(out)["v"].to_pylist() == kept


def test_a_file_that_cannot_be_written_is_an_error(tmp_path):
    with pytest.raises(SlacklineError, match="cannot write"):
        write_ordered(synchronised(two(tmp_path)), tmp_path / "no" / "out.parquet")
