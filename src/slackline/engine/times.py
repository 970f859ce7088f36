"""Wall times in: as they are given with a push, and as the engine takes them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from slackline.core.errors import ConfigError
from slackline.core.time import A_TIME_STAMP, time_stamp
from slackline.engine import arrow
from slackline.ordering.constants import NEVER

Ints = npt.NDArray[np.int64]


def times_of(now: Any, rows: int) -> Ints:
    """The wall time of each row, NEVER where none is given; of the moment itself if there are no rows.

    >>> times_of(7, 2), times_of(7, 0), times_of([], 0)
    (array([7, 7]), array([7]), array([], dtype=int64))
    """
    one = time_stamp(now)
    if one is not None:
        return np.full(max(1, rows), one, dtype=np.int64)
    column = _column(now)
    if len(column) != rows:
        raise ConfigError(
            f"now has {len(column)} wall times, and {rows} rows are pushed; give one for each row, or one for all."
        )
    times, good = arrow.whole_numbers(column)
    if column.null_count:
        absent = column.is_null().to_numpy(zero_copy_only=False)
        times, good = np.where(absent, NEVER, times), good | absent
    if not good.all():
        row = int(np.flatnonzero(~good)[0])
        raise ConfigError(f"now[{row}] is {column[row].as_py()!r}; a wall time is {A_TIME_STAMP}, or None. {_UNIT}")
    return times


_UNIT = "It is told in the unit of the time stamps, such as time.time_ns() // 1_000_000 for milliseconds."


def _column(now: Any) -> pa.ChunkedArray:
    """Wall times for rows as a column, if they can be one."""
    wrong = ConfigError(f"now={now!r:.80} is not valid; it must be {A_TIME_STAMP}, or one for each row. {_UNIT}")
    if isinstance(now, pa.Array):
        now = pa.chunked_array([now])
    elif not isinstance(now, pa.ChunkedArray):
        is_list = isinstance(now, Sequence) and not isinstance(now, str | bytes | bytearray)
        if not is_list and not hasattr(now, "__array__"):
            raise wrong
        try:
            now = pa.chunked_array([pa.array(now if is_list else np.asarray(now))])
        except (pa.ArrowException, OverflowError, TypeError, ValueError):
            raise wrong from None
    column = arrow.plain(now)
    kind = column.type
    if not (
        pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_decimal(kind) or pa.types.is_null(kind)
    ):
        raise wrong
    return column
