"""Packets: what goes into one comes out, in the order it was read."""

from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from slackline.spark import packets
from slackline.spark.packets import (
    ARRIVAL,
    BLOCK,
    ENGINE,
    GROUP,
    MTIME,
    PATH,
    by_engine,
    decode,
    encode,
    engine_runs,
    packer,
    restored,
)


def _packed(table: pa.Table, dictionaries: tuple[str, ...] = (), rows: int = 40) -> list[tuple[Any, ...]]:
    batches = packer(dictionaries)(table.to_batches(max_chunksize=rows))
    return [tuple(row.values()) for batch in batches for row in batch.to_pylist()]


def _packets(rows: list[tuple[Any, ...]], group: int) -> list[tuple[Any, ...]]:
    return [row for row in rows if row[0] == group]


def _table(rows: int, **more: Any) -> pa.Table:
    rng = np.random.default_rng(2)
    keys = [("a", "b", None)[k] for k in rng.integers(0, 3, rows)]
    return pa.table({ENGINE: keys, "ts": np.arange(rows), "type": ["x", "y"] * (rows // 2), **more})


@pytest.mark.parametrize("gather", [1, 100, 10_000])
def test_rows_of_a_group_come_back_in_reading_order(monkeypatch: pytest.MonkeyPatch, gather: int) -> None:
    monkeypatch.setattr(packets, "GATHER_ROWS", gather)
    table = _table(300, **{GROUP: pa.array(np.random.default_rng(3).integers(0, 3, 300), pa.int32())})
    rows = _packed(table, ("type",))
    for group in range(3):
        mine = restored(reversed(_packets(rows, group)))
        assert mine["ts"].to_pylist() == [r["ts"] for r in table.to_pylist() if r[GROUP] == group]
        assert pa.types.is_dictionary(mine.schema.field("type").type)
        assert mine.column_names == [ENGINE, "ts", "type"]


def test_packets_end_where_the_file_ends_and_are_read_by_age_path_and_position() -> None:
    place = [(2, "f2", 0), (1, "f9", 100), (1, "f9", 0), (1, "f1", 0)]
    at = np.repeat(np.arange(4), 10)
    columns = {name: pa.array([place[i][column] for i in at]) for column, name in enumerate((MTIME, PATH, BLOCK))}
    table = pa.table({GROUP: pa.array([7] * 40, pa.int32()), "ts": np.arange(40), **columns})
    rows = _packed(table)
    assert len(rows) == 4
    assert restored(_packets(rows, 7))["ts"].to_pylist() == [
        *range(30, 40),
        *range(20, 30),
        *range(10, 20),
        *range(10),
    ]


@pytest.mark.parametrize("gather", [1, 100, 10_000])
@pytest.mark.parametrize("arrives", [True, False])
def test_engines_of_a_group_are_separated_each_in_arrival_order(
    monkeypatch: pytest.MonkeyPatch, gather: int, arrives: bool
) -> None:
    monkeypatch.setattr(packets, "GATHER_ROWS", gather)
    rng = np.random.default_rng(1)
    arrival = rng.integers(0, 20, 300)
    groups = pa.array(rng.integers(0, 2, 300), pa.int32())
    table = _table(300, **{GROUP: groups}, **({ARRIVAL: arrival} if arrives else {}))
    rows = _packed(table, (ENGINE, "type"))
    order = np.argsort(arrival, kind="stable") if arrives else np.arange(300)
    given = table.take(pa.array(order)).to_pylist()
    for group in (0, 1):
        found = dict(by_engine(restored(reversed(_packets(rows, group)))))
        assert set(found) == {"a", "b", None}
        for site, mine in found.items():
            wanted = [row for row in given if (row[ENGINE], row[GROUP]) == (site, group)]
            assert mine["ts"].to_pylist() == [row["ts"] for row in wanted]
            assert mine["type"].to_pylist() == [row["type"] for row in wanted]
            assert mine.schema.field("type").type == pa.string(), "a slice carries the group's dictionary"


def test_the_only_engine_of_a_group_keeps_its_dictionaries() -> None:
    table = pa.table({ENGINE: ["a"] * 4, GROUP: pa.array([3] * 4, pa.int32()), "type": list("xyxy")})
    ((site, mine),) = by_engine(restored(_packets(_packed(table, (ENGINE, "type")), 3)))
    assert site == "a"
    assert pa.types.is_dictionary(mine.schema.field("type").type)


def test_rows_without_an_arrival_come_last() -> None:
    arrival = pa.array([None, 3.0, float("nan"), 1.0])
    table = pa.table({ENGINE: ["a"] * 4, GROUP: pa.array([3] * 4, pa.int32()), "ts": [0, 1, 2, 3], ARRIVAL: arrival})
    ((_, mine),) = by_engine(restored(_packets(_packed(table, (ENGINE,)), 3)))
    assert mine["ts"].to_pylist() == [3, 1, 2, 0]


def test_the_engines_of_a_sorted_batch_come_one_by_one_in_bounded_tables(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(packets, "GATHER_ROWS", 50)
    names = ["a"] * 130 + ["b"] * 2 + ["c"] * 68 + [None] * 5
    table = pa.table({ENGINE: names, "ts": np.arange(205), "type": ["x"] * 205})
    found = {name: list(tables) for name, tables in engine_runs(table.to_batches(max_chunksize=20), ["type"])}
    assert list(found) == ["a", "b", "c", None]
    for name, tables in found.items():
        assert pa.concat_tables(tables)["ts"].to_pylist() == [ts for ts in range(205) if names[ts] == name]
        assert all(len(one) <= 60 and pa.types.is_dictionary(one["type"].type) for one in tables)
    assert len(found["a"]) == 3


def test_packet_is_arrow_and_not_pickle() -> None:
    blob = encode(pa.record_batch({"ts": [1, 2]}))
    assert pa.ipc.open_stream(blob).read_all() == decode(blob)
    with pytest.raises(pa.ArrowInvalid):
        decode(b"\x80\x04\x95\x00\x00")
