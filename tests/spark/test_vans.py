"""200 vans with 200 reports each: default options find what the sorted stream has, by van and in shards."""

import importlib.util
import json
import zlib
from pathlib import Path
from types import ModuleType
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql.streaming.tws_tester import TwsTester
from pyspark.sql.types import LongType
from tests.spark.test_processor import packet_rows, records

from slackline.sim import vans
from slackline.spark.codec import ARRIVAL, KEY, SITE
from slackline.spark.processor import SiteProcessor
from slackline.spark.sharded import keyed
from slackline.spark.silence import Silence
from slackline.spark.site import Recipe

MICRO_BATCHES = 4


@pytest.fixture(scope="module")
def example() -> ModuleType:
    spec = importlib.util.spec_from_file_location("vans", Path(__file__).parents[2] / "examples" / "08_vans.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def streamed(example: ModuleType, reports: pa.Table, shards: int | None) -> list[dict[str, Any]]:
    """What a query gives out: some micro-batches, and then silence."""
    keys = pa.array([f"v{van}" for van in reports["van"].to_pylist()])
    table = reports.drop_columns(["van"]).rename_columns({"arrival": ARRIVAL})
    hierarchy = example.hierarchy()
    if shards is None:
        table = table.append_column(SITE, keys)
    else:
        hierarchy = keyed(hierarchy, table.column_names)
        names = [f"{shards}/{zlib.crc32(key.encode()) % shards}" for key in keys.to_pylist()]
        table = table.append_column(SITE, pa.array(names)).append_column(KEY, keys)
    recipe = Recipe(hierarchy, sharded=shards is not None)
    processor = SiteProcessor(recipe, LongType(), Silence.of("30 seconds", None), shards)
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
        (row["key"][1:], row["type"], row["ts"], json.dumps(json.loads(row["payload"]), sort_keys=True))
        for row in rows
        if row["kind"] == "event"
    }
    share = len(found & expected) / len(expected)
    assert share >= 0.99, f"{share:.2%} of {len(expected)} found, {len(found - expected)} wrong"
    assert {row["key"] for row in rows if row["kind"] == "late"} <= {f"v{van}" for van in reports["van"].to_pylist()}


def test_a_van_that_releases_nothing_says_why(example: ModuleType) -> None:
    rows = streamed(example, vans(seed=1, number=2, reports=12, skewed=0), None)
    stats = [json.loads(row["payload"]) for row in rows if row["kind"] == "stats" and not row["id"].endswith("/idle")]
    why = stats[-1]["detectors"]["Deliveries"]["waits_for"]
    assert why["type"] in ("door", "stop", "position") and why["learning"] in (True, False)
