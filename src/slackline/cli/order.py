"""``slackline order FROM...``: records in the order of their event times, without an application."""

from __future__ import annotations

import asyncio
import json
import sys
from collections import Counter
from collections.abc import AsyncIterator, Iterable
from contextlib import contextmanager, nullcontext
from typing import Annotated, Any, BinaryIO

import msgspec
import pyarrow as pa
import typer

from slackline.cli.console import FAILED, reports_errors
from slackline.cli.options import engine_options, help_of, takes
from slackline.connectors.addresses import check_output, open_sources
from slackline.core.errors import ConfigError, SchemaError, SlacklineError
from slackline.core.event import Event
from slackline.core.payload import to_json
from slackline.engine.order import COLUMNS, OrderedRow, RowOrder
from slackline.ordering.policy import with_policy
from slackline.runtime.output import NOT_AN_EVENT, BadRecord
from slackline.runtime.schema import RecordSchema
from slackline.runtime.source import Records, Source

#: Options of an engine that make no sense without detectors.
_NOT_FOR_ROWS = ("pause", "late", "on_error")


@takes("source", "seq", "unit", "engine")
@reports_errors
def order(
    sources: Annotated[
        list[str],
        typer.Argument(
            metavar="FROM...",
            help="Where records come from, in order of arrival: files (CSV, JSON lines, both also .gz, or Parquet), - "
            "(standard input, JSON lines), http://…, https://…, mqtt://HOST/TOPIC. Several are read one after another.",
        ),
    ],
    ts: Annotated[str, typer.Option(help=help_of("ts"))] = "ts",
    to: Annotated[str, typer.Option(help="A .jsonl file, or - (standard output).")] = "-",
    as_json: Annotated[bool, typer.Option("--json", help="Print the counts by kind as JSON, to stderr.")] = False,
    **given: Any,
) -> None:
    """Put records in the order of their event times; no application is needed.

    Each record is written once, as a JSON line with its own fields and `position` (its place in the order, from 1),
    `kind` (event, late, quarantine, duplicate), and where they apply `lateness` (in
    the unit of the event times; in seconds for dates), `reason`, `detail`. It is written as
    soon as its place is known. Nothing is resumed: `slackline run` has checkpoints. Exit code 1: most records are in
    quarantine.
    """
    options = with_policy(engine_options(given["engine"] or (), _NOT_FOR_ROWS))
    if given["unit"] is not None:
        options["unit"] = given["unit"]
    schema = RecordSchema(ts=ts, source=given["source"], seq=given["seq"])
    check_output("--to", to, sources)
    opened = open_sources(sources)
    with _written(to) as file:
        counts = asyncio.run(_ordered(opened, RowOrder(options), schema, file))
    text = ", ".join(_counted(kind, count) for kind, count in sorted(counts.items())) or "no records"
    typer.echo(json.dumps(counts, sort_keys=True) if as_json else f"slackline: {text}", err=True)
    if 2 * counts["quarantine"] > counts.total():
        raise typer.Exit(FAILED)


def _counted(kind: str, count: int) -> str:
    """A count by kind in words.

    >>> _counted("event", 1), _counted("event", 3000), _counted("quarantine", 2)
    ('1 event', '3,000 events', '2 in quarantine')
    """
    words = {"event": "event" if count == 1 else "events", "quarantine": "in quarantine"}
    return f"{count:,} {words.get(kind, 'duplicate' if kind == 'duplicate' and count == 1 else kind)}"


@contextmanager
def _written(to: str) -> Any:
    if to != "-" and not to.endswith((".jsonl", ".ndjson")):
        raise ConfigError(f"--to {to} is not valid; give a file that ends with .jsonl, or - (standard output).")
    try:
        with nullcontext(sys.stdout.buffer) if to == "-" else open(to, "wb") as file:
            yield file
    except OSError as error:
        raise SlacklineError(f"cannot write {to}: {error}.") from error


async def _ordered(sources: list[Source], machine: RowOrder, schema: RecordSchema, file: BinaryIO) -> Counter[str]:
    """Read, order and write all records; how many there are of each kind."""
    named = {role: name for role in ("ts", "source", "seq") if (name := getattr(schema, role)) is not None}
    waiting: dict[int, dict[str, Any]] = {}
    counts: Counter[str] = Counter()
    arrived = 0

    def write(found: Iterable[OrderedRow]) -> None:
        for each in found:
            counts[each.kind] += 1
            file.write(_line(waiting.pop(each.row), each))
        file.flush()

    async for place, batch in _batches(sources):
        records = batch.to_pylist() if isinstance(batch, pa.Table | pa.RecordBatch) else batch
        bad = [record for record in records if isinstance(record, BadRecord)]
        good = [_fields(record) for record in records if not isinstance(record, BadRecord)]
        if good and not arrived:
            fields = list(dict.fromkeys(name for record in good for name in record))
            schema.check_fields(fields, ("ts", "source", "seq"), place)
        _check_clash(good, place)
        for one in bad:
            counts["quarantine"] += 1
            shown = OrderedRow(None, None, "quarantine", None, NOT_AN_EVENT, one.reason)
            file.write(_line({"place": f"{place}, {one.place}", "record": one.record}, shown))
        waiting.update(enumerate(good, arrived))
        arrived += len(good)
        write(machine.push({role: [record.get(name) for record in good] for role, name in named.items()}))
    write(machine.close())
    return counts


async def _batches(sources: list[Source]) -> AsyncIterator[tuple[str, Records]]:
    for source in sources:
        try:
            async for batch in source.batches():
                yield source.name, batch
        finally:
            await source.close()


def _fields(record: Any) -> dict[str, Any]:
    if isinstance(record, Event):
        return {"type": record.type, **record.payload, "ts": record.ts, "source": record.source, "seq": record.seq}
    return dict(record)


def _check_clash(records: list[dict[str, Any]], place: str) -> None:
    """Raise SchemaError if a record has a field that is added."""
    for record in records:
        if clash := [name for name in COLUMNS if name in record]:
            added = ", ".join(COLUMNS)
            raise SchemaError(
                f"{place}: order adds the fields {added}; records have {clash} already. Rename them first."
            )


def _line(record: dict[str, Any], row: OrderedRow) -> bytes:
    """The record as a line, with the fields that apply."""
    lateness = row.lateness.total_seconds() if hasattr(row.lateness, "total_seconds") else row.lateness
    ours = {
        "position": row.position,
        "kind": row.kind,
        "lateness": lateness,
        "reason": row.reason,
        "detail": row.detail,
    }
    there = {name: value for name, value in record.items() if value is not None}
    try:
        own = to_json(there, "record")
    except SlacklineError:  # what is in quarantine may be there because it has no JSON form
        own = to_json({name: repr(value) for name, value in there.items()})
    more = msgspec.json.encode({name: value for name, value in ours.items() if value is not None})
    return (own[:-1] + ("," if len(own) > 2 else "")).encode() + more[1:] + b"\n"
