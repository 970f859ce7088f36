"""The options of an engine: checked, and as they are saved."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import fields
from typing import Any

from slackline.core.errors import ConfigError
from slackline.core.hierarchy import Hierarchy
from slackline.speculation.config import Speculation


def per_detector(
    speculation: Speculation | Mapping[str, Speculation] | None, hierarchy: Hierarchy
) -> dict[str, Speculation]:
    """What each detector was told; nothing for those that only wait."""
    if speculation is None:
        return {}
    if isinstance(speculation, Speculation):
        return dict.fromkeys(hierarchy.names, speculation)
    given: Any = speculation
    if not isinstance(given, Mapping) or not all(isinstance(options, Speculation) for options in given.values()):
        raise ConfigError(
            f"speculation={speculation!r} cannot be; pass slackline.Speculation(...), or a dict of them by detector."
        )
    unknown = sorted(set(speculation) - set(hierarchy.names))
    if unknown:
        raise ConfigError(f"speculation names no detectors {unknown}; the hierarchy has {list(hierarchy.names)}.")
    return dict(speculation)


def without_clocks(speculation: dict[str, Speculation]) -> dict[str, dict[str, Any]]:
    """The speculation of each detector as it is saved: without its clock."""
    saved = {}
    for name, options in speculation.items():
        saved[name] = {f.name: getattr(options, f.name) for f in fields(options) if f.name != "clock"}
    return saved


def listed(arrivals: Any) -> list[Any]:
    if isinstance(arrivals, Iterable) and not isinstance(arrivals, str | bytes) and not hasattr(arrivals, "columns"):
        return list(arrivals)
    raise ConfigError(
        f"push() takes events or a pyarrow.Table; got a {type(arrivals).__name__}. "
        f"A pandas DataFrame is pushed as pyarrow.Table.from_pandas(frame)."
    )


def one_of(option: str, value: Any, allowed: tuple[str, ...]) -> None:
    if value not in allowed:
        raise ConfigError(f"{option}={value!r} is unknown; choose one of {list(allowed)}.")


def at_least(option: str, value: Any, least: int, kind: Any) -> None:
    if isinstance(value, bool) or not isinstance(value, kind) or not value >= least:
        raise ConfigError(f"{option}={value!r} cannot be; it must be a number of at least {least}.")
