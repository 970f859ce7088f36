"""The raw positions of the DEBS 2013 Grand Challenge: thirteen integers a row, with or without a header.

``sid, ts, x, y, z, |v|, |a|, vx, vy, vz, ax, ay, az``: transmitter, picoseconds, millimetres, µm/s, µm/s², and the
directions of velocity and acceleration, scaled to 10,000. Who wears which transmitter comes with the package.
"""

from __future__ import annotations

import csv
from collections.abc import Iterator

import numpy as np
import pyarrow as pa

from slackline import ConfigError
from slackline_soccer import data
from slackline_soccer.model.field import DEBS_2013
from slackline_soccer.model.match import Match
from slackline_soccer.recordings.recording import MatchRecording
from slackline_soccer.tracking.files import File, numbers
from slackline_soccer.tracking.game import Limb, Period, Role, Sensor
from slackline_soccer.tracking.positions import CANONICAL

NAMES = ("sid", "ts", "x", "y", "z", "v", "a", "vx", "vy", "vz", "ax", "ay", "az")
#: The header of the excerpt that comes with the package.
EXCERPT = ("sid", "ts_ps", *NAMES[2:])

#: The two halves. The goalkeepers stand at the other end in the second: team B's is at goal 0 there.
PERIODS = (
    Period(10_753_295_594_424_116, 12_557_295_594_424_116, "A"),
    Period(13_086_639_146_403_495, 14_879_639_146_403_495, "B"),
)


def is_debs(file: File) -> bool:
    """Whether a file's first line is one of a raw DEBS file."""
    if file.parquet:
        return False
    if file.header:
        return file.names in (NAMES, EXCERPT)
    return len(file.names) == len(NAMES) and all(_is_integer(cell) for cell in file.names)


def debs_match() -> Match:
    """The match of the challenge: two teams of eight on half a field."""
    with data.debs_sensors().open(newline="", encoding="utf-8") as lines:
        sensors = tuple(_sensor(row) for row in csv.DictReader(lines))
    return Match(DEBS_2013, sensors, PERIODS, name="DEBS 2013")


def open_debs(file: File) -> MatchRecording:
    """A raw DEBS file as a recording. Rows with something else than integers are set aside."""
    names = file.names if file.header else NAMES
    if len(set(names)) != len(NAMES):
        raise ConfigError(f"{file.path.name} has the columns {', '.join(names)}; expected {', '.join(NAMES)}.")
    file = File(file.path, names, parquet=False, header=file.header)
    wanted = names[: len(CANONICAL)]

    def read(recording: MatchRecording) -> Iterator[pa.Table]:
        for table in file.tables(wanted, recording.set_aside, recording.mark):
            columns, good = [], np.ones(table.num_rows, dtype=np.bool_)
            for name, field in zip(wanted, CANONICAL, strict=True):
                column, bad = numbers(table[name], field.type)
                missing = column.is_null().to_numpy() if bad is None else bad | column.is_null().to_numpy()
                if missing.any():
                    recording.set_aside.add(f"{field.name} is missing or no number", int((missing & good).sum()))
                    good &= ~missing
                columns.append(column)
            found = pa.Table.from_arrays(columns, schema=CANONICAL)
            yield found if good.all() else found.filter(pa.array(good))

    return MatchRecording(file.path, "DEBS 2013", debs_match(), read, notes=(data.DEBS_ATTRIBUTION,))


def _sensor(row: dict[str, str]) -> Sensor:
    """One line of the metadata; balls have no player, and a player's team is the letter of the name."""
    role, sid = Role(row["role"]), int(row["sid"])
    name = row["player"] or f"ball {sid}"
    team = name[0] if role in (Role.PLAYER, Role.GOALKEEPER) else None
    return Sensor(sid, role, name, team, Limb(row["limb"]) if row["limb"] else None)


def _is_integer(cell: str) -> bool:
    return cell.lstrip("-").isdigit()
