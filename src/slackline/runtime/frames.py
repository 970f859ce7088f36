"""Frames: what travels over a connection, each with its length (four bytes, big-endian) before it."""

from __future__ import annotations

import struct

from slackline.nodes.messages import ProtocolError

_LENGTH = struct.Struct(">I")


class FrameError(ProtocolError):
    """A frame that nobody of this protocol sends: too long, cut short, or sealed by somebody else."""


def framed(data: bytes) -> bytes:
    """The data as a frame.

    >>> framed(b"abc")
    b'\\x00\\x00\\x00\\x03abc'
    """
    return _LENGTH.pack(len(data)) + data


def split(data: bytes) -> tuple[bytes, bytes]:
    """A frame at the beginning of the data, and the rest.

    >>> split(framed(b"abc") + b"de")
    (b'abc', b'de')
    """
    if len(data) < _LENGTH.size or len(data) < (stop := _LENGTH.size + _LENGTH.unpack_from(data)[0]):
        raise FrameError(f"{len(data)} bytes are no frame.")
    return data[_LENGTH.size : stop], data[stop:]


class Frames:
    """Cuts what comes in into frames of at most ``most`` bytes. **Where it was cut on the way means nothing.**

    >>> frames = Frames(10)
    >>> frames.feed(b"\\x00\\x00\\x00\\x03ab"), frames.feed(b"c\\x00")
    ([], [b'abc'])
    """

    def __init__(self, most: int) -> None:
        self.most = most
        self._buffer = bytearray()

    def feed(self, data: bytes) -> list[bytes]:
        """The frames that are complete now. A FrameError as soon as a length is too great, before the frame comes."""
        buffer = self._buffer
        buffer += data
        found: list[bytes] = []
        at = 0
        while len(buffer) - at >= _LENGTH.size:
            (length,) = _LENGTH.unpack_from(buffer, at)
            if length > self.most:
                raise FrameError(f"a frame of {length} bytes; at most {self.most} are taken.")
            stop = at + _LENGTH.size + length
            if len(buffer) < stop:
                break
            found.append(bytes(buffer[at + _LENGTH.size : stop]))
            at = stop
        del buffer[:at]
        return found

    def end(self) -> None:
        """Nothing more comes; a FrameError if that is in the middle of a frame."""
        if self._buffer:
            raise FrameError(f"the connection ended inside a frame, {len(self._buffer)} bytes after its beginning.")
