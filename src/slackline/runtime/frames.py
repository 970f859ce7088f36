"""Frames: byte strings, each with its length (four bytes, big-endian) in front; over connections and in checkpoints."""

from __future__ import annotations

import struct
from collections.abc import Iterator

from slackline.core.errors import SlacklineError

_LENGTH = struct.Struct(">I")


class FrameError(SlacklineError):
    """Bytes that are no sequence of frames: too long, or cut short."""


def framed(data: bytes) -> bytes:
    """The data as a frame.

    >>> framed(b"abc")
    b'\\x00\\x00\\x00\\x03abc'
    """
    return _LENGTH.pack(len(data)) + data


def frames(data: bytes) -> Iterator[bytes]:
    """The content of all frames in complete data.

    >>> list(frames(framed(b"abc") + framed(b"")))
    [b'abc', b'']
    """
    at = 0
    while at < len(data):
        if len(data) - at < _LENGTH.size:
            raise FrameError(f"the data ends inside the length of a frame, at byte {at}.")
        start = at + _LENGTH.size
        at = start + _LENGTH.unpack_from(data, at)[0]
        if at > len(data):
            raise FrameError(f"the data ends inside a frame: {at} bytes were expected, and there are {len(data)}.")
        yield data[start:at]


class Frames:
    """Cuts a stream of bytes into frames of at most ``limit`` bytes, wherever the stream was cut on the way.

    >>> reader = Frames(10)
    >>> reader.feed(b"\\x00\\x00\\x00\\x03ab"), reader.feed(b"c\\x00")
    ([], [b'abc'])
    """

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self._buffer = bytearray()

    def feed(self, data: bytes) -> list[bytes]:
        """The frames that are complete now. Raises FrameError as soon as a length exceeds the limit."""
        buffer = self._buffer
        buffer += data
        found: list[bytes] = []
        at = 0
        while len(buffer) - at >= _LENGTH.size:
            (length,) = _LENGTH.unpack_from(buffer, at)
            if length > self.limit:
                raise FrameError(f"a frame of {length} bytes; the limit is {self.limit}.")
            stop = at + _LENGTH.size + length
            if len(buffer) < stop:
                break
            found.append(bytes(buffer[at + _LENGTH.size : stop]))
            at = stop
        del buffer[:at]
        return found

    def end(self) -> None:
        """The stream has ended. Raises FrameError if that is inside a frame."""
        if self._buffer:
            raise FrameError(f"the connection ended inside a frame, {len(self._buffer)} bytes after its beginning.")
