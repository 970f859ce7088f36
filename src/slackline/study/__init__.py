"""What each policy would have done to a recorded stream, and the synchroniser to many, without running anything."""

from slackline.study.compare import PolicyResult, StudyResult, study
from slackline.study.ordered import write_ordered
from slackline.study.outcome import STEADY, PolicyFigures
from slackline.study.recording import RecordedStream, SyncRecording, load_recording, load_stream
from slackline.study.sync import synchronise_recording
from slackline.study.sync_result import StreamResult, SyncResult, WaitFigures

__all__ = [
    "STEADY",
    "PolicyFigures",
    "PolicyResult",
    "RecordedStream",
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
