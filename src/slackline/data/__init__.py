"""Recorded streams that come with the package; where they are from is in the README beside them."""

from __future__ import annotations

from pathlib import Path

from slackline.core.errors import ConfigError

#: To be shown wherever these streams, or figures from them, are shown.
ATTRIBUTION = (
    "Phone streams d-1 to d-3: OoO-Dataset (Weiss, Expósito Jiménez, Zeiner; IoTBDS 2017), repository "
    "JR-DIGITAL/ooo-dataset, CC BY-SA 4.0; columns selected and renamed."
)

_HERE = Path(__file__).resolve().parent


def names() -> list[str]:
    """The phone streams there are."""
    return sorted(path.name.removesuffix(".csv.gz") for path in _HERE.glob("*.csv.gz"))


def path(name: str) -> Path:
    """Where the stream is.

    >>> path("d-1").name
    'd-1.csv.gz'
    """
    if name not in names():
        raise ConfigError(f"there is no stream {name!r}; choose one of {', '.join(names())}.")
    return _HERE / f"{name}.csv.gz"
