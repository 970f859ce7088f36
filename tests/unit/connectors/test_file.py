"""Files as streams: what is in them comes out, bad lines are counted, files that grow are followed."""

from __future__ import annotations

import asyncio
import gzip
import os
import random
import threading
from datetime import datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from tests.unit.connectors.helpers import all_of, points, run, some_of, until

import slackline as sl
from slackline.connectors import AdapterError, FileStream, Junction
from slackline.core.errors import ConfigError, SchemaError, SlacklineError

POLL = 0.005


def read(path: Path, **options: Any) -> tuple[list[sl.Event], FileStream]:
    stream = FileStream(path, **{"ts": "ts", **options})
    return run(all_of(stream)), stream


def table(*times: Any, **columns: list[Any]) -> pa.Table:
    return pa.table({"ts": list(times), **columns})


def test_csv_is_read(tmp_path: Path) -> None:
    path = tmp_path / "door.csv"
    path.write_text('ts,open,who,x\n1,true,"Ann, B",0.5\n2,false,"say ""hi""",\n', "utf-8")
    found, stream = read(path)
    assert found == [
        sl.Event("door", ts=1, source="door", open="true", who="Ann, B", x=0.5),
        sl.Event("door", ts=2, source="door", open="false", who='say "hi"', x=None),
    ]
    assert stream.counts() == {"taken": 2, "rejected": 0, "reopened": 0}


def test_all_kinds_of_files_say_the_same(tmp_path: Path) -> None:
    pq.write_table(table(3, 5, nr=[0, 1], kind=["in", "out"], x=[1, 2]), tmp_path / "a.parquet")
    csv = "\ufeffts,nr,kind,x\r\n3,0,in,1\r\n\r\n5,1,out,2"  # a mark at the start, a blank line, no newline at the end
    lines = '{"ts": 3, "nr": 0, "kind": "in", "x": 1}\n\n{"x": 2, "ts": 5, "nr": 1, "kind": "out"}'
    (tmp_path / "a.csv").write_bytes(csv.encode())
    (tmp_path / "a.jsonl").write_text(lines)
    for name, content in (("a.csv.gz", csv), ("a.jsonl.gz", lines)):
        (tmp_path / name).write_bytes(gzip.compress(content.encode()))
    wanted = [sl.Event("in", ts=3, source="a", seq=0, x=1), sl.Event("out", ts=5, source="a", seq=1, x=2)]
    for name in ("a.csv", "a.jsonl", "a.parquet", "a.csv.gz", "a.jsonl.gz"):
        assert read(tmp_path / name, type_field="kind", seq="nr")[0] == wanted, name


def test_name_and_type_can_be_given(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("ts\n1\n")
    assert read(tmp_path / "a.csv", name="hall", type="open")[0] == [sl.Event("open", ts=1, source="hall")]
    with pytest.raises(ConfigError, match="exclude each other"):
        FileStream(tmp_path / "a.csv", ts="ts", type="open", type_field="kind")


def test_arrow_time_stamps_become_integers_of_the_unit(tmp_path: Path) -> None:
    moment = datetime(1970, 1, 1, 0, 0, 2)
    for resolution in ("s", "ms", "us", "ns"):
        pq.write_table(pa.table({"ts": pa.array([moment, None], pa.timestamp(resolution))}), tmp_path / "a.parquet")
        found, stream = read(tmp_path / "a.parquet", unit="ms")
        assert [event.ts for event in found] == [2000]
        assert [(each.place, each.reason) for each in stream.rejected] == [
            ("a.parquet, row 2", "the time stamp is missing")
        ]


@pytest.mark.parametrize("resolution", ["s", "ms", "us"])
def test_arrow_time_stamps_beyond_the_unit_are_rejected(tmp_path: Path, resolution: str) -> None:
    moments = [datetime(2000, 1, 1), datetime(2600, 1, 1), datetime(1969, 12, 31, 23, 59, 59)]
    pq.write_table(pa.table({"ts": pa.array(moments, pa.timestamp(resolution))}), tmp_path / "a.parquet")
    found, stream = read(tmp_path / "a.parquet", unit="ns")
    assert [event.ts for event in found] == [946_684_800 * 10**9]
    assert [each.reason for each in stream.rejected] == [
        "the time stamp 19880899200000000000 is not a whole number from 0 to 2**62",
        "the time stamp -1000000000 is not a whole number from 0 to 2**62",
    ]
    assert len(read(tmp_path / "a.parquet", unit="s")[0]) == 2


def test_an_arrow_time_stamp_just_before_1970_is_not_rounded_into_it(tmp_path: Path) -> None:
    times = pa.array([-1, 1_999], pa.timestamp("us"))
    pq.write_table(pa.table({"ts": times}), tmp_path / "a.parquet")
    found, stream = read(tmp_path / "a.parquet", unit="ms")
    assert [event.ts for event in found] == [1]
    assert "-1 is not a whole number" in stream.rejected[0].reason


def test_bad_lines_are_rejected_with_their_places_and_the_stream_goes_on(tmp_path: Path) -> None:
    (tmp_path / "a.jsonl").write_bytes(
        b'{"ts": 1}\n{"ts": 2\n[3]\n{"at": 4}\n{"ts": NaN}\n{"ts": -6}\n{"ts": 7.5}\n\xff\n{"ts": 9}\n{"ts": 1'
    )
    found, stream = read(tmp_path / "a.jsonl")
    assert [event.ts for event in found] == [1, 9]
    assert [each.place for each in stream.rejected] == [f"line {n}" for n in (2, 3, 4, 5, 6, 7, 8, 10)]
    assert stream.counts() == {"taken": 2, "rejected": 8, "reopened": 0}

    (tmp_path / "a.csv").write_bytes(b'ts,x\n1,a\n2\n3,b,c\n,d\nnan,e\n6,"f\n7,g\n\xff,h\n9,"i"j\n10,')
    found, stream = read(tmp_path / "a.csv")
    assert [event.ts for event in found] == [1, 7, 10]
    assert [each.place for each in stream.rejected] == [f"line {n}" for n in (3, 4, 5, 6, 7, 9, 10)]
    assert "1 fields, but the header names 2" in stream.rejected[0].reason


def test_a_large_file_is_read_in_many_chunks(tmp_path: Path) -> None:
    count = 40_000
    (tmp_path / "a.csv").write_text("ts,x\n" + "".join(f"{i},{i % 7}\n" for i in range(count)))
    pq.write_table(table(*range(count), x=[i % 7 for i in range(count)]), tmp_path / "a.parquet")
    assert (tmp_path / "a.csv").stat().st_size > 1 << 18
    for name in ("a.csv", "a.parquet"):
        found, _ = read(tmp_path / name)
        assert [event.ts for event in found] == list(range(count))
        assert found[-1]["x"] == (count - 1) % 7


def test_a_column_that_is_missing_ends_the_stream_with_a_hint(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("tss,x\n1,2\n")
    pq.write_table(pa.table({"tss": [1]}), tmp_path / "a.parquet")
    for name in ("a.csv", "a.parquet"):
        with pytest.raises(SchemaError, match=r"no column 'ts'.*Did you mean 'tss'\?"):
            read(tmp_path / name)
    (tmp_path / "a.csv").write_text("ts,x,x\n1,2,3\n")
    with pytest.raises(SchemaError, match="several columns called x"):
        read(tmp_path / "a.csv")


def test_a_truncated_file_fails_alone_after_what_could_be_read(tmp_path: Path) -> None:
    pq.write_table(table(*range(1000)), tmp_path / "whole.parquet")
    (tmp_path / "parquet.parquet").write_bytes((tmp_path / "whole.parquet").read_bytes()[:-20])
    noise = random.Random(1)
    rows = "ts,x\n" + "".join(f"{i},{noise.randbytes(60).hex()}\n" for i in range(4000))
    (tmp_path / "gzip.csv.gz").write_bytes(gzip.compress(rows.encode())[:-2000])
    (tmp_path / "good.jsonl").write_text("".join(f'{{"ts": {i}}}\n' for i in range(0, 8000, 40)))
    out: list[sl.Event] = []
    streams = [
        FileStream(tmp_path / name, ts="ts") for name in ("parquet.parquet", "gzip.csv.gz", "good.jsonl", "missing.csv")
    ]
    stats = run(Junction(streams, out.extend).run())
    states = {name: adapter.state for name, adapter in stats.adapters.items()}
    assert states == {"parquet": "failed", "gzip": "failed", "good": "ended", "missing": "failed"}
    for name in ("parquet", "gzip", "missing"):
        assert f"cannot read {tmp_path}" in (stats.adapters[name].error or "")
    assert sum(event.source == "good" for event in out) == 200
    assert 0 < sum(event.source == "gzip" for event in out) < 4000
    assert [event.ts for event in out] == sorted(event.ts for event in out)


@pytest.mark.parametrize("name", ["a.txt", "a.csv.zip", "a.parquet.gz"])
def test_a_file_of_an_unknown_kind_is_refused(tmp_path: Path, name: str) -> None:
    with pytest.raises(ConfigError, match="cannot tell what"):
        FileStream(tmp_path / name, ts="ts")


def test_what_cannot_grow_cannot_be_followed(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="compressed"):
        FileStream(tmp_path / "a.csv.gz", ts="ts", follow=True)
    with pytest.raises(ConfigError, match="not a folder"):
        FileStream(tmp_path / "a.parquet", ts="ts", follow=True)


def follow(path: Path) -> FileStream:
    return FileStream(path, ts="ts", follow=True, poll=POLL)


def test_a_growing_file_is_followed_line_by_line(tmp_path: Path) -> None:
    async def scenario() -> None:
        path = tmp_path / "a.csv"
        out: list[sl.Event] = []
        junction = Junction([follow(path)], out.extend)  # the file is not there yet
        running = asyncio.create_task(junction.run())
        await asyncio.sleep(3 * POLL)
        with path.open("w", buffering=1) as file:
            file.write("ts,x\n1,a\n2,b")
            file.flush()
            await until(lambda: len(out) == 1)
            await asyncio.sleep(5 * POLL)
            assert len(out) == 1  # the second line has no end yet
            file.write("c\n")
            await until(lambda: len(out) == 2)
            assert out[1]["x"] == "bc"
            file.write("3")
            file.flush()
            junction.stop()
        stats = await running
        assert len(out) == 2
        assert stats.adapters["a"].counts == {"taken": 2, "rejected": 0, "reopened": 0}

    run(scenario())


def test_a_file_that_is_replaced_is_read_to_its_end_and_then_the_new_one(tmp_path: Path) -> None:
    async def scenario() -> None:
        path = tmp_path / "a.csv"
        path.write_text("ts,x\n1,a\n")
        stream = follow(path)
        iterator = aiter(stream)
        assert (await anext(iterator)).ts == 1
        with path.open("a") as file:
            file.write("2,b\n3,c")  # without a newline: the rotation ends the line
        path.rename(tmp_path / "a.csv.1")
        assert (await anext(iterator)).ts == 2
        path.write_text("x,ts\nd,4\n")  # other columns
        assert [(await anext(iterator)).ts for _ in range(2)] == [3, 4]
        assert stream.counts() == {"taken": 4, "rejected": 0, "reopened": 1}
        await iterator.aclose()

    run(scenario())


def test_a_file_that_is_cut_short_is_read_from_its_start(tmp_path: Path) -> None:
    async def scenario() -> None:
        path = tmp_path / "a.jsonl"
        path.write_text('{"ts": 1}\n{"ts": 2}\n{"ts": ')
        stream = follow(path)
        iterator = aiter(stream)
        assert [(await anext(iterator)).ts for _ in range(2)] == [1, 2]
        inode = path.stat().st_ino
        os.truncate(path, 0)
        following = asyncio.ensure_future(anext(iterator))
        await until(lambda: stream.counts()["reopened"] == 1)
        with path.open("a") as file:
            file.write('{"ts": 5}\n')
        assert path.stat().st_ino == inode
        assert (await following).ts == 5
        assert [each.reason for each in stream.rejected] == ["cut off when the file was truncated"]
        await iterator.aclose()

    run(scenario())


def test_a_folder_of_parquet_files_is_read_by_name(tmp_path: Path) -> None:
    for name, times in {"b.parquet": (4, 5), "a.parquet": (1, 2), "_c.parquet": (0,), ".d.parquet": (0,)}.items():
        pq.write_table(table(*times), tmp_path / name)
    (tmp_path / "readme.txt").write_text("no data")
    found, _ = read(tmp_path, name="all")
    assert points(found) == [(ts, "all") for ts in (1, 2, 4, 5)]
    empty = tmp_path / "empty"
    empty.mkdir()
    with pytest.raises(AdapterError, match="no Parquet file"):
        read(empty)


def test_a_folder_is_followed_as_files_are_moved_there(tmp_path: Path) -> None:
    async def scenario() -> None:
        stream = FileStream(tmp_path, ts="ts", name="f", follow=True, poll=POLL)
        iterator = aiter(stream)
        for number in range(3):
            pq.write_table(table(number), tmp_path / f"_{number}.parquet")
            (tmp_path / f"_{number}.parquet").rename(tmp_path / f"{number}.parquet")
            assert (await anext(iterator)).ts == number
        await iterator.aclose()

    run(scenario())


def test_stop_ends_the_following(tmp_path: Path) -> None:
    async def scenario() -> None:
        (tmp_path / "a.csv").write_text("ts\n1\n")
        (tmp_path / "folder").mkdir()
        out: list[sl.Event] = []
        streams = [follow(tmp_path / "a.csv"), FileStream(tmp_path / "folder", ts="ts", follow=True, poll=POLL)]
        junction = Junction(streams, out.extend)
        running = asyncio.create_task(junction.run())
        await until(lambda: junction.stats().waiting == 1)
        junction.stop()
        stats = await running
        assert points(out) == [(1, "a")]
        assert {adapter.state for adapter in stats.adapters.values()} == {"stopped"}

    run(scenario())


@pytest.mark.parametrize("name", ["a.csv", "a.jsonl.gz", "a.parquet"])
def test_what_is_no_regular_file_is_refused(tmp_path: Path, name: str) -> None:
    """A pipe without a writer would block the thread that opens it, and stop() with it."""
    os.mkfifo(tmp_path / name)
    writer = os.open(tmp_path / name, os.O_RDWR)
    unblock = threading.Timer(5, os.close, [writer])  # should somebody read all the same, it ends
    unblock.start()
    with pytest.raises(AdapterError, match="not a regular file"):
        read(tmp_path / name)
    if name == "a.csv":
        with pytest.raises(AdapterError, match="not a regular file"):
            run(some_of(follow(tmp_path / name), 1))
    unblock.cancel()
    os.close(writer)


def test_a_stream_can_be_read_again_from_its_start(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("ts\n1\n2\n3\n")
    stream = FileStream(tmp_path / "a.csv", ts="ts")
    assert [event.ts for event in run(some_of(stream, 2))] == [1, 2]
    assert [event.ts for event in run(all_of(stream))] == [1, 2, 3]


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("a.csv", b"", "a.csv has no header: the file is empty"),
        ("a.csv.gz", b"", "a.csv.gz has no header"),
        ("a.csv", bytes(range(256)), "a.csv has no header: line 1 is not CSV"),
        ("a.csv", "ts,gr\u00f6\u00dfe\n1,2\n".encode("latin-1"), "a.csv has no header: line 1 is not CSV"),
        ("a.csv", "ts\n1\n".encode("utf-16"), "a.csv has no header: line 1"),
        ("a.csv.gz", gzip.compress(b"ts\n1\n" * 1_000, mtime=0)[:-9], "cannot read .*end-of-stream"),
        ("a.csv.gz", b"ts\n1\n", "cannot read .*Not a gzipped file"),
        ("a.parquet", b"", "cannot read .*0 bytes"),
        ("a.parquet", b"PAR1" + bytes(100), "cannot read .*Parquet magic bytes"),
    ],
)
def test_a_file_that_is_not_what_its_name_says_ends_its_stream_with_a_reason(
    tmp_path: Path, name: str, content: bytes, message: str
) -> None:
    (tmp_path / name).write_bytes(content)
    with pytest.raises(SlacklineError, match=message):
        read(tmp_path / name)


def test_a_file_of_json_lines_may_be_empty(tmp_path: Path) -> None:
    (tmp_path / "a.jsonl").write_bytes(b"")
    assert read(tmp_path / "a.jsonl")[0] == []
