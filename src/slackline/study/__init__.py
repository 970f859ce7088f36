"""What would each policy have done to a recorded stream, and the synchroniser to many? So that nobody need guess."""

from slackline.study.compare import PolicyResult, StudyResult, study
from slackline.study.ordered import write_ordered
from slackline.study.outcome import STEADY, PolicyFigures
from slackline.study.recording import SyncRecording, load_recording
from slackline.study.stream import RecordedStream, load_stream
from slackline.study.sync import synchronise_recording
from slackline.study.sync_result import StreamResult, SyncResult, WaitFigures
from slackline.study.table import StreamError

__all__ = [
    "STEADY",
    "PolicyFigures",
    "PolicyResult",
    "RecordedStream",
    "StreamError",
    "StreamResult",
    "StudyResult",
    "SyncRecording",
    "SyncResult",
    "WaitFigures",
    "load_recording",
    "load_stream",
    "study",
    "synchronise_recording",
    "write_ordered",
]
