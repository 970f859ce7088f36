"""``slackline state show|export CHECKPOINT``: what is saved in a checkpoint, by detector and key."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated, Any

import typer

from slackline.cli.console import reports_errors, stdout, table
from slackline.core.errors import SlacklineError
from slackline.core.payload import to_json
from slackline.runtime.inspect import DetectorState, detector_states, read_checkpoint

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
