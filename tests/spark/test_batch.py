"""Batch DataFrames give what the stream gives after its end."""

from itertools import pairwise
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from pyspark.sql import SparkSession
from tests.spark.world import COLUMNS, SITES, comparable, embedded, hierarchy, stream, write_files

from slackline.calibration import Calibration, calibrate
from slackline.spark import batch, detect
from slackline.spark.packets import ARRIVAL, by_arrival

pytestmark = pytest.mark.spark


@pytest.mark.parametrize("arrival", ["arrival", None])
def test_batch_gives_what_a_closed_engine_gives(spark: SparkSession, tmp_path: Path, arrival: str | None) -> None:
    table = stream()
    folder = write_files(table, tmp_path / "in", 4, shuffle=arrival is not None)
    df = spark.read.parquet(str(folder))
    rows = detect(df if arrival else df.drop("arrival"), hierarchy(), arrival=arrival, **COLUMNS).collect()
    assert comparable(rows) == embedded(table, close=True)
    assert sorted(row.key for row in rows if row.kind == "stats") == sorted(SITES)


def test_batch_takes_any_partitioning(spark: SparkSession, tmp_path: Path) -> None:
    table = stream()
    df = spark.read.parquet(str(write_files(table, tmp_path / "in", 2))).repartition(7, "ts")
    assert comparable(detect(df, hierarchy(), arrival="arrival", **COLUMNS).collect()) == embedded(table, close=True)


def test_rows_in_memory_go_in_their_order(spark: SparkSession) -> None:
    table = stream(steps=40)
    df = spark.createDataFrame(table.drop_columns(["arrival"]))
    assert df.rdd.getNumPartitions() > 1
    assert comparable(detect(df, hierarchy(), **COLUMNS).collect()) == embedded(table, close=True)


def test_overlapping_packets_are_merged_in_bounded_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(batch, "PUSH_ROWS", 50)
    rng = np.random.default_rng(7)
    values = rng.integers(0, 900, 1000)
    packets = []
    for part in range(5):
        mine = np.sort(values[part::5])
        for nr, start in enumerate(range(0, len(mine), 20)):
            arrival = rng.permutation(mine[start : start + 20])
            rank = {f"{batch._RANK}{at}": np.full(20, value) for at, value in enumerate((0, 0, part, nr))}
            table = pa.table({ARRIVAL: arrival, "part": np.full(20, part), "nr": np.full(20, nr), **rank})
            packets.append(((int(arrival.min()), part, nr), table))
    packets.sort(key=lambda packet: packet[0])
    runs = list(batch.arrivals(("s", first[0], table) for first, table in packets))
    assert len(runs) > 5
    merged = pa.concat_tables(runs)
    whole = pa.concat_tables([t for _, t in sorted(packets, key=lambda packet: packet[0][1:])])
    assert merged.to_pylist() == by_arrival(whole.combine_chunks()).select(merged.column_names).to_pylist()
    assert all(a <= b for a, b in pairwise(merged[ARRIVAL].to_pylist()))


def test_every_key_starts_from_the_calibration_whose_content_travels(spark: SparkSession, tmp_path: Path) -> None:
    table = stream()
    rows = table.filter(pa.compute.equal(table["site"], SITES[0])).drop_columns(["site", "arrival"])
    known = tmp_path / "delays.json"
    calibrate(hierarchy(), rows).save(known)
    df = spark.createDataFrame(table.drop_columns(["arrival"]))
    started = detect(df, hierarchy(), policy="slack", calibration=known, **COLUMNS)
    content = Calibration.of(known)
    known.unlink()  # workers on other machines have no such file
    found = comparable(started.collect())
    assert found == embedded(table, close=True, policy="slack", calibration=content)
    assert found != embedded(table, close=True, policy="slack")
