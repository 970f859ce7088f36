"""A record becomes an event: one rule for rows of files, lines of JSON and messages.

A record is a mapping of names to values. One of them is the time stamp; one may be the type, one the sequence number;
the rest is payload. A record that cannot become an event is rejected, counted and remembered with its place: one bad
line does not end a stream.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any, NamedTuple

import msgspec

from slackline.core import check
from slackline.core.errors import ConfigError
from slackline.core.event import Event
from slackline.core.time import A_TIME_STAMP, PER_SECOND, converted, time_stamp

#: So many rejected records are kept; all are counted.
KEPT = 100
#: So many characters of a rejected record are kept.
SHOWN = 200
#: Beyond this a floating-point number no longer tells neighbouring integers apart.
EXACT = 2**53

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND = timedelta(microseconds=1)
_INTEGER = re.compile(r"[+-]?[0-9]+")
_NUMBER = re.compile(r"[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]+)?")


class BadRecordError(ValueError):
    """A record that cannot become an event; the message says why. Never leaves this package."""


def check_name(name: Any, what: str) -> str:
    """The name, if it is one."""
    if not isinstance(name, str) or not name:
        raise ConfigError(f"{what} is named by a string that is not empty; got {name!r}.")
    return name


class Rejected(NamedTuple):
    """A record that could not become an event: where it stood, why, and how it begins."""

    place: str
    reason: str
    record: str


class Rejects:
    """The records that were rejected: all counted, the first :data:`KEPT` kept, unless somebody wants to be told."""

    def __init__(self) -> None:
        self.count = 0
        self.kept: list[Rejected] = []
        self.tell: Callable[[Rejected], object] | None = None

    def add(self, place: str, reason: str, record: Any) -> None:
        self.count += 1
        if self.tell is not None or len(self.kept) < KEPT:
            text = record.decode("utf-8", "replace") if isinstance(record, bytes) else str(record)
            (self.tell or self.kept.append)(Rejected(place, reason, text[:SHOWN]))


@dataclass(frozen=True, slots=True)
class Fields:
    """Which field of a record is what.

    ``ts``          the field with the time stamp (see :func:`time_of`).
    ``type``        the type of all events, unless ``type_field`` names the field that holds it.
    ``seq``         the field with the sequence number, if there is one; a record without a value there has none.
    ``unit``        what dates and times of day are turned into. Integers are taken as they are.

    >>> door = Fields(ts="at", type="door")
    >>> door.event({"at": 7, "open": True}, "hall")
    Event('door', ts=7, source='hall', open=True)
    """

    ts: str
    type: str
    type_field: str | None = None
    seq: str | None = None
    unit: str = "us"

    def __post_init__(self) -> None:
        check.one_of("unit", self.unit, PER_SECOND)
        names = [name for name in (self.ts, self.type_field, self.seq) if name is not None]
        for name in [*names, self.type]:
            check_name(name, "a field or type")
        if len(set(names)) < len(names):
            raise ConfigError(f"ts, type_field and seq must be different fields; got {names}.")

    def event(self, record: Mapping[str, Any], source: str, type: str | None = None) -> Event:
        """The record as an event of the stream ``source``. Raises :class:`BadRecordError`."""
        payload = dict(record)
        if self.ts not in payload:
            raise BadRecordError(f"there is no field {self.ts!r}")
        ts = time_of(payload.pop(self.ts), self.unit)
        if self.type_field is not None:
            type = payload.pop(self.type_field, None)
            if not isinstance(type, str) or not type:
                raise BadRecordError(f"field {self.type_field!r} holds no type, but {type!r}")
        seq = payload.pop(self.seq, None) if self.seq is not None else None
        return Event.of(type or self.type, ts, source, None if seq is None else sequence_number(seq), payload)


def time_of(value: Any, unit: str = "us") -> int:
    """The time stamp that a record gives; see :mod:`slackline.core.time`.

    Numbers stay as they are, also as text. ISO 8601 text and ``datetime`` become whole numbers of ``unit`` since 1970;
    without a time zone they are UTC.

    >>> time_of("1970-01-01T00:00:01.5+00:00"), time_of(12.0), time_of("12")
    (1500000, 12, 12)
    """
    number = _number_in(value.strip(), unit) if isinstance(value, str) else value
    if isinstance(number, datetime):
        number = _since_epoch(number, unit)
    if number is None:
        raise BadRecordError("the time stamp is missing")
    if isinstance(number, float) and EXACT < abs(number) < math.inf:
        raise BadRecordError(f"the time stamp {number!r} has lost digits as a floating-point number")
    ts = time_stamp(number)
    if ts is None:
        raise BadRecordError(f"the time stamp {number!r:.64} is not {A_TIME_STAMP}")
    return ts


def _number_in(text: str, unit: str) -> int | float | None:
    """The number or the ISO 8601 time in a text; None if it is empty."""
    if not text:
        return None
    if len(text) > 64:
        raise BadRecordError(f"{text[:20]!r}... is not a time stamp")
    if _INTEGER.fullmatch(text):
        return int(text)
    if _NUMBER.fullmatch(text):
        return float(text)
    try:
        return _since_epoch(datetime.fromisoformat(text), unit)
    except (ValueError, OverflowError) as cause:
        raise BadRecordError(f"{text!r} is neither an integer nor a time in ISO 8601") from cause


def _since_epoch(moment: datetime, unit: str) -> int:
    moment = moment if moment.tzinfo is not None else moment.replace(tzinfo=UTC)
    return converted((moment - _EPOCH) // _MICROSECOND, "us", unit)


def sequence_number(value: Any) -> int | None:
    """The sequence number that a record gives; an empty text is none."""
    if isinstance(value, str):
        if not value:
            return None
        value = int(value) if _INTEGER.fullmatch(value) and len(value) < 20 else value
    number = time_stamp(value)
    if number is None:
        raise BadRecordError(f"the sequence number {value!r:.64} is not {A_TIME_STAMP}")
    return number


_json = msgspec.json.Decoder()


def object_of(text: bytes | str) -> dict[str, Any]:
    """The JSON object in a line or message. Raises :class:`BadRecordError`."""
    try:
        record = _json.decode(text)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as cause:
        raise BadRecordError(f"not JSON: {cause}") from cause
    if not isinstance(record, dict):
        raise BadRecordError(f"a JSON object is expected, not {type(record).__name__}")
    return record
