"""What is in a checkpoint: the engines by key, their detectors, the size and the values of each state.

Values are read without the application, so nothing is imported: of a state that holds instances of its own classes the
size is known and the value is not.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

from slackline.core import codec
from slackline.core.errors import ConfigError, SlacklineError, StateError
from slackline.engine import engine
from slackline.engine.upgrade import buffered_rows
from slackline.runtime import keyed
from slackline.runtime.checkpoint import Checkpoint
from slackline.runtime.worker import CHECKPOINT_KIND


class DetectorState(NamedTuple):
    """The state of one detector, or of one of its keys (``instance``), in the engine of ``key``.

    ``buffered`` and ``published`` are of the detector. ``value`` is None, and ``note`` says why, where it cannot be
    read.
    """

    key: Any
    instance: Any
    detector: str
    version: int
    size: int
    timers: int
    buffered: int
    published: int
    value: Any
    note: str = ""


def read_checkpoint(path: Path) -> Checkpoint:
    """The checkpoint of ``slackline run`` in a file, or in the folder of its results."""
    file = path / "checkpoint" if path.is_dir() else path
    try:
        data = file.read_bytes()
    except FileNotFoundError:
        raise ConfigError(f"{path}: there is no checkpoint; give the folder of `slackline run --to`.") from None
    except OSError as error:
        raise SlacklineError(f"cannot read {file}: {error}.") from error
    return Checkpoint.of(CHECKPOINT_KIND, data, f"the checkpoint {file}")


def detector_states(checkpoint: Checkpoint) -> Iterator[DetectorState]:
    """The states of all detectors, key by key."""
    for piece in checkpoint.pieces:
        key, saved, _ = codec.decode(piece)
        data, *_ = codec.load(keyed.STATE_KIND, keyed.STATE_VERSION, saved)
        if data is None:  # rows without a key have no engine
            continue
        topology = codec.load(engine.STATE_KIND, engine.STATE_VERSION, data)["topology"]
        rows = sum(map(buffered_rows, topology["sensors"].values()))
        for name, runner in topology["runners"].items():
            buffer = topology["buffers"][name]
            waiting = len(buffer["heap"]) + len(buffer["overdue"]) + rows
            for instance, state, timers in _instances(runner):
                value, note = None, ""
                try:
                    value = codec.decode(state, where=name)
                except StateError as error:
                    note = str(error)
                yield DetectorState(
                    key, instance, name, runner.get("version", 1), len(state), len(timers), waiting,
                    runner["published"], value, note,
                )  # fmt: skip


def _instances(runner: dict[str, Any]) -> Iterator[tuple[Any, bytes, Any]]:
    """The key, state and timers of each instance of a detector; the key is None if the detector has none."""
    if (keyed := runner.get("keyed")) is None:
        return iter([(None, runner["detector"], runner.get("timers", ()))])
    return zip(keyed["keys"], keyed["states"], keyed["timers"], strict=True)
