"""`detect` between two topics, for `slackline bench latency`: the brokers, the topics and the connector's jars."""

from __future__ import annotations

import signal
import sys
import tempfile
from pathlib import Path

from _positions import hierarchy
from slackline.spark import detect, session
from slackline.spark.kafka import ARRIVED, found_records, read_topic

SCHEMA = "type string, van string, ts long, source string, seq long, x double, y double, at long"


def main(brokers: str, source: str, sink: str, jars: str) -> None:
    classes = ",".join(str(path) for path in sorted(Path(jars).glob("*.jar")))
    settings = {"spark.jars": classes, "spark.driver.memory": "1g"}
    # Few events, so one task after the shuffle: the less of them, the shorter a micro-batch.
    settings |= {"spark.sql.shuffle.partitions": "1"}
    spark = session(2, **settings)
    events = read_topic(spark, brokers, source, SCHEMA).drop("record_key")
    found = detect(events, hierarchy, key="van", ts="ts", type="type", arrival=ARRIVED, source="source", seq="seq",
                   stats=False)  # fmt: skip
    with tempfile.TemporaryDirectory() as checkpoint:
        query = (
            found_records(found, sink, sink, sink)
            .writeStream.format("kafka")
            .option("kafka.bootstrap.servers", brokers)
            .option("includeHeaders", "true")
            .option("checkpointLocation", checkpoint)
            .start()
        )
        signal.signal(signal.SIGTERM, lambda *_: query.stop())
        query.awaitTermination()


if __name__ == "__main__":
    main(*sys.argv[1:])
