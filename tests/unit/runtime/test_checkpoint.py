"""Checkpoints: whole or not at all, and damage is noticed."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from slackline.core.errors import SlacklineError, StateError
from slackline.runtime.checkpoint import Checkpoint, FolderCheckpointStore

SAVED = Checkpoint("run", {"positions": {"a.csv": [7, 1]}, "ended": False}, [b"one", b"", b"three" * 1000])


def test_what_was_saved_is_loaded(tmp_path: Path) -> None:
    store = FolderCheckpointStore(tmp_path, "run")
    assert store.load() is None
    size = store.save(SAVED)
    assert size == (tmp_path / "checkpoint").stat().st_size
    assert store.load() == SAVED
    assert not (tmp_path / "checkpoint.new").exists()


def test_a_checkpoint_that_was_half_written_does_not_count(tmp_path: Path) -> None:
    store = FolderCheckpointStore(tmp_path, "run")
    store.save(SAVED)
    (tmp_path / "checkpoint.new").write_bytes(b"half of it")
    assert store.load() == SAVED
    newer = SAVED.with_header(ended=True)
    store.save(newer)
    assert store.load() == newer


@pytest.mark.parametrize("damage", [lambda d: b"", lambda d: d[:9], lambda d: d[:-1], lambda d: d[:30] + b"x" + d[31:]])
def test_damage_is_noticed(tmp_path: Path, damage: Callable[[bytes], bytes]) -> None:
    store = FolderCheckpointStore(tmp_path, "run")
    store.save(SAVED)
    path = tmp_path / "checkpoint"
    path.write_bytes(damage(path.read_bytes()))
    with pytest.raises(StateError):
        store.load()


def test_a_checkpoint_of_another_kind_is_refused(tmp_path: Path) -> None:
    FolderCheckpointStore(tmp_path, "run").save(SAVED)
    with pytest.raises(StateError, match="'run', not a 'node'"):
        FolderCheckpointStore(tmp_path, "node").load()


def test_a_folder_that_cannot_be_written_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(SlacklineError, match="cannot write the checkpoint"):
        FolderCheckpointStore(tmp_path / "missing", "run").save(SAVED)
