"""Several types in one batch: ``merged = True``."""

from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import slackline as sl
from slackline.core.merged_batch import MergedBatch


class Runs(sl.Detector):
    """Publishes, for each row, what its columns say."""

    listens, publishes, merged = ("door", "temp"), ("row",), True

    def __init__(self) -> None:
        self.runs: list[int] = []

    def on_batch(self, batch: sl.Batch) -> Any:
        self.runs.append(len(batch))
        columns = (batch.types, batch.ts, batch.source, batch["value"], batch["open"])
        for row, (kind, ts, source, value, is_open) in enumerate(zip(*(c.tolist() for c in columns), strict=True)):
            value = None if value != value else value
            is_open = None if is_open != is_open else is_open
            yield row, sl.Event("row", ts=ts, kind=kind, who=source, value=value, open=is_open)


def events(n: int) -> list[sl.Event]:
    doors = [sl.Event("door", ts=4 * i, source=f"d{i % 2}", seq=i, open=bool(i % 3)) for i in range(n)]
    return doors + [sl.Event("temp", ts=4 * i + i % 5, source="t", seq=i, value=i) for i in range(n)]


def table(rows: list[sl.Event]) -> pa.Table:
    return pa.Table.from_pylist(
        [{"ts": e.ts, "type": e.type, "source": e.source, "seq": e.seq, **e.payload} for e in rows],
        schema=pa.schema(
            [("ts", pa.int64()), ("type", pa.string()), ("source", pa.string()), ("seq", pa.int64()),
             ("open", pa.bool_()), ("value", pa.int64())]
        ),
    )  # fmt: skip


def found(engine: sl.Engine, *pushes: Any) -> list[Any]:
    outputs = [output for push in pushes for output in engine.push(push)] + engine.close()
    return [(o.event.ts, *o.event.payload.values()) for o in outputs if o.final]


def expected(rows: list[sl.Event]) -> list[Any]:
    ordered = sorted(rows, key=lambda e: (e.ts, e.type, e.source, e.seq))
    return [(e.ts, e.type, e.source, e.get("value"), e.get("open")) for e in ordered]


@pytest.mark.parametrize("speculation", [None, sl.Speculation(alpha=0)])
def test_rows_of_all_types_come_in_order_whatever_the_form_of_the_push(speculation: sl.Speculation | None) -> None:
    rows = events(30)
    pushes: list[list[Any]] = [[table(rows)], [rows], [rows[:30], table(rows[30:])], [[row] for row in rows]]
    for given in pushes:
        engine = sl.Engine(sl.Hierarchy([Runs()]), policy=sl.Auto(warmup=1000), speculation=speculation)
        assert found(engine, *given) == expected(rows)


def test_interleaved_types_of_a_table_come_in_one_batch() -> None:
    detector = Runs()
    engine = sl.Engine(sl.Hierarchy([detector]), policy=sl.Auto(warmup=1000))
    assert len(found(engine, table(events(50)))) == 100
    assert detector.runs == [100]


def test_a_field_that_a_type_lacks_is_nan_among_numbers_and_none_otherwise() -> None:
    rows = [
        sl.Event("a", ts=1, count=3, speed=1.5, name="x"),
        sl.Event("b", ts=2, speed=2.5),
        sl.Event("a", ts=3, count=4, speed=3.5, name="y"),
    ]
    batch = MergedBatch.of(rows)
    np.testing.assert_equal(batch["count"], [3.0, np.nan, 4.0])
    assert batch["speed"].dtype == float and batch["speed"].tolist() == [1.5, 2.5, 3.5]
    assert batch["name"].tolist() == ["x", None, "y"]
    np.testing.assert_equal(batch.slice(1, 3)["count"], [np.nan, 4.0])
    np.testing.assert_equal(batch["nothing has it"], [np.nan] * 3)
    assert list(batch) == rows and list(batch.take(np.array([2, 1]))) == [rows[2], rows[1]]
    assert list(batch.slice(1, 3)) == rows[1:] and batch.event(2) == rows[2]
    with pytest.raises(AttributeError, match="use batch"):
        _ = batch.type


def test_a_row_on_which_the_detector_raises_is_quarantined_alone() -> None:
    class Picky(Runs):
        def on_batch(self, batch: sl.Batch) -> Any:
            if (batch["value"] == 3).any():
                raise ValueError("not 3")
            yield from super().on_batch(batch)

    engine = sl.Engine(sl.Hierarchy([Picky()]), policy=sl.Auto(warmup=1000), on_error="quarantine")
    rows = events(10)
    assert found(engine, table(rows)) == [row for row in expected(rows) if row[3] != 3]
    assert [item.event for item in engine.drain().quarantined] == [rows[13]]


def test_merged_without_on_batch_is_refused() -> None:
    class Odd(sl.Detector):
        listens, merged = ("a",), True

        def on_event(self, event: sl.Event) -> Any: ...

    with pytest.raises(sl.SlacklineError, match="has no on_batch"):
        sl.Hierarchy([Odd()])
