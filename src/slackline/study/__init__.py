"""What each policy would have done to a recorded stream, and the synchroniser to many, without running anything."""

from slackline.study.compare import FIXED, PolicyResult, StudyResult, study
from slackline.study.ordered import write_ordered
from slackline.study.policies import STEADY, PolicyFigures
from slackline.study.recording import RecordedStream, SyncRecording, load_recording, load_stream
from slackline.study.sync import StreamResult, SyncResult, WaitFigures, synchronise_recording

__all__ = [
    "FIXED",
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
