"""The mapping of tracking data: which object is the ball, which is whose player, and how to read the numbers.

As JSON, where everything but ``objects`` may be left out::

    {
      "objects": [
        {"object": "ball", "role": "ball"},
        {"object": "h1", "role": "goalkeeper", "team": "home", "name": "Ito"},
        {"object": "h7", "team": "home"},
        ...
      ],
      "field": {"length": 105, "width": 68, "lengthwise": "x"},
      "time": "s", "unit": "m", "origin": "centre", "low": "home",
      "periods": [{"start": 0, "stop": 2700}, {"start": 3600, "stop": 6300}]
    }

As CSV: the columns ``object``, ``role``, ``team``, ``name``; the rest is then recognised.

Field sizes are in metres. ``time`` (s, ms, us, ns, ps) and ``unit`` (m, cm, mm, fraction of the field) say what the
recording's numbers are, ``origin`` (centre, corner) where its zero is, ``low`` who defends the goal at the low end in
the first period. Periods are in the recording's own time; teams change ends after each, unless a period has a
``low`` of its own. Without periods the whole recording is one.
"""

from __future__ import annotations

import csv
import json
from collections import Counter
from collections.abc import Mapping as Dict
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from slackline import ConfigError
from slackline_soccer.tracking.game import PLAYS, Ground, Limb, Role, Sensor

TIME_UNITS = ("s", "ms", "us", "ns", "ps")
LENGTH_UNITS = ("m", "cm", "mm", "fraction")
ORIGINS = ("centre", "corner")

Size = tuple[float, float]
#: Metres, where neither the mapping nor the application says.
SOCCER: Size = (105, 68)

_KEYS = {"objects", "field", "time", "unit", "origin", "low", "periods", "name"}
_OBJECT_KEYS = {"object", "role", "team", "name", "limb"}


@dataclass(frozen=True, slots=True)
class GivenPeriod:
    """A period as the mapping gives it: in the recording's own time, ``low`` where it is said."""

    start: Any
    stop: Any
    low: str | None = None


@dataclass(frozen=True, slots=True)
class Mapping:
    """What a mapping file says; None where it leaves the recording to speak for itself."""

    sensors: tuple[Sensor, ...]
    objects: Dict[str, int]
    length: float
    width: float
    lengthwise: str = "x"
    time: str | None = None
    unit: str | None = None
    origin: str | None = None
    low: str | None = None
    periods: tuple[GivenPeriod, ...] = ()
    name: str = "match"

    def ground(self, origin: str) -> Ground:
        """The ground in mm, its zero at the centre spot or in a corner."""
        along = (-self.length / 2, self.length / 2) if origin == "centre" else (0.0, self.length)
        across = (-self.width / 2, self.width / 2) if origin == "centre" else (0.0, self.width)
        x, y = (along, across) if self.lengthwise == "x" else (across, along)
        return Ground(x, y, lengthwise=self.lengthwise)

    @property
    def teams(self) -> tuple[str, ...]:
        return tuple(sorted({str(sensor.team) for sensor in self.sensors if sensor.role in PLAYS}))


def load_mapping(path: Path | str, size: Size = SOCCER) -> Mapping:
    """Read a mapping from JSON or CSV; whatever is wrong with it is a ConfigError that names it.

    ``size`` is the field's length and width (m) in the sport, where the mapping does not give them.
    """
    path = Path(path)
    try:
        text = path.read_text(encoding="utf-8-sig")
    except (OSError, UnicodeDecodeError) as cause:
        raise ConfigError(f"cannot read the mapping {path}: {cause}.") from cause
    if path.suffix.lower() == ".csv":
        return mapping_of({"objects": _rows(text, path.name)}, path.name, size)
    try:
        read = json.loads(text, object_pairs_hook=_no_key_twice)
    except json.JSONDecodeError as cause:
        raise ConfigError(f"the mapping {path.name} is no JSON: {cause}. A CSV mapping's name ends in .csv.") from cause
    return mapping_of(read, path.name, size)


def mapping_of(read: Any, where: str = "the mapping", size: Size = SOCCER) -> Mapping:
    """A mapping from the values of its JSON."""
    if not isinstance(read, dict) or "objects" not in read:
        raise ConfigError(f"{where} needs a key 'objects': a list of {{'object': ..., 'role': ..., 'team': ...}}.")
    _only(read, _KEYS, where)
    sensors, objects = _objects(read["objects"], where)
    length, width, lengthwise = _size(read.get("field", {}), size, where)
    low = read.get("low")
    mapping = Mapping(
        sensors,
        objects,
        length,
        width,
        lengthwise,
        _choice(read, "time", TIME_UNITS, where),
        _choice(read, "unit", LENGTH_UNITS, where),
        _choice(read, "origin", ORIGINS, where),
        None if low is None else str(low),
        tuple(_span(span, where) for span in read.get("periods", ())),
        str(read.get("name", "match")),
    )
    for team in (mapping.low, *(span.low for span in mapping.periods)):
        if team is not None and team not in mapping.teams:
            raise ConfigError(f"{where}: 'low' is {team!r}, which has no players; the teams are {list(mapping.teams)}.")
    return mapping


def _objects(given: Any, where: str) -> tuple[tuple[Sensor, ...], dict[str, int]]:
    if isinstance(given, dict):
        given = [{"object": name, **_as_dict(entry, where)} for name, entry in given.items()]
    if not isinstance(given, list) or not given:
        raise ConfigError(f"{where}: 'objects' is a list with at least a ball and a player of each team.")
    entries = [_as_dict(entry, where) for entry in given]
    names = [str(entry.get("object", "")).strip() for entry in entries]
    twice = sorted(name for name, times in Counter(names).items() if times > 1)
    if twice:
        raise ConfigError(f"{where} names {', '.join(map(repr, twice))} more than once; name each object once.")
    sensors = tuple(
        _sensor(sid, name, entry, where) for sid, (name, entry) in enumerate(zip(names, entries, strict=True), 1)
    )
    return sensors, {name: sensor.sid for name, sensor in zip(names, sensors, strict=True)}


def _sensor(sid: int, name: str, entry: dict[str, Any], where: str) -> Sensor:
    _only(entry, _OBJECT_KEYS, f"{where}, object {name!r}")
    if not name:
        raise ConfigError(f"{where}: an object has no name: {entry}. Give 'object' as the recording has it.")
    team = str(entry.get("team") or "").strip() or None
    role = _kind(Role, entry.get("role") or ("player" if team else None), f"{where}: the role of object {name!r}")
    if role in PLAYS and team is None:
        raise ConfigError(f"{where}: object {name!r} is a {role} without a team; give 'team'.")
    limb = entry.get("limb") or ("body" if role in PLAYS else None)
    return Sensor(
        sid,
        role,
        str(entry.get("name") or "").strip() or name,
        team if role in (*PLAYS, Role.SUBSTITUTE) else None,
        None if limb is None else _kind(Limb, limb, f"{where}: the limb of object {name!r}"),
    )


def _kind(kind: Any, value: Any, what: str) -> Any:
    try:
        return kind(str(value).strip().lower())
    except ValueError:
        raise ConfigError(f"{what} is {value!r}; choose one of {', '.join(kind)}.") from None


def _size(given: Any, size: Size, where: str) -> tuple[float, float, str]:
    _only(_as_dict(given, where), {"length", "width", "lengthwise"}, f"{where}, 'field'")
    length, width = given.get("length", size[0]), given.get("width", size[1])
    for value in (length, width):
        if isinstance(value, bool) or not isinstance(value, int | float) or not 10 <= value <= 200:
            raise ConfigError(f"{where}: a field is from 10 to 200 m long and wide; got {length!r} by {width!r}.")
    lengthwise = _choice(given, "lengthwise", ("x", "y"), where) or "x"
    return 1000.0 * length, 1000.0 * width, lengthwise


def _span(given: Any, where: str) -> GivenPeriod:
    given = _as_dict(given, where)
    _only(given, {"start", "stop", "low"}, f"{where}, 'periods'")
    if "start" not in given or "stop" not in given:
        raise ConfigError(f"{where}: a period needs 'start' and 'stop'; got {given}.")
    low = given.get("low")
    return GivenPeriod(given["start"], given["stop"], None if low is None else str(low))


def _choice(given: dict[str, Any], key: str, allowed: tuple[str, ...], where: str) -> str | None:
    value = given.get(key)
    if value is not None and value not in allowed:
        raise ConfigError(f"{where}: {key!r} is {value!r}; choose one of {', '.join(allowed)}, or leave it out.")
    return value


def _only(given: dict[str, Any], known: set[str], where: str) -> None:
    unknown = sorted(set(given) - known)
    if unknown:
        raise ConfigError(f"{where} has {', '.join(map(repr, unknown))}; understood are {', '.join(sorted(known))}.")


def _as_dict(given: Any, where: str) -> dict[str, Any]:
    if not isinstance(given, dict):
        raise ConfigError(f"{where}: expected an object in braces, got {given!r}.")
    return given


def _no_key_twice(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    twice = sorted(key for key, times in Counter(key for key, _ in pairs).items() if times > 1)
    if twice:
        raise ConfigError(f"the mapping names {', '.join(map(repr, twice))} more than once; name each object once.")
    return dict(pairs)


def _rows(text: str, where: str) -> list[dict[str, Any]]:
    rows = csv.DictReader(text.splitlines())
    names = [name.strip().lower() for name in rows.fieldnames or ()]
    if "object" not in names:
        raise ConfigError(f"{where} has the columns {names}; a CSV mapping needs object, role, team and may have name.")
    rows.fieldnames = names
    found = []
    for row in rows:
        if None in row or None in row.values():
            raise ConfigError(f"{where}, line {rows.line_num}: {len(names)} values are expected, one per column.")
        found.append(dict(row))
    return found
