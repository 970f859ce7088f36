"""The transfer of a detector's state to the target of its migration: in chunks, most of them while it still runs.

The target asks for a copy (CopyRequest) when the migration starts. The source sends it in pieces
(:class:`~slackline.running.state_copy.StateCopy`), one at each run of the node, so that encoding blocks no other
detector for long. After the last one the target requests the state; the source stops the detector and sends the rest,
and the state beside the copy. A state that fits into one chunk is not copied: it is sent whole, in the DetectorState.

**Chunks** have at most 256 kB, so that no envelope exceeds the limit of frames. At most ``IN_FLIGHT`` are not
acknowledged: events and heartbeats wait behind no more than these 2 MB, 17 ms at 1 Gbit/s; at the default session
timeout a link of 4 Mbit/s suffices. Every chunk that arrives renews the session, as any message does.
"""

from __future__ import annotations

from collections import deque
from typing import ClassVar

from slackline.cluster.protocol.membership import Session
from slackline.cluster.protocol.messages import COPIED, MORE, PIECE, STATE, StateChunk
from slackline.core.errors import ConfigError, StateError, UnsupportedStateError
from slackline.engine import Engine
from slackline.running.state_copy import StateCopy

IN_FLIGHT = 8


class StateSender:
    """What a source sends to one target: first the copy, then the rest. ``number`` is the target's for the copy."""

    #: Bytes of a chunk at most; tests have less.
    chunk_bytes: ClassVar[int] = 256 * 1024

    def __init__(self, detector: str, target: str, number: int, copied: StateCopy | None) -> None:
        self.detector = detector
        self.target = target
        self.number = number
        #: The copy, while the detector runs.
        self.copied = copied
        self.bytes = 0
        self._queue: deque[StateChunk] = deque()
        self._is_copying = copied is not None

    @classmethod
    def start(cls, detector: str, target: str, number: int, copied: StateCopy) -> StateSender | None:
        """Start to send a copy; None if the state is so small that it is not worth it, or cannot be encoded."""
        sender = cls(detector, target, number, copied)
        try:
            first = copied.next(cls.chunk_bytes)
            second = copied.next(cls.chunk_bytes)
        except UnsupportedStateError:  # the target is notified when it requests the state
            first = second = b""
        if not second and len(first) <= cls.chunk_bytes:
            copied.end()
            return None
        sender._add(first, PIECE)
        sender._add(second, PIECE)
        return sender

    def _add(self, data: bytes, end: int) -> None:
        """Queue data in chunks, the last of which ends something."""
        if data or end == COPIED:
            for start in range(0, max(1, len(data)), self.chunk_bytes):
                stop = start + self.chunk_bytes
                kind = end if stop >= len(data) else MORE
                self._queue.append(StateChunk(self.detector, self.number, data[start:stop], kind))
            self.bytes += len(data)

    def finish(self, rest: bytes, beside: bytes) -> None:
        """The detector has stopped: send what the copy lacks, and the state beside it."""
        self.copied, self._is_copying = None, False
        self._add(rest, PIECE)
        self._add(beside, STATE)

    def end(self) -> None:
        """The detector does not migrate to this target."""
        if self.copied is not None:
            self.copied.end()
        self.copied, self._is_copying = None, False
        self._queue.clear()

    @property
    def is_done(self) -> bool:
        """Whether the state was sent completely."""
        return self.copied is None and not self._queue

    def is_due(self, session: Session) -> bool:
        """Whether there is something to send that may be sent now."""
        return (bool(self._queue) or self._is_copying) and session.unacknowledged < IN_FLIGHT

    def step(self, session: Session) -> None:
        """Send what may be in flight; encode at most one more piece. An UnsupportedStateError if that fails."""
        if not self._queue and self._is_copying and session.unacknowledged < IN_FLIGHT:
            assert self.copied is not None
            piece = self.copied.next(self.chunk_bytes)
            self._is_copying = bool(piece)
            self._add(piece, PIECE if piece else COPIED)
        while self._queue and session.unacknowledged < IN_FLIGHT:
            session.send(self._queue.popleft())


class StateReceiver:
    """What a target receives: pieces of copy ``number``, or, without a copy, the state alone."""

    def __init__(self, engine: Engine, detector: str, number: int) -> None:
        self.number = number
        self.receiver = engine.host.receiver(detector)
        #: Whether the state may be requested.
        self.is_copied = False
        #: The state, or the state beside the copy, when all has arrived.
        self.state: bytes | None = None
        self.bytes = self.copied_bytes = 0
        self._parts: list[bytes] = []

    def add(self, chunk: StateChunk) -> str | None:
        """Receive a chunk; what is wrong with it, if anything is."""
        self._parts.append(chunk.data)
        self.bytes += len(chunk.data)
        if chunk.end == MORE:
            return None
        data, self._parts = b"".join(self._parts), []
        try:
            if chunk.end == PIECE:
                self.receiver.add(data)
            elif chunk.end == COPIED:
                self.receiver.prepare()
                self.is_copied, self.copied_bytes = True, self.bytes
            elif chunk.end == STATE:
                self.state = data
        except (ConfigError, StateError) as error:
            return str(error)
        return None
