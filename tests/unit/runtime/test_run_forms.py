"""Files go through a run as columns where that is exact: the folder is the same as when every record goes by itself."""

from __future__ import annotations

import asyncio
import csv
import gzip
import io
import json
import math
import tempfile
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any
from unittest import mock

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import slackline as sl
from slackline.connectors import FolderSink, formats
from slackline.connectors.addresses import open_sources
from slackline.runtime import KeyedEngines, RecordSchema, Worker, forms
from slackline.runtime import reader as reader_module
from slackline.runtime import worker as worker_module
from slackline.runtime.schema import Decoder

FILES = ("outputs.jsonl", "late.jsonl", "quarantined.jsonl")

DECLARED = sl.EventType("declared", n="int16", x=float, word=str)
DEMANDING = sl.EventType("demanding", source="who", sources=("s", 7), finite=True, x=float)


class Copy(sl.Detector):
    """Publishes all that it sees."""

    publishes = ("copy",)

    def __init__(self, *listens: Any) -> None:
        self.listens = listens

    def on_event(self, event: sl.Event) -> Iterable[sl.Event]:
        fields = {f"p_{name}": value for name, value in event.payload.items()}
        yield event.derive("copy", kind=event.type, by=event.source, nr=event.seq, **fields)


MANY = sl.Hierarchy([Copy(DECLARED, DEMANDING, "plain")], clock="plain")
ONE = sl.Hierarchy([Copy("plain")], clock="plain")
TYPED = sl.Hierarchy([Copy(DECLARED)], clock=DECLARED)

SCHEMAS = (
    RecordSchema(unit="us"),
    RecordSchema(key="van", unit="us"),
    RecordSchema(key="source", source="source", unit="us"),
    RecordSchema(source="van", seq="n", unit="us"),
    RecordSchema(ts="at", unit="ms"),
)


@contextmanager
def form(columns: bool) -> Iterator[None]:
    """All that can be a table is one, or nothing is; little is read at once, so that good and bad come apart."""
    with ExitStack() as patches:
        patches.enter_context(mock.patch.object(forms, "FEW", 1 if columns else math.inf))
        patches.enter_context(mock.patch.object(formats, "CHUNK", 150))
        patches.enter_context(mock.patch.object(formats, "_FEW", 1 if columns else math.inf))
        patches.enter_context(mock.patch.object(reader_module, "PIECE", 7))
        patches.enter_context(mock.patch.object(worker_module, "LEAST", 7))
        if not columns:
            patches.enter_context(mock.patch.object(formats, "table_of", lambda records: records))
            patches.enter_context(mock.patch.object(Decoder, "_table", lambda *_: None))
        yield


def run(folder: Path, urls: list[str], hierarchy: sl.Hierarchy, schema: RecordSchema, columns: bool) -> list[Any]:
    """What is in the folder of a run; lines of each key in their order, what was set aside in any."""

    async def work() -> None:
        engines = KeyedEngines(hierarchy, keyed=schema.key is not None)
        await Worker(engines, open_sources(urls), FolderSink(folder), schema, now=lambda: 0.0).run()

    error = None
    with form(columns):
        try:
            asyncio.run(work())
        except sl.SlacklineError as bad:
            error = str(bad)
    return [error, *(_by_key(folder / name) for name in FILES)]


def _by_key(path: Path) -> dict[Any, list[bytes]]:
    lines: dict[Any, list[bytes]] = defaultdict(list)
    for line in path.read_bytes().splitlines() if path.exists() else ():
        lines[json.loads(line).get("key")].append(line)
    return {key: sorted(each) for key, each in lines.items()} if path.name == FILES[-1] else dict(lines)


def check_same(write: Callable[[Path], list[str]], hierarchy: sl.Hierarchy, schema: RecordSchema) -> list[Any]:
    with tempfile.TemporaryDirectory() as name:
        urls = write(Path(name))
        by_events = run(Path(name, "events"), urls, hierarchy, schema, columns=False)
        assert run(Path(name, "columns"), urls, hierarchy, schema, columns=True) == by_events
    return by_events


TEXTS = [
    "007", "0", "-0", "-0.0", "12", "-3", "3.5", "-0.25", "1.", ".5", "1e3", "1e999", "+5", " 5", "5 ", "nan", "inf",
    "1_000", "0x1F", "", " ", "ok", 'say "hi"', "a,b", "é", "٣", "9223372036854775807", "9223372036854775808",
    "-9223372036854775809", "99999999999999999999", "0.1234567890123456789", "true", "None", "-", "--1", "2026-11-17",
]  # fmt: skip
STAMPS = [str(n) for n in range(40)]
TIMES = [
    *STAMPS[:9], "007", "", "x", "-1", "1.0", "1.5", "1e2", "4611686018427387905", "99999999999999999999",
    "1970-01-01T00:00:00.02", "1970-01-01 00:00:01+01:00", " 9 ", "+4", "1_0", "0x10", "9223372036854775808",
]  # fmt: skip
KINDS = ["plain"] * 6 + ["declared", "demanding"]
SOURCES = ["s", "s", "t", "7", "", "1.5"]
VANS = ["a", "b", "7", ""]
#: What the cells of a column are drawn from: mostly of one sort, which makes a column, and now and then of any.
SORTS = {
    "ts": [STAMPS, STAMPS, STAMPS, [*STAMPS[:9], "1970-01-01T00:00:00.02"], TIMES],
    "type": [["plain"], KINDS, KINDS, [*KINDS, "nobody", "", "copy", "1"]],
    "source": [["s", "t"], ["7", "8"], SOURCES],
    "who": [["s"], SOURCES],
    "van": [["a", "b"], ["a", "b"], ["7", "8"], VANS],
    "seq": [[], STAMPS, STAMPS, TIMES],
}
CELLS = [
    ["12", "-3", "0"],
    ["3.5", "-0.25"],
    ["3", "3.5"],
    ["ok", "é"],
    ["007", "12"],
    ["", "5"],
    ["", "ok"],
    TEXTS,
    TEXTS,
]
BAD_LINES = [b"", b"   ", b"1,2", b'5,"open', b"\xff\xfe,1,2,3,4,5,6,7", b"a" * 400, b"\0", b'"1"x,2', b"\xef\xbb\xbf"]


def _cells(draw: st.DrawFn, column: str, rows: int) -> list[str]:
    sort = draw(st.sampled_from(SORTS.get("ts" if column == "at" else column, CELLS)))
    return draw(st.lists(st.sampled_from(sort or [""]), min_size=rows, max_size=rows))


@st.composite
def tables_of_text(draw: st.DrawFn, ts: str) -> tuple[list[str], list[tuple[str, ...]]]:
    others = ["type", "source", "who", "van", "seq", "n", "x", "word", "note", "ts" if ts == "at" else "at"]
    names = [ts, *draw(st.lists(st.sampled_from(others), unique=True))]
    rows = draw(st.integers(0, 30))
    return names, list(zip(*(_cells(draw, name, rows) for name in names), strict=True))


def csv_bytes(names: list[str], rows: list[tuple[str, ...]], bad: dict[int, bytes], end: str) -> bytes:
    text = io.StringIO()
    writer = csv.writer(text, lineterminator=end)
    writer.writerow(names)
    writer.writerows(rows)
    lines = text.getvalue().encode().split(end.encode())
    for at, line in bad.items():
        lines.insert(1 + at, line)
    return end.encode().join(lines)


apps = st.sampled_from([MANY, ONE, TYPED])
schemas = st.sampled_from(SCHEMAS)


@settings(max_examples=150)
@given(st.data(), apps, schemas)
def test_a_csv_file_gives_the_same_in_columns(data: st.DataObject, app: sl.Hierarchy, of: RecordSchema) -> None:
    names, rows = data.draw(tables_of_text(of.ts))
    bad = data.draw(st.dictionaries(st.integers(0, 20), st.sampled_from(BAD_LINES), max_size=2))
    raw = csv_bytes(names, rows, bad, data.draw(st.sampled_from(["\n", "\r\n"])))
    packed = data.draw(st.booleans())

    def write(folder: Path) -> list[str]:
        path = folder / ("in.csv.gz" if packed else "in.csv")
        path.write_bytes(gzip.compress(raw) if packed else raw)
        return [str(path)]

    check_same(write, app, of)


ODD = [
    0,
    -1,
    2**53 + 1,
    2**63,
    -(2**63) - 1,
    -0.0,
    1e300,
    "",
    "7",
    "\ud800",
    True,
    None,
    [1, None],
    {"a": {"b": None}},
    [],
]
VALUES = [
    [0, 1, 7],
    [0.0, -0.0, 1.5],
    [1, 1.5],
    ["a", "é", ""],
    [True, False],
    [None, 3],
    [None, 2.5, 2],
    [None, "a"],
    ODD,
]
NUMBERS = list(range(40))
FIELDS: dict[str, list[list[Any]]] = {
    "ts": [NUMBERS, NUMBERS, NUMBERS, [*NUMBERS[:9], "12", 3.0, 3.5, -1, 2**62 + 1, None, True, "x"]],
    "type": [["plain"], KINDS, KINDS, [*KINDS, "", 1, None]],
    "source": [["s", "t"], [7, 8], ["s", None], ["s", 7, 1.5, True, None]],
    "van": [["a", "b"], ["a", "b"], [7, 8], ["a", 7, None, True, 1.5, ["a"]]],
    "seq": [NUMBERS, NUMBERS, [None, 3, 4], [1, None, -1, 2.0, "3", "x"]],
}


@st.composite
def record_lists(draw: st.DrawFn, ts: str) -> list[dict[str, Any]]:
    """Records that are much alike, some with a field less or more, or in another order."""
    names = [ts, *draw(st.lists(st.sampled_from(["type", "source", "van", "seq", "n", "x", "word"]), unique=True))]
    few = {name: draw(st.sampled_from(FIELDS.get("ts" if name == "at" else name, VALUES))) for name in names}
    made = []
    for _ in range(draw(st.integers(0, 30))):
        record = {name: draw(st.sampled_from(few[name])) for name in names}
        match draw(st.integers(0, 30)):
            case 0:
                record.pop(draw(st.sampled_from(names)))
            case 1:
                record["more"] = draw(st.sampled_from(ODD))
            case 2:
                record = dict(reversed(record.items()))
        made.append(record)
    return made


@settings(max_examples=150)
@given(st.data(), apps, schemas)
def test_lines_of_json_give_the_same_in_columns(data: st.DataObject, app: sl.Hierarchy, of: RecordSchema) -> None:
    found = [json.dumps(record).encode() for record in data.draw(record_lists(of.ts))]
    odd = [
        *BAD_LINES,
        b"[1]",
        b'{"ts":',
        b"1}",
        b'{"ts": 1} {"ts": 2}',
        b'{"ts": 5, "ts": 6}',
        b"NaN",
        b'{"ts": 1e400}',
    ]
    for at, line in data.draw(st.dictionaries(st.integers(0, 20), st.sampled_from(odd), max_size=2)).items():
        found.insert(at, line)

    def write(folder: Path) -> list[str]:
        (folder / "in.jsonl").write_bytes(b"\n".join(found))
        return [str(folder / "in.jsonl")]

    check_same(write, app, of)


PARQUET: dict[str, list[pa.DataType]] = {
    "ts": [pa.int64(), pa.int64(), pa.int16(), pa.float64(), pa.string(), pa.timestamp("ms"), pa.timestamp("ns")],
    "type": [pa.string(), pa.large_string(), pa.dictionary(pa.int8(), pa.string())],
    "source": [pa.string(), pa.int32(), pa.dictionary(pa.int8(), pa.string()), pa.float64(), pa.bool_()],
    "van": [pa.string(), pa.int64(), pa.float32(), pa.bool_(), pa.large_string(), pa.date32()],
    "seq": [pa.int64(), pa.float64(), pa.string()],
}  # fmt: skip
ANY = [
    pa.int8(), pa.uint64(), pa.float32(), pa.float64(), pa.bool_(), pa.string(), pa.date32(), pa.timestamp("us"),
    pa.timestamp("us", "Europe/Berlin"), pa.duration("ms"), pa.binary(), pa.list_(pa.int64()), pa.null(),
    pa.decimal128(9, 2), pa.dictionary(pa.int8(), pa.string()), pa.struct([("a", pa.int64())]), pa.time64("us"),
]  # fmt: skip


@st.composite
def arrow_columns(draw: st.DrawFn, name: str, rows: int) -> pa.Array:
    """A column of a Parquet file: small numbers, read as whatever its type makes of them."""
    kind = draw(st.sampled_from(PARQUET.get("ts" if name == "at" else name, ANY)))
    numbers = draw(st.lists(st.integers(0, 9), min_size=rows, max_size=rows))
    gaps = draw(st.sampled_from([0, 0, 0, 0.2, 1]))
    words = {"type": KINDS, "source": SOURCES, "ts": STAMPS, "van": VANS}.get(name, TEXTS)
    made = []
    for number in numbers:
        inner = kind.value_type if pa.types.is_dictionary(kind) else kind
        value: Any = number
        if pa.types.is_string(inner) or pa.types.is_large_string(inner):
            value = words[number % len(words)]
        elif pa.types.is_list(kind):
            value = [number]
        elif pa.types.is_struct(kind):
            value = {"a": number}
        elif pa.types.is_binary(kind):
            value = b"x" * number
        elif pa.types.is_boolean(kind):
            value = number > 4
        elif pa.types.is_floating(kind):
            value = number / draw(st.sampled_from([1, 1, 4]))
        elif pa.types.is_null(kind):
            value = None
        made.append(None if number < 10 * gaps and number % 2 else value)
    return pa.array(made, kind)


@settings(max_examples=150)
@given(st.data(), apps, schemas)
def test_a_parquet_file_gives_the_same_in_columns(data: st.DataObject, app: sl.Hierarchy, of: RecordSchema) -> None:
    others = ["type", "source", "who", "van", "seq", "n", "x", "word"]
    extra = [of.seq] if of.seq else []
    needed = ["type"] if len(app.sensor_types) > 1 else []
    names = list(dict.fromkeys([of.ts, *extra, *needed, *data.draw(st.lists(st.sampled_from(others), unique=True))]))
    rows = data.draw(st.integers(0, 30))
    columns = {name: data.draw(arrow_columns(name, rows)) for name in names}

    def write(folder: Path) -> list[str]:
        pq.write_table(pa.table(columns), folder / "in.parquet", row_group_size=9)
        return [str(folder / "in.parquet")]

    check_same(write, app, of)


@settings(max_examples=60)
@given(st.data(), st.sampled_from(SCHEMAS[:2]))
def test_files_side_by_side_give_the_same_in_columns(data: st.DataObject, of: RecordSchema) -> None:
    parts = [data.draw(record_lists(of.ts)) for _ in range(data.draw(st.integers(2, 4)))]

    def write(folder: Path) -> list[str]:
        for n, part in enumerate(parts):
            (folder / f"{n}.jsonl").write_bytes(b"".join(json.dumps(record).encode() + b"\n" for record in part))
        return [str(folder)]

    check_same(write, ONE, of)


@pytest.mark.parametrize("keyed", [False, True])
def test_what_is_sound_really_goes_as_columns(tmp_path: Path, keyed: bool) -> None:
    """Else the tests above would compare a thing with itself."""
    path = tmp_path / "in.csv"
    path.write_text("ts,van,x,n,word\n" + "".join(f"{n},v{n % 2},{n / 4},{n},007\n" for n in range(50)))
    (source,) = open_sources([str(path)])
    decoder = Decoder(RecordSchema(key="van" if keyed else None), ONE)

    async def work() -> list[Any]:
        return [(batch, decoder.decode(batch).rows) async for batch in source.batches()]

    found = asyncio.run(work())
    assert sum(len(rows) for _, rows in found) == 50
    assert all(isinstance(batch, pa.Table) and isinstance(rows, pa.Table) for batch, rows in found)
