"""Numbers for people: times in a unit that suits them, shares in per cent."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from slackline.core.time import PER_SECOND
from slackline.study import PolicyResult, StudyResult

_NAMES = {"ns": "ns", "us": "µs", "ms": "ms", "s": "s"}


@dataclass(frozen=True, slots=True)
class Scale:
    """Shows times of a stream in one unit, so that a column of them can be compared.

    >>> scale = Scale.of([29_100, 423_000], "us")
    >>> scale.name, scale.text(29_100), scale.text(None)
    ('ms', '29.1', '-')
    """

    name: str
    factor: float

    @classmethod
    def of(cls, values: Iterable[float | None], unit: str) -> Scale:
        """The largest unit that leaves the middle one of the values at one or more."""
        known = sorted(v for v in values if v)
        middle = known[len(known) // 2] / PER_SECOND[unit] if known else 1e-3
        name = next((n for n in ("s", "ms", "us") if middle * PER_SECOND[n] >= (20 if n == "s" else 1)), "ns")
        if PER_SECOND[name] > PER_SECOND[unit]:
            name = unit
        return cls(_NAMES[name], PER_SECOND[name] / PER_SECOND[unit])

    @classmethod
    def of_study(cls, result: StudyResult) -> Scale:
        return cls.of([p.waits.mean_wait for p in result.policies] + [result.clairvoyant.mean_wait], result.unit)

    def value(self, time: float) -> float:
        return time * self.factor

    def text(self, time: float | None) -> str:
        """The time without its unit, with as many digits as it deserves."""
        return "-" if time is None else number_text(self.value(time))

    def with_unit(self, time: float | None) -> str:
        return "-" if time is None else f"{self.text(time)} {self.name}"


def number_text(value: float) -> str:
    """Three significant digits, thousands apart.

    >>> number_text(4154.7), number_text(423.8), number_text(31.48), number_text(0.0)
    ('4,155', '424', '31.5', '0')
    """
    if value == 0:
        return "0"
    digits = 0 if abs(value) >= 100 else 1 if abs(value) >= 10 else 2 if abs(value) >= 1 else 3
    return f"{value:,.{digits}f}"


def time_text(time: float, unit: str) -> str:
    """A time by itself, in the largest unit of which it is at least one.

    >>> time_text(12_100, "ms"), time_text(903_000, "us"), time_text(0, "s")
    ('12.1 s', '903 ms', '0 s')
    """
    seconds = time / PER_SECOND[unit]
    name = next((n for n, per in PER_SECOND.items() if seconds * per >= 1 or n == unit), unit)
    return f"{number_text(seconds * PER_SECOND[name])} {_NAMES[name]}"


def share_text(share: float) -> str:
    """A share in per cent.

    >>> share_text(0.00323), share_text(0.339), share_text(0.0), share_text(3.4e-6)
    ('0.32 %', '33.9 %', '0', '0.0003 %')
    """
    if share == 0:
        return "0"
    per_cent = share * 100
    if per_cent < 0.001:
        return f"{per_cent:.4f} %" if per_cent >= 0.0001 else "< 0.0001 %"
    return f"{per_cent:.{1 if per_cent >= 10 else 2 if per_cent >= 0.1 else 3}f} %"


def params_text(result: PolicyResult, unit: str) -> str:
    """Parameters in words; those that are times with a unit."""
    if result.is_default:
        return "default"
    if "late_target" in result.params:
        return f"target {100 * result.params['late_target']:g} %"
    shown = {name: value for name, value in result.params.items() if name != "window"}
    return ", ".join(f"{name} {_value_text(name, value, unit)}" for name, value in shown.items())


def _value_text(name: str, value: Any, unit: str) -> str:
    if name == "bound":
        scale = Scale.of([value], unit)
        shown = scale.value(value)
        return f"{shown:,.0f} {scale.name}" if shown >= 1_000 else f"{shown:.4g} {scale.name}"
    return f"{value:g}"
