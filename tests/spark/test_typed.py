"""One event type as typed columns: read back from JSON, or never turned into JSON."""

import datetime
import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame, Row, SparkSession
from pyspark.sql.types import LongType, StringType, StructField, StructType

import slackline as sl
from slackline.core.errors import ConfigError, SchemaError, SlacklineError
from slackline.spark import check_failure, current, detect, typed
from slackline.spark.fields import ddl_fields, typed_column
from slackline.spark.kafka import found_records

pytestmark = [pytest.mark.spark, pytest.mark.usefixtures("spark")]

HIT = sl.EventType("hit", player=int, force=float, fast=bool, who=str, small="float32")


class Rich(sl.Detector):
    """Publishes every kind of value there is a column type for."""

    listens = ("kick",)
    publishes = (HIT, "other")

    def on_event(self, event: sl.Event) -> Any:
        yield event.derive(
            "hit",
            player=np.int64(9),
            force=float("-inf") if event.ts == 2 else float("nan"),
            fast=True,
            who="Zoë",
            small=np.float32(0.5),
            raw=b"\x00\xff",
            track=np.array([[1.0, math.nan], [3.0, 4.0]]),
            more={"a": 1, "b": [2, 3]},
        )
        yield event.derive("other", player="nobody")


@pytest.fixture(scope="module")
def found(spark: SparkSession) -> DataFrame:
    table = pa.table({"site": ["s", "s"], "ts": [1, 2]})
    return detect(spark.createDataFrame(table), sl.Hierarchy([Rich()], clock="kick"), key="site", ts="ts").cache()


def test_ddl_gives_typed_columns_and_every_value_survives(found: DataFrame) -> None:
    ddl = (
        "player long, force double, who string, raw binary, track array<array<double>>, more struct<a:int,b:array<int>>"
    )
    out = typed(found, "hit", ddl).orderBy("ts")
    assert out.columns == [
        *("key", "ts", "detected_at", "id", "op", "final", "change"),
        *("player", "force", "who", "raw", "track", "more"),
    ]
    first, second = out.collect()
    assert (first.key, first.ts, first.op, first.player, first.who) == ("s", 1, "insert", 9, "Zoë")
    assert math.isnan(first.force) and second.force == -math.inf
    assert bytes(first.raw) == b"\x00\xff"
    assert first.track[1] == [3.0, 4.0] and math.isnan(first.track[0][1])
    assert (first.more.a, first.more.b) == (1, [2, 3])


def test_event_type_brings_its_own_schema(found: DataFrame) -> None:
    out = typed(found, HIT)
    assert dict(out.dtypes) | {"player": "bigint", "force": "double", "fast": "boolean", "small": "float"} == dict(
        out.dtypes
    )
    assert {(row.player, row.fast, row.who, row.small) for row in out.collect()} == {(9, True, "Zoë", 0.5)}


def test_struct_type_works_and_a_missing_field_is_null(found: DataFrame) -> None:
    schema = StructType([StructField("player", StringType()), StructField("age", LongType())])
    assert {(row.player, row.age) for row in typed(found, "other", schema).collect()} == {("nobody", None)}


def test_field_of_another_type_is_an_error_and_no_null(found: DataFrame) -> None:
    with pytest.raises(Exception, match="Cannot parse the field name 'player' and the value nobody"):
        typed(found, "other", "player long").collect()


def test_wrong_use_is_a_clear_error(found: DataFrame) -> None:
    with pytest.raises(ConfigError, match="needs the fields"):
        typed(found, "hit")
    with pytest.raises(SchemaError, match=r"fields \['id'\] of 'hit' are called like columns"):
        typed(found, "hit", "id long")
    with pytest.raises(SchemaError, match="takes the result of detect"):
        typed(found.drop("payload"), "hit", "player long")


# Columns from the processor, without JSON.

DDL = (
    "player long, force double, fast boolean, who string, small float, raw binary, track array<array<double>>, "
    "more struct<a:int,b:array<int>>"
)
COLUMNS: dict[str, Any] = {"key": "site", "ts": "ts", "policy": "ordered"}


@pytest.fixture(scope="module")
def events(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("typed")
    for at in range(2):
        table = pa.table({"site": ["s", "s", "t"], "ts": [1 + 4 * at, 2 + 4 * at, 3 + 4 * at]})
        pq.write_table(table, folder / f"{at}.parquet")
    return folder


def stream(spark: SparkSession, folder: Path) -> DataFrame:
    return spark.readStream.schema("site string, ts long").option("maxFilesPerTrigger", 1).parquet(str(folder))


def written(rows: DataFrame, folder: Path) -> DataFrame:
    """What a stream writes until it has read everything."""
    writer = rows.writeStream.format("parquet").option("path", str(folder / "out"))
    query = writer.option("checkpointLocation", str(folder / "checkpoint")).start()
    try:
        query.processAllAvailable()
    except StreamingQueryException:
        check_failure(query)
    query.stop()
    return rows.sparkSession.read.parquet(str(folder / "out"))


def shown(rows: DataFrame) -> list[str]:
    """Rows as text, in which NaN equals NaN."""
    return sorted(map(repr, rows.collect()))


class Sparse(sl.Detector):
    """Publishes each field now and then, and one that is not declared."""

    listens = ("kick",)
    publishes = (sl.EventType("spot", x=float, n="int8", label=str),)

    def on_event(self, event: sl.Event) -> Any:
        fields: dict[str, Any] = {"x": 1, "n": np.int8(-3), "label": [1, {"a": None}], "note": "odd"}
        chosen = list(fields)[event.ts % 4 :] if event.ts != 7 else []
        yield event.derive("spot", **{name: fields[name] for name in chosen})


@pytest.mark.parametrize(("streaming", "shards"), [(False, 2), (True, None)])
def test_columns_without_json_hold_what_json_holds(
    spark: SparkSession, events: Path, tmp_path: Path, streaming: bool, shards: int | None
) -> None:
    def found(name: str, **options: Any) -> DataFrame:
        df = stream(spark, events) if streaming else spark.read.parquet(str(events))
        rows = detect(df, sl.Hierarchy([Rich(), Sparse()]), shards=shards, **COLUMNS, **options)
        return written(rows, tmp_path / name) if streaming else rows.cache()

    parsed, columns = found("json"), found("columns", typed={"hit": DDL, "spot": "x double, n byte, label string"})
    assert dict(columns.dtypes)["hit"] == StructType.fromDDL(DDL).simpleString()
    for name, ddl in (("hit", DDL), ("spot", "x double, n byte, label string")):
        one, other = typed(columns, name), typed(parsed, name, ddl)
        assert one.dtypes == other.dtypes
        assert one.count() == (6 if not streaming else one.count()) > 0
        assert shown(one) == shown(other)
    assert columns.where("type = 'hit' AND (payload IS NOT NULL OR spot IS NOT NULL)").count() == 0
    assert (
        columns.where("type = 'other' AND payload IS NOT NULL AND hit IS NULL").count()
        == columns.where("hit.fast").count()
    )
    notes = {row.payload for row in columns.where("type = 'spot' AND ts <> 7").collect()}
    assert {json.loads(note)["note"] for note in notes} == {"odd"} == {json.loads(note).popitem()[1] for note in notes}
    own = [name for name in parsed.columns if name != "payload"]
    assert shown(columns.select(own).where("kind = 'event'")) == shown(parsed.select(own).where("kind = 'event'"))
    assert columns.where("kind = 'stats' AND payload IS NOT NULL").count() > 0


def test_a_declared_type_is_enough(spark: SparkSession, events: Path, tmp_path: Path) -> None:
    for given in (HIT, "hit", [HIT], ("hit",)):
        found = detect(stream(spark, events), sl.Hierarchy([Rich()]), typed=given, **COLUMNS)
        assert dict(found.dtypes)["hit"] == "struct<player:bigint,force:double,fast:boolean,who:string,small:float>"
    rows = written(found, tmp_path)
    first = typed(current(rows), HIT).orderBy("ts").first()
    assert isinstance(first, Row) and (first.player, first.who, first.small) == (9, "Zoë", 0.5)
    rest = rows.where("type = 'hit'").first()
    assert isinstance(rest, Row) and json.loads(rest.payload)["more"] == {"a": 1, "b": [2, 3]}


def test_wrong_types_are_refused_before_the_query_starts(spark: SparkSession, events: Path) -> None:
    class Odd(sl.Detector):
        listens, publishes = ("kick",), (sl.EventType("late", x=int), sl.EventType("Detector", y=int), "plain")

        def on_event(self, event: sl.Event) -> None: ...

    def refused(given: Any, error: type[Exception], words: str) -> None:
        with pytest.raises(error, match=words):
            detect(stream(spark, events), sl.Hierarchy([Rich(), Odd()]), typed=given, **COLUMNS)

    refused(["kick"], ConfigError, r"no detector publishes this event type. Those that are published are \['Detector'")
    refused("plain", ConfigError, "event type 'plain' needs the fields: give them as 'player long, ...'")
    refused({"plain": StructType()}, SchemaError, "'plain' is declared without fields")
    refused(
        {"plain": "x long, X double"}, SchemaError, r"fields of 'plain' have the name 'x' twice \(Spark ignores case"
    )
    refused("Detector", SchemaError, "columns of the result have the name 'detector' twice")
    refused(
        {"plain": "at timestamp"}, SchemaError, r"field plain.at is declared as timestamp, .* cannot have; use bool"
    )
    refused({"plain": "a array<struct<m: map<string, int>>>"}, SchemaError, r"field plain.a\[\].m is declared as map<")
    refused({"plain": "no fields"}, SchemaError, "is not a list of fields")
    found = detect(stream(spark, events), sl.Hierarchy([Rich()]), typed=HIT, **COLUMNS)
    with pytest.raises(SchemaError, match=r"are already typed columns, struct<player:bigint,.*was requested"):
        typed(found, "hit", "player string")
    with pytest.raises(SchemaError, match=r"the fields of \['hit'\] are typed columns, and messages have the payload"):
        found_records(found, "found")


def test_a_value_of_another_type_fails_the_query(spark: SparkSession, events: Path, tmp_path: Path) -> None:
    found = detect(stream(spark, events), sl.Hierarchy([Rich()]), typed={"other": "player long"}, **COLUMNS)
    with pytest.raises(
        SlacklineError, match="field 'player' of event type 'other' is declared as bigint, and a detector"
    ):
        written(found, tmp_path)


@pytest.mark.parametrize(
    ("ddl", "value"),
    [
        ("long", 1.5), ("long", True), ("long", 2**70), ("long", "7"), ("byte", 300), ("double", "1"), ("double", True),
        ("boolean", 1), ("binary", "text"), ("string", "\ud800"), ("array<int>", 3), ("array<int>", [1, "2"]),
        ("struct<a:int>", [1]), ("double", 1j), ("double", datetime.date(2020, 1, 1)),
    ],
)  # fmt: skip
def test_no_value_is_rounded_cut_or_guessed(ddl: str, value: Any) -> None:
    field = ddl_fields(f"x {ddl}")[0]
    with pytest.raises(SchemaError, match=r"field 'x' of event type 'e' is declared as .* published"):
        typed_column("e", field, (None, value))


def test_values_are_those_of_the_declared_type() -> None:
    def of(ddl: str, *values: Any) -> tuple[Any, ...]:
        return typed_column("e", ddl_fields(f"x {ddl}")[0], values)

    assert of("long", 1, None, np.int8(3)) == (1, None, 3)
    assert of("double", 1, np.float32(0.5), 2.5) == (1.0, 0.5, 2.5)
    assert of("boolean", np.bool_(True), False) == (True, False)
    assert of("binary", bytearray(b"a"), b"b") == (b"a", b"b")
    assert of("string", "a", 3, [1, "ü"], {"k": None}, b"\x00") == ("a", "3", '[1,"ü"]', '{"k":null}', "AA==")
    assert of("array<array<float>>", np.eye(2), [(1, None)]) == ([[1.0, 0.0], [0.0, 1.0]], [[1.0, None]])
    assert of("struct<a:int,b:string>", {"a": 1, "z": 2}, None) == ({"a": 1, "b": None}, None)
