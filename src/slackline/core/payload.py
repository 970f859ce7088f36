"""Payloads as JSON text: one encoding for every value a detector may publish, the same bytes every time.

Strict JSON with sorted keys. What JSON lacks follows the convention of Protocol Buffers, which ``from_json`` reads
back into typed columns: NaN and the infinities are the strings ``"NaN"``, ``"Infinity"`` and ``"-Infinity"``, bytes
are base64, times are ISO 8601, lengths of time are seconds (``"1.5s"``). NumPy scalars and arrays are numbers and
lists, tuples are lists. Anything else is an error that names the field.
"""

from __future__ import annotations

import base64
import datetime
import decimal
import json
import math
from collections.abc import Mapping
from typing import Any

import numpy as np

from slackline.core.errors import SlacklineError


class PayloadError(SlacklineError):
    """A published event carries a value that has no JSON form."""

    def __init__(self, where: str, value: object, why: str = "") -> None:
        self.where = where
        self.kind = f"{type(value).__module__}.{type(value).__qualname__}"
        super().__init__(
            f"field {where} is a {self.kind}, which has no JSON form{': ' + why if why else ''}. Publish "
            f"None, bool, int, float, str, bytes, dates, times, lengths of time, Decimal, NumPy scalars and arrays, or "
            f"lists, tuples and dicts of these."
        )


def to_json(payload: Mapping[str, Any], of: str = "payload") -> str:
    """The payload as JSON text; ``of`` names the event in an error.

    >>> to_json({"b": (1, 2.5), "a": float("nan")})
    '{"a":"NaN","b":[1,2.5]}'
    """
    try:
        # The C encoder handles the usual payload in one pass; only what it refuses takes the slow path.
        text = _ENCODER.encode(payload if type(payload) is dict else dict(payload))
    except (TypeError, ValueError):
        text = _ENCODER.encode(_plain(payload, of))
    if not text.isascii():
        try:
            text.encode("utf-8")
        except UnicodeEncodeError as error:
            raise PayloadError(of, payload, f"it holds text that is not valid Unicode ({error.reason})") from None
    return text


_ENCODER = json.JSONEncoder(sort_keys=True, separators=(",", ":"), allow_nan=False, ensure_ascii=False)


def _plain(value: Any, where: str) -> Any:
    match value:
        case None | bool() | int() | str():
            return value
        case float():
            return value if math.isfinite(value) else _word(value)
        case np.ndarray():
            return _plain(value.tolist(), where)
        case bytes() | bytearray() | memoryview():
            return base64.b64encode(value).decode("ascii")
        case datetime.timedelta() | np.timedelta64():
            return _duration(value)
        case np.generic() if not isinstance(value, np.void):
            return _plain(_scalar(value), where)
        case datetime.datetime() | datetime.date() | datetime.time():
            return value.isoformat()
        case decimal.Decimal():
            return str(value)
        case Mapping():
            return {_key(key, where): _plain(item, f"{where}.{key}") for key, item in value.items()}
        case list() | tuple():
            return [_plain(item, f"{where}[{at}]") for at, item in enumerate(value)]
    raise PayloadError(where, value)


def _scalar(value: np.generic) -> Any:
    """The Python value of a NumPy scalar; times of nanoseconds have none and become text."""
    plain = value.item()
    if isinstance(plain, np.floating | np.complexfloating):  # long doubles have none, either
        return float(plain) if isinstance(plain, np.floating) else complex(plain)
    return str(value) if isinstance(value, np.datetime64) and isinstance(plain, int) else plain


def _duration(value: datetime.timedelta | np.timedelta64) -> str | None:
    """A length of time in seconds.

    >>> _duration(datetime.timedelta(days=1, microseconds=-5)), _duration(np.timedelta64(1_500_000_001, "ns"))
    ('86399.999995s', '1.500000001s')
    """
    if isinstance(value, np.timedelta64):
        if np.isnat(value):
            return None
        nanoseconds = int(value.astype("timedelta64[ns]").astype(np.int64))
    else:
        nanoseconds = (value // datetime.timedelta(microseconds=1)) * 1_000
    seconds, rest = divmod(abs(nanoseconds), 1_000_000_000)
    fraction = f".{rest:09}".rstrip("0") if rest else ""
    return f"{'-' if nanoseconds < 0 else ''}{seconds}{fraction}s"


def _word(value: float) -> str:
    if math.isnan(value):
        return "NaN"
    return "Infinity" if value > 0 else "-Infinity"


def _key(key: object, where: str) -> str:
    if isinstance(key, np.generic):
        key = key.item()
    if isinstance(key, str):
        return key
    if key is None or isinstance(key, bool | int | float):
        return json.dumps(key)
    raise PayloadError(where, key, f"{key!r} is a key of a dict there, and keys must be text or numbers")
