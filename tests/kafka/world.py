"""What tests with a broker share: topics, messages, hosts in threads and in processes of their own."""

from __future__ import annotations

import json
import os
import random
import re
import signal
import subprocess
import sys
import threading
import time
import zlib
from collections import defaultdict
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic
from tests.kafka.app import hierarchy
from tests.kafka.broker import committed

import slackline
from slackline.connectors.kafka import KafkaHost, KafkaSettings
from slackline.runtime.keyed import KeyedEngines
from slackline.runtime.output import OutputRecord
from slackline.runtime.schema import Decoder, RecordSchema

HERE = Path(__file__).parent
#: No test waits for longer, in seconds; machines may be slow.
LIMIT = 60.0
#: The partitions of a process that was killed are assigned to others soon.
CLIENT = {"session.timeout.ms": "1500"}

VANS = ("a", "b", "c", "d", "e", "f")
#: The record schema of the readings.
SCHEMA: dict[str, Any] = {"key": "van", "unit": "us"}


def readings(count: int, seed: int = 7, shuffle: int = 8) -> list[dict[str, Any]]:
    """Readings of several vans, each shuffled a little, in the order in which they arrive."""
    chance = random.Random(seed)
    rows = [
        {"type": "reading", "van": van, "ts": 10 * at + nr, "source": van, "seq": at, "value": chance.randrange(1000)}
        for at in range(count // len(VANS))
        for nr, van in enumerate(VANS)
    ]
    keys = [(row["ts"] + chance.randrange(10 * shuffle), nr) for nr, row in enumerate(rows)]
    return [row for _, row in sorted(zip(keys, rows, strict=True), key=lambda pair: pair[0])]


def arrivals(rows: Iterable[dict[str, Any]], schema: RecordSchema | None = None) -> tuple[list[slackline.Event], Any]:
    """Readings as events, and their keys."""
    events, keys, bad = Decoder(schema or RecordSchema(**SCHEMA), hierarchy).decode(list(rows))
    assert not bad
    return events, keys  # type: ignore[return-value]


def undisturbed(rows: Iterable[dict[str, Any]], options: dict[str, Any] | None = None) -> dict[Any, list[Any]]:
    """The events of engines that are never stopped, by key."""
    return by_key(record for record in records_of(rows, options) if record["kind"] == "event")


def records_of(rows: Iterable[dict[str, Any]], options: dict[str, Any] | None = None) -> list[dict[str, Any]]:
    return plain(KeyedEngines(hierarchy, options, keyed=True).push(*arrivals(rows)))


def plain(records: Iterable[OutputRecord]) -> list[dict[str, Any]]:
    """Output records as they are in a topic."""
    return [json.loads(record.json()) for record in records]


def by_key(records: Iterable[dict[str, Any]]) -> dict[Any, list[Any]]:
    """The events among output records, by key and in order."""
    found: dict[Any, list[Any]] = defaultdict(list)
    for record in records:
        found[record["key"]].append((record["type"], record["ts"], record["id"], record["change"], record["payload"]))
    return dict(found)


class World:
    """The topics of one test, and the hosts that work on them."""

    def __init__(self, brokers: str, name: str, folder: Path) -> None:
        self.brokers = brokers
        self.name = f"{re.sub('[^a-z0-9]+', '-', name)[:40]}-{zlib.crc32(name.encode()):08x}"
        quiet = {"bootstrap.servers": brokers, "log_level": 2}  # brokers are stopped on purpose here
        self.admin = AdminClient(quiet)
        self.producer = Producer({**quiet, "linger.ms": 1})
        #: What hosts in threads have raised.
        self.failures: list[BaseException] = []
        self._folder = folder
        self._log = folder / "log"
        self._processes: list[subprocess.Popen[str]] = []
        self._hosts: list[tuple[KafkaHost, threading.Thread]] = []

    def close(self) -> None:
        for process in self._processes:
            process.kill()
            process.wait()
        for host, thread in self._hosts:
            host.stop()
            thread.join(LIMIT)

    def topic(self, what: str, partitions: int = 1, **config: str) -> str:
        """A topic, made."""
        name = f"{self.name}-{what}"
        for future in self.admin.create_topics([NewTopic(name, partitions, 1, config=config)]).values():
            future.result()
        wait_for(lambda: name in self.admin.list_topics(timeout=10).topics, "a topic")
        return name

    def at(self, topic: str) -> str:
        return f"kafka://{self.brokers}/{topic}"

    def send(self, topic: str, rows: Iterable[dict[str, Any]], pace: float = 0.0) -> None:
        """Records of a key go to one partition, the same every time."""
        partitions = len(self.admin.list_topics(timeout=10).topics[topic].partitions)
        for row in rows:
            key = str(row.get("van", ""))
            self.producer.produce(
                topic, json.dumps(row).encode(), key.encode(), partition=zlib.crc32(key.encode()) % partitions
            )
            self.producer.poll(0)
            if pace:
                time.sleep(pace)
        self.producer.flush(30)

    def records(self, topic: str) -> list[Any]:
        """All that is committed in a topic, by now."""
        return committed(self.brokers, topic)

    def outputs(self, topic: str) -> list[dict[str, Any]]:
        return self.values(message.value() for message in self.records(topic))

    def values(self, values: Iterable[bytes]) -> list[dict[str, Any]]:
        return [json.loads(value) for value in values]

    def host(self, source: str, sink: str, of: slackline.Hierarchy = hierarchy, **settings: Any) -> KafkaHost:
        """A host in a thread."""
        settings = {"group": self.name, "schema": RecordSchema(**SCHEMA), "client": CLIENT} | settings
        host = KafkaHost(of, KafkaSettings(self.at(source), self.at(sink), **settings))
        thread = threading.Thread(target=self._run, args=(host,), daemon=True)
        thread.start()
        self._hosts.append((host, thread))
        return host

    def _run(self, host: KafkaHost) -> None:
        try:
            host.run()
        except BaseException as error:
            self.failures.append(error)

    def stop(self, host: KafkaHost, flush: bool = False) -> None:
        host.stop(flush)
        for one, thread in self._hosts:
            if one is host:
                thread.join(LIMIT)
                assert not thread.is_alive()
        assert self.failures == []

    def process(self, source: str, sink: str, **settings: Any) -> subprocess.Popen[str]:
        """A host in a process of its own."""
        settings = {"group": self.name, "schema": SCHEMA, "client": CLIENT} | settings
        paths = [str(Path(slackline.__file__).parents[1]), str(HERE.parents[1])]
        given = json.dumps({"source": self.at(source), "sink": self.at(sink), **settings})
        line = [sys.executable, str(HERE / "process.py"), given]
        env = {**os.environ, "PYTHONPATH": os.pathsep.join(paths)}
        self._log = self._folder / f"{len(self._processes)}.log"
        with open(self._log, "w") as log:
            process = subprocess.Popen(line, env=env, text=True, stderr=log)
        self._processes.append(process)
        return process

    def log(self) -> str:
        """The log of the process that was started last."""
        return self._log.read_text()


def kill(process: subprocess.Popen[str]) -> None:
    process.send_signal(signal.SIGKILL)
    process.wait()


def wait_for(condition: Callable[[], Any], what: str, limit: float = LIMIT) -> Any:
    """The result of the condition when it is true."""
    stop = time.monotonic() + limit
    while time.monotonic() < stop:
        if found := condition():
            return found
        time.sleep(0.1)
    raise AssertionError(f"{what} has not come about in {limit:g} s")


def count_of(world: World, topic: str) -> int:
    """How many records are committed; cheaper than to read them only where there are few."""
    return len(world.records(topic))
