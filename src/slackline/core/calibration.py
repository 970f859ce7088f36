"""Calibration: the delays of a hierarchy's event types that an engine may start from, as a value and as a JSON file.

``slackline calibrate`` makes it from a recording, or from the calibration of another hierarchy
(:mod:`slackline.calibration`; [Order, III; Thesis, 3.5]). It names its detectors and its clock, so that an engine of
another hierarchy refuses it. All numbers are in the unit of the time stamps.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from slackline.core.check import whole_number
from slackline.core.errors import ConfigError
from slackline.core.hierarchy import Hierarchy
from slackline.core.time import MAX_TS

KIND, VERSION = "calibration", 1

REMEDY = "Make it again with `slackline calibrate`."


@dataclass(frozen=True, slots=True)
class TypeDelay:
    """The delay of one event type; of a derived type also its parts besides the wait of the publisher's input:
    processing, back-dating, and the network.
    """

    delay: int
    processing: int = 0
    back: int = 0
    network: int = 0


#: The parts of a delay in the file: of a sensor type, and of a derived type.
SENSOR, PUBLISHED = ("delay",), ("delay", "processing", "back", "network")


@dataclass(frozen=True, slots=True)
class Wiring:
    """The types that a detector listens to and publishes, sorted by name."""

    listens: tuple[str, ...]
    publishes: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Calibration:
    """The delays of all event types of a hierarchy, and which hierarchy that is.

    >>> hits = {"listens": ["kick", "near"], "publishes": []}
    >>> content = {"slackline": "calibration", "version": 1, "clock": ["kick"], "detectors": {"Hits": hits}}
    >>> Calibration.of({**content, "types": {"kick": {"delay": 0}, "near": {"delay": 9}}}).types["near"]
    TypeDelay(delay=9, processing=0, back=0, network=0)
    """

    clock: tuple[str, ...]
    clock_aids: tuple[str, ...]
    detectors: dict[str, Wiring]
    types: dict[str, TypeDelay]

    @classmethod
    def made(cls, hierarchy: Hierarchy, types: dict[str, TypeDelay]) -> Calibration:
        """The calibration of a hierarchy."""
        return cls(hierarchy.clock, hierarchy.clock_aids, _wiring(hierarchy), types)

    @classmethod
    def of(cls, given: Any) -> Calibration:
        """A calibration from an instance, the content of its file, or the name of the file."""
        if isinstance(given, Calibration):
            return given
        if isinstance(given, str | os.PathLike):
            return _read(Path(given))
        if isinstance(given, Mapping):
            return _parsed(given, "the calibration")
        raise ConfigError(f"calibration={given!r} is not valid; give the file that `slackline calibrate` wrote.")

    def check(self, hierarchy: Hierarchy) -> None:
        """Raise a ConfigError if this is the calibration of another hierarchy."""
        differs = None
        theirs = _wiring(hierarchy)
        for name in sorted({*self.detectors, *theirs}):
            if self.detectors.get(name) != theirs.get(name):
                there, here = _text_of(self.detectors.get(name)), _text_of(theirs.get(name))
                differs = f"detector {name!r} {there} there, and {here} here"
                break
        for what in ("clock", "clock_aids"):
            ours = hierarchy.event_types(getattr(hierarchy, what))
            if differs is None and getattr(self, what) != ours:
                differs = f"its {what} is {list(getattr(self, what))}, here it is {list(ours)}"
        if differs:
            raise ConfigError(
                f"the calibration is of another hierarchy: {differs}. Calibrate this one, or estimate its delays from "
                f"those of the other: `slackline calibrate --from OLD APP -o FILE`."
            )

    def plain(self) -> dict[str, Any]:
        """The content of the file, as plain values."""
        published = {kind for wiring in self.detectors.values() for kind in wiring.publishes}
        return {
            "slackline": KIND,
            "version": VERSION,
            "clock": list(self.clock),
            **({"clock_aids": list(self.clock_aids)} if self.clock_aids else {}),
            "detectors": {
                name: {"listens": list(wiring.listens), "publishes": list(wiring.publishes)}
                for name, wiring in self.detectors.items()
            },
            "types": {
                name: {part: getattr(known, part) for part in (PUBLISHED if name in published else SENSOR)}
                for name, known in self.types.items()
            },
        }

    def save(self, path: str | Path) -> None:
        """Write the file, one entry per line."""
        try:
            Path(path).write_text(_text(self.plain()), encoding="utf-8")
        except OSError as cause:
            raise ConfigError(f"cannot write {path}: {cause}.") from cause


#: A calibration, its content as plain values, or the name of its file.
CalibrationLike = Calibration | Mapping[str, Any] | str | os.PathLike[str] | None


def calibration_of(given: CalibrationLike) -> Calibration | None:
    """The calibration that is given, if one is."""
    return None if given is None else Calibration.of(given)


def _wiring(hierarchy: Hierarchy) -> dict[str, Wiring]:
    return {
        name: Wiring(tuple(sorted(hierarchy.event_types(hierarchy.listens[name]))), tuple(hierarchy.published(name)))
        for name in hierarchy.names
    }


def _text_of(wiring: Wiring | None) -> str:
    if wiring is None:
        return "does not exist"
    return f"listens to {list(wiring.listens)} and publishes {list(wiring.publishes)}"


def _text(plain: dict[str, Any]) -> str:
    parts = []
    for name, value in plain.items():
        if isinstance(value, dict):
            lines = [f"    {json.dumps(key)}: {json.dumps(entry)}" for key, entry in value.items()]
            parts.append(f'  "{name}": {{\n' + ",\n".join(lines) + "\n  }")
        else:
            parts.append(f'  "{name}": {json.dumps(value)}')
    return "{\n" + ",\n".join(parts) + "\n}\n"


# Reading: files may be truncated or edited, so everything is checked.


def _read(path: Path) -> Calibration:
    try:
        plain = json.loads(path.read_text(encoding="utf-8"), object_pairs_hook=_once_each)
    except OSError as cause:
        raise ConfigError(f"cannot read the calibration {path}: {cause.strerror or cause}.") from cause
    except (ValueError, RecursionError) as cause:
        raise ConfigError(
            f"{path} is not a calibration, or not all of one: it is not JSON ({cause}). {REMEDY}"
        ) from cause
    return _parsed(plain, str(path))


def _once_each(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    entries: dict[str, Any] = {}
    for name, value in pairs:
        if name in entries:
            raise ValueError(f"{name!r} occurs twice")
        entries[name] = value
    return entries


def _parsed(plain: Any, where: str) -> Calibration:
    if not isinstance(plain, Mapping) or plain.get("slackline") != KIND:
        raise ConfigError(f'{where} is not a calibration: it does not say "slackline": "{KIND}". {REMEDY}')
    if plain.get("version") != VERSION:
        raise ConfigError(
            f"{where} is of version {plain.get('version')!r}, this release of Slackline reads {VERSION}. {REMEDY}"
        )
    _only(plain, ("slackline", "version", "clock", "detectors", "types"), ("clock_aids",), where)
    detectors = {}
    for name, wiring in _named(plain["detectors"], f"{where}, detectors").items():
        _only(wiring, ("listens", "publishes"), (), f"{where}, detector {name!r}")
        listens, publishes = (
            _names(wiring[side], f"{where}, {side} of detector {name!r}") for side in ("listens", "publishes")
        )
        detectors[name] = Wiring(tuple(sorted(listens)), tuple(sorted(publishes)))
    clock = _names(plain["clock"], f"{where}, clock")
    aids = _names(plain.get("clock_aids", ()), f"{where}, clock_aids")
    published = {kind for wiring in detectors.values() for kind in wiring.publishes}
    wanted = {*clock, *aids, *published, *(kind for wiring in detectors.values() for kind in wiring.listens)}
    types = _named(plain["types"], f"{where}, types")
    missing, unknown = sorted(wanted - set(types)), sorted(set(types) - wanted)
    if missing or unknown:
        what = f"lacks the types {missing}" if missing else f"has the types {unknown}, which its detectors do not know"
        raise ConfigError(f"{where} {what}. {REMEDY}")
    delays = {name: _delay(entry, f"{where}, type {name!r}", name in published) for name, entry in types.items()}
    return Calibration(clock, aids, detectors, delays)


def _delay(entry: Any, where: str, published: bool) -> TypeDelay:
    _only(entry, PUBLISHED if published else SENSOR, (), where)
    return TypeDelay(**{part: whole_number(f"{where}: {part}", value, 0, MAX_TS) for part, value in entry.items()})


def _only(entry: Any, wanted: tuple[str, ...], optional: tuple[str, ...], where: str) -> None:
    if not isinstance(entry, Mapping):
        raise ConfigError(f"{where}: {entry!r:.80} must be an object with {list(wanted)}. {REMEDY}")
    missing = [name for name in wanted if name not in entry]
    unknown = [name for name in entry if name not in (*wanted, *optional)]
    if missing or unknown:
        raise ConfigError(f"{where} lacks {missing} and has the unknown entries {unknown}. {REMEDY}")


def _named(entries: Any, where: str) -> Mapping[str, Any]:
    if not isinstance(entries, Mapping) or not all(isinstance(name, str) for name in entries):
        raise ConfigError(f"{where}: {entries!r:.80} must be an object with a name for each entry. {REMEDY}")
    return entries


def _names(values: Any, where: str) -> tuple[str, ...]:
    if not isinstance(values, list | tuple) or not all(isinstance(value, str) for value in values):
        raise ConfigError(f"{where}: {values!r:.80} must be a list of names. {REMEDY}")
    return tuple(values)
