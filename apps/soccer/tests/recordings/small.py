"""A small recording of tracking data, and its mapping: two players a team, who run; a ball that rolls."""

import numpy as np
import pyarrow as pa

from slackline_soccer.recordings import mapping_of

MAPPING = {
    "objects": [
        {"object": "ball", "role": "ball"},
        {"object": "h1", "role": "goalkeeper", "team": "home"},
        {"object": "h2", "role": "player", "team": "home"},
        {"object": "a1", "role": "goalkeeper", "team": "away"},
        {"object": "a2", "role": "player", "team": "away"},
    ]
}
RATE = 25


def mapping(**more):
    return mapping_of({**MAPPING, **more})


def tracking(seconds=4.0, rate=RATE):
    """Columns ts (s), object, x, y, z (m, from the centre): frame by frame, object by object."""
    t = np.arange(round(seconds * rate)) / rate
    places = {
        "ball": (-40 + 10 * t, 0 * t),
        "h1": (-50 + 0 * t, 1 + 0 * t),
        "h2": (-30 + 5 * t, 20 - 2 * t),
        "a1": (50 + 0 * t, -1 + 0 * t),
        "a2": (30 - 4 * t, -20 + 3 * t),
    }
    rows = [
        {"ts": float(t[n]), "object": name, "x": float(x[n]), "y": float(y[n]), "z": 0.1}
        for n in range(len(t))
        for name, (x, y) in places.items()
    ]
    return pa.Table.from_pylist(rows)


def write_csv(table, path):
    lines = [",".join(table.column_names)]
    for row in table.to_pylist():
        lines.append(",".join("" if value is None else str(value) for value in row.values()))
    path.write_text("\n".join(lines) + "\n")
    return path


def whole(recording):
    return pa.concat_tables(recording.tables())
