"""Folders and files as sinks: records by kind, and a folder that is after a crash as it was at its last checkpoint."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from tests.unit.connectors.helpers import run

from slackline.connectors import FileSink, FolderSink, OutputRecord
from slackline.connectors.files import CopyingSink
from slackline.core.errors import ConfigError, StateError
from slackline.runtime.checkpoint import Checkpoint
from slackline.runtime.sink import FencedError


def record(kind: str, number: int) -> OutputRecord:
    return OutputRecord(kind=kind, id=f"{kind}/{number}", ts=number, payload={"x": number})


def ids(path: Path) -> list[str]:
    return [json.loads(line)["id"] for line in path.read_text().splitlines()]


KINDS = ("event", "late", "quarantine", "duplicate")
FILES = ("outputs.jsonl", "late.jsonl", "quarantined.jsonl", "duplicates.jsonl")


@pytest.mark.parametrize("duplicates", [True, False])
def test_each_kind_has_its_file(tmp_path: Path, duplicates: bool) -> None:
    sink = FolderSink(tmp_path / "a" / "b", duplicates)
    assert sink.commits and sink.open() is None
    run(sink.write([record(kind, number) for number in range(2) for kind in KINDS]))
    run(sink.close())
    found = {path.name: ids(path) for path in (tmp_path / "a" / "b").glob("*.jsonl")}
    wanted = {name: [f"{kind}/0", f"{kind}/1"] for kind, name in zip(KINDS, FILES, strict=True)}
    assert found == wanted if duplicates else found == dict(list(wanted.items())[:3])
    line = (tmp_path / "a" / "b" / "outputs.jsonl").read_bytes().splitlines()[0]
    assert line == record("event", 0).json()


def test_what_was_written_behind_the_last_checkpoint_is_discarded(tmp_path: Path) -> None:
    sink = FolderSink(tmp_path)
    sink.open()
    run(sink.write([record("event", 0), record("late", 1)]))
    sink.commit(Checkpoint("run", {"sources": {"a": 7}}, [b"engine"]))
    run(sink.write([record("event", 2), record("quarantine", 3)]))
    run(sink.close())  # as a crash would: without another checkpoint
    again = FolderSink(tmp_path)
    saved = again.open()
    assert saved is not None and saved.header["sources"] == {"a": 7} and list(saved.pieces) == [b"engine"]
    assert [ids(tmp_path / name) for name in FILES[:3]] == [["event/0"], ["late/1"], []]
    run(again.write([record("event", 4)]))
    again.commit(saved)
    run(again.close())
    assert ids(tmp_path / "outputs.jsonl") == ["event/0", "event/4"]


def test_a_file_of_duplicates_outlives_a_run_that_writes_none(tmp_path: Path) -> None:
    for number, duplicates in enumerate((True, False, True)):
        sink = FolderSink(tmp_path, duplicates)
        sink.open()
        run(sink.write([record("duplicate", number)]))
        sink.commit(Checkpoint("run"))
        run(sink.close())
    assert ids(tmp_path / "duplicates.jsonl") == ["duplicate/0", "duplicate/2"]


def test_a_fresh_start_discards_results_and_checkpoint(tmp_path: Path) -> None:
    for fresh in (False, True):
        sink = FolderSink(tmp_path, duplicates=not fresh, fresh=fresh)
        assert sink.open() is None
        if not fresh:
            run(sink.write([record(kind, 0) for kind in KINDS]))
            sink.commit(Checkpoint("run"))
        run(sink.close())
    assert {path.name: path.stat().st_size for path in tmp_path.glob("*.jsonl")} == dict.fromkeys(FILES[:3], 0)
    assert not (tmp_path / "checkpoint").exists()


def test_a_file_that_lacks_results_is_refused(tmp_path: Path) -> None:
    sink = FolderSink(tmp_path)
    sink.open()
    run(sink.write([record("event", 0)]))
    sink.commit(Checkpoint("run"))
    run(sink.close())
    (tmp_path / "outputs.jsonl").write_text("")
    with pytest.raises(StateError, match=r"outputs.jsonl has 0 bytes and had \d+ at the last checkpoint"):
        FolderSink(tmp_path).open()


def test_a_folder_belongs_to_one_process(tmp_path: Path) -> None:
    sink = FolderSink(tmp_path)
    sink.open()
    with pytest.raises(ConfigError, match="another process uses the folder"):
        FolderSink(tmp_path).open()
    run(sink.close())
    other = FolderSink(tmp_path)
    other.open()
    run(other.close())
    (tmp_path / "file").write_text("")
    with pytest.raises(ConfigError, match="cannot write to the folder"):
        FolderSink(tmp_path / "file").open()


def test_a_file_has_all_kinds_and_is_overwritten(tmp_path: Path) -> None:
    for number in range(2):
        sink: Any = FileSink(tmp_path / "out.jsonl")
        assert not sink.commits and sink.open() is None
        run(sink.write([record(kind, number) for kind in KINDS]))
        run(sink.close())
    assert ids(tmp_path / "out.jsonl") == [f"{kind}/1" for kind in KINDS]
    with pytest.raises(ConfigError, match="cannot write"):
        FileSink(tmp_path / "missing" / "out.jsonl").open()


def test_a_folder_that_was_taken_over_has_nothing_of_the_former_process(tmp_path: Path) -> None:
    former = FolderSink(tmp_path)
    former.open()
    run(former.write([record("event", 0)]))
    former.commit(Checkpoint("run", {"sources": {"a": 7}}))
    run(former.write([record("event", 1)]))
    successor = FolderSink(tmp_path)
    saved = successor.take_over()
    assert saved is not None and saved.header["sources"] == {"a": 7} and former.is_fenced
    run(former.write([record("event", 2)]))
    with pytest.raises(FencedError, match="another process has taken over the folder"):
        former.commit(Checkpoint("run", {"sources": {"a": 8}}))
    run(former.close())
    run(successor.write([record("event", 1)]))
    assert ids(tmp_path / "outputs.jsonl") == ["event/0", "event/1"]
    successor.commit(Checkpoint("run", {"sources": {"a": 9}}))
    assert [path.name for path in tmp_path.glob("checkpoint*")] == ["checkpoint.1"]
    with pytest.raises(ConfigError, match="another process uses the folder"):
        FolderSink(tmp_path).open()  # restarted by an operator
    run(successor.close())
    again = FolderSink(tmp_path)
    reopened = again.open()
    assert reopened is not None and reopened.header["sources"] == {"a": 9}
    run(again.close())


def test_the_second_of_two_successors_fences_the_first_also_before_its_checkpoint(tmp_path: Path) -> None:
    former = FolderSink(tmp_path)
    former.open()
    former.commit(Checkpoint("run", {"sources": {"a": 7}}))
    first, second = FolderSink(tmp_path), FolderSink(tmp_path)
    for successor in (first, second):
        saved = successor.take_over()
        assert saved is not None and saved.header["sources"] == {"a": 7}
    with pytest.raises(FencedError):
        first.commit(Checkpoint("run"))
    second.commit(Checkpoint("run"))
    for sink in (former, first, second):
        run(sink.close())


def test_what_a_folder_gets_another_sink_gets_too_and_again_after_a_crash(tmp_path: Path) -> None:
    for number, first in enumerate((0, 1)):  # the first process dies behind its checkpoint
        sink = CopyingSink(FolderSink(tmp_path / "folder"), FileSink(tmp_path / f"copy{number}.jsonl"))
        sink.open()
        run(sink.write([record("event", first)]))
        sink.commit(Checkpoint("run"))
        run(sink.write([record("event", first + 1)]))
        run(sink.close())
    assert ids(tmp_path / "copy0.jsonl") == ["event/0", "event/1"]
    assert ids(tmp_path / "copy1.jsonl") == ["event/1", "event/2"]
    assert ids(tmp_path / "folder" / "outputs.jsonl") == ["event/0", "event/1", "event/2"]
