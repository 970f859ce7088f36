"""200 vans with 200 reports each: default options find what the sorted stream has, by van and in shards."""

import importlib.util
import json
from pathlib import Path
from types import ModuleType
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql.streaming.tws_tester import TwsTester
from tests.spark.test_processor import packet_rows, records

from scenarios.vans import vans
from slackline.runtime.keyed import EngineFactory
from slackline.runtime.sharding import KEY, shard_of
from slackline.runtime.timeouts import Timeouts
from slackline.spark.packets import ARRIVAL, ENGINE
from slackline.spark.processor import KeyedPlan, KeyedProcessor

MICRO_BATCHES = 4


@pytest.fixture(scope="module")
def example() -> ModuleType:
    spec = importlib.util.spec_from_file_location("vans", Path(__file__).parents[2] / "examples" / "08_vans.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def streamed(example: ModuleType, reports: pa.Table, shards: int | None) -> list[dict[str, Any]]:
    """What a query emits: some micro-batches, and then the idle timeout."""
    keys = reports["van"]
    table = reports.drop_columns(["van"]).rename_columns({"arrival": ARRIVAL})
    factory = EngineFactory.of(example.hierarchy(), {}, shards, table.column_names, spill=False)
    if shards is None:
        table = table.append_column(ENGINE, keys)
    else:
        names = [shard_of(key, shards) for key in keys.to_pylist()]
        table = table.append_column(ENGINE, pa.array(names)).append_column(KEY, keys)
    processor = KeyedProcessor(KeyedPlan(factory, shards, Timeouts.of("30 seconds")))
    tester = TwsTester(processor, timeMode="ProcessingTime")
    size = -(-len(table) // MICRO_BATCHES)
    rows = []
    for start in range(0, len(table), size):
        rows += records(tester.test(0, packet_rows(table.slice(start, size))))
    return rows + records(tester.setProcessingTime(30_000))


@pytest.mark.parametrize("shards", [None, 64])
def test_default_options_find_99_percent_of_what_the_sorted_stream_has(example: ModuleType, shards: int | None) -> None:
    reports = vans(seed=1)
    expected = example.in_order(reports)
    rows = streamed(example, reports, shards)
    found = {
        (row["key"], row["type"], row["ts"], json.dumps(json.loads(row["payload"]), sort_keys=True))
        for row in rows
        if row["kind"] == "event"
    }
    share = len(found & expected) / len(expected)
    assert share >= 0.99, f"{share:.2%} of {len(expected)} found, {len(found - expected)} wrong"
    assert {row["key"] for row in rows if row["kind"] == "late"} <= set(reports["van"].to_pylist())


def test_the_statistics_say_why_a_van_emits_nothing(example: ModuleType) -> None:
    rows = streamed(example, vans(seed=1, number=2, reports=12, skewed=0), None)
    stats = [json.loads(row["payload"]) for row in rows if row["kind"] == "stats" and not row["id"].endswith("/idle")]
    why = stats[-1]["detectors"]["Deliveries"]["waits_for"]
    assert why["type"] in ("door", "stop", "position") and why["learning"] in (True, False)
