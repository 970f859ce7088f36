"""Law 11: the same application and input give the same output records, embedded, by `run` and on Kafka.

The records are compared one by one: all fields, in the order of each key and kind. So are those of an excerpt of a
match, which Spark and processes get too (``tests/match_app.py``): ``tests/spark/test_law_11.py``,
``tests/processes/test_law_11.py``. More of Spark (streams, shards) is in ``tests/spark/test_agrees.py``, of a node in
``tests/unit/cluster/test_agrees.py``.
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest
from tests import match_app
from tests.kafka.app import hierarchy
from tests.kafka.world import SCHEMA, World, plain, readings, wait_for
from typer.testing import CliRunner

from slackline.cli import app
from slackline.runtime.keyed import KeyedEngines
from slackline.runtime.output import bad_record
from slackline.runtime.schema import Decoder, RecordSchema

pytestmark = [pytest.mark.slow, pytest.mark.kafka]

APP = str(Path(__file__).parent / "app.py")
OPTIONS = {"duplicates": "keep"}


def rows() -> list[dict[str, Any]]:
    """Shuffled readings with late events, duplicates, an unknown type, an absurd time and one without a key."""
    found = readings(1_200, shuffle=12)
    late = [{**row, "seq": 10_000 + at} for at, row in enumerate(found[50:60])]
    odd = [
        {**found[700], "type": "unknown"},
        {**found[701], "ts": 2**61, "seq": 20_001},
        {name: value for name, value in found[702].items() if name != "van"},
    ]
    return [*found[:600], *late, *found[300:330], *odd, *found[600:]]


Records = dict[tuple[Any, str], list[dict[str, Any]]]


def grouped(records: Iterable[dict[str, Any]]) -> Records:
    """Records by key and kind, in order; what has no key in any order."""
    by: Records = defaultdict(list)
    for record in records:
        by[record.get("key"), record["kind"]].append(record)
    for (key, _), each in by.items():
        if key is None:
            each.sort(key=lambda record: json.dumps(record, sort_keys=True))
    return dict(by)


@pytest.fixture(scope="module")
def embedded() -> Records:
    return embedded_records()


def embedded_records() -> Records:
    """What keyed engines in this process emit."""
    engines = KeyedEngines(hierarchy, OPTIONS)
    arrived, keys, bad = Decoder(RecordSchema(**SCHEMA), hierarchy).decode(rows())
    found = engines.push(arrived, keys) + engines.flush("stop")
    found = grouped(plain([*found, *(bad_record(one, "in") for one in bad)]))
    assert {kind for _, kind in found} == {"event", "late", "quarantine", "duplicate"}
    return found


def flushed(records: Records) -> Records:
    """Without the mark of what was flushed at the end: a file ends, a topic does not."""
    return {name: [{k: v for k, v in one.items() if k != "flushed"} for one in each] for name, each in records.items()}


def write(path: Path) -> Path:
    path.write_text("".join(json.dumps(row) + "\n" for row in rows()))
    return path


def test_run_over_a_file_agrees(embedded: Records, tmp_path: Path) -> None:
    line = ["run", APP, "--from", str(write(tmp_path / "in.jsonl")), "--to", str(tmp_path / "out"), "--key", "van"]
    done = CliRunner().invoke(app, [*line, "--unit", "us", "--duplicates", "write"])
    assert done.exit_code == 0, done.stderr
    lines = [line for file in (tmp_path / "out").glob("*.jsonl") for line in file.read_text().splitlines()]
    assert grouped(map(json.loads, lines)) == flushed(embedded)


@pytest.mark.parametrize("delivery", ["exactly-once", "at-least-once"])
def test_kafka_agrees(embedded: Records, world: World, delivery: str) -> None:
    source, sink = world.topic("in", partitions=1), world.topic("out")
    world.send(source, rows())
    host = world.host(source, sink, duplicates="write", delivery=delivery)
    events = [one for (_, kind), each in embedded.items() for one in each if kind == "event"]
    wait_for(lambda: len(world.outputs(sink)) == sum("flushed" not in one for one in events), "all output")
    world.stop(host, flush=True)
    topics = (sink, f"{sink}-late", f"{sink}-quarantine", f"{sink}-duplicates")
    assert grouped(record for topic in topics for record in world.outputs(topic)) == embedded


def test_a_match_by_run_agrees(tmp_path: Path) -> None:
    line = ["run", match_app.APP, "--from", str(match_app.write(tmp_path / "in.jsonl")), "--to", str(tmp_path / "out")]
    done = CliRunner().invoke(app, [*line, "--key", "match", *match_app.ARGUMENTS])
    assert done.exit_code == 0, done.stderr
    lines = [line for file in (tmp_path / "out").glob("*.jsonl") for line in file.read_text().splitlines()]
    assert match_app.comparable(map(json.loads, lines)) == match_app.comparable(match_app.embedded())


def test_a_match_on_kafka_agrees(world: World) -> None:
    source, sink = world.topic("in"), world.topic("out")
    world.send(source, match_app.rows())
    schema, options = RecordSchema(**match_app.SCHEMA), {"policy": match_app.POLICY}
    host = world.host(source, sink, match_app.hierarchy(), schema=schema, engine_options=options)
    due = sum("flushed" not in one for one in match_app.embedded())
    wait_for(lambda: len(world.outputs(sink)) >= due, "all output")
    world.stop(host, flush=True)
    found = [one for topic in (sink, f"{sink}-late", f"{sink}-quarantine") for one in world.outputs(topic)]
    assert match_app.comparable(found) == match_app.comparable(match_app.embedded())
