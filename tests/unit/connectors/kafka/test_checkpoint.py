"""Stores of checkpoints: the older one stays complete, a full disk stops no host, other applications are refused."""

import logging
import resource
from pathlib import Path
from typing import Any

import pytest

from slackline.connectors.kafka.checkpoint import AppliedTimeouts, FolderStore, Owner, Resume, TopicStore
from slackline.core.errors import ConfigError, StateError
from slackline.runtime.checkpoint import Checkpoint

OURS = Owner("app", "in", ("Sums",))
TIMEOUTS = [AppliedTimeouts(3, 7, [("idle", "a"), ("state_ttl", ("4/1", 5))])]


def checkpoint(offset: int, of: Owner = OURS, content: bytes = b"state\n") -> Checkpoint:
    header = {"offset": offset, "schema": {}, "timeouts": 0, "incarnation": 0, "engines": {}}
    return of.checkpoint(header, [content * offset])


def found(resume: Resume | None) -> tuple[int, Any] | None:
    return None if resume is None else (resume.offset, list(resume.checkpoint.pieces))


def test_the_newest_checkpoint_that_is_not_behind_the_committed_offset_is_found(tmp_path: Path) -> None:
    folder = FolderStore(tmp_path / "new" / "states", OURS)
    assert folder.load(0, None) is None
    folder.save(0, OURS.first(0, {}))
    assert found(folder.load(0, 0)) == (0, [])
    for offset in (5, 9):
        folder.save(0, checkpoint(offset))
    assert found(folder.load(0, None)) == found(folder.load(0, 9)) == (9, [b"state\n" * 9])
    assert found(folder.load(0, 8)) == (5, [b"state\n" * 5]) and folder.load(0, 4) is None
    folder.save(0, checkpoint(9, content=b"flushed"))
    assert found(folder.load(0, None)) == (9, [b"flushed" * 9])
    assert folder.load(0, 8) is None and folder.load(1, None) is None
    assert list(folder.messages(0, checkpoint(9))) == []


def test_a_damaged_file_is_skipped(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    folder = FolderStore(tmp_path, OURS)
    folder.save(0, checkpoint(5))
    folder.save(0, checkpoint(9))
    newest = next(path for path in tmp_path.iterdir() if b"state\n" * 9 in path.read_bytes())
    newest.write_bytes(newest.read_bytes()[:-1])
    assert found(folder.load(0, None)) == (5, [b"state\n" * 5])
    newest.write_bytes(b"")
    assert found(folder.load(0, None)) == (5, [b"state\n" * 5])
    assert "is damaged" in caplog.text


def test_a_full_disk_leaves_the_checkpoint_before_and_is_logged(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    folder = FolderStore(tmp_path, OURS)
    folder.save(0, checkpoint(5))
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, before[1]))  # no file may be larger: as good as a full disk
    try:
        folder.save(0, checkpoint(90_000))
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    assert found(folder.load(0, None)) == (5, [b"state\n" * 5])
    assert "File too large" in caplog.text and caplog.records[-1].levelno == logging.ERROR
    assert not list(tmp_path.glob("*.new"))


def test_the_folder_of_another_application_is_refused(tmp_path: Path) -> None:
    other = Owner("other", "in", ("Sums",))
    FolderStore(tmp_path, other).save(0, checkpoint(5, other))
    with pytest.raises(StateError, match="the state of the application 'other'"):
        FolderStore(tmp_path, OURS).load(0, None)
    with pytest.raises(StateError, match="with the detectors"):
        FolderStore(tmp_path, Owner("other", "in", ("Sums", "Peaks"))).load(0, None)


def test_a_folder_that_cannot_be_created_is_refused(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(ConfigError, match="cannot be created"):
        FolderStore(tmp_path / "file" / "states", OURS)


def test_the_log_of_timeouts_is_kept_beside_the_checkpoints(tmp_path: Path) -> None:
    folder = FolderStore(tmp_path, OURS)
    folder.save(0, checkpoint(5))
    assert folder.log(0, []) == [] and folder.log(0, TIMEOUTS) == []
    resumed = FolderStore(tmp_path, OURS).load(0, None)
    assert resumed is not None and resumed.timeouts == TIMEOUTS

    topic = TopicStore("state", OURS, None, 2_000)  # type: ignore[arg-type]
    log = topic.log(0, TIMEOUTS)
    assert log is not None
    written = [(message.key.decode(), message.value or b"") for message in (*topic.messages(0, checkpoint(5)), *log)]
    assert {key for key, _ in written} == {"0/1/0", "0/1/all", "0/timers"}
    resumed = topic.newest(written, None)
    assert resumed is not None and found(resumed) == (5, [b"state\n" * 5]) and resumed.timeouts == TIMEOUTS
    assert topic.newest(written, 4) is None
    many = [AppliedTimeouts(0, 7, [("idle", f"key {nr}") for nr in range(1_000)])]
    assert topic.log(0, many) is None
