"""Lines of CSV and JSON and Parquet files become records, and what is none becomes a bad record with its place."""

from __future__ import annotations

import gzip
import math
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.unit.connectors.helpers import rows_of

from slackline.connectors import BadRecord
from slackline.connectors.formats import (
    MAX_LINE,
    MAX_TEXT,
    CsvDecoder,
    JsonDecoder,
    Lines,
    cell_value,
    cell_values,
    json_record,
    read_records,
)
from slackline.core.errors import SlacklineError

CELLS: dict[str, Any] = {
    "5": 5, "-5": -5, "0": 0, "-0": 0, "-0.0": -0.0, "5.0": 5.0, "1e3": 1000.0, "1E+3": 1000.0, "-1.5e-3": -0.0015,
    "9223372036854775807": 2**63 - 1, "-9223372036854775808": -(2**63), "": None,
    "9223372036854775808": "9223372036854775808", "9" * 30: "9" * 30, "9" * 5000: "9" * 5000, "1e400": "1e400",
    "+5": "+5", "007": "007", "-01": "-01", ".5": ".5", "5.": "5.", "1e": "1e", "NaN": "NaN", "inf": "inf",
    "-": "-", "--1": "--1", "1_000": "1_000", "0x1": "0x1", " 5": " 5", "5 ": "5 ", "5\r": "5\r", "1,2": "1,2",
    "1 2": "1 2", "null": "null", "true": "true", "[1]": "[1]", "٣": "٣", "1٣": "1٣", "x": "x",
    "2026-11-17": "2026-11-17",
}  # fmt: skip


def same(left: Any, right: Any) -> bool:
    """Equal, of the same type, and of the same sign."""
    signs = isinstance(left, float) and math.copysign(1, left) != math.copysign(1, right)
    return type(left) is type(right) and left == right and not signs


@pytest.mark.parametrize("cell", CELLS)
def test_a_cell_is_a_number_if_it_is_one_in_json(cell: str) -> None:
    assert same(cell_value(cell), CELLS[cell])


numbers = st.one_of(st.integers(-(2**64), 2**64), st.floats(allow_nan=False)).map(str)


@given(
    st.lists(st.one_of(st.sampled_from(list(CELLS)), numbers, st.text("0123456789.-+eE, \t", max_size=5)), min_size=1)
)
def test_columns_and_single_cells_follow_one_rule(cells: list[str]) -> None:
    for part in (cells, [cell for cell in cells if isinstance(cell_value(cell), int)], cells[:1] * 3):
        if part:
            found = cell_values(part).to_pylist()
            assert all(map(same, found, map(cell_value, part))), (part, found)


@pytest.mark.parametrize(("delimiter", "ending"), [(",", "csv"), (";", "csv"), ("\t", "tsv"), (";", "csv.gz")])
def test_the_header_decides_the_delimiter(tmp_path: Path, delimiter: str, ending: str) -> None:
    rows = [["ts", "name", "x"], ["1", f'"Ann{delimiter} B"', "-0"], ["2", "7,5;", ""]]
    rows[2][1] = rows[2][1].replace(delimiter, "")
    data = "\n".join(delimiter.join(row) for row in rows).encode()
    path = tmp_path / f"a.{ending}"
    path.write_bytes(gzip.compress(data) if ending.endswith("gz") else data)
    found = rows_of(read_records(path))
    assert found == [{"ts": 1, "name": f"Ann{delimiter} B", "x": 0}, {"ts": 2, "name": rows[2][1]}]


def test_a_whole_file_is_one_table_where_that_is_exact(tmp_path: Path) -> None:
    path = tmp_path / "a.csv"
    path.write_text("ts,x\n" + "".join(f"{i},{i if i < 30_000 else i + 0.5}\n" for i in range(60_000)))
    found = read_records(path)
    assert isinstance(found, pa.Table) and found["ts"].to_pylist() == list(range(60_000))
    values = found["x"].to_pylist()
    assert same(values[29_999], 29_999) and same(values[30_000], 30_000.5)  # each as it is in the file
    path.write_text(path.read_text() + "1,2,3\n")
    listed = read_records(path)
    assert isinstance(listed, list) and len(listed) == 60_001 and listed[-1].place == "line 60002"
    pq.write_table(found.select(["ts"]), tmp_path / "a.parquet")
    assert read_records(tmp_path / "a.parquet") == found.select(["ts"])


@pytest.mark.parametrize("rows", [2, 100])
def test_cells_stay_as_they_are_written_where_text_is_asked_for(tmp_path: Path, rows: int) -> None:
    path = tmp_path / "a.csv"
    path.write_text("ts,price,name\n" + "1,3.10,\n" * rows)
    assert rows_of(read_records(path, as_text=True)) == [{"ts": "1", "price": "3.10"}] * rows


def test_of_a_parquet_file_only_the_fields_are_read_that_are_needed(tmp_path: Path) -> None:
    pq.write_table(pa.table({"ts": [1], "x": [2], "y": [3]}), tmp_path / "a.parquet")
    assert read_records(tmp_path / "a.parquet", ["y", "ts", "none"]) == pa.table({"ts": [1], "y": [3]})


@pytest.mark.parametrize("short", [True, False])
def test_records_are_the_same_as_a_table_and_one_by_one(short: bool) -> None:
    lines = [b'ts,x,"a,b"', b'1,"say ""hi""",c', b"", b"2,,007"] + [b"3,4,"] * (0 if short else 100)
    decoder = CsvDecoder("a.csv")
    found = decoder.feed(b"\n".join(lines) + b"\n")
    assert isinstance(found, pa.Table) is not short
    assert rows_of(found)[:2] == [{"ts": 1, "x": 'say "hi"', "a,b": "c"}, {"ts": 2, "a,b": "007"}]
    json = b'{"ts": 1, "x": "\xe2\x80\xa8"}\n\n{"ts": 2}\n' + b'{"ts": 3, "x": 4}\n' * (0 if short else 100)
    found = JsonDecoder().feed(json)
    assert isinstance(found, pa.Table) is not short
    assert rows_of(found)[:2] == [{"ts": 1, "x": "\u2028"}, {"ts": 2}]


def test_records_without_an_exact_form_in_columns_stay_as_they_are() -> None:
    lines = b"".join(b'{"ts": %d, "x": [1, {"y": 2}]}\n' % i for i in range(100))
    found = JsonDecoder().feed(lines)
    assert isinstance(found, list) and found[99] == {"ts": 99, "x": [1, {"y": 2}]}


@pytest.mark.parametrize("rest", [b"", b"1,a\n" * 100])
def test_bad_lines_of_csv_have_their_place_and_spoil_no_other(rest: bytes) -> None:
    data = b'ts,x\n1,a\n2\n3,b,c\n6,"f\n7,g\n\xff,h\n9,"i"j\n10,\n' + rest
    found = rows_of(CsvDecoder("a.csv").feed(data))
    bad = [row for row in found if isinstance(row, BadRecord)]
    assert [row.place for row in bad] == ["line 3", "line 4", "line 5", "line 7", "line 8"]
    assert bad[0].reason == "1 fields, but the header names 2" and bad[3].record == "\\xff,h"
    assert [row["ts"] for row in found if isinstance(row, dict)] == [1, 7, 10] + [1] * rest.count(b"\n")


@pytest.mark.parametrize("rest", [b"", b'{"ts": 1}\n' * 100])
def test_bad_lines_of_json_have_their_place_and_spoil_no_other(rest: bytes) -> None:
    data = b'{"ts": 1}\n{"ts": 2\n[3]\n{"ts": NaN}\n\xff\n  \n{"a": 1} {"b": 2}\n{"ts": 9}\n' + rest
    found = rows_of(JsonDecoder().feed(data))
    bad = [row for row in found if isinstance(row, BadRecord)]
    assert [row.place for row in bad] == [f"line {number}" for number in (2, 3, 4, 5, 7)]
    assert bad[1].reason == "a JSON object is expected, not list" and bad[1].record == "[3]"
    assert [row["ts"] for row in found if isinstance(row, dict)] == [1, 9] + [1] * rest.count(b"\n")


@pytest.mark.parametrize(
    "data", [b"", b"{", b"[1]", b"3", b'{"a": NaN}', b"\xff{}", b"[" * 100_000, b" " * (MAX_LINE + 1)]
)
def test_what_is_no_json_object_is_a_bad_record(data: bytes) -> None:
    assert isinstance(json_record(data, "line 1"), BadRecord)


def test_of_the_text_of_a_bad_record_64_kib_are_kept() -> None:
    found = JsonDecoder().feed(b"x" * MAX_TEXT + b"y\n" + b"z" * (2 * MAX_LINE) + b"\n")
    assert [row.record for row in found] == ["x" * MAX_TEXT, "z" * MAX_TEXT]
    assert found[1].reason == "longer than 1048576 bytes"


@pytest.mark.parametrize("size", [1, 2, 3, 1000])
def test_lines_do_not_depend_on_how_the_bytes_are_cut(size: int) -> None:
    data = b"one\r\n\ntwo\nthree"
    lines = Lines()
    found = [line for start in range(0, len(data), size) for line in lines.feed(data[start : start + size])]
    assert found == [b"one", b"", b"two"] and lines.offset == 10
    assert lines.rest() == b"three" and lines.offset == len(data) and lines.rest() == b""


@pytest.mark.parametrize("size", [1 << 16, 1 << 22])
def test_a_line_without_end_takes_bounded_memory_and_the_next_is_read(size: int) -> None:
    data = b"a\n" + b"x" * (MAX_LINE + 1) + b"\nb\n" + b"y" * (2 * MAX_LINE)
    lines = Lines()
    found = []
    for start in range(0, len(data), size):
        found += lines.feed(data[start : start + size])
        assert len(lines._open) <= MAX_LINE + 1
    assert [len(line) > MAX_LINE for line in found] == [False, True, False]
    assert len(lines.rest()) == MAX_LINE + 1 and lines.offset == len(data)


@pytest.mark.parametrize(
    ("header", "message"),
    [
        (b"ts,x,x\n", "several columns called x; give each"),
        (bytes(range(256)), "a.csv has no header: line 1 is not CSV"),
        ("ts,grö\n".encode("latin-1"), "a.csv has no header: line 1 is not CSV"),
        ("ts\n1\n".encode("utf-16"), "a.csv has no header: line 1"),
        (b"x" * (MAX_LINE + 2) + b"\n", "line 1 is not CSV .longer than"),
    ],
)
def test_a_header_that_is_none_is_refused(header: bytes, message: str) -> None:
    with pytest.raises(SlacklineError, match=message):
        CsvDecoder("a.csv").feed(header)


@pytest.mark.parametrize("lines", [3, 300], ids=["one by one", "as a table"])
def test_a_line_of_other_space_than_that_of_ascii_is_a_record(lines: int) -> None:
    decoder = CsvDecoder("a.csv")
    decoder.feed(b"name\n")
    records = rows_of(decoder.feed(b"x\n \n\n\t\n" + "\u2003\n".encode() + (lines - 2) * b"y\n"))
    assert [record["name"] for record in records] == ["x", "\u2003", *["y"] * (lines - 2)]
    assert not len(decoder.feed(lines * b"\n"))
