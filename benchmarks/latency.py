"""From a record to an answer on Kafka: how long it takes, and what it costs to lose nothing.

    slackline bench latency --json

A broker is started, with Java and the jars that `./run` fetches. Ten vans send positions, 1000 per second in all, in
the order in which they happen, so that ordering adds next to nothing; a detector with a state makes a speed of each.
Latency is the time from a producer's send to the receipt by a ``read_committed`` consumer, of all positions that are
sent in ``--seconds`` after a warm-up, the median and the 99th percentile. What is compiled is so before.

``direct``       `slackline run` with ``--delivery exactly-once``, a process of its own
``direct_fast``  the same with ``at-least-once``
``detect``       :func:`slackline.spark.detect` in micro-batches, through Spark's own connector to Kafka (its jars, too,
                 are fetched by `./run`), with a trigger that lets one micro-batch follow the other

``lost`` and ``duplicated`` count the positions without a speed, and the speeds that came twice, over all three ways;
what came twice under exactly once is ``direct_duplicated``. ``commits``: for several intervals between transactions,
the latency and the share of a core that the host's process took (with ``--commits``).
"""

from __future__ import annotations

import argparse
import json as jsonlib
import os
import signal
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from confluent_kafka import Consumer, Producer
from confluent_kafka.admin import AdminClient, NewTopic
from tests.kafka.broker import CONNECTOR

import slackline
from _brokered import brokered, console
from _figures import parser
from slackline.compile import run_everything

VANS = 10
#: Seconds of positions behind those that are measured, so that nothing of these waits any more.
TAIL = 2.0
#: Seconds that a way may take until the first answer, and until the last.
PATIENCE = 120.0


class Measured(NamedTuple):
    """What became of the positions that were measured; ``cpu`` is the share of a core that the host took."""

    p50_ms: float
    p99_ms: float
    lost: int
    duplicated: int
    cpu: float


class Receiver:
    """Reads speeds as they are committed, and notes when."""

    def __init__(self, brokers: str, topic: str) -> None:
        self.found: list[tuple[str, int, float]] = []  # the van, the number of the position, seconds since it was sent
        self._stop = threading.Event()
        self._consumer = Consumer(
            {
                "bootstrap.servers": brokers, "group.id": f"{topic}-receiver", "auto.offset.reset": "earliest",
                "isolation.level": "read_committed", "enable.auto.commit": False, "fetch.wait.max.ms": 100,
            }
        )  # fmt: skip
        self._consumer.subscribe([topic])
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        while not self._stop.is_set():
            message = self._consumer.poll(0.1)
            now = time.time()
            if message is not None and message.error() is None:
                record = jsonlib.loads(message.value() or b"{}")
                payload = record["payload"]
                payload = jsonlib.loads(payload) if isinstance(payload, str) else payload
                self.found.append((record["key"], payload["n"], now - payload["at"] / 1e9))
        self._consumer.close()

    def close(self) -> None:
        self._stop.set()
        self._thread.join()


def send(brokers: str, topic: str, rate: int, seconds: float, start: int) -> int:
    """Positions for so long, each when it happens; the number of the next one."""
    producer = Producer({"bootstrap.servers": brokers, "linger.ms": 0})
    began, number = time.perf_counter(), start
    while (passed := time.perf_counter() - began) < seconds:
        while number - start < passed * rate:
            van, at = number % VANS, time.time_ns()
            x, y = number * 0.01, van * 100.0
            row = f'{{"type":"position","van":"v{van}","ts":{at // 1000},"source":"v{van}","seq":{number},'
            producer.produce(topic, f'{row}"x":{x},"y":{y},"at":{at}}}', key=f"v{van}")
            number += 1
        producer.poll(0)
        time.sleep(0.0005)
    producer.flush(30)
    return number


def measured(brokers: str, name: str, host: Any, rate: int, warmup: float, seconds: float) -> Measured:
    """Run one way, a context that gives the id of a process, and measure it."""
    source, sink = f"{name}-in", f"{name}-out"
    admin = AdminClient({"bootstrap.servers": brokers})
    for future in admin.create_topics([NewTopic(source, 1, 1), NewTopic(sink, 1, 1)]).values():
        future.result()
    receiver = Receiver(brokers, sink)
    with host(brokers, source, sink) as pid:
        number, stop = 0, time.monotonic() + PATIENCE
        while not receiver.found and time.monotonic() < stop:  # until it is up
            number = send(brokers, source, rate, 0.5, number)
        first = number = send(brokers, source, rate, warmup, number)
        console.print(f"{name}: measuring for {seconds:g} s")
        before = cpu_seconds(pid)
        number = send(brokers, source, rate, seconds, number)
        cpu = (cpu_seconds(pid) - before) / seconds
        last = number
        send(brokers, source, rate, TAIL, number)
        wanted, stop = last - first, time.monotonic() + PATIENCE
        while time.monotonic() < stop and len({n for _, n, _ in receiver.found if first <= n < last}) < wanted:
            time.sleep(0.2)
        time.sleep(0.5)
    receiver.close()
    times = Counter(n for _, n, _ in receiver.found if first <= n < last)
    waits = np.array([wait for _, n, wait in receiver.found if first <= n < last]) * 1000
    p50, p99 = (float(p) for p in np.percentile(waits, (50, 99))) if len(waits) else (float("nan"),) * 2
    return Measured(round(p50, 2), round(p99, 2), wanted - len(times), sum(times.values()) - len(times), round(cpu, 3))


def cpu_seconds(pid: int) -> float:
    """What a process and its children have used of cores, so far."""
    ticks = os.sysconf("SC_CLK_TCK")
    total = 0.0
    parents: dict[int, int] = {}
    used: dict[int, float] = {}
    for folder in Path("/proc").iterdir():
        if folder.name.isdigit():
            try:
                fields = (folder / "stat").read_text().rpartition(")")[2].split()
            except OSError:
                continue
            parents[int(folder.name)] = int(fields[1])
            used[int(folder.name)] = (int(fields[11]) + int(fields[12])) / ticks
    for one in used:
        up = one
        while up not in (0, pid):
            up = parents.get(up, 0)
        total += used[one] if up == pid else 0.0
    return total


def direct(delivery: str, commit: float) -> Any:
    """`slackline run`, in a process of its own."""

    @contextmanager
    def host(brokers: str, source: str, sink: str) -> Iterator[int]:
        line = [sys.executable, "-m", "slackline", "run", str(Path(__file__).with_name("_positions.py"))]
        line += ["--from", f"kafka://{brokers}/{source}", "--to", f"kafka://{brokers}/{sink}", "--unit", "us"]
        line += ["--commit-interval", str(commit)]
        line += ["--key", "van", "--group", f"{sink}-host", "--delivery", delivery, "--log", "json"]
        env = {**os.environ, "PYTHONPATH": str(Path(slackline.__file__).parents[1])}
        process = subprocess.Popen(line, env=env, stderr=subprocess.PIPE, text=True)
        log: list[str] = []
        assert process.stderr is not None
        reader = threading.Thread(target=lambda: log.extend(process.stderr or ()), daemon=True)
        reader.start()
        try:
            yield process.pid
        finally:
            process.send_signal(signal.SIGTERM)
            try:
                process.wait(60)
            except subprocess.TimeoutExpired:
                process.kill()
            if process.returncode != 0:
                console.print("".join(log[-20:]))

    return host


def micro_batches() -> Any:
    """`detect` between two topics, in a process of its own."""

    @contextmanager
    def host(brokers: str, source: str, sink: str) -> Iterator[int]:
        paths = [str(Path(slackline.__file__).parents[1]), str(Path(__file__).parent)]
        env = {**os.environ, "PYTHONPATH": os.pathsep.join(paths)}
        line = [sys.executable, str(Path(__file__).with_name("_detecting.py")), brokers, source, sink, str(CONNECTOR)]
        process = subprocess.Popen(line, env=env, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        try:
            yield process.pid
        finally:
            process.send_signal(signal.SIGTERM)
            process.wait(120)

    return host


def run(brokers: str, options: argparse.Namespace, _: Path) -> dict[str, Any]:
    """All figures."""
    run_everything(["auto"])  # what the hosts' processes load must be compiled, or the warm-up is too short
    times = (options.rate, options.warmup, options.seconds)
    figures: dict[str, Any] = {"rate": options.rate, "seconds": options.seconds, "commit": options.commit}
    ways: dict[str, Any] = {}
    if options.only != "direct":
        ways["detect"] = micro_batches()
    if options.only != "detect":
        ways |= {"direct": direct("exactly-once", options.commit)}
        ways |= {"direct_fast": direct("at-least-once", options.commit)}
    found = {name: measured(brokers, name, host, *times) for name, host in ways.items()}
    for name, one in found.items():
        figures |= {f"{name}_p50_ms": one.p50_ms, f"{name}_p99_ms": one.p99_ms, f"{name}_cpu": one.cpu}
    figures["lost"] = sum(one.lost for one in found.values())
    figures["duplicated"] = sum(one.duplicated for one in found.values())
    if "direct" in found:
        figures["direct_duplicated"] = found["direct"].duplicated
    if options.commits:
        figures["commits"] = {
            str(each): measured(brokers, f"commit-{each}", direct("exactly-once", each), *times)._asdict()
            for each in options.commits
        }
    return figures


def main(argv: list[str] | None = None) -> int:
    arguments = parser("latency", __doc__)
    arguments.add_argument("--rate", type=int, default=1000, help="positions per second")
    arguments.add_argument("--warmup", type=float, default=10.0, help="seconds before those that are measured")
    arguments.add_argument("--seconds", type=float, default=60.0, help="seconds that are measured")
    arguments.add_argument("--commit", type=float, default=0.01, help="seconds between transactions")
    arguments.add_argument("--commits", type=float, nargs="*", default=[], help="intervals to compare, in seconds")
    arguments.add_argument("--only", choices=("direct", "detect"), help="leave out the other")
    return brokered(arguments.parse_args(argv), run)


if __name__ == "__main__":
    sys.exit(main())
