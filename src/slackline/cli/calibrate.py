"""``slackline calibrate RECORDING APP``: the delays of a hierarchy, for a good start."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import typer

from slackline.calibration import Calibration, estimate, sensor_delays
from slackline.calibration import calibrate as run_calibration
from slackline.cli.console import progress, reports_errors, say, stdout, table, wrote
from slackline.cli.options import takes
from slackline.connectors.addresses import check_output
from slackline.connectors.files import FileSource
from slackline.core.errors import ConfigError, SlacklineError
from slackline.core.hierarchy import Hierarchy
from slackline.runtime.application import load_application
from slackline.runtime.forms import quickest
from slackline.runtime.keyed import places_by_key, rows_at
from slackline.runtime.schema import Decoder, RecordSchema
from slackline.runtime.source import SourceError


@takes("ts", "type", "source", "seq", "key", "unit")
@reports_errors
def calibrate(
    given: Annotated[
        list[str],
        typer.Argument(
            metavar="[RECORDING] APP",
            help="RECORDING: CSV, JSON lines (both also .gz) or Parquet, in the order of arrival, or whatever the "
            "application reads itself; with --from it may be left out. APP: module:name of a Hierarchy.",
        ),
    ],
    out: Annotated[Path, typer.Option("--out", "-o", help="Write the calibration to this file.", dir_okay=False)],
    old: Annotated[
        Path | None,
        typer.Option(
            "--from",
            help="Estimate the delays from this calibration of another hierarchy; no detector runs. With a RECORDING "
            "the delays of the sensors are measured, without one they are those of the other.",
            dir_okay=False,
        ),
    ] = None,
    sub_delay: Annotated[
        list[str] | None,
        typer.Option(
            help="With --from, what was measured: TYPE.jitter=N of a sensor type, TYPE.processing=N, TYPE.back=N or "
            "TYPE.network=N of one that is published. May be given several times."
        ),
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print the calibration as JSON.")] = False,
    **fields: Any,
) -> None:
    """Compute the delays of an application's event types from a recording, so that nothing is late at the start."""
    if len(given) > 2 or (len(given) == 1 and old is None):
        raise ConfigError(f"give RECORDING and APP, or --from OLD and APP; got {len(given)} arguments: {given}.")
    if sub_delay and old is None:
        raise ConfigError("--sub-delay is for --from: what a recording shows is measured.")
    recording = Path(given[0]) if len(given) == 2 else None
    if recording is not None and not recording.exists():
        raise SourceError(f"there is no {recording}.")
    check_output("--out", out, (*given, given[-1].rpartition(":")[0]))
    hierarchy, tables = load_application(given[-1], recording)
    pieces: Any = tables
    unit = None
    if recording is not None and tables is None:
        decoder = Decoder(
            RecordSchema(**{name: value for name, value in fields.items() if value is not None}), hierarchy
        )
        pieces = asyncio.run(_read(recording, decoder, hierarchy))
        unit = decoder.schema.unit
        say(*decoder.explained())
    elif fields["key"] is not None:
        raise ConfigError("--key is for recordings that slackline reads; this application reads its own.")
    with progress() as show:

        def shown(run: int, arrivals: int) -> None:
            show(f"run {run}: {arrivals:,} arrivals")

        if old is None:
            calibration = run_calibration(hierarchy, pieces, shown)
        else:
            found = {} if recording is None else sensor_delays(hierarchy, pieces, shown)
            measured = {kind: {"jitter": delay} for kind, delay in found.items()} | _sub_delays(sub_delay or [])
            calibration = estimate(Calibration.of(old), hierarchy, measured)
    calibration.save(out)
    wrote(out)
    if as_json:
        typer.echo(json.dumps(calibration.plain(), indent=2))
    else:
        _print(calibration, hierarchy, unit)


async def _read(path: Path, decoder: Decoder, hierarchy: Hierarchy) -> dict[Any, Any]:
    """The arrivals of a file, by key if the schema has one, as :func:`slackline.calibration.calibrate` takes them."""
    types = [hierarchy.types[name] for name in hierarchy.sensor_types if name in hierarchy.types]
    by_key: dict[Any, list[Any]] = {}
    records = 0
    async for batch in FileSource(path).batches():
        rows, keys, bad = decoder.decode(batch, None, records + 1)
        decoder.check_fields(path.name)
        if bad:
            raise SlacklineError(
                f"{path.name}, {bad[0].place}: {bad[0].reason}. Repair or remove such records of the recording."
            )
        groups, without = ({None: None}, []) if keys is None else places_by_key(keys)
        for key, places in without:
            number = records + int(np.asarray(places)[0]) + 1
            raise SlacklineError(f"{path.name}, record {number}: the key is {key!r}; a key is text or a whole number.")
        records += len(batch)
        for key, places in groups.items():
            by_key.setdefault(key, []).append(quickest(rows if places is None else rows_at(rows, places), types))
    if not by_key:
        raise SlacklineError(f"{path} holds no events. Give a file with at least one record.")
    return {key: (lambda parts=parts: parts) for key, parts in by_key.items()}


def _sub_delays(texts: list[str]) -> dict[str, dict[str, int]]:
    """What was measured, as ``estimate`` takes it.

    >>> _sub_delays(["near.jitter=40", "hit.back=5", "hit.network=2"])
    {'near': {'jitter': 40}, 'hit': {'back': 5, 'network': 2}}
    """
    measured: dict[str, dict[str, int]] = {}
    for text in texts:
        named, _, value = text.partition("=")
        kind, _, part = named.rpartition(".")
        if not kind or not value.isdecimal():
            raise ConfigError(f"--sub-delay {text} is not valid; write TYPE.PART=N, e.g. near.jitter=40.")
        measured.setdefault(kind, {})[part] = int(value)
    return measured


def _print(calibration: Calibration, hierarchy: Hierarchy, unit: str | None) -> None:
    title = f"Delays, in {unit or 'the unit of the event times'}"
    shown = table(title, "type", "published by", ">delay", ">processing", ">backdating", ">network")
    for name, known in calibration.types.items():
        publisher = hierarchy.publisher.get(name)
        parts = (known.processing, known.back, known.network) if publisher else ()
        shown.add_row(name, publisher or "", f"{known.delay:,}", *[f"{part:,}" for part in parts])
    stdout().print(shown)
