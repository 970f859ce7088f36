"""A Kafka broker of our own, for tests and benchmarks: one node, KRaft, in a folder that goes with it.

Its jars are where ``./run`` puts them, or where ``SLACKLINE_KAFKA_JARS`` says.
"""

from __future__ import annotations

import base64
import os
import shutil
import signal
import socket
import subprocess
import sys
import time
import uuid
from pathlib import Path

from confluent_kafka import Consumer, KafkaError, KafkaException, Message, TopicPartition

#: Where ./run puts the jars: those of a broker, and those of Spark's connector.
_PLACE = Path(os.environ.get("SLACKLINE_KAFKA_JARS", Path(sys.prefix) / "kafka"))
JARS, CONNECTOR = _PLACE / "broker", _PLACE / "connector"

PROPERTIES = """
process.roles=broker,controller
node.id=1
controller.quorum.bootstrap.servers=127.0.0.1:{controller}
listeners=PLAINTEXT://127.0.0.1:{port},CONTROLLER://127.0.0.1:{controller}
advertised.listeners=PLAINTEXT://127.0.0.1:{port}
controller.listener.names=CONTROLLER
inter.broker.listener.name=PLAINTEXT
log.dirs={folder}/data
offsets.topic.num.partitions=4
offsets.topic.replication.factor=1
transaction.state.log.num.partitions=4
transaction.state.log.replication.factor=1
transaction.state.log.min.isr=1
share.coordinator.state.topic.replication.factor=1
share.coordinator.state.topic.min.isr=1
default.replication.factor=1
group.initial.rebalance.delay.ms=0
group.min.session.timeout.ms=1000
auto.create.topics.enable=false
"""

_START = ["-Xmx256m", "-Xms128m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1"]


def why_not() -> str | None:
    """Why there can be no broker; None if there can be one."""
    if not any(JARS.glob("kafka_2.13-*.jar")):
        return f"no jars of a Kafka broker in {JARS}; `./run test` fetches them{_when_fetched()}"
    if _java() is None:
        return "no Java for a Kafka broker"
    return None


def _when_fetched() -> str:
    """Why they did not come when ``./run`` last tried."""
    why = _PLACE / "why_not"
    return f"; when it tried: {why.read_text()}" if why.exists() else ""


def _java() -> str | None:
    home = os.environ.get("JAVA_HOME")
    return f"{home}/bin/java" if home else shutil.which("java")


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


class LocalBroker:
    """A broker that can be stopped and started again, with all that it keeps."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.port = free_port()
        self.address = f"127.0.0.1:{self.port}"
        folder.mkdir(parents=True, exist_ok=True)
        text = PROPERTIES.format(port=self.port, controller=free_port(), folder=folder)
        (folder / "server.properties").write_text(text)
        # The first letter is ours: one that begins with a dash would be taken for an option.
        name = "s" + base64.urlsafe_b64encode(uuid.uuid4().bytes).decode()[1:22]
        self._run("kafka.tools.StorageTool", "format", "--standalone", "-t", name, "-c", self._properties)
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def _properties(self) -> str:
        return str(self.folder / "server.properties")

    def _line(self, *arguments: str) -> list[str]:
        return [str(_java()), *_START, "-cp", f"{JARS}/*", *arguments]

    def _run(self, *arguments: str) -> None:
        done = subprocess.run(self._line(*arguments), capture_output=True, text=True, check=False, timeout=120)
        assert done.returncode == 0, done.stdout + done.stderr

    def start(self) -> None:
        """Returns when it answers."""
        with open(self.folder / "broker.log", "ab") as log:
            line = self._line("kafka.Kafka", self._properties)
            self._process = subprocess.Popen(line, stdout=log, stderr=log, cwd=self.folder)
        stop = time.monotonic() + 120
        while time.monotonic() < stop and self._process.poll() is None:
            with socket.socket() as probe:
                if probe.connect_ex(("127.0.0.1", self.port)) == 0:
                    return
            time.sleep(0.1)
        self.stop()
        raise AssertionError(f"the broker did not come up: {(self.folder / 'broker.log').read_text()[-2000:]}")

    def stop(self) -> None:
        """Returns when it is gone."""
        if self._process is not None:
            self._process.send_signal(signal.SIGTERM)
            try:
                self._process.wait(60)
            except subprocess.TimeoutExpired:
                self._process.kill()
                self._process.wait()
            self._process = None


def _end(consumer: Consumer, place: TopicPartition) -> int:
    for _ in range(50):
        try:
            return int(consumer.get_watermark_offsets(place, timeout=10)[1])
        except KafkaException:  # a new topic has no leader yet
            time.sleep(0.1)
    raise AssertionError(f"{place} has no leader")


def committed(brokers: str, topic: str) -> list[Message]:
    """All that is committed in a topic by now, though more may follow all the time."""
    consumer = Consumer(
        {
            "bootstrap.servers": brokers, "group.id": "nobody", "enable.auto.commit": False,
            "auto.offset.reset": "earliest", "isolation.level": "read_committed", "enable.partition.eof": True,
        }
    )  # fmt: skip
    numbers = list(consumer.list_topics(topic, timeout=10).topics[topic].partitions)
    ends = {nr: _end(consumer, TopicPartition(topic, nr)) for nr in numbers}
    consumer.assign([TopicPartition(topic, nr, 0) for nr in numbers])
    found: list[Message] = []
    while ends:
        for message in consumer.consume(1000, 0.1):
            error, nr = message.error(), message.partition() or 0
            if error is None:
                found.append(message)
            if (error is None and (message.offset() or 0) >= ends.get(nr, 0) - 1) or (
                error is not None and error.code() == KafkaError._PARTITION_EOF
            ):
                ends.pop(nr, None)
    consumer.close()
    return found
