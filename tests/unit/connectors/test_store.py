"""Results and checkpoints on file systems without locks, appends and atomic replacement."""

from __future__ import annotations

import json
import random
import threading
from pathlib import Path
from typing import Any

import pytest
from tests.unit.connectors.helpers import run

from slackline.connectors import FileSink, OutputRecord, store
from slackline.connectors.addresses import open_sink
from slackline.connectors.files import CopyingSink, FolderInUseError
from slackline.connectors.store import Store, StoreLease, StoreSink
from slackline.core.errors import ConfigError, StateError
from slackline.runtime.checkpoint import Checkpoint
from slackline.runtime.sink import FencedError, SinkError


@pytest.fixture
def folder(tmp_path: Path) -> Store:
    """A folder that is known by a URI, as one on a file system elsewhere."""
    return Store.of(f"file://{tmp_path}/results")


def record(kind: str, number: int) -> OutputRecord:
    return OutputRecord(kind=kind, id=f"{kind}/{number}", ts=number, payload={"x": number})


def ids(folder: Store, name: str = "outputs") -> list[str]:
    """The results, in order, as a reader of the folder finds them."""
    files = folder.child(name)
    return [json.loads(line)["id"] for each in sorted(files.names()) for line in (files.read(each) or b"").splitlines()]


def saved(number: int) -> Checkpoint:
    return Checkpoint("run", {"sources": {"a": number}}, [b"engine"])


def number_of(checkpoint: Checkpoint | None) -> int | None:
    return None if checkpoint is None else checkpoint.header["sources"]["a"]


def test_results_are_segments_and_those_behind_the_last_checkpoint_are_discarded(folder: Store) -> None:
    sink = StoreSink(folder)
    assert sink.commits and sink.open() is None
    for number in range(3):
        run(sink.write([record("event", number), record("duplicate", number)]))
        sink.commit(saved(number))
    sink.commit(saved(3))  # nothing to write: no segment
    run(sink.write([record("event", 7), record("late", 7)]))
    run(sink.close())  # as a crash would: without another checkpoint
    again = StoreSink(folder)
    found = again.open()
    assert number_of(found) == 3 and found is not None and list(found.pieces) == [b"engine"]
    run(again.write([record("event", 3)]))
    again.commit(saved(4))
    assert sorted(folder.child("outputs").names()) == [
        *(f"000001-0000000{number}.jsonl" for number in range(3)),
        "000002-00000000.jsonl",
    ]
    assert ids(folder) == [f"event/{number}" for number in range(4)] and ids(folder, "late") == []
    assert folder.child("checkpoints").names() == ["2-1"] and not folder.child("duplicates").exists()
    run(again.close())


def test_the_last_process_has_the_folder_and_the_former_is_fenced(folder: Store) -> None:
    former, successor = StoreSink(folder), StoreSink(folder)
    former.open()
    run(former.write([record("event", 0)]))
    former.commit(saved(0))
    run(former.write([record("event", 1)]))
    assert number_of(successor.open()) == 0 and former.is_fenced and not successor.is_fenced
    run(successor.write([record("event", 1)]))
    successor.commit(saved(1))
    with pytest.raises(FencedError, match="another process has taken over"):
        former.commit(saved(5))
    assert ids(folder) == ["event/0", "event/1"]
    assert number_of(successor.last_checkpoint()) == 1
    assert folder.child("checkpoints").names() == ["2-1"]


def test_a_checkpoint_that_the_successor_has_read_counts_although_its_writer_is_fenced(
    folder: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    former, successor = StoreSink(folder), StoreSink(folder)
    former.open()
    run(former.write([record("event", 0)]))
    looked = StoreLease.is_fenced.fget
    assert looked is not None
    taken: list[Any] = []

    def look(lease: StoreLease) -> bool:
        if not taken:  # between the checkpoint and the look at the claims
            taken.append(None)
            taken.append(successor.open())
        return looked(lease)

    monkeypatch.setattr(StoreLease, "is_fenced", property(look))
    with pytest.raises(FencedError):
        former.commit(saved(0))
    assert number_of(taken[1]) == 0
    run(successor.write([record("event", 1)]))
    successor.commit(saved(1))
    assert ids(folder) == ["event/0", "event/1"]


def test_a_successor_that_dies_before_its_first_checkpoint_takes_nothing_away(folder: Store) -> None:
    first, second, third = StoreSink(folder), StoreSink(folder), StoreSink(folder)
    first.open()
    for number in range(2):
        run(first.write([record("event", number)]))
        first.commit(saved(number))
    assert number_of(second.open()) == 1
    run(second.write([record("event", 2)]))
    run(second.close())
    assert number_of(third.open()) == 1
    third.commit(saved(2))
    assert ids(folder) == ["event/0", "event/1"]


def test_a_fresh_start_discards_results_and_checkpoint(folder: Store) -> None:
    sink = StoreSink(folder, True)
    sink.open()
    run(sink.write([record("event", 0), record("duplicate", 0)]))
    sink.commit(saved(0))
    run(sink.close())
    again = open_sink(str(folder), duplicates=True, fresh=True)
    assert again.open() is None and "duplicates/" in again.describe()
    again.commit(saved(1))
    assert ids(folder) == ids(folder, "duplicates") == []


def test_a_fresh_start_needs_nothing_of_what_it_discards(folder: Store) -> None:
    sink = StoreSink(folder)
    sink.open()
    run(sink.write([record("event", 0)]))
    sink.commit(saved(0))
    folder.child("outputs").delete("000001-00000000.jsonl")
    again = StoreSink(folder, fresh=True)
    assert again.open() is None
    run(again.write([record("event", 1)]))
    again.commit(saved(1))
    assert ids(folder) == ["event/1"] and number_of(StoreSink(folder).open()) == 1


def test_what_is_missing_or_of_another_kind_is_refused(folder: Store) -> None:
    sink = StoreSink(folder)
    sink.open()
    run(sink.write([record("event", 0)]))
    sink.commit(saved(0))
    with pytest.raises(StateError, match=r"kind|run"):
        StoreSink(folder, kind="node").open()
    folder.child("outputs").delete("000001-00000000.jsonl")
    with pytest.raises(StateError, match=r"000001-00000000.jsonl at the last checkpoint: results are missing"):
        StoreSink(folder).open()


def test_a_folder_and_another_sink(folder: Store, tmp_path: Path) -> None:
    for number in range(2):  # the first process dies behind its checkpoint
        sink = CopyingSink(StoreSink(folder), FileSink(tmp_path / f"copy{number}.jsonl"))
        assert number_of(sink.take_over()) == (0 if number else None)
        run(sink.write([record("event", number)]))
        sink.commit(saved(number))
        run(sink.write([record("event", number + 1)]))
        run(sink.close())
    assert ids(folder)[:2] == ["event/0", "event/1"]


@pytest.mark.parametrize(
    ("uri", "message"),
    [
        ("ftp://host/x", "cannot be opened: Unrecognized filesystem type in URI"),
        ("s3://key:secret@bucket/x?colour=1", r"s3://\*\*\*@bucket/x\?colour=1 cannot be opened"),
        ("hdfs://host:1/x", "for HDFS libhdfs and Java"),
    ],
)
def test_a_uri_that_cannot_be_opened_says_what_is_needed(uri: str, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        Store.of(uri)


def test_a_folder_that_cannot_be_written_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(SinkError, match="cannot write"):
        StoreSink(Store.of(f"file://{tmp_path}/file/results")).open()


def test_a_path_and_a_uri_are_the_same_folder(tmp_path: Path) -> None:
    one, other = Store.of(tmp_path / "a"), Store.of(f"file://{tmp_path}/a")
    assert one.is_local and not other.is_local and not one.exists() and one.read("x") is None and one.names() == []
    assert one.write("x", [b"1", b"23"]) == 3
    assert other.read("x") == b"123" and other.names() == ["x"] and other.child("b").path == one.child("b").path
    other.delete("x", "y")
    assert one.names() == []


# Leases.


def test_of_processes_that_take_over_at_once_no_two_get_the_same_epoch(
    folder: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whatever gets between the calls of a claim."""
    whole, chance = Store.names, random.Random(7)

    def names(self: Store) -> list[str]:
        threading.Event().wait(chance.choice((0, 0, 0.001, 0.005)))
        return whole(self)

    monkeypatch.setattr(Store, "names", names)
    monkeypatch.setattr(store, "PAUSE", 0.01)
    holders: list[tuple[int, StoreLease]] = []
    refused: list[FolderInUseError] = []

    def contend() -> None:
        for _ in range(10):
            lease = StoreLease(folder)
            try:
                lease.take_over()
            except FolderInUseError as error:
                refused.append(error)
            else:
                holders.append((lease.epoch, lease))

    threads = [threading.Thread(target=contend) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    epochs = [epoch for epoch, _ in holders]
    assert len(set(epochs)) == len(epochs) == 40 - len(refused) and epochs
    last = max(epochs)
    assert [epoch for epoch, lease in holders if not lease.is_fenced] == [last]


def test_a_lease_that_is_renewed_is_refused_and_one_that_is_not_expires(
    folder: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(store, "EXPIRY", 0.2)
    first, second, third = StoreLease(folder), StoreLease(folder), StoreLease(folder)
    assert not first.is_renewed()
    first.acquire()
    stop = threading.Event()

    def renew() -> None:
        while not stop.wait(0.01):
            first.renew()

    thread = threading.Thread(target=renew)
    thread.start()
    with pytest.raises(FolderInUseError, match="another process uses the folder"):
        second.acquire()
    stop.set()
    thread.join()
    assert not first.is_fenced
    second.acquire()  # after its expiry
    assert first.is_fenced and second.epoch == 2
    second.release()
    monkeypatch.setattr(store, "EXPIRY", 60.0)
    third.acquire()  # at once
    assert third.epoch == 3
