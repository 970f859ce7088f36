"""Three streams of a building in one order, on Spark Structured Streaming.

Doors, lift and heating each write their own files, with columns of their own, and the heating stops for good after a
third of the time. `synchronise` gives one stream in the order of time stamps; `max_delay` says how long to wait for a
stream that is silent. The last rows still wait in the state: a stream has no end. A batch over the same files has one.
Run it with `python examples/07_spark_synchronise.py`; it needs Java and the extra `spark`.
"""

from __future__ import annotations

import os
import tempfile
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import DataFrame, SparkSession

from slackline.spark import session, synchronise

FILES = 6
MINUTE = 60_000  # time stamps are milliseconds


def building(seed: int) -> dict[str, pa.Table]:
    """An hour of three streams, each in order."""
    rng = np.random.default_rng(seed)

    def times(count: int, minutes: int) -> np.ndarray:
        return np.sort(rng.integers(0, minutes * MINUTE, count))

    return {
        "door": pa.table({"ts": times(600, 60), "who": rng.choice(["ann", "bob", "cy"], 600)}),
        "lift": pa.table({"ts": times(300, 60), "floor": rng.integers(0, 9, 300)}),
        "heating": pa.table({"ts": times(100, 20), "celsius": rng.normal(20, 1, 100).round(2)}),
    }


def write(streams: dict[str, pa.Table], folder: Path) -> None:
    """Each stream in files of ten minutes."""
    for name, table in streams.items():
        (folder / name).mkdir()
        for nr in range(FILES):
            first, last = np.searchsorted(table["ts"].to_numpy(), [nr * 10 * MINUTE, (nr + 1) * 10 * MINUTE])
            path = folder / name / f"{nr}.parquet"
            pq.write_table(table.slice(first, last - first), path)
            os.utime(path, (nr, nr))  # Spark takes files by their age


def main() -> None:
    streams = building(seed=5)
    spark = session(cores=2)
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        write(streams, folder)
        out = synchronise(
            {name: _read_stream(spark, folder / name) for name in streams},
            ts="ts",
            max_delay=15 * MINUTE,  # in stream time
        )
        query = (
            out.writeStream.format("parquet")
            .option("path", f"{folder}/out")
            .option("checkpointLocation", f"{folder}/checkpoint")
            .trigger(availableNow=True)
            .start()
        )
        query.awaitTermination()

        rows = spark.read.parquet(f"{folder}/out")
        rows.orderBy("position").select("position", "stream", "ts", "who", "floor", "celsius").show(8)
        times = [row.ts for row in rows.where("kind = 'event'").orderBy("position").collect()]
        print(f"stream: {len(times)} rows, in order: {times == sorted(times)}")
        whole = synchronise({name: spark.read.parquet(str(folder / name)) for name in streams}, ts="ts").collect()
        every = sorted(ts for table in streams.values() for ts in table["ts"].to_pylist())
        print(f"batch: {len(whole)} rows, in order: {[row.ts for row in whole] == every}")
        print(f"the stream is the beginning of the batch: {[row.ts for row in whole[: len(times)]] == times}")
    spark.stop()


def _read_stream(spark: SparkSession, folder: Path) -> DataFrame:
    schema = spark.read.parquet(str(folder)).schema
    return spark.readStream.schema(schema).option("maxFilesPerTrigger", 1).parquet(str(folder))


if __name__ == "__main__":
    main()
