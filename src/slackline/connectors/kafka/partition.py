"""One partition of the input: its engines, their output, and the offset up to which it was processed.

**Replay.** A partition starts from a checkpoint. Messages between its offset and the one that was committed are
processed again, and their output is dropped, as it is written already: engines that receive the same arrivals are the
same (laws 3 and 6).

**Timeouts.** Nothing in the input shows that a key was flushed or its state dropped, so each application of timeouts is
kept with the offset at which it happened, until a checkpoint contains it. The replay applies them at the same offsets.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import pyarrow as pa

from slackline.connectors.kafka.formats import Message, MessageBatch, MessageReader
from slackline.connectors.kafka.settings import KafkaSettings
from slackline.connectors.kafka.sink import OutputMessage, output_messages
from slackline.runtime.checkpoint import Checkpoint
from slackline.runtime.forms import quickest
from slackline.runtime.keyed import KeyedEngines
from slackline.runtime.metrics import Metrics
from slackline.runtime.output import NOT_AN_EVENT, OutputRecord, bad_record

#: Bytes of messages that are decoded together, about.
PUSH_BYTES = 16_000_000

logger = logging.getLogger("slackline.kafka")


class AppliedTimeouts(NamedTuple):
    """Timeouts that were applied together, at an offset; ``due`` is as :meth:`KeyedEngines.due` returns it.

    ``number`` counts the applications of a partition: a checkpoint has how many it contains.
    """

    number: int
    offset: int
    due: Sequence[tuple[str, Any]]


class Resume(NamedTuple):
    """Where a partition resumes: from a checkpoint, and timeouts that were applied since, or before."""

    checkpoint: Checkpoint
    timeouts: Sequence[AppliedTimeouts] = ()

    @property
    def offset(self) -> int:
        """The first offset that the checkpoint does not contain."""
        return int(self.checkpoint.header["offset"])


class InputPartition:
    """Processes the messages of a partition, in order. A machine without I/O or clock.

    ``engines``    new engines, which resume from the checkpoint.
    ``committed``  the output of messages before this offset is written.
    """

    def __init__(
        self,
        number: int,
        settings: KafkaSettings,
        engines: KeyedEngines,
        reader: MessageReader,
        resume: Resume,
        committed: int,
    ) -> None:
        self.number = number
        self.engines = engines
        #: The first offset that was not processed.
        self.offset = resume.offset
        self.committed = committed
        #: Timeouts that were applied since the last checkpoint.
        self.timeouts: list[AppliedTimeouts] = []
        #: Whether some of them are not in the log.
        self.has_new_timeouts = False
        self._settings = settings
        self._reader = reader
        self._where = f"{settings.input.topic}/{number}"
        self._pending: list[OutputMessage] = []
        header = resume.checkpoint.header
        schema = settings.schema.resumed(header["schema"], f"the checkpoint of partition {number}")
        self._decoder = engines.decoder(schema)
        self._applied = int(header["timeouts"])
        #: The offset at which states were last dropped: engines made after it have other ids than those before.
        self._incarnation = int(header["incarnation"])
        self._replay = deque(one for one in resume.timeouts if one.number >= self._applied)
        if header["engines"] is not None:
            engines.load(header["engines"], resume.checkpoint.pieces)
        self._replay_timeouts(self.offset)

    @property
    def pending(self) -> int:
        """The number of messages that are to be written."""
        return len(self._pending)

    @property
    def is_replaying(self) -> bool:
        """Whether input is processed again."""
        return self.offset < self.committed or bool(self._replay)

    def take_pending(self) -> list[OutputMessage]:
        """The messages that are to be written, for all input before :attr:`offset`."""
        taken, self._pending = self._pending, []
        return taken

    # Input.

    def process(self, messages: Sequence[Message], at: int) -> None:
        """Process the next messages, which were read at this wall time, in milliseconds."""
        start = 0
        while start < len(messages):
            self._replay_timeouts(messages[start].offset)
            stop = self._end_of_push(messages, start)
            self._push(messages[start:stop], at)
            self._replay_timeouts(self.offset)
            start = stop

    def _end_of_push(self, messages: Sequence[Message], start: int) -> int:
        """Where the push ends that begins with a message.

        The first records have pushes of their own until the unit of event times is known: it must not depend on how
        many were read at once. With speculation each message is a push: early results depend on where pushes end, and
        these must be the same in a replay.
        """
        if self._settings.speculates or self._decoder.choice is None:
            return start + 1
        borders = [self.committed, *(one.offset for one in self._replay)]
        border = min((each for each in borders if each > messages[start].offset), default=None)
        size = 0
        for at in range(start, len(messages)):
            if border is not None and messages[at].offset >= border:
                return at
            size += len(messages[at].value or b"") + 1
            if size >= PUSH_BYTES:
                return at + 1
        return len(messages)

    def _push(self, messages: Sequence[Message], at: int) -> None:
        is_new = self._decoder.choice is None
        records = [record for batch in self._reader.read(messages, self._where) for record in self._batch(batch, at)]
        choice = self._decoder.choice
        if is_new and choice is not None:
            for text in choice.notes:
                logger.info("%s: %s", self._where, text)
            for text in choice.warnings:
                logger.warning("%s: %s", self._where, text)
        self.offset = messages[-1].offset + 1
        if self.offset > self.committed:
            self._emit(records)

    def _batch(self, batch: MessageBatch, at: int) -> Iterator[OutputRecord]:
        rows, keys, bad = self._decoder.decode(batch.records, first=0, bad_record=batch.bad)
        self.engines.collector.count_aside(0, 0, [NOT_AN_EVENT] * len(bad))
        if isinstance(rows, pa.Table):
            rows = quickest(rows, self.engines.types)
            if not isinstance(rows, pa.Table) and keys is not None:
                keys = keys.to_pylist()  # type: ignore[union-attr]
        if len(rows):
            yield from self.engines.push(rows, keys, at=at, incarnation=self._incarnation)
        for one in bad:
            yield bad_record(one, self._settings.input.topic)

    def _emit(self, records: Iterable[OutputRecord]) -> None:
        # Rows without a key are numbered by partition.
        prefix = f"{self.number}/" if self.engines.keyed else ""
        self._pending += output_messages(records, self._settings.topics, prefix)

    # Timeouts.

    def expire(self, at: int) -> None:
        """Apply the timeouts that are due at this wall time, in milliseconds."""
        due = self.engines.due(at)
        if due:
            self._emit(self._apply(AppliedTimeouts(self._applied, self.offset, due)))
            self.has_new_timeouts = True

    def _replay_timeouts(self, offset: int) -> None:
        """Apply those that were applied before the message at this offset."""
        while self._replay and self._replay[0].offset <= offset:
            one = self._replay.popleft()
            records = self._apply(one)
            # A transaction has the log and the output; otherwise the log is written before the output.
            if not self._settings.is_exact and one.offset >= self.committed:
                self._emit(records)

    def _apply(self, one: AppliedTimeouts) -> list[OutputRecord]:
        records = self.engines.apply(one.due)
        self.timeouts.append(one)
        self._applied = one.number + 1
        if any(reason == "state_ttl" for reason, _ in one.due):
            self._incarnation = one.offset
        return records

    def logged_timeouts(self) -> None:
        """All timeouts are in the log, or in a checkpoint that is about to be valid."""
        self.has_new_timeouts = False

    def drop_timeouts(self, before: int) -> None:
        """A checkpoint contains the timeouts before this number."""
        self.timeouts = [one for one in self.timeouts if one.number >= before]

    def flush(self, reason: str) -> None:
        """Emit all that is buffered. Nothing in the input shows this: a checkpoint must follow."""
        self._emit(self.engines.flush(reason))

    # State.

    def snapshot(self) -> tuple[Mapping[str, Any], Iterator[bytes]]:
        """Header and pieces of a checkpoint of this moment. The pieces are made when they are taken; meanwhile messages
        may be processed, and pieces of an earlier snapshot must not be taken any more.
        """
        engines, pieces = self.engines.snapshot()
        header = {
            "offset": self.offset, "schema": self._decoder.schema.plain(), "timeouts": self._applied,
            "incarnation": self._incarnation, "engines": engines,
        }  # fmt: skip
        return header, pieces

    def metrics(self) -> Metrics:
        """Metrics of the engines."""
        return replace(self.engines.metrics(), ts_per_second=self._decoder.schema.ts_per_second)
