"""Law 11 on a cluster: one node and three nodes over TCP give the output records that one engine gives.

What differs, and why:

- ``change`` numbers the events that a node writes, so with several nodes each counts its own.
- ``detected_at`` is the stream time at a detector's node, which follows that of the ingress with the network's delay.
- A position counts the arrivals of a node. It is part of the id of an event on which a detector raised.
- A sensor event is late where it enters, once for all detectors; an engine by itself decides for each detector. So late
  records of a cluster name no detector, and the two agree on what is late where each sensor type has one listener.
"""

import asyncio
import json
import random

import pytest
from tests.unit.cluster.fake import LOOPBACK, NO_TLS, run

import slackline as sl
from slackline.cluster.ingress import Ingress
from slackline.cluster.links import Listener
from slackline.cluster.protocol import Node
from slackline.cluster.tcp import TcpHost
from slackline.connectors.files import FileSource
from slackline.runtime.keyed import KeyedEngines
from slackline.runtime.output import KINDS, RecordBuilder, bad_record
from slackline.runtime.schema import Decoder, RecordSchema
from slackline.runtime.sink import Sink

ROWS = 1_200
OPTIONS = {"on_error": "quarantine"}
SCHEMA = RecordSchema(unit="ms")


class Counting(sl.Detector):
    def __init__(self):
        self.n = 0

    def on_event(self, event):
        if event.payload.get("poison"):
            raise ValueError("poison")
        self.n += 1
        if self.n % self.every == 0:
            yield event.derive(self.publishes[0], n=self.n, of=event.type)


class Low(Counting):
    listens, publishes, reliable, every = ("a",), ("low",), ("a",), 1


class Other(Counting):
    listens, publishes, reliable, every = ("b",), ("other",), ("b",), 2


class Mid(Counting):
    listens, publishes, reliable, every = ("low", "other"), ("mid",), ("low", "other"), 3


class High(Counting):
    listens, publishes, reliable, every = ("mid", "low"), ("high",), ("mid", "low"), 2


class Mixed(Counting):
    """Listens to sensor types that others listen to as well."""

    listens, publishes, reliable, every = ("mid", "a", "b"), ("mixed",), ("mid", "a", "b"), 4


def one_listener_each():
    return sl.Hierarchy([Low(), Other(), Mid(), High()], clock="a")


def several_listeners():
    return sl.Hierarchy([Low(), Other(), Mid(), High(), Mixed()], clock="a")


@pytest.fixture
def recording(tmp_path):
    """Two types out of order; two events far too late, one on which detectors raise, two records that are no use."""
    chance, rows = random.Random(3), []
    for i in range(ROWS):
        delay = 4_000 if i in (702, 906) else chance.uniform(0, 60)
        row = {"ts": 10 * i, "type": "b" if i % 7 == 3 else "a", "source": f"s{i % 3}", "seq": i}
        rows.append((10 * i + delay, row | ({"poison": True} if i == 501 else {})))
    records = [row for _, row in sorted(rows, key=lambda each: each[0])]
    records[600:600] = [{"type": "a"}, {"ts": 6_000, "type": "strange", "source": "s1"}]
    path = tmp_path / "recording.jsonl"
    path.write_text("".join(f"{json.dumps(record)}\n" for record in records))
    return path


class Held(Sink):
    def __init__(self):
        self.records = []

    async def write(self, records):
        self.records += records


def on_a_cluster(make, recording, places):
    """The output records of nodes with these detectors; everything enters at the first. Plain data, by kind."""

    async def work():
        first = await Listener.at(LOOPBACK, NO_TLS)
        sinks, hosts = [], []
        for number, (name, detectors) in enumerate(places.items()):
            listener = await Listener.at(LOOPBACK, NO_TLS) if number else first
            hierarchy = make()
            node = Node(
                name, hierarchy, identity=number, ingress=() if number else hierarchy.sensor_types,
                detectors=detectors, address=str(listener.address), **OPTIONS,
            )  # fmt: skip
            ingress = None if number else Ingress([FileSource(recording)], Decoder(SCHEMA, hierarchy))
            sinks.append(Held())
            join = [first.address] if number else []
            hosts.append(TcpHost(node, listener, sinks[-1], ingress, join=join, until_end=True))
        await asyncio.gather(*(host.run() for host in hosts))
        return [record for sink in sinks for record in sink.records]

    return by_kind(run(work()))


async def arrivals(recording, hierarchy):
    """Events and bad records, batch by batch."""
    source, decoder, records = FileSource(recording), Decoder(SCHEMA, hierarchy), 0
    async for batch in source.batches():
        rows, _, bad = decoder.decode(batch, None, records + 1)
        records += len(batch)
        yield rows, [bad_record(one, source.name) for one in bad]


def by_keyed_engines(make, recording):
    async def work():
        engines, found = KeyedEngines(make(), OPTIONS, keyed=False), []
        async for rows, bad in arrivals(recording, make()):
            found += [*bad, *engines.push(rows)]
        return found + engines.close()

    return by_kind(run(work()))


def by_an_engine(make, recording):
    """An engine that decides where events enter what is late."""

    async def work():
        hierarchy = make()
        engine = sl.Engine(hierarchy, sensors=hierarchy.sensor_types, **OPTIONS)
        outputs, found = [], []
        async for rows, bad in arrivals(recording, hierarchy):
            found += bad
            outputs += engine.push(rows)
        outputs += engine.host.end(hierarchy.sensor_types)
        build, aside = RecordBuilder(None), engine.drain()
        return [*found, *build.events(outputs, 0), *build.late(aside.late), *build.quarantine(aside.quarantined)]

    return by_kind(run(work()))


def by_kind(records):
    found = {kind: [] for kind in KINDS}
    for record in records:
        found[record.kind].append(json.loads(record.json()))
    return {kind: sorted(each, key=lambda record: record["id"]) for kind, each in found.items()}


def without(records, *fields):
    """Records without some of their fields, sorted by the others."""
    bare = [{name: value for name, value in record.items() if name not in fields} for record in records]
    return sorted(bare, key=lambda record: json.dumps(record, sort_keys=True))


ONE = {"n1": ["Low", "Other", "Mid", "High", "Mixed"]}
THREE = {"n1": ["Low", "Mixed"], "n2": ["Mid"], "n3": ["High", "Other"]}


def placed(places, make):
    names = make().names
    return {node: [name for name in detectors if name in names] for node, detectors in places.items()}


@pytest.mark.parametrize("make", [one_listener_each, several_listeners])
def test_one_node_gives_the_records_of_an_engine(make, recording):
    expected = by_an_engine(make, recording)
    assert len(expected["event"]) > 1_000 and len(expected["late"]) >= 2
    assert {"not an event", "unknown type", "detector raised"} == {one["reason"] for one in expected["quarantine"]}
    assert on_a_cluster(make, recording, placed(ONE, make)) == expected


@pytest.mark.parametrize("make", [one_listener_each, several_listeners])
def test_three_nodes_give_the_records_of_an_engine(make, recording):
    expected = by_an_engine(make, recording)
    found = on_a_cluster(make, recording, placed(THREE, make))
    assert without(found["event"], "change", "detected_at") == without(expected["event"], "change", "detected_at")
    assert found["late"] == expected["late"] and found["duplicate"] == expected["duplicate"] == []
    assert without(found["quarantine"], "id") == without(expected["quarantine"], "id")


@pytest.mark.parametrize("places", [ONE, THREE], ids=["one", "three"])
def test_where_each_sensor_type_has_one_listener_nodes_agree_with_keyed_engines(places, recording):
    expected = by_keyed_engines(one_listener_each, recording)
    found = on_a_cluster(one_listener_each, recording, placed(places, one_listener_each))
    varies = () if places is ONE else ("change", "detected_at")
    assert without(found["event"], *varies) == without(expected["event"], *varies)
    assert without(found["late"], "id", "detector") == without(expected["late"], "id", "detector")
    assert {one["detector"] for one in expected["late"]} == {"Low", "Other"}
    assert without(found["quarantine"], *(() if places is ONE else ("id",))) == without(
        expected["quarantine"], *(() if places is ONE else ("id",))
    )
