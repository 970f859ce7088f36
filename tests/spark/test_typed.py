"""One event type back as typed columns."""

import math
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import LongType, StringType, StructField, StructType

import slackline as sl
from slackline.core.errors import ConfigError, SchemaError
from slackline.spark import detect, typed

pytestmark = pytest.mark.spark

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
