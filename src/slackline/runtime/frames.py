"""Frames: byte strings one after another, each preceded by its length (4 bytes, big-endian).

Nodes send frames over TCP, and files hold them. The content is opaque here.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator

from slackline.core.errors import SlacklineError

_LENGTH = struct.Struct(">I")
_LONGEST = 2**32 - 1


class FrameError(SlacklineError):
    """The bytes are not a sequence of frames: a frame is too long or incomplete."""


def framed(data: bytes) -> bytes:
    """The data as one frame.

    >>> framed(b"abc")
    b'\\x00\\x00\\x00\\x03abc'
    """
    if len(data) > _LONGEST:
        raise FrameError(f"a frame holds at most {_LONGEST} bytes; got {len(data)}.")
    return _LENGTH.pack(len(data)) + data


def frames(data: bytes) -> Iterator[bytes]:
    """The content of each frame in ``data``, which holds complete frames and nothing else; FrameError if not.

    >>> list(frames(framed(b"abc") + framed(b"")))
    [b'abc', b'']
    """
    at = 0
    while at < len(data):
        start = at + _LENGTH.size
        if start > len(data) or len(data) < (stop := start + _LENGTH.unpack_from(data, at)[0]):
            raise FrameError(f"incomplete frame at byte {at} of {len(data)}.")
        yield data[start:stop]
        at = stop


class Frames:
    """Splits a stream of bytes into frames of at most ``limit`` bytes, whatever the boundaries of its chunks.

    >>> reader = Frames(10)
    >>> reader.feed(b"\\x00\\x00\\x00\\x03ab"), reader.feed(b"c\\x00")
    ([], [b'abc'])
    """

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self._buffer = bytearray()

    @property
    def buffered(self) -> int:
        """Bytes of a frame that is not complete."""
        return len(self._buffer)

    def feed(self, data: bytes) -> list[bytes]:
        """The frames that are complete now. FrameError as soon as a length exceeds the limit, before its content."""
        buffer = self._buffer
        buffer += data
        found: list[bytes] = []
        at = 0
        while len(buffer) - at >= _LENGTH.size:
            (length,) = _LENGTH.unpack_from(buffer, at)
            if length > self.limit:
                raise FrameError(f"a frame of {length} bytes exceeds the limit of {self.limit}.")
            stop = at + _LENGTH.size + length
            if len(buffer) < stop:
                break
            found.append(bytes(buffer[at + _LENGTH.size : stop]))
            at = stop
        del buffer[:at]
        return found

    def end(self) -> None:
        """The stream has ended; FrameError if that is inside a frame."""
        if self._buffer:
            raise FrameError(f"the stream ended inside a frame, {len(self._buffer)} bytes after its start.")
