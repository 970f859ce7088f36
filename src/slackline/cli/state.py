"""``slackline state show|export CHECKPOINT``: what is saved in a checkpoint, by detector and key.

Values are read without the application, so nothing is imported: of a state that holds instances of its own classes the
size is known and the value is not.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any, NamedTuple

import typer

from slackline.cli.console import reports_errors, stdout, table
from slackline.core import codec
from slackline.core.errors import ConfigError, SlacklineError, StateError
from slackline.core.payload import to_json
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


state = typer.Typer(help="Show or export the state in a checkpoint of `slackline run`.", no_args_is_help=True)

CheckpointPath = Annotated[
    Path, typer.Argument(metavar="CHECKPOINT", help="The folder of `slackline run --to`, or the file in it.")
]
#: Keys that are shown, and characters of a value.
KEYS, CHARACTERS = 20, 60


@state.command()
@reports_errors
def show(
    checkpoint: CheckpointPath,
    keys: Annotated[int, typer.Option(min=1, help="How many keys to list.")] = KEYS,
    as_json: Annotated[bool, typer.Option("--json", help="Print the totals by detector as JSON.")] = False,
) -> None:
    """List detectors and keys with the sizes and values of their states."""
    found = list(detector_states(read_checkpoint(checkpoint)))
    totals: dict[str, dict[str, int]] = {}
    for each in found:
        mine = totals.setdefault(each.detector, {"keys": 0, "bytes": 0, "published": 0, "version": each.version})
        mine["keys"] += 1
        mine["bytes"] += each.size
    for (_, name), published in {(each.key, each.detector): each.published for each in found}.items():
        totals[name]["published"] += published
    if as_json:
        typer.echo(json.dumps(totals))
        return
    summary = table("detectors", "detector", ">version", ">keys", ">bytes", ">published")
    for name, mine in totals.items():
        summary.add_row(name, *(f"{mine[column]:,}" for column in ("version", "keys", "bytes", "published")))
    listed = table("keys", "key", "detector", ">bytes", ">timers", "state")
    shown = list(dict.fromkeys((each.key, each.instance) for each in found))[:keys]
    for each in found:
        if (each.key, each.instance) in shown:
            name = " / ".join(str(key) for key in (each.key, each.instance) if key is not None)
            listed.add_row(name or "-", each.detector, f"{each.size:,}", f"{each.timers:,}", _value(each)[:CHARACTERS])
    stdout().print(summary, listed)


@state.command()
@reports_errors
def export(checkpoint: CheckpointPath) -> None:
    """Print each state as a JSON line.

    It has key (of the engine), instance (key of the detector), detector, version, bytes, timers, buffered, published,
    state; buffered and published are of all keys of the detector.
    """
    for each in detector_states(read_checkpoint(checkpoint)):
        line = {
            "key": each.key, "instance": each.instance, "detector": each.detector, "version": each.version,
            "bytes": each.size, "timers": each.timers, "buffered": each.buffered, "published": each.published,
        }  # fmt: skip
        typer.echo(json.dumps(line)[:-1] + f', "state": {_value(each)}}}')


def _value(each: DetectorState) -> str:
    """The attributes as JSON; one as text if JSON has no form for it. A state that cannot be read is the reason."""
    if each.note:
        return json.dumps(each.note)
    value: Any = each.value if isinstance(each.value, dict) else {"value": each.value}
    return "{" + ", ".join(f"{json.dumps(str(name))}: {_json(one)}" for name, one in value.items()) + "}"


def _json(value: Any) -> str:
    try:
        return to_json({"": value})[len('{"":') : -1]
    except (SlacklineError, TypeError, ValueError):
        return json.dumps(repr(value))
