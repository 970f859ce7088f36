"""Bad and strange input: every message says what to do, nothing is lost without a trace."""

import json
from typing import Any

import pyarrow as pa
import pytest
from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from tests.spark.world import (
    COLUMNS,
    SITES,
    Touchy,
    comparable,
    embedded,
    hierarchy,
    read_stream,
    run,
    stream,
    write_files,
)

import slackline as sl
from slackline.core.errors import ConfigError, HierarchyError, SchemaError
from slackline.spark import detect

pytestmark = pytest.mark.spark


@pytest.fixture(scope="module")
def df(spark: SparkSession) -> DataFrame:
    return spark.createDataFrame(stream(steps=12))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"ts": "time"}, r"ts='time': there is no such column. The DataFrame has \['site', 'ts', .*name one of them"),
        ({"key": "match"}, "key='match': there is no such column"),
        ({"arrival": "offset"}, "arrival='offset': there is no such column"),
        ({"ts": "x"}, "ts='x' is a column of double; ts takes whole numbers or timestamps.*Cast it first"),
        ({"type": "x"}, "type='x' is a column of double; type takes text"),
        ({"key": "x"}, "key='x' is a column of double; key takes text or whole numbers"),
        ({"source": "x"}, "source='x' is a column of double"),
        ({"seq": "x"}, "seq='x' is a column of double; seq takes whole numbers"),
        ({"seq": None}, "column 'seq' would be payload, but events have a seq of their own.*pass seq='seq'"),
    ],
)
def test_wrong_column_is_an_error_before_anything_runs(df: DataFrame, change: dict[str, Any], message: str) -> None:
    with pytest.raises(SchemaError, match=message):
        detect(df, hierarchy(), **{**COLUMNS, **change})


def test_what_is_no_data_frame_is_refused() -> None:
    with pytest.raises(ConfigError, match="a DataFrame of Spark is expected; got list"):
        detect([1], hierarchy(), **COLUMNS)  # type: ignore[arg-type]


def test_missing_type_column_is_an_error_before_anything_runs(df: DataFrame) -> None:
    with pytest.raises(SchemaError, match="type"):
        detect(df.drop("type"), hierarchy(), **{**COLUMNS, "type": None})


def test_wrong_option_is_an_error_before_anything_runs(df: DataFrame) -> None:
    with pytest.raises(ConfigError, match="policy='guess'"):
        detect(df, hierarchy(), policy="guess", **COLUMNS)
    with pytest.raises(ConfigError, match="must be the name of a field"):
        detect(df, hierarchy(), **{**COLUMNS, "ts": F.col("ts")})
    with pytest.raises(HierarchyError):
        detect(df, sl.Hierarchy([Touchy()], clock=()), **COLUMNS)


def test_rows_without_key_or_arrival_are_quarantined(spark: SparkSession) -> None:
    table = stream(steps=30)
    strange = pa.table(
        {
            "site": [None, None, "north", "north"],
            "ts": [1100, 1110, 1120, 1130],
            "type": ["kick", "pos", "kick", "kick"],
            "source": ["ball", "p1", "ball", "ball"],
            "seq": [900, 901, 902, 903],
            "x": [None, 0.5, None, None],
            "force": [1.0, None, 2.0, 3.0],
            "arrival": pa.array([5, 6, None, None], pa.int64()),
        }
    )
    df = spark.createDataFrame(pa.concat_tables([table, strange], promote_options="default"))
    rows = detect(df, hierarchy(), arrival="arrival", **COLUMNS).collect()
    aside = [row for row in rows if row.kind == "quarantine"]
    assert sorted((row.key or "", row.type, row.ts) for row in aside) == [
        ("", "kick", 1100),
        ("", "pos", 1110),
        ("north", "kick", 1120),
        ("north", "kick", 1130),
    ]
    assert {(row.reason, row.detail) for row in aside} == {
        ("no key", "the key is null: the event belongs to no keyed engine"),
        ("no arrival", "the arrival is null: the event has no place in the order"),
    }
    assert {row for row in comparable(rows) if row[1] != "quarantine"} == embedded(table, close=True)


def test_malformed_events_are_quarantined_with_a_reason(spark: SparkSession, tmp_path: Any) -> None:
    table = stream(steps=30)
    bad = pa.table(
        {
            "site": ["north"] * 3,
            "ts": pa.array([None, -5, 1200], pa.int64()),
            "type": ["kick", "kick", "kik"],
            "source": ["ball"] * 3,
            "seq": [900, 901, 902],
            "x": pa.nulls(3, pa.float64()),
            "force": [1.0, 2.0, 3.0],
            "arrival": [len(table), len(table) + 1, len(table) + 2],
        }
    )
    folder = write_files(pa.concat_tables([table, bad], promote_options="default"), tmp_path / "in", 2)
    rows = run(detect(read_stream(spark, folder, 2), hierarchy(), arrival="arrival", **COLUMNS))
    aside = [row for row in rows if row.kind == "quarantine"]
    assert sorted((row.ts, row.type) for row in aside if row.ts is not None) == [(-5, "kick"), (1200, "kik")]
    assert len(aside) == 3
    assert all(row.reason for row in aside)
    assert any("did you mean 'kick'" in row.detail for row in aside)
    assert {row for row in comparable(rows) if row[1] != "quarantine"} == embedded(table, close=False)


def test_key_without_clock_events_waits_and_the_limit_is_an_error_that_says_why(
    spark: SparkSession, tmp_path: Any
) -> None:
    kicks = stream(steps=60).filter(pa.compute.equal(stream(steps=60)["type"], "kick"))
    folder = write_files(kicks, tmp_path / "in", 2)
    rows = run(detect(read_stream(spark, folder), hierarchy(), arrival="arrival", **COLUMNS))
    assert {row.kind for row in rows} == {"stats"}
    last = max((json.loads(row.payload) for row in rows if row.key == "north"), key=lambda s: s["keyed"]["rows"])
    assert last["buffered"] == last["keyed"]["rows"] == 20
    with pytest.raises(StreamingQueryException, match="no event of the clock types"):
        run(detect(read_stream(spark, folder), hierarchy(), arrival="arrival", max_buffered=5, **COLUMNS))


def test_detector_that_raises_is_named_in_the_query_s_exception(spark: SparkSession, tmp_path: Any) -> None:
    folder = write_files(stream(steps=30), tmp_path / "in", 1)
    touchy = sl.Hierarchy([Touchy()], clock=("pos",))
    with pytest.raises(StreamingQueryException, match=r"detector 'Touchy' raised ValueError: the third kick") as raised:
        run(detect(read_stream(spark, folder), touchy, arrival="arrival", **COLUMNS))
    assert "Nothing is committed since the last checkpoint; on Spark the micro-batch fails" in str(raised.value)
    assert "rest of the push was processed" not in str(raised.value)
    out = detect(read_stream(spark, folder), touchy, arrival="arrival", on_error="quarantine", **COLUMNS)
    aside = [row for row in run(out) if row.kind == "quarantine"]
    assert {(row.key, row.detector, row.type) for row in aside} == {(site, "Touchy", "kick") for site in SITES}
    assert all("the third kick is too much" in row.detail for row in aside)


def test_empty_stream_and_empty_batch_give_nothing(spark: SparkSession, tmp_path: Any) -> None:
    folder = write_files(stream().slice(0, 0), tmp_path / "in", 1)
    assert run(detect(read_stream(spark, folder), hierarchy(), arrival="arrival", **COLUMNS)) == []
    assert detect(spark.read.parquet(str(folder)), hierarchy(), arrival="arrival", **COLUMNS).collect() == []


def test_stream_of_one_event_waits_and_batch_of_one_event_ends(spark: SparkSession, tmp_path: Any) -> None:
    one = pa.table({"match": [7], "t": [12], "player": ["p7"]})
    echo = sl.Hierarchy([Echo()], clock=("seen",))
    folder = write_files(one, tmp_path / "in", 1)
    rows = run(detect(read_stream(spark, folder), echo, key="match", ts="t"))
    assert [row.kind for row in rows] == ["stats"]
    event, stats = detect(spark.read.parquet(str(folder)), echo, key="match", ts="t").collect()
    assert (event.key, event.type, event.ts, event.payload) == (7, "echo", 12, '{"player":"p7"}')
    assert stats.kind == "stats"


def test_timestamps_may_be_payload(spark: SparkSession) -> None:
    df = spark.sql("SELECT 7 AS match, 12 AS t, TIMESTAMP'2026-01-02 03:04:05' AS at")
    event, _ = detect(df, sl.Hierarchy([Echo()], clock=("seen",)), key="match", ts="t").collect()
    assert event.payload == '{"at":"2026-01-02T03:04:05+00:00"}'


class Echo(sl.Detector):
    """Publishes what it gets."""

    listens = ("seen",)
    publishes = ("echo",)

    def on_event(self, event: sl.Event) -> Any:
        yield event.derive("echo", **event.payload)


CARRIED = {
    "true": True, "1Y": 1, "1S": 1, "1": 1, "1L": 1, "1.5F": 1.5, "1.5D": 1.5, "1.50BD": "1.50",
    "cast('12345678901234567890123456789012345678' AS decimal(38, 0))": "12345678901234567890123456789012345678",
    "'x'": "x", "cast('x' AS char(3))": "x", "cast('x' AS varchar(3))": "x", "X'00ff'": "AP8=",
    "DATE'2026-01-01'": "2026-01-01", "TIMESTAMP'2026-01-01 00:00:00.000007'": "2026-01-01T00:00:00.000007+00:00",
    "TIMESTAMP_NTZ'2026-01-01 00:00:00.000007'": "2026-01-01T00:00:00.000007",
    "INTERVAL '1 02:03:04.000005' DAY TO SECOND": "93784.000005s", "TIME'01:02:03.000004'": "3723.000004s",
    "array(1, null)": [1, None], "map('a', 1)": [["a", 1]], "map(1, 2)": [[1, 2]],
    "struct(1 AS a, 'b' AS b)": {"a": 1, "b": "b"}, "array(struct(X'00' AS raw))": [{"raw": "AA=="}],
}  # fmt: skip
REFUSED = [
    "INTERVAL '1-2' YEAR TO MONTH", "make_interval(1)", "parse_json('{}')", "array(parse_json('{}'))",
    "struct(make_interval(1) AS i)",
]  # fmt: skip


def test_each_type_of_column_is_carried_or_refused_before_the_query_starts(spark: SparkSession) -> None:
    class Keep(sl.Detector):
        listens, publishes = ("row",), ("kept",)

        def on_event(self, event: sl.Event) -> Any:
            yield event.derive("kept", **event.payload)

    columns = [f"{value} AS v{n}" for n, value in enumerate(CARRIED)]
    df = spark.range(1).selectExpr("id AS ts", "'k' AS key", "cast(null AS void) AS nothing", *columns)
    [row] = detect(df, sl.Hierarchy([Keep()]), key="key", ts="ts", metrics=None).where("kind = 'event'").collect()
    found = json.loads(row.payload)
    assert {value: found[f"v{n}"] for n, value in enumerate(CARRIED)} == CARRIED
    for value in REFUSED:
        df = spark.range(1).selectExpr("id AS ts", "'k' AS key", f"{value} AS v")
        with pytest.raises(sl.SchemaError, match=r"column `v` is of type .*, which detect\(\) cannot carry; cast it"):
            detect(df, sl.Hierarchy([Keep()]), key="key", ts="ts")
