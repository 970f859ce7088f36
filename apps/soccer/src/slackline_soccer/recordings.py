"""Recordings of matches: raw DEBS files, simulated matches, tracking data. All become the same positions.

The format is recognised from the content of a path.

>>> from slackline_soccer import data
>>> recording = open_recording(data.debs_excerpt())
>>> recording.format, recording.match.teams, sum(table.num_rows for table in recording.tables())
('DEBS 2013', ('A', 'B'), 12500)

The raw positions of the DEBS 2013 Grand Challenge: thirteen integers a row, with or without a header.

``sid, ts, x, y, z, |v|, |a|, vx, vy, vz, ax, ay, az``: transmitter, picoseconds, millimetres, µm/s, µm/s², and the
directions of velocity and acceleration, scaled to 10,000. Who wears which transmitter comes with the package.

A match made by ``slackline simulate match``: a folder with positions in arrival order, the match, and the truth.

A match from tracking data: one position per player, at any rate, with a mapping of its objects.
"""

from __future__ import annotations

import csv
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import pyarrow as pa

from slackline import ConfigError, SchemaError
from slackline_soccer import data
from slackline_soccer.model.match import DEBS_2013, Field, Match
from slackline_soccer.tracking import CANONICAL
from slackline_soccer.tracking.files import File, RecordingError, SetAside, look_at, numbers
from slackline_soccer.tracking.game import Limb, Period, Role, Sensor
from slackline_soccer.tracking.mapping import Mapping, load_mapping, mapping_of
from slackline_soccer.tracking.tracks import COLUMNS, open_tracks

__all__ = [
    "CANONICAL",
    "Mapping",
    "MatchRecording",
    "RecordingError",
    "SetAside",
    "load_mapping",
    "mapping_of",
    "open_recording",
]


@dataclass(frozen=True)
class MatchRecording:
    """What :func:`~slackline_soccer.recordings.open_recording` found in a file or folder.

    ``tables()`` gives the positions from the start, as tables of ``CANONICAL`` in the order of the file, in bounded
    memory. While they are read, ``done()`` is the share of the file that was, and ``set_aside`` counts what could
    not be taken. ``origin`` is the time, in ps since 1970, that time stamps count from, where the file's own did
    not fit; ``truth`` is where the events are that really happened, if the match was simulated.
    """

    path: Path
    format: str
    match: Match
    read: Callable[[MatchRecording], Iterator[pa.Table]]
    set_aside: SetAside = field(default_factory=SetAside)
    truth: Path | None = None
    origin: int = 0
    notes: tuple[str, ...] = ()
    _progress: list[float] = field(default_factory=lambda: [0.0])

    def tables(self) -> Iterator[pa.Table]:
        self.set_aside.reasons.clear()
        self.mark(0.0)
        yield from self.read(self)
        self.mark(1.0)

    def mark(self, share: float) -> None:
        """Readers say here how far they are."""
        self._progress[0] = min(max(share, 0.0), 1.0)

    def done(self) -> float:
        """The share of the recording that was read, from 0 to 1."""
        return self._progress[0]


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
    """A raw DEBS file as a recording. Rows with other values than integers are skipped and counted."""
    names = file.names if file.header else NAMES
    if len(set(names)) != len(NAMES):
        raise ConfigError(f"{file.path.name} has the columns {', '.join(names)}; expected {', '.join(NAMES)}.")
    file = File(file.path, names, parquet=False, header=file.header)
    wanted = names[: len(CANONICAL)]

    def read(recording: MatchRecording) -> Iterator[pa.Table]:
        for table in file.tables(wanted, recording.set_aside, recording.mark):
            columns, good = [], np.ones(table.num_rows, dtype=np.bool_)
            for name, canonical in zip(wanted, CANONICAL, strict=True):
                column, bad = numbers(table[name], canonical.type)
                missing = column.is_null().to_numpy() if bad is None else bad | column.is_null().to_numpy()
                if missing.any():
                    recording.set_aside.add(f"{canonical.name} is missing or no number", int((missing & good).sum()))
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


MATCH, POSITIONS, TRUTH = "match.json", "positions", "truth.parquet"


def is_simulated(folder: Path) -> bool:
    return (folder / MATCH).is_file() and (folder / POSITIONS).is_dir()


def open_simulated(folder: Path) -> MatchRecording:
    """A simulated match as a recording; its files are read in the order of their names."""
    match = Match.load(folder / MATCH)
    files = [look_at(path) for path in sorted((folder / POSITIONS).glob("*.parquet"))]
    if not files:
        raise RecordingError(f"{folder / POSITIONS} holds no *.parquet files. Simulate the match again.")
    for file in files:
        missing = [name for name in CANONICAL.names if name not in file.names]
        if missing:
            raise SchemaError(f"{file.path} lacks the columns {', '.join(missing)}. Simulate the match again.")

    def read(recording: MatchRecording) -> Iterator[pa.Table]:
        for number, file in enumerate(files):
            for table in file.tables(CANONICAL.names, recording.set_aside, lambda share: None):
                recording.mark(number / len(files))
                yield table.cast(CANONICAL, safe=False)

    truth = folder / TRUTH
    return MatchRecording(folder, "simulated match", match, read, truth=truth if truth.is_file() else None)


def open_tracked(file: File, mapping: Mapping) -> MatchRecording:
    """Tracking data as a recording: goals stand in the middle of the ends of its ground."""
    tracks = open_tracks(file, mapping)
    match = Match(
        Field.on(tracks.ground),
        mapping.sensors,
        tracks.periods,
        ball_rate=tracks.ball_rate,
        player_rate=tracks.player_rate,
        name=mapping.name,
    )
    return MatchRecording(
        file.path,
        "tracking data",
        match,
        lambda recording: tracks.tables(recording.set_aside, recording.mark),
        origin=tracks.reader.time.origin,
        notes=tracks.notes,
    )


UNDERSTOOD = (
    "Understood are: raw DEBS 2013 positions (CSV of sid, ts, x, y, z, |v|, |a|, vx, vy, vz, ax, ay, az, also .gz); "
    "a folder made by `slackline simulate match`; and tracking data (CSV or Parquet with ts, object, x, y and maybe z) "
    "with a mapping of its objects."
)


def open_recording(path: Path | str, mapping: Mapping | Path | str | None = None) -> MatchRecording:
    """The recording at ``path``, whichever of the formats it has; tracking data needs a mapping (or its file)."""
    path = Path(path)
    if not path.exists():
        raise RecordingError(f"there is no {path}.")
    if path.is_dir():
        if not is_simulated(path):
            raise ConfigError(f"{path} is a folder without match.json and positions. {UNDERSTOOD}")
        return _without_mapping(open_simulated(path), mapping)
    file = look_at(path)
    if is_debs(file):
        return _without_mapping(open_debs(file), mapping)
    if mapping is not None:
        return open_tracked(file, mapping if isinstance(mapping, Mapping) else load_mapping(mapping))
    if set(COLUMNS) <= set(file.names):
        raise ConfigError(
            f"{path.name} is tracking data; give a mapping that says which object is the ball and which is whose "
            f"player: a CSV with object, role, team, name, or a JSON file."
        )
    shown = ", ".join(file.names[:14]) if file.header else f"{len(file.names)} numbers without a header"
    raise ConfigError(f"{path.name} is not a known recording; it has {shown}. {UNDERSTOOD}")


def _without_mapping(recording: MatchRecording, mapping: object) -> MatchRecording:
    if mapping is not None:
        raise ConfigError(
            f"{recording.path.name} is a {recording.format} recording, which knows who is who; leave the mapping out."
        )
    return recording
