"""The direct host on Kafka: how fast it reads, orders and detects, and what SIGKILL does to its output.

    slackline bench kafka --json

A broker is started, with Java and the jars that `./run` fetches. A topic of one partition gets Arrow records of 1000
positions each (``--rows``), compressed by the producer (lz4), of 50 vans, a little shuffled, in which a detector looks
for vans that are somewhere else all of a sudden.

``consume_rate``  positions per second that a bare confluent-kafka consumer reads, without looking at them
``direct_rate``   positions per second that the host reads, decodes, orders and runs a detector on, exactly once: from
                  the first record to the commit of the last
``ratio``         the one divided by the other; of each the best of five turns

A position has 14 columns, as a sensor that is carried around sends them (where it is, how it moves); the detector looks
at two. ``narrow_…`` are the same with those two alone: there is less to read, and as much to order.

Then 50 vans are keys, each with an engine of its own, and the figures are microseconds of CPU per position, of all
threads, of all positions but the first tenth; the best of three turns. Records are JSON objects of five fields, or
Arrow records of ``--rows`` positions. ``event_…`` have a detector with ``on_event``, the others one with ``on_batch``.

``json_us, arrow_us, event_json_us, event_arrow_us``  the host, exactly once
``bare_json_us``        a bare consumer that decodes each record by msgspec, and nothing else
``event_bare_json_us``  the same, and makes an event of each record and calls the detector of its van; in the order of
                        arrival
``json_ratio, event_json_ratio``  the host divided by the bare consumer that does the same

Then the host runs as a process of its own on a live stream and is killed with SIGKILL ``--kills`` times, each time at a
random moment after it has committed something. ``equal`` says that what is committed in the end is what engines give to
which nothing happens, key by key; ``lost`` and ``duplicated`` count otherwise.
"""

from __future__ import annotations

import argparse
import json as jsonlib
import os
import random
import signal
import subprocess
import sys
import threading
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pyarrow as pa
from confluent_kafka import Consumer, KafkaError, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic
from tests.kafka.broker import committed

import slackline as sl
from _brokered import brokered, console
from _figures import parser
from _positions import Jumps, hierarchy, jumps
from slackline.connectors.kafka import KafkaHost, KafkaSettings, arrow_record
from slackline.connectors.kafka.partition import InputPartition
from slackline.runtime.keyed import KeyedEngines
from slackline.runtime.schema import Decoder, RecordSchema

HERE = Path(__file__).resolve().parent

TURNS, KEYED_TURNS = 5, 3
#: What a sensor that is carried around sends, besides where it is.
MOTION = ("z", "speed", "acceleration", "vx", "vy", "vz", "ax", "ay", "az")
VANS = 50
PATIENCE = 180.0


def positions(count: int, wide: bool, seed: int = 5) -> pa.Table:
    """Positions of vans that send every 10 ms each, in the order in which they arrive: some a little late."""
    chance = np.random.default_rng(seed)
    number = np.arange(count)
    van, step = number % VANS, number // VANS
    ts = step * 10_000 + van * 150
    order = np.argsort(ts + chance.exponential(2_000, count), kind="stable")
    x = step * 0.2 + 100 * (chance.random(count) < 1e-4)  # now and then a van is somewhere else
    columns = {"ts": ts, "source": van.astype(np.int32), "seq": step, "x": x, "y": van * 50.0}
    for nr, name in enumerate(MOTION if wide else ()):
        columns[name] = np.sin(step * (0.01 + 0.001 * nr) + van)
    return pa.table({name: pa.array(values[order]) for name, values in columns.items()})


def made(brokers: str, *names: str) -> None:
    admin = AdminClient({"bootstrap.servers": brokers})
    for future in admin.create_topics([NewTopic(name, 1, 1) for name in names]).values():
        future.result()
    while not set(names) <= set(admin.list_topics(timeout=10).topics):
        time.sleep(0.1)


def consume_seconds(brokers: str, topic: str) -> float:
    """The seconds from the first record to the last, for a consumer that does nothing with them."""
    consumer = Consumer(
        {
            "bootstrap.servers": brokers, "group.id": "bare", "enable.partition.eof": True,
            "enable.auto.commit": False, "isolation.level": "read_committed",
        }
    )  # fmt: skip
    consumer.assign([TopicPartition(topic, 0, 0)])
    start, ended = 0.0, False
    while not ended:
        for message in consumer.consume(500, 0.2):
            error = message.error()
            if error is None:
                start = start or time.perf_counter()
            elif error.code() == KafkaError._PARTITION_EOF:
                ended = True
    seconds = time.perf_counter() - start
    consumer.close()
    return seconds


def rates(brokers: str, count: int, rows: int, wide: bool) -> dict[str, Any]:
    """How fast a bare consumer reads, and how fast the host."""
    name = "wide" if wide else "narrow"
    source, sink = f"{name}-in", f"{name}-out"
    made(brokers, source, sink)
    table = positions(count, wide)
    producer = Producer({"bootstrap.servers": brokers, "compression.type": "lz4"})
    for at in range(0, count, rows):
        producer.produce(source, arrow_record(table.slice(at, rows)))
        producer.poll(0)
    producer.flush(60)
    warm = sl.Engine(jumps)  # compiled functions are loaded before the clock runs
    warm.push(table.slice(0, 20_000))
    consumed, direct = [], []
    for turn in range(TURNS):  # in turn, as a machine is not always as quick
        consumed.append(consume_seconds(brokers, source))
        direct.append(direct_seconds(brokers, source, sink, f"{name}-{turn}", -(-count // rows)))
    consume_rate, direct_rate = count / min(consumed), count / min(direct)
    before = "" if wide else "narrow_"
    return {
        f"{before}consume_rate": round(consume_rate),
        f"{before}direct_rate": round(direct_rate),
        f"{before}ratio": round(direct_rate / consume_rate, 3),
    }


def direct_seconds(brokers: str, source: str, sink: str, group: str, records: int) -> float:
    """From the first record that the host takes to the commit of the last."""
    schema = RecordSchema(format="arrow", unit="us")
    return cost(brokers, jumps, schema, source, sink, group, records)[0]


def cost(
    brokers: str, application: sl.Hierarchy, schema: RecordSchema, source: str, sink: str, group: str, records: int, *,
    skip: int = 0, clock: Callable[[], float] = time.perf_counter, pause: float = 0.02,
) -> tuple[float, int]:  # fmt: skip
    """What the host takes by a clock from the first read behind ``skip`` records to the commit of the last, and of how
    many records. Every ``pause`` seconds the broker is asked whether that is committed.
    """
    began: list[tuple[float, int]] = []
    process = InputPartition.process

    def timed(self: InputPartition, messages: Any, at: int) -> None:
        if messages[0].offset >= skip and not began:
            began.append((clock(), records - messages[0].offset))
        process(self, messages, at)

    InputPartition.process = timed  # type: ignore[method-assign]
    addresses = (f"kafka://{brokers}/{source}", f"kafka://{brokers}/{sink}")
    host = KafkaHost(application, KafkaSettings(*addresses, group=group, schema=schema))
    thread = threading.Thread(target=host.run)
    thread.start()
    # Not by an AdminClient: librdkafka 2.16 crashes if that asks while the coordinator of a new broker is loaded.
    looking = Consumer({"bootstrap.servers": brokers, "group.id": group, "enable.auto.commit": False})
    try:
        stop = time.monotonic() + PATIENCE
        while time.monotonic() < stop:
            with suppress(KafkaException):  # the broker is not ready
                (place,) = looking.committed([TopicPartition(source, 0)], timeout=10)
                if place.offset >= records:
                    start, count = began[0]
                    return clock() - start, count
            time.sleep(pause)
        raise sl.SlacklineError("the host did not get through its input")
    finally:
        InputPartition.process = process  # type: ignore[method-assign]
        host.stop()
        thread.join()
        looking.close()


class Jump(sl.Detector):
    """Whether the one van of an engine is further from where it was than it can drive; position by position."""

    listens, publishes = (sl.EventType("position", x=float, y=float),), ("jump",)

    def __init__(self) -> None:
        self.last: tuple[float, float] | None = None

    def on_event(self, event: sl.Event) -> Iterator[sl.Event]:
        at = event["x"], event["y"]
        if self.last is not None and abs(at[0] - self.last[0]) + abs(at[1] - self.last[1]) > Jumps.far:
            yield event.derive("jump", x=at[0])
        self.last = at


class JumpBatch(sl.Detector):
    """The same for whole batches."""

    listens, publishes = Jump.listens, Jump.publishes

    def __init__(self) -> None:
        self.last = np.nan, np.nan

    def on_batch(self, batch: sl.Batch) -> Iterator[tuple[int, sl.Event]]:
        x, y = batch["x"], batch["y"]
        far = np.abs(np.diff(x, prepend=self.last[0])) + np.abs(np.diff(y, prepend=self.last[1])) > Jumps.far
        self.last = x[-1], y[-1]
        for row in np.flatnonzero(far).tolist():
            yield row, batch.event(row).derive("jump", x=float(x[row]))


def bare_cpu(brokers: str, topic: str, skip: int, handle: Callable[[dict[str, Any]], object] | None) -> float:
    """Microseconds of CPU per record behind the first ``skip``, for a consumer that decodes them."""
    consumer = Consumer(
        {
            "bootstrap.servers": brokers, "group.id": "bare", "enable.partition.eof": True,
            "enable.auto.commit": False, "isolation.level": "read_committed",
        }
    )  # fmt: skip
    consumer.assign([TopicPartition(topic, 0, 0)])
    decode = msgspec.json.Decoder().decode
    start, count, ended = 0.0, 0, False
    while not ended:
        if count >= skip and not start:
            start, skip = time.process_time(), count
        for message in consumer.consume(500, 0.2):
            error, value = message.error(), message.value()
            if error is None:
                record = decode(value or b"")
                count += 1
                if handle is not None:
                    handle(record)
            elif error.code() == KafkaError._PARTITION_EOF:
                ended = True
    seconds = time.process_time() - start
    consumer.close()
    return 1e6 * seconds / (count - skip)


def called() -> Callable[[dict[str, Any]], object]:
    """What a bare consumer does that makes an event of each record, and calls the detector of its van."""
    detectors: dict[str, Jump] = defaultdict(Jump)

    def handle(record: dict[str, Any]) -> None:
        detector = detectors[record.pop("van")]
        for _ in detector.on_event(sl.Event.of("position", record.pop("ts"), None, record.pop("seq"), record)):
            pass

    return handle


def keyed_cpu(brokers: str, count: int, rows: int) -> dict[str, Any]:
    """CPU per position where each van has an engine of its own."""
    made(brokers, "keyed-json", "keyed-arrow", "keyed-out")
    table = positions(count, False)
    vans = pa.array([f"v{number}" for number in table["source"].to_pylist()])
    table = table.drop_columns(["source"]).append_column("van", vans)
    producer = Producer({"bootstrap.servers": brokers, "compression.type": "lz4", "linger.ms": 50})
    for number, row in enumerate(table.to_pylist()):
        producer.produce("keyed-json", msgspec.json.encode(row), key=row["van"])
        if number % rows == 0:
            producer.produce("keyed-arrow", arrow_record(table.slice(number, rows)))
            producer.flush(60)
    producer.flush(60)
    applications = {"": sl.Hierarchy([JumpBatch()]), "event_": sl.Hierarchy([Jump()])}
    sent = {"json": count, "arrow": -(-count // rows)}
    found: dict[str, list[float]] = defaultdict(list)
    for turn in range(KEYED_TURNS):
        for before, application in applications.items():
            for form, records in sent.items():
                schema = RecordSchema(format=form, unit="us", key="van")
                spent, last = cost(
                    brokers, application, schema, f"keyed-{form}", "keyed-out", f"keyed-{before}{form}-{turn}", records,
                    skip=records // 10, clock=time.process_time, pause=0.2,
                )  # fmt: skip
                found[f"{before}{form}_us"].append(1e6 * spent / (count * last / records))
            handle = called() if before else None
            found[f"{before}bare_json_us"].append(bare_cpu(brokers, "keyed-json", count // 10, handle))
    best = {name: min(values) for name, values in found.items()}
    for before in applications:
        best[f"{before}json_ratio"] = best[f"{before}json_us"] / best[f"{before}bare_json_us"]
    return {name: round(value, 2) for name, value in best.items()}


def killed(brokers: str, kills: int, folder: Path) -> dict[str, Any]:
    """Kill the host again and again, and compare."""
    made(brokers, "kill-in", "kill-out")
    client = folder / "client.properties"
    client.write_text("session.timeout.ms=1500\n")
    ended = threading.Event()
    sender = threading.Thread(target=send_until, args=(brokers, ended), daemon=True)
    sender.start()
    chance = random.Random(11)
    before = 0
    for kill in range(kills):
        process = started(brokers, client)
        try:
            wait_for_more(brokers, before)
            time.sleep(chance.uniform(0.0, 1.0))
        finally:
            process.send_signal(signal.SIGKILL)
            process.wait()
        before = len(committed(brokers, "kill-out"))
        console.print(f"killed {kill + 1} times; {before} outputs are committed")
    ended.set()
    sender.join()
    process = started(brokers, client)
    expected = undisturbed(brokers)
    wanted = sum(map(len, expected.values()))
    try:
        wait_for_more(brokers, wanted - 1)
    finally:
        process.send_signal(signal.SIGTERM)
        process.wait(60)
    found: dict[str, list[Any]] = defaultdict(list)
    for message in committed(brokers, "kill-out"):
        record = jsonlib.loads(message.value() or b"")
        found[record["key"]].append((record["type"], record["ts"], record["payload"]))
    ours, theirs = (Counter(jsonlib.dumps(one) for part in each.values() for one in part) for each in (found, expected))
    return {
        "kills": kills,
        "outputs": wanted,
        "equal": dict(found) == expected,
        "lost": sum((theirs - ours).values()),
        "duplicated": sum((ours - theirs).values()),
    }


def started(brokers: str, client: Path) -> subprocess.Popen[bytes]:
    line = [sys.executable, "-m", "slackline", "run", str(HERE / "_positions.py"), "--key", "van", "--group", "killed"]
    line += ["--from", f"kafka://{brokers}/kill-in", "--to", f"kafka://{brokers}/kill-out", "--unit", "us"]
    line += ["--checkpoint-every", "1", "--kafka-config", str(client)]
    env = {**os.environ, "PYTHONPATH": str(Path(sl.__file__).parents[1])}
    return subprocess.Popen(line, env=env, stderr=subprocess.DEVNULL)


def send_until(brokers: str, ended: threading.Event) -> None:
    producer = Producer({"bootstrap.servers": brokers, "linger.ms": 5})
    chance = random.Random(3)
    number = 0
    while not ended.is_set():
        van = number % 10
        ts = number * 2000 - chance.choice((0, 0, 0, 0, 30_000))
        row = {
            "type": "position",
            "van": f"v{van}",
            "ts": max(0, ts),
            "seq": number,
            "x": number * 0.1,
            "y": 1.0,
            "at": 0,
        }
        producer.produce("kill-in", jsonlib.dumps(row), key=f"v{van}")
        producer.poll(0)
        number += 1
        time.sleep(0.002)
    producer.flush(60)


def wait_for_more(brokers: str, than: int) -> None:
    stop = time.monotonic() + PATIENCE
    while time.monotonic() < stop:
        if len(committed(brokers, "kill-out")) > than:
            return
        time.sleep(0.1)
    raise sl.SlacklineError("the host commits nothing")


def undisturbed(brokers: str) -> dict[str, list[Any]]:
    """The events of engines that are never stopped."""
    rows = [jsonlib.loads(message.value() or b"") for message in committed(brokers, "kill-in")]
    events, keys, _ = Decoder(RecordSchema(key="van", unit="us"), hierarchy).decode(rows)
    found: dict[str, list[Any]] = defaultdict(list)
    for record in KeyedEngines(hierarchy, keyed=True).push(events, keys):
        if record.kind == "event":
            found[str(record.key)].append((record.type, record.ts, dict(record.payload or {})))
    return dict(found)


def run(brokers: str, options: argparse.Namespace, folder: Path) -> dict[str, Any]:
    """All figures."""
    figures: dict[str, Any] = {"events": options.events, "rows": options.rows}
    for wide in (True, False) if options.events else ():
        figures |= rates(brokers, options.events, options.rows, wide)
    if options.json_events:
        figures |= {"json_events": options.json_events} | keyed_cpu(brokers, options.json_events, options.rows)
    if options.kills:
        figures |= killed(brokers, options.kills, folder)
    return figures


def main(argv: list[str] | None = None) -> int:
    arguments = parser("kafka", __doc__)
    arguments.add_argument("--events", type=int, default=4_000_000, help="positions in the topic")
    arguments.add_argument("--rows", type=int, default=1000, help="positions in a record")
    arguments.add_argument("--json-events", type=int, default=500_000, help="positions with keys, as JSON and as Arrow")
    arguments.add_argument("--kills", type=int, default=20, help="how often the host is killed")
    return brokered(arguments.parse_args(argv), run)


if __name__ == "__main__":
    sys.exit(main())
