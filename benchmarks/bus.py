"""Kafka as the bus of nodes: what a hop through the broker costs.

    slackline bench bus --json

A broker is started, with Java and the jars that `./run` fetches. One bus writes a record of a type every 20 ms, of
``--bytes`` bytes, and another one, as on another node, reads it.

``hop_p50_ms, hop_p99_ms``  from the record to the reader's event loop: as nodes have it, read before it is committed
``committed_p50_ms, committed_p99_ms``  the same with a transaction for each record, read when it is committed
``take_over_ms``  until the first record of a new publisher is written, which fences the former one: the median
"""

from __future__ import annotations

import argparse
import asyncio
import statistics
import sys
import time
from pathlib import Path
from typing import Any

from confluent_kafka import Consumer, Producer, TopicPartition

from _brokered import brokered
from _figures import parser
from slackline.cluster.interface import Append
from slackline.cluster.protocol import messages as m
from slackline.connectors.kafka.bus import KafkaBus
from slackline.connectors.kafka.settings import KafkaAddress

PAUSE, OWNERS = 0.02, 10


def append(first: int, epoch: int, size: int) -> Append:
    segment = m.Segment("low", first, 1, first, 0, first, 0, events=bytes(size))
    return Append("low", (epoch, 1), m.encode(m.LogRecord(m.VERSION, "bench", segment)), first + 1)


def percentiles(name: str, seconds: list[float]) -> dict[str, float]:
    cut = statistics.quantiles(seconds, n=100)
    return {f"{name}_p50_ms": round(1000 * cut[49], 2), f"{name}_p99_ms": round(1000 * cut[98], 2)}


async def through_bus(address: str, options: argparse.Namespace) -> dict[str, float]:
    buses = [KafkaBus(KafkaAddress.of(f"kafka://{address}/hop"), ["low"], {"low": "Low"}, None) for _ in range(2)]
    arrived = [asyncio.Event() for _ in buses]
    for bus, event in zip(buses, arrived, strict=True):
        await bus.open([], event.set)
    writer, reader = buses
    reader.read({"low": 1})
    hops: list[float] = []
    for first in range(1, options.records + 1):
        start = time.perf_counter()
        writer.append([append(first, 1, options.bytes)], ["low"])
        while not any(m.decode_record(each).segment.first == first for each in reader.take()):
            arrived[1].clear()
            await arrived[1].wait()
        hops.append(time.perf_counter() - start)
        await asyncio.sleep(PAUSE)
    turns: list[float] = []
    for number in range(OWNERS):
        bus, event = buses[number % 2], arrived[number % 2]
        buses[1 - number % 2].append([], [])
        start = time.perf_counter()
        bus.append([append(options.records + 1 + number, 2 + number, options.bytes)], ["low"])
        while not bus.confirmed():
            event.clear()
            await event.wait()
        turns.append(time.perf_counter() - start)
        await asyncio.sleep(0.3)
    for bus in buses:
        await bus.close()
    return {**percentiles("hop", hops[10:]), "take_over_ms": round(1000 * statistics.median(turns), 1)}


def committed(address: str, options: argparse.Namespace) -> dict[str, float]:
    producer = Producer({"bootstrap.servers": address, "transactional.id": "bench", "linger.ms": 0})
    consumer = Consumer(
        {
            "bootstrap.servers": address,
            "group.id": "bench",
            "isolation.level": "read_committed",
            "enable.auto.commit": 0,
        }
    )
    consumer.assign([TopicPartition("hop.low", 0, -1)])
    consumer.poll(2.0)
    producer.init_transactions()
    hops = []
    for _ in range(options.records):
        start = time.perf_counter()
        producer.begin_transaction()
        producer.produce("hop.low", bytes(options.bytes), partition=0)
        producer.commit_transaction()
        while consumer.poll(1.0) is None:
            pass
        hops.append(time.perf_counter() - start)
        time.sleep(PAUSE)
    consumer.close()
    return percentiles("committed", hops[10:])


def run(address: str, options: argparse.Namespace, folder: Path) -> dict[str, Any]:
    return {**asyncio.run(through_bus(address, options)), **committed(address, options)}


def main(argv: list[str] | None = None) -> int:
    asked = parser("bus", __doc__)
    asked.add_argument("--records", type=int, default=500, help="records that are written one after the other")
    asked.add_argument("--bytes", type=int, default=300, help="size of a record")
    return brokered(asked.parse_args(argv), run)


if __name__ == "__main__":
    sys.exit(main())
