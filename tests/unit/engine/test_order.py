"""Rows in order, without a detector: every row comes out once, as it went in."""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

import pandas as pd
import pyarrow as pa
import pytest

import slackline as sl
from slackline.engine.rows import fields_of


def shuffled(n: int = 300, most: int = 12, seed: int = 1) -> list[dict[str, Any]]:
    """Rows of two sources, delayed by up to ``most``, in order of arrival."""
    draw = random.Random(seed)
    rows = [{"at": i, "who": "ab"[i % 2], "nr": i, "value": i * 0.5} for i in range(n)]
    return sorted(rows, key=lambda row: row["at"] + draw.randrange(most))


ROWS = shuffled()


def in_order(found: list[Any]) -> list[Any]:
    return [each.row for each in found if each.kind == "event"]


@dataclass(frozen=True)
class Reading:
    at: int
    who: str
    nr: int
    value: float


def test_rows_come_out_once_in_order_as_the_same_objects() -> None:
    found = list(sl.order(ROWS, ts="at", source="who", seq="nr"))
    assert sorted(map(id, (each.row for each in found))) == sorted(map(id, ROWS))
    events = [each for each in found if each.kind == "event"]
    assert [each.position for each in events] == list(range(1, len(events) + 1))
    assert [row["at"] for row in in_order(found)] == sorted(row["at"] for row in in_order(found))
    assert len(events) > 250


def test_rows_are_given_as_soon_as_their_order_is_known() -> None:
    taken: list[int] = []

    def arriving() -> Any:
        for number, row in enumerate(ROWS):
            taken.append(number)
            yield row

    first = next(iter(sl.order(arriving(), ts="at", source="who")))
    assert first.kind == "event" and len(taken) < len(ROWS) / 2


@pytest.mark.parametrize("form", ["dataclasses", "events", "async", "table", "pandas", "batches", "capsule"])
def test_every_form_gives_the_same_order(form: str) -> None:
    ordered = sl.order(ROWS, ts="at", source="who")
    expected = [(each.row["nr"], each.position, each.kind, each.lateness) for each in ordered]
    table = pa.Table.from_pylist(ROWS)
    found: Any
    if form == "dataclasses":
        found = sl.order([Reading(**row) for row in ROWS], ts="at", source="who")
    elif form == "events":
        found = sl.order(
            [sl.Event("any", row["at"], row["who"], nr=row["nr"], value=row["value"]) for row in ROWS], source="source"
        )
    elif form == "async":

        async def rows() -> AsyncIterator[Any]:
            for row in ROWS:
                yield row

        async def collected() -> list[Any]:
            return [each async for each in sl.order(rows(), ts="at", source="who")]

        found = asyncio.run(collected())
    elif form == "batches":
        reader = pa.RecordBatchReader.from_batches(table.schema, table.to_batches(max_chunksize=17))
        found = [row for piece in sl.order(reader, ts="at", source="who") for row in piece.to_pylist()]
    else:
        given = {"table": table, "pandas": pd.DataFrame(ROWS), "capsule": Capsule(table)}[form]
        made = sl.order(given, ts="at", source="who")
        assert type(made) is (pd.DataFrame if form == "pandas" else pa.Table)
        found = made.to_dict("records") if form == "pandas" else made.to_pylist()
    shown = []
    for each in found:
        if isinstance(each, dict):
            lateness = None if pd.isna(each["lateness"]) else each["lateness"]
            shown.append((each["nr"], None if pd.isna(each["position"]) else each["position"], each["kind"], lateness))
        else:
            row = each.row.payload if isinstance(each.row, sl.Event) else fields_of(each.row)
            shown.append((row["nr"], each.position, each.kind, each.lateness))
    assert sorted(shown) == sorted(expected) if form in ("table", "pandas", "capsule", "batches") else shown == expected
    assert [one for one in shown if one[2] == "event"] == [one for one in expected if one[2] == "event"]


class Capsule:
    def __init__(self, table: pa.Table) -> None:
        self._table = table

    def __arrow_c_stream__(self, requested_schema: Any = None) -> Any:
        return self._table.__arrow_c_stream__(requested_schema)


VIEWS = {
    "who": pa.string_view(),
    "raw": pa.binary_view(),
    "sort": pa.dictionary(pa.uint32(), pa.string_view()),
    "tags": pa.large_list(pa.string_view()),
    "small": pa.list_(pa.string_view()),
    "at": pa.struct({"name": pa.string_view()}),
}


@pytest.mark.parametrize("in_batches", [False, True])
def test_columns_that_are_views_as_those_of_polars_keep_their_types_and_values(in_batches: bool) -> None:
    rows = [
        {"ts": ts, "who": "b", "raw": b"r", "sort": "k", "tags": [str(ts)], "small": ["s"], "at": {"name": str(ts)}}
        for ts in (3, 1, 2)
    ]
    table = pa.table(
        {"ts": [row["ts"] for row in rows]}
        | {name: pa.array([row[name] for row in rows]).cast(kind) for name, kind in VIEWS.items()}
    )
    given = pa.RecordBatchReader.from_batches(table.schema, table.to_batches()) if in_batches else table
    made = sl.order(given, ts="ts", source="who")
    pieces = list(made) if in_batches else [made]
    ordered = [{name: row[name] for name in table.column_names} for piece in pieces for row in piece.to_pylist()]
    assert ordered == sorted(rows, key=lambda row: row["ts"])
    assert in_batches or {name: made.schema.field(name).type for name in VIEWS} == VIEWS


def test_what_is_beside_the_order_says_why() -> None:
    rows = [{"ts": 1, "s": "a", "n": 0}, {"ts": 10, "s": "a", "n": 1}, {"ts": 4, "s": "a", "n": 2}]
    rows += [{"ts": "soon", "s": "a", "n": 3}, {"ts": 10, "s": "a", "n": 1}, {"ts": 11, "s": "a", "n": 4}, {"n": 5}]
    found = list(sl.order(rows, source="s", seq="n", policy="ordered"))
    assert sorted(each.kind for each in found) == ["duplicate", *["event"] * 3, "late", *["quarantine"] * 2]
    late = next(each for each in found if each.kind == "late")
    assert late.row is rows[2] and late.lateness > 0 and late.position is None
    assert {each.reason for each in found if each.kind == "quarantine"} == {"bad time stamp"}


def test_a_pandas_frame_keeps_its_index_and_types_and_dates() -> None:
    start = datetime(2026, 1, 1, tzinfo=UTC)
    times = [start + timedelta(seconds=s) for s in (3, 1, 2)]
    frame = pd.DataFrame({"at": times, "n": pd.array([1, None, 3], "Int32")}, index=list("xyz"))
    made = sl.order(frame, ts="at")
    assert list(made.index) == ["y", "z", "x"] and list(made["position"]) == [1, 2, 3]
    assert made[["at", "n"]].dtypes.equals(frame.dtypes) and made["lateness"].dtype.kind == "m"
    assert list(made.columns) == ["at", "n", "position", "kind", "lateness", "reason", "detail"]


def test_an_empty_frame_and_an_empty_iterable_give_nothing() -> None:
    assert list(sl.order([])) == []
    assert len(sl.order(pa.table({"ts": pa.array([], pa.int64())}))) == 0


@pytest.mark.parametrize(
    ("given", "options", "message"),
    [
        ({"ts": 1}, {}, "One row is given as"),
        ("text", {}, "takes a frame or an iterable of rows"),
        ([1], {}, "row 0 is a int"),
        ([{"at": 1}], {}, "no field 'ts' for ts; the fields are"),
        ([{"ts": 1}], {"source": "ts"}, "cannot have two roles"),
        ([{"ts": 1}], {"speculation": None}, "has no option 'speculation'"),
        ([{"ts": 1}], {"lates": 3}, "lates"),
        (pa.table({"ts": [1], "kind": ["x"]}), {}, "rename them first"),
        ([pa.table({"ts": [1]}), {"ts": 1}], {}, "frames and then a row"),
    ],
)
def test_wrong_use_is_an_error_that_says_what_to_do(given: Any, options: dict[str, Any], message: str) -> None:
    with pytest.raises((sl.ConfigError, sl.SchemaError, TypeError), match=message):
        list(sl.order(given, **options))
