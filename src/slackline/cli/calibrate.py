"""``slackline calibrate RECORDING APP``: the delays of a hierarchy, for a good start."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.markup import escape
from rich.progress import Progress, SpinnerColumn, TextColumn, TimeElapsedColumn
from rich.table import Table

from slackline.calibration import Calibration, estimate, sensor_delays
from slackline.calibration import calibrate as run_calibration
from slackline.cli.failure import reports_errors
from slackline.cli.hierarchies import load_application
from slackline.cli.options import Key, Seq, Source, Ts, Type, Unit
from slackline.cli.recordings import Recording
from slackline.core.errors import ConfigError
from slackline.core.hierarchy import Hierarchy
from slackline.runtime.schema import RecordSchema
from slackline.runtime.source import SourceError


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
    ts: Ts = "ts",
    type: Type = None,
    source: Source = None,
    seq: Seq = None,
    key: Key = None,
    unit: Unit = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print the calibration as JSON.")] = False,
) -> None:
    """Compute the delays of an application's event types from a recording, so that nothing is late at the start."""
    if len(given) > 2 or (len(given) == 1 and old is None):
        raise ConfigError(f"give RECORDING and APP, or --from OLD and APP; got {len(given)} arguments: {given}.")
    if sub_delay and old is None:
        raise ConfigError("--sub-delay is for --from: what a recording shows is measured.")
    recording = Path(given[0]) if len(given) == 2 else None
    if recording is not None and not recording.exists():
        raise SourceError(f"there is no {recording}.")
    hierarchy, tables = load_application(given[-1], recording)
    pieces: Any = tables
    errors = Console(stderr=True)
    if recording is not None and tables is None:
        schema = RecordSchema(ts=ts, type=type, source=source, seq=seq, key=key, unit=unit)
        read = Recording(recording, hierarchy, schema)
        roles = "; ".join(f"{role} {words}" for role, words in read.decoder.roles().items())
        choice = read.decoder.choice
        for note in (f"record schema: {roles}", *(choice.notes + choice.warnings if choice else ())):
            errors.print(f"note: {escape(note)}", highlight=False, soft_wrap=True)
        pieces = read.pieces
    elif key is not None:
        raise ConfigError("--key is for recordings that slackline reads; this application reads its own.")
    if old is None:
        calibration = _with_progress(errors, lambda show: run_calibration(hierarchy, pieces, show))
    else:
        measured = _sub_delays(sub_delay or [])
        if recording is not None:
            found = _with_progress(errors, lambda show: sensor_delays(hierarchy, pieces, show))
            measured = {kind: {"jitter": delay} for kind, delay in found.items()} | measured
        calibration = estimate(Calibration.of(old), hierarchy, measured)
    calibration.save(out)
    errors.print(f"wrote {out}", highlight=False)
    if as_json:
        typer.echo(json.dumps(calibration.plain(), indent=2))
    else:
        _print(calibration, hierarchy)


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


def _with_progress(console: Console, work: Any) -> Any:
    columns = (SpinnerColumn(), TextColumn("{task.description}"), TimeElapsedColumn())
    with Progress(*columns, console=console, transient=True, disable=not console.is_terminal) as bar:
        task = bar.add_task("reading", total=None)
        return work(lambda run, arrivals: bar.update(task, description=f"run {run}: {arrivals:,} arrivals"))


def _print(calibration: Calibration, hierarchy: Hierarchy) -> None:
    table = Table(title="Delays, in the unit of the event times", title_justify="left")
    table.add_column("type")
    table.add_column("published by")
    for heading in ("delay", "processing", "backdating", "network"):
        table.add_column(heading, justify="right", no_wrap=True)
    for name, known in calibration.types.items():
        publisher = hierarchy.publisher.get(name)
        parts = (known.processing, known.back, known.network) if publisher else ()
        table.add_row(name, publisher or "", f"{known.delay:,}", *[f"{part:,}" for part in parts])
    Console().print(table)
