"""Recordings of matches: raw DEBS files, simulated matches, tracking data. All become the same positions.

>>> from slackline_soccer import data
>>> recording = open_recording(data.debs_excerpt())
>>> recording.format, recording.match.teams, sum(table.num_rows for table in recording.tables())
('DEBS 2013', ('A', 'B'), 12500)
"""

from slackline_soccer.recordings.formats import MatchRecording, open_recording
from slackline_soccer.tracking.files import RecordingError, SetAside
from slackline_soccer.tracking.mapping import Mapping, load_mapping, mapping_of
from slackline_soccer.tracking.positions import CANONICAL

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
