"""Keyed detectors on Spark without an engine per key: few engines, and each key by itself in them (law 10)."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession
from tests.spark.test_processor import Store
from tests.spark.world import read_stream, run, write_files

import slackline as sl
from slackline.core.errors import StateError
from slackline.runtime.sharding import shard_of
from slackline.spark import detect
from slackline.spark.processor import GroupStates

pytestmark = pytest.mark.spark


class Rise(sl.Detector):
    """The third event of a device, and that nothing came of it for 100."""

    listens, publishes = ("at",), ("third", "silent")
    key = "device"

    def __init__(self) -> None:
        self.events = 0

    def on_event(self, event: sl.Event) -> Iterator[Any]:
        self.events += 1
        if self.events == 3:
            yield event.derive("third", device=event["device"], x=event["x"])
        yield sl.Timer(event.ts + 100)

    def on_timer(self, timer: sl.Timer) -> Iterator[sl.Event]:
        yield timer.derive("silent", device=timer.key)


def table() -> pa.Table:
    """Devices that send six events each, one device after the other, out of order by a few rows."""
    rows = [{"ts": 20 * (n // 4), "device": f"d{n % 4 + 4 * (n // 24)}", "x": n} for n in range(480)]
    rows = [rows[at ^ 1] for at in range(len(rows))]
    return pa.Table.from_pylist(rows).append_column("arrival", pa.array(range(len(rows))))


def test_devices_of_few_events_need_no_engine_each(spark: SparkSession, tmp_path: Path) -> None:
    hierarchy = sl.Hierarchy([Rise()])
    stream = read_stream(spark, write_files(table(), tmp_path / "in", 2))
    rows = run(detect(stream, hierarchy, ts="ts", arrival="arrival", shards=3, late_target=0, metrics=None))
    assert {row.key for row in rows} == {"3/0", "3/1", "3/2"}
    assert sum(row.kind == "stats" for row in rows) <= 6  # one per engine and micro-batch, not per device

    ours = [(row.kind, row.key, row.type, row.ts, json.loads(row.payload)) for row in rows if row.kind != "stats"]
    theirs: list[Any] = []
    given = table().drop_columns(["arrival"]).to_pylist()
    for name in ("3/0", "3/1", "3/2"):
        engine = sl.Engine(sl.Hierarchy([Rise()]), late_target=0)
        found = engine.push([row for row in given if shard_of(row["device"], 3) == name])
        theirs += [("event", name, each.event) for each in found] + [("late", name, each.event) for each in engine.late]
    assert len(theirs) > 50
    shown = [(kind, name, event.type, event.ts, event.payload) for kind, name, event in theirs]
    assert sorted(map(repr, ours)) == sorted(map(repr, shown))


def test_detectors_that_are_not_keyed_alike_need_a_key_for_their_rows(spark: SparkSession) -> None:
    class Plain(Rise):
        key = None

    class Other(Rise):
        listens, publishes = ("third",), ("fourth",)
        key = "region"

    df = spark.range(2).selectExpr("id AS ts", "'d' AS device")
    with pytest.raises(sl.ConfigError, match=r"their keys are Plain: none\. Pass key="):
        detect(df, sl.Hierarchy([Plain()]), ts="ts")
    with pytest.raises(sl.ConfigError, match="Rise: device, Other: region"):
        detect(df, sl.Hierarchy([Rise(), Other()]), ts="ts")
    with pytest.raises(sl.SchemaError, match=r"keyed by 'device', and the DataFrame has \['ts'\]"):
        detect(df.drop("device"), sl.Hierarchy([Rise()]), ts="ts")
    with pytest.raises(sl.SchemaError, match='set key = "source" in the detectors'):
        detect(df, sl.Hierarchy([Rise()]), ts="ts", source="device")
    with pytest.raises(sl.ConfigError, match="shards=0 is not valid"):
        detect(df, sl.Hierarchy([Rise()]), ts="ts", shards=0)


def test_another_number_of_engines_over_a_state_is_an_error_that_names_both() -> None:
    store: Any = Store()
    states = GroupStates(store, partitions=32)
    assert states.get("32/7") is None  # as engines are made
    states["32/7"] = b"state"
    assert GroupStates(store, partitions=32).get("32/7") == b"state"
    with pytest.raises(StateError, match=r"512 groups and 32 shards.* has 512 and 64.*Give `shards` as it was"):
        GroupStates(store, partitions=64).get("64/7")
