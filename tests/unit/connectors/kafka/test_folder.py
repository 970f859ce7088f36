"""Snapshots in a folder: the older one stays whole, and a full disk stops nobody."""

import logging
import resource
from pathlib import Path

import pytest

from slackline.connectors.kafka.folder import FolderSnapshots
from slackline.connectors.kafka.snapshots import Owner, PartitionSnapshot
from slackline.core.errors import ConfigError, StateError

OURS = Owner("app", "in", ("Sums",))


def snapshot(offset: int) -> PartitionSnapshot:
    return PartitionSnapshot(offset, (b"state\n" * offset,))


def test_the_newest_snapshot_that_is_not_after_the_committed_offset_is_found(tmp_path: Path) -> None:
    folder = FolderSnapshots(tmp_path / "new" / "states", OURS)
    assert folder.newest(0, None) is None
    folder.keep(0, PartitionSnapshot(0, None))
    assert folder.newest(0, 0) == PartitionSnapshot(0, None)
    for offset in (5, 9):
        folder.keep(0, snapshot(offset))
    assert folder.newest(0, None) == folder.newest(0, 9) == snapshot(9)
    assert folder.newest(0, 8) == snapshot(5) and folder.newest(0, 4) is None
    again = PartitionSnapshot(9, (b"flushed",))
    folder.keep(0, again)
    assert folder.newest(0, None) == again
    assert folder.newest(0, 8) is None and folder.newest(1, None) is None
    assert list(folder.records(0, snapshot(9))) == []


def test_a_damaged_file_is_passed_over(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    folder = FolderSnapshots(tmp_path, OURS)
    folder.keep(0, snapshot(5))
    folder.keep(0, snapshot(9))
    newest = next(path for path in tmp_path.iterdir() if b'"offset": 9' in path.read_bytes())
    newest.write_bytes(newest.read_bytes()[:-1])
    assert folder.newest(0, None) == snapshot(5)
    newest.write_bytes(b"")
    assert folder.newest(0, None) == snapshot(5)
    assert "is damaged" in caplog.text


def test_a_full_disk_leaves_the_snapshot_before_and_says_so(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    folder = FolderSnapshots(tmp_path, OURS)
    folder.keep(0, snapshot(5))
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, before[1]))  # no file may be larger: as good as a full disk
    try:
        folder.keep(0, snapshot(90_000))
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    assert folder.newest(0, None) == snapshot(5) and folder.failures == 1
    assert "File too large" in caplog.text and caplog.records[-1].levelno == logging.ERROR
    assert not list(tmp_path.glob("*.part"))


def test_the_folder_of_another_application_is_refused(tmp_path: Path) -> None:
    FolderSnapshots(tmp_path, Owner("other", "in", ("Sums",))).keep(0, snapshot(5))
    with pytest.raises(StateError, match="the state of the application 'other'"):
        FolderSnapshots(tmp_path, OURS).newest(0, None)
    with pytest.raises(StateError, match="with the detectors"):
        FolderSnapshots(tmp_path, Owner("other", "in", ("Sums", "Peaks"))).newest(0, None)


def test_a_folder_that_cannot_be_made_is_refused(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(ConfigError, match="cannot be made"):
        FolderSnapshots(tmp_path / "file" / "states", OURS)
