"""One partition of the input at work: its engines, what came out of them, and how far they are."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import chain
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from slackline.connectors.kafka.decoding import Decoder
from slackline.connectors.kafka.reading import Arrived, BadMessage, Message
from slackline.connectors.kafka.records import Record, Recorder
from slackline.connectors.kafka.snapshots import PartitionSnapshot, changes_as_bytes, framed
from slackline.connectors.kafka.tables import KNOWN
from slackline.core.errors import SchemaError
from slackline.core.hierarchy import Hierarchy
from slackline.engine import Engine
from slackline.runtime.sites import Sites

#: Why a table is set aside as a whole.
WRONG_SCHEMA = "wrong schema"
#: Bytes of records that are decoded together, about.
PUSH_BYTES = 16_000_000


class InputPartition:
    """Takes the records of a partition, in order, and says what is to be written. A machine without I/O.

    It begins where a snapshot ends. What comes out of records before ``committed`` was written by a life before, and is
    dropped. ``cut`` is whether each record is a push of its own: where detectors run ahead, what they say early depends
    on where pushes end, so that these must be the same whenever the input is read again.
    """

    def __init__(
        self,
        sites: Sites,
        decoder: Decoder,
        recorder: Recorder,
        snapshot: PartitionSnapshot,
        committed: int,
        cut: bool = False,
    ) -> None:
        #: Which partition of the input.
        self.number = recorder.partition
        self.sites = sites
        #: The first record that was not taken yet.
        self.offset = snapshot.offset
        #: Records before this one are read again.
        self.committed = committed
        #: What is to be written, for all records before :attr:`offset`.
        self.pending: list[Record] = []
        #: Records that were taken, in this life, without those that were read again.
        self.taken = 0
        #: Records that could not be decoded or had columns that do not fit, in this life.
        self.rejected = 0
        self._decoder = decoder
        self._recorder = recorder
        self._cut = cut
        self._faults: dict[Any, str | None] = {}
        parts = snapshot.parts()
        if parts is not None:
            sites.load(*parts[0])
            recorder.changes.update(parts[1])

    @property
    def waits(self) -> bool:
        """Whether anything waits in engines that are not catching up."""
        return self.sites.waits and not self.is_catching_up

    @property
    def is_catching_up(self) -> bool:
        """Whether records are read that were read by a life before."""
        return self.offset < self.committed

    def take(self, messages: Sequence[Message]) -> None:
        """Take the next records."""
        old = sum(message.offset < self.committed for message in messages)
        for piece in (messages[:old], messages[old:]):
            for part in _pushes(piece, 1 if self._cut else PUSH_BYTES):
                self._take(part)

    def _take(self, messages: Sequence[Message]) -> None:
        is_old = messages[-1].offset < self.committed
        arrived, bad = self._decoder.decode(messages)
        found: list[Record] = []
        rejected = self._recorder.undecodable(bad)
        for one in arrived:
            found += self._push(one, rejected)
        self.offset = messages[-1].offset + 1
        if not is_old:
            self.pending += found + rejected
            self.taken += len(messages)
            self.rejected += len(rejected)

    def _push(self, arrived: Arrived, rejected: list[Record]) -> list[Record]:
        if isinstance(arrived.rows, pa.Table) and (why := self._fault(arrived.rows)):
            if len(arrived.messages) == 1:
                rejected += self._recorder.undecodable([BadMessage(arrived.messages[0], why)], WRONG_SCHEMA)
                return []
            return [record for message in arrived.messages for record in self._alone(message, rejected)]
        return self._records(self.sites.push(arrived.rows, arrived.keys))

    def _alone(self, message: Message, rejected: list[Record]) -> list[Record]:
        """One of several records that do not fit together: perhaps it does alone."""
        (arrived,), _ = self._decoder.decode([message])
        return self._push(arrived, rejected)

    def _records(self, found: list[Any]) -> list[Record]:
        late, quarantined = self.sites.drain()
        recorder = self._recorder
        return [*recorder.outputs(found), *recorder.late(late), *recorder.quarantined(quarantined)]

    def flush(self, reason: str) -> None:
        """Let all that waits go on. What this does is not in the input: a snapshot must follow."""
        self.pending += self._records(self.sites.flush(reason))

    def cut(self) -> Iterator[bytes]:
        """What the engines are now, piece by piece: the state of a snapshot. Meanwhile they may go on; then pieces of
        a cut that was made before must not be taken any more.
        """
        return map(framed, chain([changes_as_bytes(self._recorder.changes)], self.sites.cut()))

    def _fault(self, table: pa.Table) -> str | None:
        """Why an engine would refuse a table; None if it takes it.

        Asked before any engine gets some of it, as those of other keys could not give it back. An engine looks at the
        columns and at which types there are, so a table without rows that names the types is refused like this one.
        """
        kinds = None
        if "type" in table.column_names and not pa.types.is_null(table.schema.field("type").type):
            kinds = pc.unique(table["type"].combine_chunks())
            kinds = kinds.dictionary if isinstance(kinds, pa.DictionaryArray) else kinds
        known = (table.schema, None if kinds is None else tuple(kinds.to_pylist()))
        if known not in self._faults:
            if len(self._faults) >= KNOWN:
                self._faults.clear()
            self._faults[known] = self._try_out(table.slice(0, 0), kinds)
        return self._faults[known]

    def _try_out(self, table: pa.Table, kinds: pa.Array | None) -> str | None:
        if kinds is not None and (pa.types.is_string(kinds.type) or pa.types.is_large_string(kinds.type)):
            named = pa.DictionaryArray.from_arrays(pa.array([], pa.int32()), kinds.drop_null())
            table = table.set_column(table.schema.get_field_index("type"), "type", named)
        try:
            Engine(self.sites.hierarchy).push(table)
        except SchemaError as error:
            return str(error)
        return None


def _pushes(messages: Sequence[Message], size: int) -> Iterator[Sequence[Message]]:
    """The records in runs of so many bytes, or of one record."""
    start = held = 0
    for at, message in enumerate(messages):
        held += len(message.value or b"") + 1
        if held >= size:
            yield messages[start : at + 1]
            start, held = at + 1, 0
    if start < len(messages):
        yield messages[start:]


def runs_ahead(options: Mapping[str, Any]) -> bool:
    """Whether detectors run ahead with these options."""
    return options.get("speculation") is not None


def only_type(hierarchy: Hierarchy) -> str | None:
    """The type of records that name none: the only one that enters, if there is just one."""
    kinds = list(hierarchy.sensor_types)
    return kinds[0] if len(kinds) == 1 else None
