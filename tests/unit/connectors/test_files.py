"""Files as sources: what is in them is delivered, files that grow are followed, and reading resumes where it ended."""

from __future__ import annotations

import asyncio
import gzip
import logging
import os
import random
import threading
import time
from contextlib import aclosing
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from tests.unit.connectors.helpers import delivered, rows_of, run, times, until

from slackline.connectors import BadRecord, FileSource, SourceError
from slackline.core.errors import ConfigError, SlacklineError, StateError

POLL = 0.005


def read(path: Path, **options: Any) -> list[Any]:
    return run(delivered(FileSource(path, **options)))


def follow(path: Path) -> FileSource:
    return FileSource(path, follow=True, poll=POLL)


def table(*ts: int) -> pa.Table:
    return pa.table({"ts": list(ts)})


def test_all_formats_give_the_same_records(tmp_path: Path) -> None:
    pq.write_table(pa.table({"ts": [3, 5], "kind": ["in", "out"], "x": [1, 2]}), tmp_path / "a.parquet")
    csv = "\ufeffts,kind,x\r\n3,in,1\r\n\r\n5,out,2"  # a byte order mark, a blank line, no newline at the end
    lines = '\ufeff{"ts": 3, "kind": "in", "x": 1}\n\n{"x": 2, "ts": 5, "kind": "out"}'
    (tmp_path / "a.csv").write_bytes(csv.encode())
    (tmp_path / "a.jsonl").write_text(lines)
    for name, content in (("a.csv.gz", csv), ("a.jsonl.gz", lines)):
        (tmp_path / name).write_bytes(gzip.compress(content.encode()))
    for name in ("a.csv", "a.jsonl", "a.parquet", "a.csv.gz", "a.jsonl.gz"):
        assert read(tmp_path / name) == [{"ts": 3, "kind": "in", "x": 1}, {"ts": 5, "kind": "out", "x": 2}], name


def test_a_source_has_a_name_and_says_what_it_is(tmp_path: Path) -> None:
    source = FileSource(tmp_path / "door.csv.gz")
    assert source.name == "door" and source.bounded and not source.live
    assert source.describe() == f"file {tmp_path / 'door.csv.gz'}, read once"
    assert FileSource(tmp_path / "door.csv", name="hall").name == "hall"
    assert (
        follow(tmp_path / "a.csv").live
        and follow(tmp_path).describe() == f"folder of Parquet files {tmp_path}, followed"
    )


@pytest.mark.parametrize("ending", ["csv", "csv.gz", "jsonl", "parquet"])
def test_reading_resumes_behind_any_batch(tmp_path: Path, ending: str) -> None:
    path = tmp_path / f"a.{ending}"
    count = 120_000
    if ending == "parquet":
        pq.write_table(table(*range(count)), path)
    else:
        data = b"".join(b"%d,x\n" % i if "csv" in ending else b'{"ts": %d}\n' % i for i in range(count))
        data = b"ts,\xc3\xa4\n" + data if "csv" in ending else data
        path.write_bytes(gzip.compress(data, 1) if ending.endswith("gz") else data)

    async def scenario() -> None:
        source = FileSource(path)
        positions, ends, found = [source.position()], [0], 0
        async for batch in source.batches():
            assert len(batch) < count / 2
            found += len(batch)
            positions.append(source.position())
            ends.append(found)
        assert found == count and len(ends) > 3
        for position, end in list(zip(positions, ends, strict=True))[:: len(ends) // 3]:
            again = FileSource(path)
            again.seek(position)
            assert again.position() == position
            assert times(await delivered(again)) == list(range(end, count))

    run(scenario())


def test_bad_lines_keep_their_numbers_after_a_restart(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("ts\n" + "1\n" * 200_000 + "1,2\n")

    async def scenario() -> None:
        source = FileSource(tmp_path / "a.csv")
        async with aclosing(source.batches()) as batches:
            await anext(batches)
        again = FileSource(tmp_path / "a.csv")
        again.seek(source.position())
        assert (await delivered(again))[-1].place == "line 200002"

    run(scenario())


def test_a_file_that_was_truncated_or_is_read_another_way_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    path.write_text('{"ts": 1}\n{"ts": 2}\n')
    source = FileSource(path)
    run(delivered(source))
    position = source.position()
    with pytest.raises(StateError, match="was read once up to the checkpoint and is followed now"):
        follow(path).seek(position)
    os.truncate(path, 5)
    with pytest.raises(StateError, match="has 5 bytes and had 20 at the checkpoint"):
        FileSource(path).seek(position)
    with pytest.raises(StateError, match="not a position in a file"):
        FileSource(path).seek(17)


def test_a_file_elsewhere_is_refused_and_a_followed_one_that_was_replaced_is_read_from_its_beginning(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "b").mkdir()
    for folder in (tmp_path, tmp_path / "b"):
        (folder / "a.jsonl").write_text('{"ts": 1}\n')
    source = FileSource(tmp_path / "a.jsonl")
    run(delivered(source))
    other = FileSource(tmp_path / "b" / "a.jsonl")
    with pytest.raises(StateError, match=r"was .* at the checkpoint"):
        other.seek(source.position())
    followed = follow(tmp_path / "a.jsonl")
    run(delivered(followed, 1))
    for replace in (True, False):
        if replace:
            (tmp_path / "b" / "a.jsonl").replace(tmp_path / "a.jsonl")
        else:
            os.truncate(tmp_path / "a.jsonl", 3)
        again = follow(tmp_path / "a.jsonl")
        again.seek(followed.position())
        assert again.position() != followed.position()
    assert caplog.text.count("reading from the beginning") == 2


def test_a_followed_file_resumes_where_it_was(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    path = tmp_path / "a.csv"
    path.write_text("ts,x\n1,a\n2,b\n3")
    source = follow(path)
    assert times(run(delivered(source, 2))) == [1, 2]
    with path.open("a") as file:
        file.write(",c\n4,d\n")
    again = follow(path)
    again.seek(source.position())
    assert run(delivered(again, 2)) == [{"ts": 3, "x": "c"}, {"ts": 4, "x": "d"}]
    assert not caplog.text


def test_a_folder_of_parquet_files_is_read_by_name_and_resumes(tmp_path: Path) -> None:
    for name, ts in {"b.parquet": (4, 5), "a.parquet": (1, 2), "_c.parquet": (0,), ".d.parquet": (0,)}.items():
        pq.write_table(table(*ts), tmp_path / name)
    (tmp_path / "readme.txt").write_text("no data")
    source = FileSource(tmp_path)
    assert times(run(delivered(source))) == [1, 2, 4, 5]
    first = FileSource(tmp_path)
    run(delivered(first, 1))
    pq.write_table(table(0), tmp_path / "0.parquet")  # by its name before what was read
    again = FileSource(tmp_path)
    again.seek(first.position())
    assert times(run(delivered(again))) == [0, 4, 5]
    (tmp_path / "empty").mkdir()
    with pytest.raises(SourceError, match="no Parquet file"):
        read(tmp_path / "empty")


def test_a_folder_of_many_files_that_were_read_is_looked_at_quickly(tmp_path: Path) -> None:
    names = [f"{number:05}.parquet" for number in range(20_000)]
    for name in names:
        (tmp_path / name).touch()
    pq.write_table(table(7), tmp_path / "new.parquet")
    source = follow(tmp_path)
    source.seek({**source.position(), "place": {"done": names}})
    start = time.process_time()
    assert times(run(delivered(source, 1))) == [7]
    assert time.process_time() - start < 1.0


def test_a_folder_is_followed_as_files_are_moved_there(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with aclosing(follow(tmp_path).batches()) as batches:
            for number in range(3):
                pq.write_table(table(number), tmp_path / f"_{number}.parquet")
                (tmp_path / f"_{number}.parquet").rename(tmp_path / f"{number}.parquet")
                assert times(rows_of(await anext(batches))) == [number]

    run(scenario())


def test_a_growing_file_is_followed_line_by_line(tmp_path: Path) -> None:
    async def scenario() -> None:
        path = tmp_path / "a.csv"
        found: list[Any] = []

        async def reading() -> None:
            async for batch in follow(path).batches():
                found.extend(rows_of(batch))

        task = asyncio.create_task(reading())  # the file does not exist yet
        await asyncio.sleep(3 * POLL)
        with path.open("w", buffering=1) as file:
            file.write("ts,x\n1,a\n2,b")
            file.flush()
            await until(lambda: len(found) == 1)
            await asyncio.sleep(5 * POLL)
            assert len(found) == 1  # the second line has no end yet
            file.write("c\n")
            await until(lambda: len(found) == 2)
            assert found[1]["x"] == "bc"
        task.cancel()
        await asyncio.wait([task])

    run(scenario())


def test_a_file_that_is_replaced_is_read_to_its_end_and_then_the_new_one(tmp_path: Path) -> None:
    async def scenario() -> None:
        path = tmp_path / "a.csv"
        path.write_text("ts,x\n1,a\n")
        source = follow(path)
        async with aclosing(source.batches()) as batches:
            assert times(rows_of(await anext(batches))) == [1]
            with path.open("a") as file:
                file.write("2,b\n3,c")  # without a newline: the rotation ends the line
            path.rename(tmp_path / "a.csv.1")
            assert times(rows_of(await anext(batches))) == [2]
            path.write_text("x,ts\nd,4\n")  # other columns
            assert [times(rows_of(await anext(batches))) for _ in range(2)] == [[3], [4]]
            again = follow(path)
            again.seek(source.position())
            assert again.position() == source.position()

    run(scenario())


def test_a_file_that_is_truncated_is_read_from_its_beginning(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    async def scenario() -> None:
        path = tmp_path / "a.jsonl"
        path.write_text('{"ts": 1}\n{"ts": 2}\n{"ts": ')
        inode = path.stat().st_ino
        async with aclosing(follow(path).batches()) as batches:
            assert times(rows_of(await anext(batches))) == [1, 2]
            os.truncate(path, 0)
            (bad,) = await anext(batches)
            assert bad == BadRecord("line 3", "cut off when the file was truncated", '{"ts": ')
            with path.open("a") as file:
                file.write('{"ts": 5}\n')
            assert path.stat().st_ino == inode
            assert times(rows_of(await anext(batches))) == [5]

    with caplog.at_level(logging.WARNING, "slackline.connectors"):
        run(scenario())
    assert "source 'a'" in caplog.text and "truncated; reading from the beginning" in caplog.text


def test_what_could_be_read_of_a_broken_file_is_delivered(tmp_path: Path) -> None:
    noise = random.Random(1)
    rows = "ts,x\n" + "".join(f"{i},{noise.randbytes(60).hex()}\n" for i in range(4000))
    (tmp_path / "a.csv.gz").write_bytes(gzip.compress(rows.encode())[:-2000])

    async def scenario() -> list[Any]:
        found: list[Any] = []
        with pytest.raises(SourceError, match=r"cannot read .*end-of-stream"):
            async for batch in FileSource(tmp_path / "a.csv.gz").batches():
                found += rows_of(batch)
        return found

    found = run(scenario())
    assert 0 < len(found) < 4000 and times(found) == list(range(len(found)))


@pytest.mark.parametrize("name", ["a.txt", "a.csv.zip", "a.parquet.gz"])
def test_a_file_of_an_unknown_format_is_refused(tmp_path: Path, name: str) -> None:
    with pytest.raises(ConfigError, match=r"format of .* is unknown: the name of a file must end with one of \.csv"):
        FileSource(tmp_path / name)


def test_what_cannot_grow_cannot_be_followed(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="compressed"):
        follow(tmp_path / "a.csv.gz")
    with pytest.raises(ConfigError, match="not a folder"):
        follow(tmp_path / "a.parquet")


@pytest.mark.parametrize("name", ["a.csv", "a.jsonl.gz", "a.parquet"])
def test_what_is_no_regular_file_is_refused(tmp_path: Path, name: str) -> None:
    """A pipe without a writer would block the thread that opens it, and the shutdown with it."""
    os.mkfifo(tmp_path / name)
    writer = os.open(tmp_path / name, os.O_RDWR)
    unblock = threading.Timer(5, os.close, [writer])  # should it be read all the same, the reading ends
    unblock.start()
    with pytest.raises(SourceError, match="not a regular file"):
        read(tmp_path / name)
    if name == "a.csv":
        with pytest.raises(SourceError, match="not a regular file"):
            run(delivered(follow(tmp_path / name), 1))
    unblock.cancel()
    os.close(writer)


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("a.csv", b"", "a.csv has no header: the file is empty"),
        ("a.csv.gz", b"", "a.csv.gz has no header"),
        ("a.csv", bytes(range(256)), "a.csv has no header: line 1 is not CSV"),
        ("a.csv.gz", gzip.compress(b"ts\n1\n" * 1_000, mtime=0)[:-9], "cannot read .*end-of-stream"),
        ("a.csv.gz", b"ts\n1\n", "cannot read .*Not a gzipped file"),
        ("a.parquet", b"", "cannot read .*0 bytes"),
        ("a.parquet", b"PAR1" + bytes(100), "cannot read .*Parquet magic bytes"),
        ("a.jsonl", None, "cannot read .*No such file"),
    ],
)
def test_a_file_that_is_not_what_its_name_says_ends_the_source_with_a_reason(
    tmp_path: Path, name: str, content: bytes | None, message: str
) -> None:
    if content is not None:
        (tmp_path / name).write_bytes(content)
    with pytest.raises(SlacklineError, match=message):
        read(tmp_path / name)


def test_a_parquet_file_with_two_columns_of_one_name_is_refused(tmp_path: Path) -> None:
    pq.write_table(pa.table([pa.array([1]), pa.array([2])], names=["ts", "ts"]), tmp_path / "a.parquet")
    with pytest.raises(SlacklineError, match="several columns called ts"):
        read(tmp_path / "a.parquet")


def test_a_file_of_json_lines_may_be_empty(tmp_path: Path) -> None:
    (tmp_path / "a.jsonl").write_bytes(b"")
    assert read(tmp_path / "a.jsonl") == []
