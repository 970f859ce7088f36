"""Packets: what goes into one comes out, in the order it was read."""

from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from slackline.spark import codec
from slackline.spark.codec import ARRIVAL, BLOCK, MTIME, PATH, SITE, Packet, decode, encode, packer, restored


def _packed(table: pa.Table, dictionaries: tuple[str, ...] = (), rows: int = 40) -> list[dict[str, Any]]:
    pack = packer(dictionaries, pa.int64())
    return [row for batch in pack(table.to_batches(max_chunksize=rows)) for row in batch.to_pylist()]


def _packets(rows: list[dict[str, Any]], site: str) -> list[Packet]:
    return [Packet(*(row[name] for name in Packet._fields)) for row in rows if row["site"] == site]


def _table(rows: int, **more: Any) -> pa.Table:
    rng = np.random.default_rng(2)
    keys = [("a", "b", None)[k] for k in rng.integers(0, 3, rows)]
    return pa.table({SITE: keys, "ts": np.arange(rows), "type": ["x", "y"] * (rows // 2), **more})


@pytest.mark.parametrize("gather", [1, 100, 10_000])
def test_rows_of_a_key_come_back_in_reading_order(monkeypatch: pytest.MonkeyPatch, gather: int) -> None:
    monkeypatch.setattr(codec, "GATHER_ROWS", gather)
    table = _table(300)
    rows = _packed(table, ("type",))
    for key, site in (("a", "va"), ("b", "vb"), (None, "n")):
        mine = restored(reversed(_packets(rows, site)))
        assert mine["ts"].to_pylist() == [r["ts"] for r in table.to_pylist() if r[SITE] == key]
        assert pa.types.is_dictionary(mine.schema.field("type").type)
        assert mine.column_names == ["ts", "type"]


def test_packets_end_where_the_file_ends_and_are_read_by_age_path_and_position() -> None:
    place = [(2, "f2", 0), (1, "f9", 100), (1, "f9", 0), (1, "f1", 0)]
    at = np.repeat(np.arange(4), 10)
    columns = {name: pa.array([place[i][column] for i in at]) for column, name in enumerate((MTIME, PATH, BLOCK))}
    table = pa.table({SITE: ["a"] * 40, "ts": np.arange(40), **columns})
    rows = _packed(table)
    assert len(rows) == 4
    assert restored(_packets(rows, "va"))["ts"].to_pylist() == [
        *range(30, 40),
        *range(20, 30),
        *range(10, 20),
        *range(10),
    ]


def test_arrival_decides_and_equal_arrivals_keep_reading_order() -> None:
    arrival = np.random.default_rng(1).integers(0, 20, 100)
    table = pa.table({SITE: ["a"] * 100, "ts": np.arange(100), ARRIVAL: arrival})
    rows = _packed(table, rows=30)
    mine = restored(_packets(rows, "va"))
    assert mine["ts"].to_pylist() == np.argsort(arrival, kind="stable").tolist()
    assert [row["first"] for row in rows] == [int(arrival.min())]


def test_packet_is_arrow_and_not_pickle() -> None:
    blob = encode(pa.record_batch({"ts": [1, 2]}))
    assert pa.ipc.open_stream(blob).read_all() == decode(blob)
    with pytest.raises(pa.ArrowInvalid):
        decode(b"\x80\x04\x95\x00\x00")
