"""Server-sent events out of chunks of bytes, each within a bound: a server cannot fill our memory.

The decoder is httpx_sse's. Its own reader of lines has no bound, so lines are cut here.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from slackline.runtime.lines import MAX_LINE, Lines

if TYPE_CHECKING:
    from httpx_sse import ServerSentEvent


class SentEvents:
    """The events of one response. One with more than :data:`MAX_LINE` bytes of data is given as None, once.

    What else such an event says still counts, its id above all: after a loss of connection it need not come again.
    """

    def __init__(self) -> None:
        from httpx_sse._decoders import SSEDecoder

        self._lines = Lines()
        self._decoder = SSEDecoder()
        self._after_cr = False
        self._size = 0  # bytes of data of the event that has not ended
        self._too_long = False

    def feed(self, data: bytes) -> Iterator[ServerSentEvent | None]:
        """Take more bytes; the events that they complete."""
        for _, line in self._lines.feed(self._with_newlines(data)):
            if line == b"":
                self._size, self._too_long = 0, False
            elif line is not None and line.startswith(b"data"):
                self._size += len(line)
            if line is not None and (self._size <= MAX_LINE or not line.startswith(b"data")):
                sent = self._decoder.decode(line.decode("utf-8", "replace"))
                if sent is not None:
                    yield sent
            elif not self._too_long:
                self._too_long = True
                self._size = MAX_LINE + 1  # no more of it
                self._decoder.decode("")  # as if it had ended: the decoder forgets what it has of it
                yield None

    def _with_newlines(self, data: bytes) -> bytes:
        """A line ends with CR, LF or both, and they may come in two chunks."""
        if not data:
            return data
        if self._after_cr:
            data = data.removeprefix(b"\n")
        self._after_cr = data.endswith(b"\r")
        return data.replace(b"\r\n", b"\n").replace(b"\r", b"\n")
