import asyncio
import json

import pyarrow as pa
import pytest
from tests.unit.cluster.fake import run, until

from slackline.cluster import ingress as ingress_module
from slackline.cluster.ingress import MAX_ROWS, STEP, Ingress, Part, TablesSource, part_of
from slackline.connectors.files import FileSource
from slackline.core.detector import Detector
from slackline.core.errors import ConfigError, StateError
from slackline.core.hierarchy import Hierarchy
from slackline.core.types import EventType
from slackline.runtime.forms import events_of
from slackline.runtime.schema import Decoder, RecordSchema
from slackline.runtime.source import Source, SourceError
from slackline.runtime.worker import LOOK


class Both(Detector):
    listens = ("a", "b")

    def on_event(self, event): ...


HIERARCHY = Hierarchy([Both()], clock="a")


def table(ts, **columns):
    return pa.table({"ts": pa.array(ts, pa.int64()), **columns})


def of_tables(*tables, **options):
    return Ingress([TablesSource(lambda: tables)], None, **options)


def of_sources(sources, **options):
    return Ingress(sources, Decoder(RecordSchema(unit="ms"), HIERARCHY), **options)


class Records(Source):
    """Delivers batches of records; ``"wait"`` among them waits for ever, an exception is raised."""

    def __init__(self, name, *batches, live=True):
        self.name, self.live, self.bounded = name, live, not live
        self._batches = batches

    async def batches(self):
        for batch in self._batches:
            if isinstance(batch, Exception):
                raise batch
            if batch == "wait":
                await asyncio.Event().wait()
            yield batch


async def read(ingress):
    """Read as much as there is room for."""
    ingress.start(lambda: None)
    for _ in range(200):
        await asyncio.sleep(0)
    return ingress


def taken(ingress, *times):
    """Rows taken at each of these times."""
    return [0 if (found := ingress.take(now)) is None else len(found.rows) for now in times]


def rows_of(found):
    return events_of(found.rows) if isinstance(found.rows, pa.Table) else found.rows


def ts_of(found):
    return [event.ts for event in rows_of(found)]


# Pace.


def test_rows_come_when_their_event_times_say():
    async def work():
        ingress = await read(of_tables(table([100, 110, 150]), table([160, 1100]), speed=1, ts_per_second=100))
        assert taken(ingress, 50.0, 50.2, 50.55, 51.0) == [1, 1, 1, 1]
        assert not ingress.has_ended
        assert taken(ingress, 60.5) == [1] and ingress.has_ended and ingress.taken == 5
        assert ingress.take(99.0) is None and ingress.next_at(99.0) is None

    run(work())


def test_a_row_out_of_order_comes_with_the_one_before_it():
    async def work():
        ingress = await read(of_tables(table([100, 200]), table([120, 210]), speed=1, ts_per_second=100))
        assert taken(ingress, 0.0, 0.5, 1.0, 1.05, 1.1) == [1, 0, 2, 0, 1]

    run(work())


def test_speed_makes_it_faster():
    async def work():
        ingress = await read(of_tables(table(range(0, 1000, 10)), speed=10, ts_per_second=100))
        assert taken(ingress, 0.0, 0.5) == [1, 50]

    run(work())


def test_rows_come_in_steps_and_not_one_by_one():
    async def work():
        ingress = await read(of_tables(table(range(1000)), speed=1, ts_per_second=1000))
        assert taken(ingress, 0.0, 0.001, 0.01, STEP, 1.5 * STEP) == [1, 0, 0, 20, 0]
        assert ingress.next_at(1.5 * STEP) == 2 * STEP

    run(work())


@pytest.mark.parametrize("sizes", [[1000], [1] * 1000, [7] * 143], ids=["whole", "row by row", "in sevens"])
def test_where_rows_are_cut_depends_on_event_times_alone(sizes):
    async def work():
        starts = [sum(sizes[:i]) for i in range(len(sizes))]
        tables = [table(range(start, min(1000, start + size))) for start, size in zip(starts, sizes, strict=True)]
        ingress = await read(of_tables(*tables, speed=1, ts_per_second=1000))
        for _ in range(3000):
            await asyncio.sleep(0)
        assert taken(ingress, 0.0, STEP, 2.5 * STEP, 3 * STEP) == [1, 20, 20, 20]

    run(work())


def test_an_ingress_that_is_behind_catches_up_and_knows_its_lag():
    async def work():
        ingress = await read(of_tables(table(range(20_000)), speed=1, ts_per_second=10_000))
        assert taken(ingress, 0.0, 1.0) == [1, MAX_ROWS]
        assert ingress.next_at(1.0) == 1.0 and ingress.lag(1.0) == pytest.approx(0.5, abs=0.001)
        assert taken(ingress, 1.0) == [MAX_ROWS]
        assert ingress.lag(1.0) == pytest.approx(0.0, abs=0.001)

    run(work())


def test_without_a_speed_rows_come_as_they_are_asked_for():
    async def work():
        ingress = await read(of_tables(table([]), table(range(MAX_ROWS + 1)), table([5])))
        assert taken(ingress, 0.0, 0.0, 0.0) == [MAX_ROWS, 2, 0]
        assert ingress.has_ended

    run(work())


def test_live_input_cannot_be_paced():
    with pytest.raises(ConfigError, match="applies to recordings, and http is a live source"):
        of_sources([Records("http")], speed=1.0)


# Positions.


def test_rows_of_an_earlier_run_are_not_read_again():
    async def work():
        ingress = await read(of_tables(table([1, 2]), table([3, 4]), table([5]), saved={"recording": [2, 2, 2, 1, 0]}))
        assert ts_of(ingress.take(0.0)) == [4, 5] and ingress.taken == 5 and ingress.has_ended
        assert ingress.save() == {"recording": [5, 5, 5, 0, 0]}

    run(work())


def test_rows_of_types_that_enter_elsewhere_are_left_out_but_counted():
    async def work():
        ingress = await read(of_tables(table([1, 2, 3], type=["a", "b", "a"]), elsewhere=["b"]))
        assert ts_of(ingress.take(0.0)) == [1, 3] and ingress.taken == 3
        events = [{"type": kind, "ts": ts, "x": {}} for ts, kind in enumerate("abxa", 1)]
        ingress = await read(of_sources([Records("r", events)], elsewhere=["b"]))
        assert ts_of(ingress.take(0.0)) == [1, 3, 4], "an unknown type is the quarantine's business"

    run(work())


def write(path, times):
    path.write_text("ts,type,n\n" + "".join(f"{ts},a,{n}\n" for n, ts in enumerate(times)))
    return FileSource(path)


@pytest.mark.parametrize("stop", [1, 3, 77, 400, 599])
def test_files_are_merged_by_event_time_and_resume_at_any_row(tmp_path, stop, monkeypatch):
    monkeypatch.setattr(ingress_module, "MAX_ROWS", stop)

    def sources():
        return [
            write(tmp_path / f"{name}.csv", (10 * i + 3 * (i % 4) + k for i in range(200)))
            for k, name in enumerate("xyz")
        ]

    async def work():
        whole = []
        ingress = of_sources(sources())
        ingress.start(lambda: None)
        await until(lambda: all(task.done() for task in ingress._reader._tasks))
        while not ingress.has_ended:
            whole += [(event.source, event.ts) for event in rows_of(ingress.take(0.0))]
        assert len(whole) == 600 and len(set(whole)) == 600

        first = of_sources(sources())
        first.start(lambda: None)
        await until(lambda: all(task.done() for task in first._reader._tasks))
        seen = [(event.source, event.ts) for event in rows_of(first.take(0.0))]
        saved = json.loads(json.dumps(first.save()))
        await first.close()
        assert len(seen) == stop

        then = of_sources(sources(), saved=saved)
        then.start(lambda: None)
        await until(lambda: all(task.done() for task in then._reader._tasks))
        while not then.has_ended:
            seen += [(event.source, event.ts) for event in rows_of(then.take(0.0))]
        assert seen == whole

    run(work())


def test_a_source_that_is_gone_is_an_error():
    with pytest.raises(StateError, match="positions of other, which is not an input now"):
        of_tables(table([1]), saved={"other": [1, 1, 1, 0, 0]})


# Back pressure and failures.


def test_reading_pauses_while_nothing_is_taken(monkeypatch):
    monkeypatch.setattr(ingress_module, "ROOM", 100)

    async def work():
        ingress = await read(of_tables(*(table(range(10 * i, 10 * i + 10)) for i in range(1000))))
        assert ingress.waiting == 100
        assert taken(ingress, 0.0) == [100]
        await asyncio.sleep(0.01)
        assert ingress.waiting == 100

    run(work())


def test_what_arrived_before_a_failure_is_taken_first():
    async def work():
        ingress = await read(of_sources([Records("http", [{"ts": 1, "type": "a"}], SourceError("broken"))]))
        assert not ingress.has_ended and taken(ingress, 0.0) == [1]
        with pytest.raises(SourceError, match="broken"):
            _ = ingress.has_ended

    run(work())


def test_records_that_are_no_events_come_with_their_place():
    async def work():
        ingress = await read(of_sources([Records("http", [{"ts": 1, "type": "a"}, {"type": "a"}], [{"ts": "?"}])]))
        found = ingress.take(0.0)
        assert len(found.rows) == 1 and [(name, bad.place) for name, bad in found.bad] == [
            ("http", "record 2"),
            ("http", "record 3"),
        ]
        assert ingress.taken == 3

    run(work())


class Resumable(Records):
    """Records with a position."""

    def __init__(self, name, *batches, live=True, partitioned=False):
        super().__init__(name, *batches, live=live)
        self.partitioned = partitioned
        self.delivered = 0

    async def batches(self):
        async for batch in super().batches():
            self.delivered += 1
            yield batch

    def position(self):
        return self.delivered


@pytest.mark.parametrize(
    ("sources", "repeatable"),
    [
        ([{}], True),
        ([{"partitioned": True}], False),
        ([{}, {}], False),
        ([{"live": False}, {"live": False}], True),
        ([{"live": False}, {}], False),
    ],
)
def test_rows_are_repeatable_only_if_they_are_read_again_in_the_same_order(sources, repeatable):
    async def work():
        made = [Resumable(f"s{n}", [{"ts": n, "type": "a"}], "wait", **each) for n, each in enumerate(sources)]
        ingress = await read(of_sources(made))
        assert ingress.take(0.0).repeatable is repeatable

    run(work())


# Arrival time.


def test_arrival_time_is_evidence_once_the_backlog_is_read_and_passes_while_nothing_arrives():
    async def work():
        more = asyncio.Event()

        class Slow(Records):
            async def batches(self):
                yield [{"ts": 5, "type": "a"}]
                await more.wait()
                yield [{"ts": 6, "type": "a"}]

        ingress = await read(of_sources([Slow("http")], wall=lambda: 70.0))
        found = ingress.take(0.0)
        assert (len(found.rows), found.wall, found.repeatable) == (1, None, False)
        assert ingress.take(0.1) is None and ingress.next_at(0.1) == LOOK
        found = ingress.take(LOOK)
        assert (len(found.rows), found.wall) == (0, 70_000)
        more.set()
        await until(lambda: ingress.waiting)
        found = ingress.take(LOOK + 0.01)
        assert (len(found.rows), found.wall) == (1, 70_000)

    run(work())


def test_arrival_time_is_no_evidence_where_a_recording_is_read_too(tmp_path):
    async def work():
        sources = [write(tmp_path / "x.csv", [1]), Records("http", [{"ts": 5, "type": "a"}], "wait")]
        ingress = await read(of_sources(sources))
        await until(lambda: ingress.waiting == 2)
        assert ingress.take(0.0).wall is None and ingress.take(9.0) is None and ingress.next_at(9.0) is None

    run(work())


def test_on_shutdown_what_cannot_be_read_again_is_taken(tmp_path):
    async def work():
        sources = [write(tmp_path / "x.csv", [1, 2, 3]), Records("http", [{"ts": 5, "type": "a"}], "wait")]
        ingress = await read(of_sources(sources))
        await until(lambda: ingress.waiting == 4)
        assert ts_of(ingress.drain()) == [5] and ingress.waiting == 0
        assert ingress.save()["x"][1] == 0
        await ingress.close()

    run(work())


# Parts.


class InTwo(Detector):
    listens = (EventType("door", source="place", x=float), "a", "b")

    def on_event(self, event): ...


IN_PARTS = Hierarchy([InTwo()], clock="a").in_parts({"a": 2, "door": 2})
SOURCES = [f"s{i}" for i in range(9)]


def of_part(number, ingress=("a",)):
    return Part.of(IN_PARTS, [f"{kind}/{number}" for kind in ingress])


@pytest.mark.parametrize("form", ["events", "tables", "dictionary"])
def test_of_input_without_partitions_each_part_has_the_rows_of_some_sources(form):
    def made(number):
        rows = [{"type": "a", "ts": ts, "source": SOURCES[ts % 9]} for ts in range(90)]
        if form == "events":
            return of_sources([Records("r", rows)], part=of_part(number))
        names = pa.array([row["source"] for row in rows])
        names = names.dictionary_encode() if form == "dictionary" else names
        return of_tables(table([row["ts"] for row in rows], source=names), part=of_part(number))

    async def work():
        halves = [(await read(made(number))).take(0.0) for number in (0, 1)]
        first, second = (rows_of(half) for half in halves)
        assert sorted(event.ts for event in (*first, *second)) == list(range(90))
        sources = [{event.source for event in half} for half in (first, second)]
        assert not sources[0] & sources[1] and all(sources)
        assert all(part_of(event.source, 2) == 1 for event in second)

    run(work())


def test_rows_without_a_source_and_bad_records_are_of_one_part():
    async def work():
        for number, rows, wrong in ((0, [1, 2], 1), (1, [], 0)):
            records = Records("r", [{"type": "a", "ts": 1}, {"type": "a", "ts": 2}, {}])
            found = (await read(of_sources([records], part=of_part(number)))).take(0.0)
            assert (ts_of(found), len(found.bad)) == (rows, wrong)

    run(work())


def test_the_source_of_a_row_may_be_in_a_column_that_its_type_declares():
    async def work():
        ts, kinds = list(range(20)), ["a", "door"] * 10
        columns = {"type": kinds, "place": [SOURCES[at % 7] for at in ts], "source": [SOURCES[at % 5] for at in ts]}
        seen = []
        for number in (0, 1):
            found = (await read(of_tables(table(ts, **columns), part=of_part(number, ("a", "door"))))).take(0.0)
            for row in found.rows.to_pylist():
                seen.append(row["ts"])
                assert part_of(row["place" if row["type"] == "door" else "source"], 2) == number
        assert sorted(seen) == ts

    run(work())


class Partitioned(Records):
    partitioned = True
    taken = None

    def take_part(self, part, parts):
        self.taken = part, parts

    def position(self):
        return 0


def test_a_source_with_partitions_reads_its_share_of_them():
    async def work():
        source = Partitioned("topic", [{"type": "a", "ts": ts, "source": SOURCES[ts]} for ts in range(9)])
        found = (await read(of_sources([source], part=of_part(1)))).take(0.0)
        assert source.taken == (1, 2) and len(found.rows) == 9
        with pytest.raises(ConfigError, match="topic has partitions, and the other input has none"):
            of_sources([source, Records("r")], part=of_part(1))

    run(work())


def test_batches_of_a_source_with_partitions_are_taken_as_a_whole():
    """The checkpoint's position is between them: which partition follows after a restart is not certain."""

    async def work():
        batches = [[{"type": "a", "ts": ts} for ts in range(size)] for size in (3_000, 4_000, 100, 4_096)]
        ingress = await read(of_sources([Partitioned("topic", *batches)]))
        assert taken(ingress, 0.0, 0.0, 0.0) == [3_000, 4_100, 4_096]

    run(work())


def test_parts_that_cannot_enter_at_one_node_are_refused():
    assert Part.of(IN_PARTS, ["b"]) is None and Part.of(IN_PARTS, []) is None
    with pytest.raises(ConfigError, match="--ingress a/0,a/1: several parts"):
        Part.of(IN_PARTS, ["a/0", "a/1"])
    for other in ("door/0", "b"):
        with pytest.raises(ConfigError, match="a node reads the same share of all its input"):
            Part.of(IN_PARTS, ["a/1", other])
