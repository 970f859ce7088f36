"""What would each policy have done to this recorded stream? So that nobody need guess a watermark."""

from slackline.study.compare import PolicyResult, StudyResult, study
from slackline.study.stream import UNITS, Stream, StreamError, load_stream

__all__ = ["UNITS", "PolicyResult", "Stream", "StreamError", "StudyResult", "load_stream", "study"]
