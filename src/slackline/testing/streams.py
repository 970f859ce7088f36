"""Streams in a few words: ``"near/p7@3(player=7) kick@5"`` are two events, in order of arrival.

An event is ``TYPE@TS``. ``/SOURCE`` and ``#SEQ`` may follow the type, and fields in parentheses the time:
``kick/ball#4@12(force=2.5, by="home", ok=true)``. A value is a number, true, false, null, text in quotation marks as in
JSON, or a word. Lists and objects are those of JSON.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from slackline.core.errors import SlacklineError
from slackline.core.event import Event

Arrivals = str | Event | Iterable[Event]

_NAME = re.compile(r"[^\s@/#(),=|]+")
_NUMBER = re.compile(r"[0-9]+")
_WORD = re.compile(r"[^\s(),=\"\[\]{}]+")
_JSON = json.JSONDecoder()


class StreamError(SlacklineError, ValueError):
    """A stream in words has a typo; ``position`` is where, counted from 0."""

    def __init__(self, text: str, position: int, expected: str) -> None:
        self.position = position
        start = max(0, position - 60)
        shown = text[start : position + 20].replace("\n", " ")
        found = repr(text[position]) if position < len(text) else "the end of the text"
        super().__init__(
            f"position {position}: expected {expected}, found {found}.\n"
            f"  {shown}\n  {' ' * (position - start)}^\nAn event is TYPE/SOURCE#SEQ@TS(field=value, …), such as "
            f"near/p7@3(player=7); source, seq and fields may be left out."
        )


def stream(text: Arrivals, **fields: Any) -> list[Event]:
    """The events that a text describes, in order of arrival; ``fields`` are given to all of them.

    >>> stream("A@3 B/left#1@5(x=1.5, who=ann) A@4")
    [Event('A', ts=3), Event('B', ts=5, source='left', seq=1, x=1.5, who='ann'), Event('A', ts=4)]
    >>> stream("A@3 B5")
    Traceback (most recent call last):
    slackline.testing.streams.StreamError: position 6: expected '@' and the event time, found the end of the text.
    ...
    """
    if isinstance(text, Event):
        return [text]
    if not isinstance(text, str):
        return list(text)
    return list(_Parser(text, fields).events())


class _Parser:
    def __init__(self, text: str, fields: Mapping[str, Any]) -> None:
        self.text = text
        self.at = 0
        self.fields = fields

    def events(self) -> Iterator[Event]:
        self._skip()
        while self.at < len(self.text):
            yield self._event()
            if self.at < len(self.text) and not self.text[self.at].isspace():
                raise StreamError(self.text, self.at, "a space before the next event")
            self._skip()

    def _event(self) -> Event:
        kind = self._match(_NAME, "an event type")
        source: str | int | None = None
        seq = None
        if self._take("/"):
            name = self._match(_NAME, "the name of a source")
            source = int(name) if name.isdecimal() else name
        if self._take("#"):
            seq = int(self._match(_NUMBER, "a sequence number"))
        if not self._take("@"):
            raise StreamError(self.text, self.at, "'@' and the event time")
        ts = int(self._match(_NUMBER, "an event time, a whole number"))
        payload = dict(self.fields)
        if self._take("("):
            payload |= self._payload()
        return Event.of(kind, ts, source, seq, payload)

    def _payload(self) -> dict[str, Any]:
        found: dict[str, Any] = {}
        self._skip()
        while not self._take(")"):
            if found and not self._take(","):
                raise StreamError(self.text, self.at, "',' or ')'")
            self._skip()
            name = self._match(_NAME, "the name of a field")
            self._skip()
            if not self._take("="):
                raise StreamError(self.text, self.at, "'=' and the value of the field")
            self._skip()
            found[name] = self._value()
            self._skip()
        return found

    def _value(self) -> Any:
        if self.text[self.at : self.at + 1] in ('"', "[", "{"):
            try:
                value, self.at = _JSON.raw_decode(self.text, self.at)
            except json.JSONDecodeError as error:
                raise StreamError(self.text, error.pos, "a value as in JSON") from None
            return value
        word = self._match(_WORD, "a value")
        try:
            return json.loads(word)
        except json.JSONDecodeError:
            return word

    def _match(self, pattern: re.Pattern[str], expected: str) -> str:
        found = pattern.match(self.text, self.at)
        if found is None:
            raise StreamError(self.text, self.at, expected)
        self.at = found.end()
        return found[0]

    def _take(self, sign: str) -> bool:
        there = self.text.startswith(sign, self.at)
        self.at += there
        return there

    def _skip(self) -> None:
        while self.at < len(self.text) and self.text[self.at].isspace():
            self.at += 1


def show(events: Iterable[Event], sources: bool = True) -> str:
    """Events as a text that :func:`stream` reads.

    >>> show(stream('A@3 B/left#1@5(x=1.5, who="ann b")'))
    'A@3 B/left#1@5(x=1.5, who="ann b")'
    """
    return " ".join(_shown(event, sources) for event in events)


def _shown(event: Event, sources: bool) -> str:
    source = f"/{event.source}" if sources and event.source is not None else ""
    seq = f"#{event.seq}" if sources and event.seq is not None else ""
    fields = ", ".join(f"{name}={_shown_value(value)}" for name, value in event.payload.items())
    return f"{event.type}{source}{seq}@{event.ts}{f'({fields})' if fields else ''}"


def _shown_value(value: Any) -> str:
    if isinstance(value, str) and _WORD.fullmatch(value):
        try:
            json.loads(value)
        except json.JSONDecodeError:
            return value  # a word that is no number
    try:
        return json.dumps(value)
    except (TypeError, ValueError):
        return repr(value)
