"""The record schema: which field of a record is what, and how records become events. One rule for every runtime.

A record is a mapping of names to values. One of them is the event time; others may be the type, the source, the
sequence number and the key; the rest is payload, and a field without a value is none. A record that cannot become an
event is a :class:`~slackline.runtime.output.BadRecord`: it goes to the quarantine, the stream continues.

**Fields adopted by name.** Where the schema does not name them, fields called ``type``, ``source`` and ``seq`` are
used as such, and :meth:`Decoder.roles` shows it. A sequence number counts within a source, so ``seq`` is adopted only
where the source of a record is known, or its key: in a file of many devices without a source, equal numbers of
different devices would be taken for duplicates.
"""

from __future__ import annotations

import contextlib
import difflib
import math
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from slackline.core import check
from slackline.core.batch import Ints
from slackline.core.errors import ConfigError, SchemaError, SlacklineError, StateError
from slackline.core.event import Event
from slackline.core.hierarchy import Hierarchy
from slackline.core.payload import to_json
from slackline.core.time import (
    A_TIME_STAMP,
    MAX_TS,
    PER_SECOND,
    converted,
    converted_column,
    instant,
    is_date,
    time_stamp,
)  # fmt: skip
from slackline.runtime.forms import OWN
from slackline.runtime.output import BadRecord
from slackline.runtime.source import Records
from slackline.runtime.units import UnitChoice, unit_of

FORMATS = ("json", "arrow", "avro")
#: Beyond this a floating-point number cannot represent every integer.
EXACT = 2**53

_INTEGER = re.compile(r"[+-]?[0-9]+")
_NUMBER = re.compile(r"[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]+)?")
_DIGITS = r"^[0-9]{1,19}$"
_SAMPLE = 1_000


class BadRecordError(ValueError):
    """A record cannot become an event; the message says why. Never leaves the runtime."""


class RecordSchema(msgspec.Struct, frozen=True, kw_only=True):
    """Which field of a record is what.

    ``ts``       the field of event times: numbers, ISO 8601 text, datetimes.
    ``type``     the field of event types. Not needed where the hierarchy has one sensor type.
    ``source``   the field that names the source of an event.
    ``seq``      the field of sequence numbers, which count within a type and source.
    ``key``      the field of keys: each has an engine of its own. It is no payload.
    ``arrival``  the field of arrival times, in recordings.
    ``unit``     of event times; dates become whole numbers of it. Unless given it is recognised, see
                 :mod:`slackline.runtime.units`.
    ``format``   of records on Kafka: ``json``, ``arrow`` or ``avro``; ``avro_schema`` is a file with the Avro schema.
    """

    ts: str = "ts"
    type: str | None = None
    source: str | None = None
    seq: str | None = None
    key: str | None = None
    arrival: str | None = None
    unit: str | None = None
    format: str = "json"
    avro_schema: str | None = None

    def __post_init__(self) -> None:
        check.one_of("format", self.format, FORMATS)
        if self.unit is not None:
            check.one_of("unit", self.unit, PER_SECOND)
        if (self.avro_schema is None) == (self.format == "avro"):
            raise ConfigError(f"format={self.format!r} and avro_schema={self.avro_schema!r}: Avro alone has a schema.")
        named = {role: getattr(self, role) for role in ("ts", "type", "seq", "source", "key", "arrival")}
        for role, name in named.items():
            if name is not None and (not isinstance(name, str) or not name):
                raise ConfigError(f"{role}={name!r} is not valid; it must be the name of a field.")
        # The key of an event may be its source; an arrival time may be the event time.
        alone = [named[role] for role in ("ts", "type", "seq") if named[role] is not None]
        others = {named[role] for role in ("source", "key")} - {None}
        if len(set(alone)) < len(alone) or others & set(alone):
            raise ConfigError(f"one field cannot have two roles; got {named}. Only source and key may be the same.")

    @property
    def ts_per_second(self) -> int:
        """Units of event time in a second."""
        return PER_SECOND[self.unit or "us"]

    def check_fields(self, fields: Sequence[str], roles: Iterable[str], where: str) -> None:
        """Raise SchemaError if the fields of records lack one that the schema names for these roles."""
        for role in roles:
            name = getattr(self, role)
            if name is not None and name not in fields:
                close = difflib.get_close_matches(name, fields, 1, 0.5)
                hint = f" Did you mean {close[0]!r}?" if close else ""
                names = ", ".join(fields) or "none"
                raise SchemaError(f"{where} has no field {name!r} for --{role}; it has {names}.{hint}")

    def plain(self) -> dict[str, Any]:
        """The schema as plain data, for a checkpoint."""
        return {name: value for name, value in msgspec.structs.asdict(self).items() if name != "avro_schema"}

    def resumed(self, saved: Mapping[str, Any], where: str) -> RecordSchema:
        """This schema as the one of a checkpoint, with the unit that was recognised then.

        Raises StateError where the records of the checkpoint were read by another schema.
        """
        ours = self.plain()
        if self.unit is None:
            ours["unit"] = saved.get("unit")
        elif saved.get("unit") is None:  # no record was read until then
            saved = {**saved, "unit": self.unit}
        other = [name for name in ours if saved.get(name) != ours[name]]
        differs = [f"{name} was {saved.get(name)!r}, is {ours[name]!r}" for name in other]
        if differs:
            raise StateError(
                f"{where} was written with another record schema: {'; '.join(differs)}. Give the options as they were, "
                f"or start with another folder or group (--fresh discards the results and the checkpoint)."
            )
        return msgspec.structs.replace(self, unit=ours["unit"])


class Arrivals(NamedTuple):
    """Records in the form in which an engine takes them: events or a table, the keys of the rows if there are keys, and
    the records that are no events."""

    rows: list[Event] | pa.Table
    keys: list[Any] | pa.ChunkedArray | None
    bad: list[BadRecord]

    def __len__(self) -> int:
        return len(self.rows)


#: Makes a bad record of the number of a record, the reason, and the record as text.
BadRecordOf = Callable[[int, str, str], BadRecord]


def _bad_record(number: int, reason: str, text: str) -> BadRecord:
    return BadRecord(f"record {number}", reason, text)


class Decoder:
    """Turns records into arrivals, by a schema and for a hierarchy.

    Without a hierarchy, where streams are merged, the type of records that name none is the name of their source.

    >>> from slackline.core.detector import Detector
    >>> class Speeds(Detector):
    ...     listens = ("at",)
    ...     def on_event(self, event): ...
    >>> decoder = Decoder(RecordSchema(key="van"), Hierarchy([Speeds()], clock="at"))
    >>> decoder.decode([{"ts": 5, "van": "a", "seq": 3, "speed": 7}, {"van": "b"}])
    Arrivals(rows=[Event('at', ts=5, seq=3, speed=7)], keys=['a'], bad=[BadRecord(place='record 2', \
reason="field 'ts', the event time, is missing", record='{"van":"b"}')])
    """

    def __init__(self, schema: RecordSchema, hierarchy: Hierarchy | None) -> None:
        #: The schema, with the unit that was recognised.
        self.schema = schema
        #: How the unit was found: notes and warnings for people. None before the first records.
        self.choice: UnitChoice | None = None
        self._by_source = hierarchy is None
        kinds = hierarchy.entering if hierarchy is not None else ()
        #: The type of records that name none.
        self._only_type = kinds[0] if len(kinds) == 1 else None
        self._columns: list[str] = []  # of the first batch

    def decode(
        self, records: Records, source: str | None = None, first: int = 1, bad_record: BadRecordOf | None = None
    ) -> Arrivals:
        """The records as arrivals, as a table where that is the same.

        ``source`` is that of records that name none; ``first`` the number of the first record, for the places of those
        that are no events. ``bad_record`` makes their bad records, where the caller knows the places better.
        """
        if self._by_source:
            self._only_type = source
        if isinstance(records, pa.RecordBatch):
            records = pa.Table.from_batches([records])
        if not len(records):
            return Arrivals([], [] if self.schema.key else None, [])
        if not self._columns or self.choice is None:
            self._look(records)
        if isinstance(records, pa.Table):
            found = self._table(records, source)
            if found is not None:
                return found
            records = _rows(records, self.schema)
        events, keys, bad = [], [], []
        for number, record in enumerate(records, first):
            if isinstance(record, BadRecord):
                bad.append(record)
                continue
            try:
                event, key = self.event(record, source)
            except BadRecordError as error:
                bad.append((bad_record or _bad_record)(number, str(error), _shown(record)))
                continue
            events.append(event)
            keys.append(key)
        return Arrivals(events, keys if self.schema.key is not None else None, bad)

    def roles(self, source: str | None = None) -> dict[str, str]:
        """How each role is filled, in words, as far as the first records show; for people."""
        schema, columns = self.schema, self._columns
        shown = {"ts": f"{schema.ts!r}, in {schema.unit or 'units that the first records show'}"}
        for role in ("type", "source", "seq") if self._by_source else ("type", "source", "seq", "key"):
            name = getattr(schema, role)
            if name is not None:
                missing = "" if name in columns or not columns else ", which the first records do not have"
                shown[role] = f"{name!r}{missing}"
            elif role == "key":
                shown[role] = "none: one engine for all events"
            elif role in columns and (role != "seq" or self._knows_source(source)):
                shown[role] = f"{role!r}, by its name"
            elif self._by_source and role != "seq":
                shown[role] = "none: the name of the source that delivers the record"
            elif role == "type":
                shown[role] = f"none: all events are {self._only_type!r}"
            elif role == "seq" and role in columns:
                shown[role] = (
                    "none: 'seq' is a sequence number per source, and no source is given; --seq seq uses it anyway"
                )
            else:
                shown[role] = f"none: {source!r}" if role == "source" and source else "none"
        return shown

    def explained(self, source: str | None = None) -> tuple[list[str], list[str]]:
        """How records are read, as far as the first of them show: notes and warnings for people."""
        roles = "; ".join(f"{role} {words}" for role, words in self.roles(source).items())
        notes, warnings = (self.choice.notes, self.choice.warnings) if self.choice else ((), ())
        return [f"record schema: {roles}", *notes], list(warnings)

    def check_fields(self, where: str) -> None:
        """Raise SchemaError if the first records lack the field of event times, or a type or sequence number that the
        schema names. For sources whose records have the same fields throughout, such as files.
        """
        if self._columns:
            self.schema.check_fields(self._columns, ("ts", "type", "seq"), where)

    def event(self, record: Mapping[str, Any] | Event, default: str | None = None) -> tuple[Event, Any]:
        """One record as an event, and its key; its source is ``default`` if it names none.

        Raises :class:`BadRecordError`.
        """
        schema = self.schema
        if isinstance(record, Event):
            if is_date(record.ts):
                ts = time_of(record.ts, schema.unit or "us")
                record = Event.of(record.type, ts, record.source, record.seq, dict(record.payload))
            elif time_stamp(record.ts) is None:
                raise BadRecordError(f"the event time is {record.ts!r:.80}; an event time is {A_TIME_STAMP}")
            return record, record.payload.get(schema.key) if schema.key is not None else None
        if not isinstance(record, Mapping):
            raise BadRecordError(f"a record is a mapping or an event, not a {type(record).__name__}")
        payload = {name: value for name, value in record.items() if value is not None}
        if schema.ts not in payload:
            raise BadRecordError(f"field {schema.ts!r}, the event time, is missing")
        ts = time_of(payload.pop(schema.ts), schema.unit or "us")
        key = payload.pop(schema.key, None) if schema.key is not None else None
        kind = payload.pop(schema.type or "type", None)
        if kind is None and schema.type is None:
            kind = self._only_type
        if isinstance(kind, int) and not isinstance(kind, bool):
            kind = str(kind)  # in CSV a type may look like a number
        if not isinstance(kind, str) or not kind:
            raise BadRecordError(f"field {schema.type or 'type'!r} holds no event type, but {kind!r:.80}")
        source = self._source(payload, key, default)
        seq = None
        if schema.seq is not None or (source is not None or key is not None):
            seq = _sequence(payload, schema.seq)
        return Event.of(kind, ts, source, seq, payload), key

    def _source(self, payload: dict[str, Any], key: Any, default: str | None) -> Any:
        schema = self.schema
        if schema.source is not None and schema.source == schema.key:
            return key
        name = schema.source or "source"
        source = payload.get(name)
        if source is None:
            return default
        if isinstance(source, bool) or not isinstance(source, str | int):
            if schema.source is None:
                return default  # a field that happens to be called so is payload
            raise BadRecordError(f"field {name!r} holds no source, but {source!r:.80}")
        del payload[name]
        return source

    def _knows_source(self, source: str | None) -> bool:
        """Whether a sequence number has a source to count in."""
        named = (self.schema.source or "source") in self._columns
        return named or self.schema.key is not None or source is not None

    def _look(self, records: Records) -> None:
        """See which fields the first records have, and recognise the unit of their event times."""
        values: Any = []
        if isinstance(records, pa.Table):
            self._columns = list(records.column_names)
            if self.schema.ts in self._columns:
                values = records[self.schema.ts][:_SAMPLE].drop_null()
        else:
            mappings = [record for record in records[:_SAMPLE] if isinstance(record, Mapping)]
            self._columns = list(dict.fromkeys(name for record in mappings for name in record))
            values = [value for record in mappings if (value := record.get(self.schema.ts)) is not None]
        if self.choice is None and len(values):
            self.choice = unit_of({self.schema.ts: bare_times(values)}, self.schema.unit, "the records")
            self.schema = msgspec.structs.replace(self.schema, unit=self.choice.unit)

    def _table(self, records: pa.Table, default: str | None) -> Arrivals | None:
        """A table as arrivals, if each row is an event and reads the same as a record would."""
        schema, rows = self.schema, len(records)
        payload = {name: _plain(records[name]) for name in records.column_names}
        try:
            ts = _times(payload.pop(schema.ts), schema.unit or "us")
            key = payload.pop(schema.key) if schema.key is not None else None
            kind = self._types(payload, rows)
            source = self._sources(payload, key)
            own = {"ts": ts, "type": kind}
            if source is not None or default is not None:  # otherwise there is no such column, which says the same
                own["source"] = pa.repeat(default, rows) if source is None else source
            if schema.seq is not None and schema.seq in payload:
                own["seq"] = _numbers(payload.pop(schema.seq))
            elif schema.seq is None and "seq" in payload and _are_numbers(payload["seq"]):
                if source is None and key is None and default is None:
                    return None  # it stays payload, which a table cannot show beside its own column of that name
                own["seq"] = payload.pop("seq")
        except (KeyError, BadRecordError, pa.ArrowInvalid, OverflowError):
            return None
        if key is not None and not (pa.types.is_string(key.type) or pa.types.is_integer(key.type)):
            return None
        if not payload.keys().isdisjoint(OWN) or not all(_is_exact(column.type) for column in payload.values()):
            return None
        return Arrivals(pa.table(own | payload), key, [])

    def _types(self, payload: dict[str, pa.Array], rows: int) -> pa.Array:
        name = self.schema.type or "type"
        if name not in payload:
            if self._only_type is None or self.schema.type is not None:
                raise BadRecordError("there is no type")
            return _repeated(self._only_type, rows)
        column = payload.pop(name)
        if pa.types.is_null(column.type) and self._only_type is not None and self.schema.type is None:
            return _repeated(self._only_type, rows)
        if pa.types.is_integer(column.type):
            column = column.cast(pa.string())
        if not pa.types.is_string(column.type) or column.null_count or pc.any(pc.equal(column, "")).as_py():
            raise BadRecordError("one of the types is null")
        return column

    def _sources(self, payload: dict[str, pa.Array], key: pa.Array | None) -> pa.Array | None:
        """The sources; None where the records name none."""
        schema = self.schema
        if schema.source is not None and schema.source == schema.key:
            return key
        column = payload.get(schema.source or "source")
        if column is None or pa.types.is_null(column.type):
            payload.pop(schema.source or "source", None)
            return None
        if column.null_count or not (pa.types.is_string(column.type) or pa.types.is_integer(column.type)):
            raise BadRecordError("a source is missing or null")
        return payload.pop(schema.source or "source")


#: Characters of the text of a bad record, at most.
SHOWN = 65_536
_NO_TIME = "the event time is missing"


def _shown(record: Mapping[str, Any] | Event) -> str:
    """A record as JSON, as text where it has no such form; without the fields that have no value, as they are null in
    the rows of a table."""
    if isinstance(record, Event):
        return repr(record)[:SHOWN]
    if isinstance(record, Mapping):
        record = {name: value for name, value in record.items() if value is not None}
        with contextlib.suppress(SlacklineError):
            return to_json(record)[:SHOWN]
    return str(record)[:SHOWN]


def time_of(value: Any, unit: str = "us") -> int:
    """The event time in a field; see :mod:`slackline.core.time`.

    Numbers stay as they are, also as text. ISO 8601 text and dates (``datetime``, also of pandas and NumPy) become
    whole numbers of ``unit`` since 1970; without a time zone they are UTC.

    >>> time_of("1970-01-01T00:00:01.5+00:00"), time_of(12.0), time_of("12")
    (1500000, 12, 12)
    """
    number = _number_in(value.strip(), unit) if isinstance(value, str) else value
    if (date := instant(number)) is not None:
        number = converted(*date, unit)
    if number is None:
        raise BadRecordError(_NO_TIME)
    if isinstance(number, float) and EXACT < abs(number) < math.inf:
        raise BadRecordError(f"the event time {number!r} has lost digits as a floating-point number")
    ts = time_stamp(number)
    if ts is None:
        has_fraction = isinstance(number, float) and math.isfinite(number) and number % 1
        hint = "; convert times with a fraction to a finer unit, such as ms" if has_fraction else ""
        raise BadRecordError(f"the event time {number!r:.64} is not {A_TIME_STAMP}{hint}")
    return ts


def _number_in(text: str, unit: str) -> int | float | None:
    """The number or the ISO 8601 time in a text; None if it is empty."""
    if not text:
        return None
    if len(text) > 64:
        raise BadRecordError(f"{text[:20]!r}... is not an event time")
    if _INTEGER.fullmatch(text):
        return int(text)
    if _NUMBER.fullmatch(text):
        return float(text)
    date = instant(text)
    if date is None:
        raise BadRecordError(f"{text!r} is neither an integer nor a time in ISO 8601")
    return converted(*date, unit)


def times_of(values: pa.ChunkedArray | Sequence[Any], unit: str) -> tuple[Ints, dict[int, str]]:
    """:func:`time_of` for the values of a field; for rows that hold no event time, which are 0, the reason."""
    if isinstance(values, pa.ChunkedArray):
        column = _plain(values)
        try:
            return _times(column, unit).to_numpy(), {}
        except (BadRecordError, pa.ArrowInvalid, OverflowError):
            values = _time_values(column, unit)
    times = np.zeros(len(values), np.int64)
    bad: dict[int, str] = {}
    for row, value in enumerate(values):
        try:
            times[row] = time_of(value, unit)
        except BadRecordError as error:
            bad[row] = str(error)
    return times, bad


def bare_times(values: pa.ChunkedArray | Sequence[Any]) -> Ints:
    """The bare numbers among the first values of a field of event times: those that may show their unit."""
    if isinstance(values, pa.ChunkedArray):
        values = [] if pa.types.is_temporal(values.type) else values[:_SAMPLE].to_pylist()
    return np.array([number for value in values[:_SAMPLE] if (number := _bare(value)) is not None], np.int64)


def _bare(value: Any) -> int | None:
    """The number in a field of event times, if it is a bare number."""
    if isinstance(value, str):
        if not _INTEGER.fullmatch(value.strip()[:20]):
            return None
        value = int(value.strip()[:20])
    number = time_stamp(value)
    return number if number else None  # 0 is no date


def _sequence(payload: dict[str, Any], name: str | None) -> int | None:
    """Take the sequence number out of a payload. A field that only happens to be called ``seq`` stays."""
    value = payload.get(name or "seq")
    if isinstance(value, str) and _INTEGER.fullmatch(value) and len(value) < 20:
        value = int(value)
    number = None if value is None or value == "" else time_stamp(value)
    if number is None and value not in (None, ""):
        if name is None:
            return None
        raise BadRecordError(f"the sequence number {value!r:.64} is not {A_TIME_STAMP}")
    payload.pop(name or "seq", None)
    return number


def _rows(table: pa.Table, schema: RecordSchema) -> list[dict[str, Any]]:
    """The rows of a table as records; Arrow's timestamps in the event time become integers of the unit."""
    at = table.schema.get_field_index(schema.ts)
    times = _time_values(table.column(at), schema.unit or "us") if at >= 0 else []
    rows: list[dict[str, Any]] = (table.set_column(at, schema.ts, pa.nulls(len(table))) if times else table).to_pylist()
    for row, value in zip(rows, times, strict=bool(times)):
        row[schema.ts] = value
    return rows


def _time_values(column: pa.ChunkedArray, unit: str) -> list[Any]:
    """The values of a column of event times; Arrow's timestamps become integers of the unit."""
    if not pa.types.is_timestamp(column.type):
        values: list[Any] = column.to_pylist()
        return values
    numbers = column.cast(pa.int64()).to_pylist()
    # In Python's integers: in those of Arrow a far time of a fine unit would become a near one.
    return [None if number is None else converted(number, column.type.unit, unit) for number in numbers]


# Columns, by the same rules; what has no exact form in columns raises, and the rows are read one by one.


def _plain(column: pa.Array) -> pa.Array:
    """Text of any layout as plain text."""
    kind = column.type.value_type if pa.types.is_dictionary(column.type) else column.type
    is_text = pa.types.is_large_string(kind) or pa.types.is_string_view(kind) or pa.types.is_string(kind)
    return column.cast(pa.string()) if is_text else column


def _times(column: pa.Array, unit: str) -> pa.Array:
    """:func:`time_of` for a column."""
    if pa.types.is_timestamp(column.type) and not column.null_count:
        numbers = converted_column(column.cast(pa.int64()).to_numpy(), column.type.unit, unit)
        return _in_range(pa.array(numbers))
    if column.null_count or not (pa.types.is_integer(column.type) or _all_match(column, _DIGITS)):
        return pa.array([time_of(value, unit) for value in column.to_pylist()], pa.int64())
    return _in_range(column.cast(pa.int64()))


def _repeated(text: str, rows: int) -> pa.Array:
    """The same text in each row, stored once."""
    return pa.DictionaryArray.from_arrays(pa.repeat(pa.scalar(0, pa.int32()), rows), [text])


def _numbers(column: pa.Array) -> pa.Array:
    """Sequence numbers."""
    if pa.types.is_integer(column.type) or _all_match(column, _DIGITS):
        return _in_range(column.cast(pa.int64()))
    return pa.array([_sequence({"seq": value}, "seq") for value in column.to_pylist()], pa.int64())


def _are_numbers(column: pa.Array) -> bool:
    """Whether all that is given is a sequence number."""
    if not pa.types.is_integer(column.type):
        return pa.types.is_null(column.type)
    bounds = pc.min_max(column).as_py()
    return bounds["min"] is None or 0 <= bounds["min"] <= bounds["max"] <= MAX_TS


def _in_range(numbers: pa.Array) -> pa.Array:
    bounds = pc.min_max(numbers).as_py()
    if bounds["min"] is not None and not 0 <= bounds["min"] <= bounds["max"] <= MAX_TS:
        raise BadRecordError("one of the numbers is not an event time")
    return numbers


def _all_match(column: pa.Array, pattern: str) -> bool:
    """Whether all texts in a column are like this."""
    return pa.types.is_string(column.type) and pc.all(pc.match_substring_regex(column, pattern)).as_py() is not False


def _is_exact(kind: pa.DataType) -> bool:
    """Whether an engine gives values of such a column as they would be in an event."""
    if pa.types.is_timestamp(kind) or pa.types.is_duration(kind):
        return bool(kind.unit != "ns")  # Python has no nanoseconds
    return bool(
        pa.types.is_integer(kind)
        or pa.types.is_floating(kind)
        or pa.types.is_boolean(kind)
        or pa.types.is_string(kind)
        or pa.types.is_null(kind)
        or pa.types.is_union(kind)
        or pa.types.is_date(kind)
    )
