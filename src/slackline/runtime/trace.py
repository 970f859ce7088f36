"""Traces: everything that engines were given, as JSON lines, so that their decisions can be explained afterwards.

An engine decides by its arrivals alone, however they were cut into pushes and whether it was restarted (laws 3 and 6).
So a trace records arrivals and, per engine, the state that they met; :mod:`slackline.explain` replays it and watches.
The engine does nothing for it but hand over its arguments. Reading a trace imports and evaluates nothing.

The first line has the version and the application. Each further line is one call of one engine, in the order of calls:

``state``   the state of an engine at its first call in this file (base64 of :meth:`slackline.Engine.save`)
``new``     the engine begins as the first one in this file that was new did: its state is not repeated
``push``    ``rows`` are ``[type, ts, source, seq, payload]``, or ``{"state": …}`` where JSON cannot hold the values;
            ``now`` their arrival times; ``form`` that of event times outside, if they are no whole numbers
``flush``, ``close``, ``pool``   see :class:`~slackline.engine.recorder.Recorded`
"""

from __future__ import annotations

import base64
import math
from collections.abc import Iterator
from pathlib import Path
from typing import Any, BinaryIO

import msgspec
import pyarrow as pa

from slackline.core import codec
from slackline.core.check import whole_number
from slackline.core.errors import ConfigError, SlacklineError, UnsupportedStateError
from slackline.core.event import Event
from slackline.core.time import NEVER
from slackline.engine.recorder import Recorded
from slackline.runtime.forms import events_of

VERSION = 1
#: Arrivals per file, unless given.
LIMIT = 100_000

_PLAIN = (str, int, bool, type(None))


class TraceError(SlacklineError):
    """A file is not a trace, or is damaged."""


class Trace:
    """Records the calls of engines in a file, for ``slackline explain``.

    ``path``   the file. What it had before becomes ``path.1``, and what that had is removed.
    ``app``    the application, as ``slackline run`` takes it, for ``slackline explain`` to load.
    ``limit``  arrivals per file: after so many ``path`` becomes ``path.1`` and a new file begins, with the states of
               the engines, so that each file can be explained by itself.

    >>> import os, tempfile
    >>> from slackline import Detector, Engine, Event, Hierarchy
    >>> class Echo(Detector):
    ...     listens, publishes = ("ping",), ("pong",)
    ...     def on_event(self, event):
    ...         yield event.derive("pong")
    >>> path = os.path.join(tempfile.mkdtemp(), "trace.jsonl")
    >>> engine = Engine(Hierarchy([Echo()]))
    >>> with Trace(path) as engine.trace:
    ...     found = engine.push([Event("ping", ts=5), Event("ping", ts=2)])
    >>> [call["op"] for call in read_trace(path)[1]]
    ['new', 'push']
    """

    def __init__(self, path: str | Path, *, app: str | None = None, limit: int = LIMIT) -> None:
        self.path, self.app = Path(path), app
        self.limit = whole_number("limit", limit, 1)
        self._file: BinaryIO | None = None
        self._epoch = 0
        self._begin()

    def record(self, call: Recorded, key: Any = None) -> None:
        """Record a call of an engine; ``key`` is its key, where there are several."""
        if self._file is None:
            raise ConfigError(f"the trace {self.path} is closed; set engine.trace to None, or to a new Trace.")
        rows = events_of(call.rows) if isinstance(call.rows, pa.Table) else call.rows
        if self._arrivals and self._arrivals + len(rows) > self.limit:
            self._begin()
        self._arrivals += len(rows)
        if key not in self._known:
            self._known.add(key)
            state = None if call.position == 0 and self._new else _text(call.save())
            self._new |= call.position == 0
            op = "new" if call.position == 0 else "state"
            self._write({"op": op, "key": key, "state": state, "position": call.position})
        line: dict[str, Any] = {"op": call.op, "key": key, "position": call.position}
        if call.op == "push":
            line["rows"] = [_row(event) for event in rows]
            if call.times is not None:
                line["now"] = [None if now == NEVER else now for now in call.times.tolist()]
            if call.form is not None:
                line["form"] = list(call.form)
        elif call.op == "pool":
            if call.given.epoch != self._epoch:
                self._epoch = call.given.epoch
                line["state"] = _text(codec.encode(call.given.state()))
        elif call.given is not None:
            line["given"] = call.given
        self._write(line)

    def drop(self, key: Any) -> None:
        """The engine of a key was dropped: the next one of the key is a new one."""
        self._known.discard(key)

    def of(self, key: Any) -> KeyTrace:
        """What records the engine of a key."""
        return KeyTrace(self, key)

    def close(self) -> None:
        """Close the file; the trace is complete up to here."""
        if self._file is not None:
            self._file.close()
            self._file = None

    def __enter__(self) -> Trace:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _begin(self) -> None:
        """Begin a file."""
        self.close()
        self._arrivals, self._known, self._new, self._epoch = 0, set[Any](), False, 0
        try:
            if self.path.exists():
                self.path.replace(self.path.with_name(f"{self.path.name}.1"))
            self._file = open(self.path, "wb")  # noqa: SIM115
        except OSError as error:
            raise ConfigError(f"cannot write the trace {self.path}: {error}.") from error
        self._write({"slackline": "trace", "version": VERSION, "app": self.app})

    def _write(self, line: dict[str, Any]) -> None:
        assert self._file is not None
        self._file.write(msgspec.json.encode(line) + b"\n")
        self._file.flush()


class KeyTrace:
    """A trace as the engine of one key sees it."""

    __slots__ = ("_key", "_trace")

    def __init__(self, trace: Trace, key: Any) -> None:
        self._trace, self._key = trace, key

    def record(self, call: Recorded) -> None:
        """Record a call of this engine."""
        self._trace.record(call, self._key)


def _text(data: bytes) -> str:
    return base64.b64encode(data).decode("ascii")


def _row(event: Event) -> Any:
    values = [event.type, event.ts, event.source, event.seq, dict(event.payload)]
    if all(map(_is_plain, values[:4])) and all(map(_is_plain, event.payload.values())):
        return values
    try:
        return {"state": _text(codec.encode(values))}
    except UnsupportedStateError:  # such an event is quarantined, or has a value that only its detector knows
        return {"shown": repr(event)}


def _is_plain(value: Any) -> bool:
    if type(value) is float:
        return math.isfinite(value)
    return type(value) in _PLAIN and not (type(value) is int and not -(2**63) <= value < 2**63)


def read_trace(path: str | Path) -> tuple[dict[str, Any], Iterator[dict[str, Any]]]:
    """The first line of a trace and its calls, with states as bytes and rows as events; TraceError if it is none."""
    path = Path(path)
    try:
        with path.open("rb") as file:
            head = _parsed(path, 1, file.readline())
    except OSError as error:
        raise TraceError(f"cannot read the trace {path}: {error}.") from error
    if head.get("slackline") != "trace":
        raise TraceError(f"{path} is not a trace; `slackline run --trace FILE` and slackline.runtime.Trace write them.")
    if head.get("version") != VERSION:
        raise TraceError(
            f"{path} is a trace of version {head.get('version')!r}, and this release reads version {VERSION}. Explain "
            f"it with the release that wrote it."
        )
    return head, _calls(path)


def _calls(path: Path) -> Iterator[dict[str, Any]]:
    with path.open("rb") as file:
        for number, line in enumerate(file, 1):
            if number == 1 or not line.endswith(b"\n"):  # the last line may be incomplete: the process was killed
                continue
            call = _parsed(path, number, line)
            try:
                if call.get("state") is not None:
                    call["state"] = base64.b64decode(call["state"], validate=True)
                call["rows"] = [_event(row) for row in call.get("rows", ())]
                yield {"key": None, "now": None, "form": None, "given": None, **call}
            except (LookupError, SlacklineError, TypeError, ValueError) as error:
                raise TraceError(f"{path}, line {number} is damaged: {error}.") from error


def _parsed(path: Path, number: int, line: bytes) -> dict[str, Any]:
    try:
        return msgspec.json.decode(line, type=dict)
    except msgspec.DecodeError as error:
        raise TraceError(f"{path}, line {number} is not a line of a trace: {error}.") from error


def _event(row: Any) -> Event:
    if isinstance(row, dict):
        if "shown" in row:
            return Event.of(None, None, None, None, {"shown": str(row["shown"])})  # type: ignore[arg-type]
        row = codec.decode(base64.b64decode(row["state"], validate=True))
    kind, ts, source, seq, payload = row
    return Event.of(kind, ts, source, seq, dict(payload))
