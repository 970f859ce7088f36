"""What the numbers of a recording mean: recognised from its first rows, unless the mapping says.

Time is recognised by how far apart the positions of one object are, coordinates by how large a part of a field they
cover. What cannot be recognised is an error that says what to write into the mapping.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from slackline import MAX_TS, ConfigError, SchemaError
from slackline_soccer.tracking import SECOND
from slackline_soccer.tracking.files import Mask, numbers
from slackline_soccer.tracking.mapping import Mapping

Ints = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]

#: Time units in ps, length units in mm.
TIMES = {"s": SECOND, "ms": 10**9, "us": 10**6, "ns": 10**3, "ps": 1}
LENGTHS = {"m": 1_000.0, "cm": 10.0, "mm": 1.0}

#: Positions of one object come from 2 to 500 times a second; units are a factor of 1000 apart, so one fits at most.
FASTEST, SLOWEST = 2 * 10**9, 500 * 10**9
#: The share of a field's length that the players of a match usually cover.
COVERED = 0.6
DAY = 86_400 * SECOND
#: Time stamps beyond this are dates: picoseconds since 1970 are too many for 64 bits.
LONG = 30 * DAY


@dataclass(frozen=True, slots=True)
class TimeScale:
    """Times of a recording: as numbers of a unit or as dates, and since when (ps) we count."""

    kind: pa.DataType
    unit: str
    origin: int = 0

    def read(self, column: pa.ChunkedArray) -> tuple[Ints, Mask]:
        """Time stamps in ps, and which rows have none that can be used."""
        if pa.types.is_timestamp(self.kind):
            column, bad = _dates(column, self.kind)
            if not pa.types.is_timestamp(column.type):
                return np.zeros(len(column), dtype=np.int64), np.ones(len(column), dtype=np.bool_)
            column = pc.cast(column, pa.timestamp("us", column.type.tz), safe=False).cast(pa.int64())
        else:
            column, bad = numbers(column, self.kind)
        missing = column.is_null().to_numpy()
        if bad is not None:
            missing = missing | bad
        scale = TIMES[self.unit]
        if pa.types.is_floating(self.kind):
            values = column.fill_null(np.nan).to_numpy() - self.origin / scale
        else:
            values = column.fill_null(0).to_numpy() - self.origin // scale
        most = MAX_TS // scale
        fits = (values >= -most) & (values <= most)
        values = np.where(fits, values, 0)
        if pa.types.is_floating(self.kind):
            ts = np.rint(values * (scale / 1e3)).astype(np.int64) * 1000  # to the ns: no float of seconds holds more
        else:
            ts = values * scale
        return ts, missing | ~fits

    def moment(self, value: Any, where: str) -> int:
        """One time as the mapping gives it, e.g. the start of a period, in ps."""
        try:
            if pa.types.is_timestamp(self.kind):
                ts, bad = self.read(pa.chunked_array([pa.array([str(value)])]))
                if bad[0]:
                    raise ValueError
                return int(ts[0])
            return round(float(value) * TIMES[self.unit]) - self.origin
        except (ValueError, TypeError, OverflowError):
            raise ConfigError(
                f"{where} is {value!r}; give a time as the recording has it ({self.kind}, in {self.unit})."
            ) from None


def time_scale_of(ts: pa.ChunkedArray, slots: Ints, unit: str | None, where: str) -> TimeScale:
    """How the time stamps of a recording's first rows are to be read; ``slots`` numbers their objects."""
    kind = _kind_of(ts, where)
    if pa.types.is_timestamp(kind):
        unit = "us"
    elif unit is None:
        unit = _unit_of(ts, kind, slots, where)
    first = next(iter(_raw(ts, kind).tolist()), 0)
    scaled = round(first * TIMES[unit])
    # A day earlier than the first, so that nothing that came late is before the beginning of time.
    return TimeScale(kind, unit, scaled // DAY * DAY - DAY if abs(scaled) > LONG else 0)


def _kind_of(ts: pa.ChunkedArray, where: str) -> pa.DataType:
    if not pa.types.is_string(ts.type) and not pa.types.is_large_string(ts.type):
        if not (pa.types.is_integer(ts.type) or pa.types.is_floating(ts.type) or pa.types.is_timestamp(ts.type)):
            raise SchemaError(f"column 'ts' of {where} holds {ts.type}, no times. Give numbers or time stamps.")
        return (
            pa.int64() if pa.types.is_integer(ts.type) else pa.float64() if pa.types.is_floating(ts.type) else ts.type
        )
    for kind in (pa.int64(), pa.float64(), pa.timestamp("us"), pa.timestamp("us", "UTC")):
        column, bad = _dates(ts, kind) if pa.types.is_timestamp(kind) else numbers(ts, kind)
        good = len(ts) - ts.null_count - (0 if bad is None else int(bad.sum()))
        # Some rows may be rubbish; a column most of which is a kind is that kind.
        if column.type == kind and good and 2 * good > len(ts) - ts.null_count:
            return kind
    example = next((value for value in ts.to_pylist() if value is not None), None)
    raise SchemaError(
        f"column 'ts' of {where} holds texts such as {example!r}. Give seconds, integers in ms, us, ns or ps, or time "
        f"stamps such as 2024-05-01T15:30:00.040."
    )


def _dates(column: pa.ChunkedArray, kind: pa.DataType) -> tuple[pa.ChunkedArray, Mask | None]:
    if pa.types.is_timestamp(column.type):
        return column, None
    try:
        return pc.cast(column, kind), None
    except pa.ArrowInvalid:
        pass
    values, bad = [], np.zeros(len(column), dtype=np.bool_)
    for row, text in enumerate(column.to_pylist()):
        try:
            values.append(pa.scalar(text).cast(kind) if text is not None else None)
        except pa.ArrowInvalid:
            values.append(None)
            bad[row] = True
    return pa.chunked_array([pa.array([None if v is None else v.as_py() for v in values], kind)]), bad


def _raw(ts: pa.ChunkedArray, kind: pa.DataType) -> npt.NDArray[Any]:
    """The usable times in the recording's own unit (dates: µs)."""
    if pa.types.is_timestamp(kind):
        column, _ = _dates(ts, kind)
        column = pc.cast(column, pa.timestamp("us", column.type.tz), safe=False).cast(pa.int64())
    else:
        column, _ = numbers(ts, kind)
    values: npt.NDArray[Any] = column.drop_null().to_numpy()
    return values[np.isfinite(values)]


def _unit_of(ts: pa.ChunkedArray, kind: pa.DataType, slots: Ints, where: str) -> str:
    step = typical_step(numbers(ts, kind)[0].to_numpy(zero_copy_only=False).astype(np.float64), slots)
    for unit, scale in TIMES.items():
        if step is not None and FASTEST <= step * scale <= SLOWEST:
            return unit
    seen = "no object has two positions" if step is None else f"the positions of an object are {step:g} apart"
    raise ConfigError(
        f'the unit of the times of {where} cannot be recognised: {seen} at its start. Write "time": "s" (or ms, us, '
        f"ns, ps) into the mapping. Frame numbers are no times: divide them by the frame rate."
    )


def typical_step(ts: Floats, slots: Ints) -> float | None:
    """The median step between positions of one object, None if there is none."""
    good = np.isfinite(ts) & (slots >= 0)
    order = np.lexsort((ts[good], slots[good]))
    ordered, owner = ts[good][order], slots[good][order]
    steps = np.diff(ordered)[np.diff(owner) == 0]
    steps = steps[steps > 0]
    return float(np.median(steps)) if len(steps) else None


@dataclass(frozen=True, slots=True)
class Lengths:
    """What to multiply x, y and z by to get mm, and where the zero is."""

    x: float
    y: float
    z: float
    origin: str


def lengths_of(x: Floats, y: Floats, mapping: Mapping, where: str) -> Lengths:
    """How the coordinates of a recording's first rows are to be read."""
    along, across = (x, y) if mapping.lengthwise == "x" else (y, x)
    low, high = _range(along, where)
    unit = mapping.unit or _length_unit(max(high - low, _range(across, where)[1] - _range(across, where)[0]), mapping)
    if unit == "fraction":
        scales = (mapping.length, mapping.width) if mapping.lengthwise == "x" else (mapping.width, mapping.length)
        x_scale, y_scale, z_scale = *scales, LENGTHS["m"]
        length = 1.0
    else:
        x_scale = y_scale = z_scale = LENGTHS[unit]
        length = mapping.length / x_scale
    covered = (high - low) / length
    if mapping.unit is None and not 0.02 <= covered <= 2:
        raise ConfigError(
            f"the unit of the coordinates of {where} cannot be recognised: they reach from {low:g} to {high:g} along a "
            f'field of {mapping.length / 1e3:g} m. Write "unit": "m" (or cm, mm, fraction) into the mapping.'
        )
    origin = mapping.origin or ("centre" if low < -0.05 * length else "corner")
    return Lengths(x_scale, y_scale, z_scale, origin)


def _range(values: Floats, where: str) -> tuple[float, float]:
    values = values[np.isfinite(values)]
    if not len(values):
        raise ConfigError(f"{where} has no positions at its start: x or y is missing everywhere.")
    low, high = np.quantile(values, [0.01, 0.99])
    return float(low), float(high)


def _length_unit(extent: float, mapping: Mapping) -> str:
    """The unit in which the players cover about as much of the field as players do."""
    fits = {unit: extent * scale / mapping.length for unit, scale in LENGTHS.items()}
    fits["fraction"] = extent
    return min(fits, key=lambda unit: abs(np.log(max(fits[unit], 1e-9) / COVERED)))
