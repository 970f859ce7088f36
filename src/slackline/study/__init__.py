"""What would each policy have done to a recorded stream, and the synchroniser to many? So that nobody need guess."""

from slackline.study.compare import PolicyResult, StudyResult, study
from slackline.study.ordered import write_ordered
from slackline.study.recording import Columns, Recording, load_recording
from slackline.study.stream import Stream, load_stream
from slackline.study.sync import synchronise_recording
from slackline.study.sync_result import StreamResult, SyncResult, WaitFigures
from slackline.study.table import UNITS, StreamError

__all__ = [
    "UNITS",
    "Columns",
    "PolicyResult",
    "Recording",
    "Stream",
    "StreamError",
    "StreamResult",
    "StudyResult",
    "SyncResult",
    "WaitFigures",
    "load_recording",
    "load_stream",
    "study",
    "synchronise_recording",
    "write_ordered",
]
