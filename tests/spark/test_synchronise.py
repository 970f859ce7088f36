"""Many streams in one order, on real Spark."""

import datetime
import decimal
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame, Row, SparkSession
from pyspark.sql import functions as F
from tests.spark.world import read_stream, run, write_files

import slackline as sl
from slackline.core.errors import ConfigError, SchemaError
from slackline.spark import detect, synchronise
from slackline.spark import typed as typed_columns
from slackline.sync import Synchroniser

pytestmark = pytest.mark.spark

FILES = 3
OWN = ["position", "stream", "ts", "kind", "lateness", "reason", "detail"]


def tables(seed: int = 1, rows: int = 300) -> dict[str, pa.Table]:
    """Three streams, each in order; time stamps are shared and repeated, columns are not all."""
    rng = np.random.default_rng(seed)
    times = {name: np.sort(rng.integers(0, 900, rows)) for name in ("lift", "door", "hall")}
    ids = {name: np.arange(rows) for name in times}
    return {
        "lift": pa.table({"ts": times["lift"], "id": ids["lift"], "floor": pa.array([1, None, 3] * (rows // 3))}),
        "door": pa.table({"ts": times["door"], "id": ids["door"], "who": ["ann", "bob"] * (rows // 2)}),
        "hall": pa.table({"ts": times["hall"], "id": ids["hall"]}),
    }


def in_order(given: dict[str, pa.Table], close: bool) -> list[tuple[str, int, int]]:
    """Stream, time stamp and id of what a synchroniser in this process gives."""
    sync = Synchroniser(given)
    out: list[sl.Event] = []
    for name, table in given.items():
        out += sync.push(sl.Event("row", ts, name, nr) for nr, ts in enumerate(table["ts"].to_pylist()))
    out += sync.close() if close else []
    return [(str(event.source), event.ts, event.seq or 0) for event in out]


def found(rows: list[Row]) -> list[tuple[str, int, int]]:
    """The same of output rows; checks on the way that the positions are those of the rows."""
    assert [row.position for row in rows] == list(range(1, len(rows) + 1))
    return [(row.stream, row.ts, row.id) for row in rows]


def by_position(rows: list[Row]) -> list[Row]:
    return sorted((row for row in rows if row.kind == "event"), key=lambda row: row.position)


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """The streams in files. The streams are not at the same time where a file ends."""
    root = tmp_path_factory.mktemp("streams")
    return {name: write_files(table, root / name, FILES) for name, table in tables().items()}


def test_batch_is_sorted_and_complete(spark: SparkSession, folders: dict[str, Path]) -> None:
    out = synchronise({name: spark.read.parquet(str(folder)) for name, folder in folders.items()}, ts="ts")
    assert out.columns == [*OWN, "id", "floor", "who"]
    rows = out.collect()
    assert found(rows) == in_order(tables(), close=True)
    assert [row.ts for row in rows] == sorted(ts for table in tables().values() for ts in table["ts"].to_pylist())
    whose = {row.stream: (row.floor, row.who) for row in rows if row.id == 3}
    assert whose == {"lift": (1, None), "door": (None, "bob"), "hall": (None, None)}


def test_stream_gives_the_batch_as_far_as_all_streams_are(spark: SparkSession, folders: dict[str, Path]) -> None:
    streams = {name: read_stream(spark, folder, 2) for name, folder in folders.items()}
    rows = by_position(run(synchronise(streams, ts="ts")))
    expected = in_order(tables(), close=False)
    assert found(rows) == expected
    assert in_order(tables(), close=True)[: len(expected)] == expected


class Seen(sl.Detector):
    """Says what it sees, so that the order in which it sees it can be looked at."""

    listens, publishes = ("door", "hall", "lift"), ("seen",)
    nr = 0

    def on_event(self, event: sl.Event) -> Iterator[sl.Event]:
        self.nr += 1
        yield event.derive("seen", nr=self.nr, stream=event.type, row=event["id"])


def test_detectors_see_the_synchronised_stream_in_order_in_the_same_query(
    spark: SparkSession, folders: dict[str, Path]
) -> None:
    ordered = synchronise({name: read_stream(spark, folder, 2) for name, folder in folders.items()}, ts="ts")
    events = ordered.where("kind = 'event'").selectExpr("'all' AS site", "position", "stream", "ts", "id")
    hierarchy = sl.Hierarchy([Seen()], clock=Seen.listens)
    detected = detect(
        events, hierarchy, key="site", ts="ts", type="stream", arrival="position", policy="ordered", stats=False
    )
    rows = sorted(run(typed_columns(detected, "seen", "nr long, stream string, row long")), key=lambda row: row.nr)
    expected = in_order(tables(), close=False)
    last = expected[-1][1]  # the engine waits for the end of the last tick
    complete = [(ts, stream, nr) for stream, ts, nr in expected if ts < last]
    # Within a tick the engine's order is by type; a stream that repeats a time stamp is not interleaved with others.
    assert [(row.ts, row.stream, row.row) for row in rows] == sorted(complete)


def test_arrival_decides_what_is_late(spark: SparkSession, tmp_path: Path) -> None:
    """Rows are shuffled in their files: only the arrival knows that the door's row of 2 came after both had 5."""
    rows = [("door", 1), ("lift", 3), ("door", 5), ("lift", 5), ("door", 2), ("lift", 9), ("door", 9)]
    whole = pa.table({"name": [r[0] for r in rows], "at": [r[1] for r in rows], "came": range(len(rows))})
    streams = {}
    for name in ("door", "lift"):
        mine = whole.filter(pa.compute.equal(whole["name"], name)).drop_columns(["name"])
        streams[name] = spark.read.parquet(str(write_files(mine, tmp_path / name, 1, shuffle=True)))
    streams["lift"] = streams["lift"].withColumnRenamed("at", "seen")
    out = synchronise(streams, ts={"door": "at", "lift": "seen"}, arrival="came")
    assert out.columns == OWN
    rows = [(row.position, row.stream, row.ts, row.kind, row.lateness) for row in out.collect()]
    assert rows == [
        (1, "door", 1, "event", None),
        (2, "lift", 3, "event", None),
        (3, "door", 5, "event", None),
        (4, "lift", 5, "event", None),
        (5, "door", 9, "event", None),
        (6, "lift", 9, "event", None),
        (None, "door", 2, "late", 3),
    ]


def test_restart_loses_and_repeats_nothing_and_a_batch_done_again_gives_the_same_rows(
    spark: SparkSession, folders: dict[str, Path], tmp_path: Path
) -> None:
    checkpoint = tmp_path / "checkpoint"
    batches: list[tuple[int, list[Row]]] = []
    for name in folders:
        (tmp_path / name).mkdir()

    def write(batch: DataFrame, number: int) -> None:
        batches.append((number, batch.collect()))

    for files in (slice(2), slice(2, None)):
        for name, folder in folders.items():
            for file in sorted(folder.iterdir(), reverse=True)[files]:
                shutil.copy2(file, tmp_path / name)
        out: Any = synchronise({name: read_stream(spark, tmp_path / name) for name in folders}, ts="ts", max_delay=400)
        writer = out.writeStream.foreachBatch(write).option("checkpointLocation", str(checkpoint))
        writer.trigger(availableNow=True).start().awaitTermination()
        for done in (*checkpoint.glob("commits/1"), *checkpoint.glob("commits/.1.crc")):
            done.unlink()  # as if the driver had died between the sink and the commit
    assert [number for number, _ in batches] == [0, 1, 1, 2]
    assert batches[1][1] == batches[2][1], "a batch done again gave other rows"
    assert all(rows and [row.position for row in rows] == sorted(row.position for row in rows) for _, rows in batches)
    once = dict(batches)
    assert found([row for rows in once.values() for row in rows]) == in_order(tables(), close=False)


def test_dead_stream_delays_the_rest_until_max_delay(spark: SparkSession, tmp_path: Path) -> None:
    """The lift stops at 40 and comes back at 200, in the last micro-batch, with one row that is too old."""
    door = list(range(0, 300, 10))
    lift = [0, 20, 40, *[None] * 17, 30, 200, 210, 220, 230, *[None] * 5]
    streams = {}
    for name, times in {"door": door, "lift": lift}.items():
        table = pa.table({"ts": pa.array(times, pa.int64()), "id": range(30)})
        folder = write_files(table, tmp_path / name, FILES)
        streams[name] = read_stream(spark, folder).where("ts is not null")
    waiting = by_position(run(synchronise({**streams, "lift": streams["lift"].where("ts <= 40")}, ts="ts")))
    assert [row.ts for row in waiting] == [0, 0, 10, 20, 20, 30, 40, 40]
    rows = run(synchronise(streams, ts="ts", max_delay=60, max_failures=2))
    events = by_position(rows)
    assert [row.ts for row in events] == sorted([*door[:24], 0, 20, 40, 200, 210, 220, 230])
    assert [(row.stream, row.ts, row.lateness, row.id) for row in rows if row.kind == "late"] == [("lift", 30, 160, 20)]


@pytest.fixture(scope="module")
def typed(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Two streams with columns of every kind that Parquet keeps."""
    root = tmp_path_factory.mktemp("typed")
    columns = {
        "at": "timestamp_micros(1700000000000000 + id * 1000001)",
        "number": "if(id % 2 = 0, null, cast(id + 9007199254740993 as bigint))",
        "small": "cast(id as tinyint)",
        "money": "cast(id as decimal(30, 7)) / 7",
        "day": "date_add(date'2024-02-27', cast(id as int))",
        "local": "timestamp_ntz'0001-02-03 04:05:06.789'",
        "raw": "cast(concat('x', id) as binary)",
        "single": "cast('NaN' as float)",
        "deep": "named_struct('t', timestamp_micros(id), 'list', array(named_struct('d', cast(1.5 as decimal(4, 2)))))",
        "table": "map('k', array(id, null))",
        "`odd name`": "id = 1",
    }
    sql = ", ".join(f"{value} as {name}" for name, value in columns.items())
    for name in ("a", "b"):
        spark.sql(f"select {sql} from range(6)").coalesce(1).write.parquet(str(root / name))
    return {name: root / name for name in ("a", "b")}


@pytest.mark.parametrize("streaming", [False, True], ids=["batch", "stream"])
def test_values_of_every_type_come_back_exactly(spark: SparkSession, typed: dict[str, Path], streaming: bool) -> None:
    given = {name: spark.read.parquet(str(folder)) for name, folder in typed.items()}
    streams = {name: read_stream(spark, folder) for name, folder in typed.items()} if streaming else given
    out = synchronise(streams, ts="at")
    kinds = dict(given["a"].dtypes)
    assert dict(out.dtypes) == {
        **dict.fromkeys(("position", "lateness"), "bigint"),
        **dict.fromkeys(("stream", "kind", "reason", "detail"), "string"),
        "ts": kinds.pop("at"),
        **kinds,
    }
    rows = by_position(run(out) if streaming else out.collect())
    same = [str(row[2:3] + row[7:]) for row in rows]  # NaN is not itself, but its text is
    before = [str(tuple(row)) for row in given["a"].sort("at").collect()]
    assert same == [row for row in before for _ in "ab"]
    assert isinstance(rows[3].money, decimal.Decimal)
    assert rows[2].ts == datetime.datetime.fromtimestamp(1_700_000_001, rows[2].ts.tzinfo).replace(microsecond=1)


def test_keys_are_worlds_of_their_own(spark: SparkSession) -> None:
    door = [(7, 1, "a"), (7, 5, "b"), (8, 2, "c"), (None, 3, "d")]
    lift = [(7, 3, "e"), (8, 4, "f"), (8, 4, "g"), (7, None, "h")]
    schema = "site short, ts int, what string"
    streams = {"door": spark.createDataFrame(door, schema), "lift": spark.createDataFrame(lift, schema)}
    out = synchronise(streams, ts="ts", key="site")
    assert dict(out.dtypes)["key"] == "smallint" and dict(out.dtypes)["ts"] == "int"
    rows = out.collect()
    assert out.columns == ["key", *OWN, "what"]
    order = {key: [(r.position, r.what) for r in rows if r.key == key and r.kind == "event"] for key in (7, 8)}
    assert order == {7: [(1, "a"), (2, "e"), (3, "b")], 8: [(1, "c"), (2, "f"), (3, "g")]}
    aside = sorted((row.what, row.key, row.reason) for row in rows if row.kind == "quarantine")
    assert aside == [("d", None, "no key"), ("h", 7, "bad time stamp")]


def test_more_waiting_than_allowed_fails_the_query_and_names_the_stream_that_owes(
    spark: SparkSession, folders: dict[str, Path]
) -> None:
    streams = {name: read_stream(spark, folder) for name, folder in folders.items()}
    streams["hall"] = streams["hall"].where("id < 0")
    with pytest.raises(StreamingQueryException, match="they wait for 'hall'"):
        run(synchronise(streams, ts="ts", max_waiting=50))


def test_files_and_other_sources_go_together(spark: SparkSession, folders: dict[str, Path]) -> None:
    given = tables()
    streams = {name: spark.read.parquet(str(folder)) for name, folder in folders.items()}
    streams["hall"] = spark.createDataFrame(given["hall"])
    assert found(synchronise(streams, ts="ts").collect()) == in_order(given, close=True)


def test_no_rows_at_all_give_nothing(spark: SparkSession) -> None:
    assert synchronise({"a": spark.createDataFrame([], "ts long")}, ts="ts").collect() == []


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"streams": {}}, r"a dict of DataFrames by name, at least one; got \{\}"),
        ({"streams": ["door"]}, "a dict of DataFrames by name"),
        ({"streams": {"door": 7}}, "stream 'door' must be a DataFrame; got a int"),
        ({"ts": {"door": "ts"}}, r"ts names columns of \['door'\], but the streams are \['door', 'lift'\]"),
        ({"ts": 3}, "ts=3 is not valid; it must be the name of a field"),
        ({"max_delay": -1}, "max_delay=-1"),
        ({"max_waiting": 0}, "max_waiting=0"),
    ],
)
def test_wrong_option_is_an_error_before_anything_runs(
    spark: SparkSession, change: dict[str, Any], message: str
) -> None:
    df = spark.createDataFrame([(1,)], "ts long")
    given = {"streams": {"door": df, "lift": df}, "ts": "ts", **change}
    with pytest.raises(ConfigError, match=message):
        synchronise(given.pop("streams"), **given)


def test_streams_need_names_and_are_all_streaming_or_none(spark: SparkSession, folders: dict[str, Path]) -> None:
    df = spark.read.parquet(str(folders["door"]))
    for name in ("", 3):
        with pytest.raises(ConfigError, match="the name of a stream must be a string"):
            synchronise({name: df}, ts="ts")  # type: ignore[dict-item]
    with pytest.raises(ConfigError, match=r"\['lift'\] are streaming DataFrames and \['door'\] are not"):
        synchronise({"door": df, "lift": read_stream(spark, folders["lift"])}, ts="ts")


@pytest.mark.parametrize(
    ("lift", "change", "message"),
    [
        ("ts long", {"ts": "time"}, r"stream 'door': ts='time': there is no such column. The DataFrame has"),
        ("time long", {}, "stream 'lift': ts='ts': there is no such column"),
        ("ts double", {}, "stream 'lift': ts='ts' is a column of double; ts takes whole numbers or timestamps"),
        ("ts timestamp", {}, "stream 'lift': ts='ts' is timestamp, but bigint in stream 'door'. Cast it first"),
        ("ts long, X string", {}, "stream 'lift': column 'X' is string, but int in stream 'door'. .*or rename it"),
        ("ts long, `a.b` int", {}, "stream 'lift': column 'a.b' has a dot"),
        ("ts long, x int, X int", {}, "stream 'lift': two columns have one name"),
        ("ts long, kind int", {}, "stream 'lift': column 'kind' is called like one of the output"),
        ("ts long", {"key": "site"}, "stream 'lift': key='site': there is no such column"),
        ("ts long, site long", {"key": "site"}, "stream 'lift': key='site' is bigint, but string in stream 'door'"),
        ("ts long, site string, KEY int", {"key": "site"}, "stream 'lift': column 'KEY' is called like"),
        ("ts long, y interval year", {}, "a column is of a type that Arrow lacks; cast or drop it first"),
    ],
)
def test_wrong_column_is_an_error_that_names_stream_and_column(
    spark: SparkSession, lift: str, change: dict[str, Any], message: str
) -> None:
    streams = {
        "door": spark.createDataFrame([], "ts long, x int, site string"),
        "lift": spark.createDataFrame([], lift),
    }
    with pytest.raises(SchemaError, match=message):
        synchronise(streams, **{"ts": "ts", **change})


def test_a_column_called_key_is_one_like_any_other_without_a_key(spark: SparkSession) -> None:
    rows = synchronise({"a": spark.createDataFrame([(1, "k")], "ts long, key string")}, ts="ts").collect()
    assert [(row.position, row.key) for row in rows] == [(1, "k")]


def test_timestamps_wait_in_microseconds(spark: SparkSession) -> None:
    door = spark.createDataFrame([(s,) for s in range(5)], "s long").select(F.timestamp_seconds("s").alias("ts"))
    lift = spark.createDataFrame([(0,), (2,)], "s long").select(F.timestamp_seconds("s").alias("ts"))
    rows = synchronise({"door": door, "lift": lift}, ts="ts", max_delay=10**6).collect()
    assert [row.stream for row in rows] == ["door", "lift", "door", "door", "lift", "door", "door"]
