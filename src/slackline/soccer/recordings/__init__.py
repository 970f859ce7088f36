"""Recordings of matches: raw DEBS files, simulated matches, tracking data. All become the same positions.

>>> from slackline import data
>>> recording = open_recording(data.debs_excerpt())
>>> recording.format, recording.match.teams, sum(table.num_rows for table in recording.tables())
('DEBS 2013', ('A', 'B'), 12500)
"""

from slackline.soccer.recordings.mapping import Mapping, load_mapping, mapping_of
from slackline.soccer.recordings.recognise import open_recording
from slackline.soccer.recordings.recording import CANONICAL, Recording, RecordingError, SetAside

__all__ = [
    "CANONICAL",
    "Mapping",
    "Recording",
    "RecordingError",
    "SetAside",
    "load_mapping",
    "mapping_of",
    "open_recording",
]
