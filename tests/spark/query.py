"""A query in a process of its own, to be killed: ``python -m tests.spark.query SOURCE CHECKPOINT SINK``."""

import sys
from pathlib import Path
from typing import Any

from pyspark.sql import SparkSession
from pyspark.sql.streaming import StreamingQuery
from tests.spark.world import COLUMNS, hierarchy, read_stream

from slackline.spark import detect, session


def start(spark: SparkSession, source: Path, checkpoint: Path, sink: Path) -> StreamingQuery:
    """The query, one file a micro-batch, into Parquet files."""
    out: Any = detect(read_stream(spark, source), hierarchy(), arrival="arrival", **COLUMNS)
    writer = out.writeStream.format("parquet").option("path", str(sink)).option("checkpointLocation", str(checkpoint))
    return writer.trigger(availableNow=True).start()


if __name__ == "__main__":
    start(session(2), *map(Path, sys.argv[1:])).awaitTermination()
