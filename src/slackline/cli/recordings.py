"""A recorded stream of any hierarchy, as a table."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa

from slackline.core.hierarchy import Hierarchy
from slackline.study.table import ReadOptions, StreamError, read_table, read_times


def read_recording(path: Path, hierarchy: Hierarchy, columns: dict[str, str], unit: str) -> pa.Table:
    """The recording as an engine takes it."""
    ts = columns["ts"]
    wanted = [ts, *([columns["type"]] if len(hierarchy.sensor_types) > 1 else [])]
    table = read_table(path, wanted, ReadOptions(payload=True, as_text=lambda name: name == columns["source"]))
    times, faults = read_times(table[ts], ts, unit, path)
    if faults:
        rows = int(faults[0].rows.sum())
        raise StreamError(f"column {ts!r} of {path.name}, {faults[0]} ({rows} such rows). Repair or remove these rows.")
    names = {column: name for name, column in columns.items()}
    # A column that is called like one of ours and is not is payload, by another name.
    named = [names.get(name, f"{name}_in" if name in columns else name) for name in table.column_names]
    table = table.rename_columns(named)
    return table.set_column(table.column_names.index("ts"), "ts", pa.array(times))
