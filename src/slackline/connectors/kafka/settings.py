"""Addresses of topics, and the settings of an application between two topics. Needs no Kafka client."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import KW_ONLY, dataclass, field
from pathlib import Path
from typing import Any, Literal
from urllib.parse import parse_qsl

from slackline.core import check
from slackline.core.errors import ConfigError
from slackline.runtime.address import Address
from slackline.runtime.options import RunOptions
from slackline.runtime.schema import RecordSchema
from slackline.runtime.timeouts import Timeouts
from slackline.speculation.config import Speculation

SCHEME = "kafka://"
DELIVERIES = ("exactly-once", "at-least-once")
STARTS = ("earliest", "latest")
_TOPIC = re.compile(r"[A-Za-z0-9._-]{1,249}")
_EXAMPLE = "write kafka://HOST:PORT/TOPIC, e.g. kafka://127.0.0.1:9092/positions."
#: Options whose names differ from what one may expect behind a question mark.
_OPTIONS = {
    "config": "kafka-config", "schema": "avro-schema", "commit": "commit-interval", "snapshot": "checkpoint-every",
    "idle": "idle-timeout", "quarantine": "quarantine-topic", "late": "late-topic",
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class KafkaAddress:
    """A topic and the brokers of its cluster.

    >>> KafkaAddress.of("kafka://10.0.0.7:9092,10.0.0.8:9092/positions")
    KafkaAddress(brokers='10.0.0.7:9092,10.0.0.8:9092', topic='positions')
    """

    brokers: str
    topic: str

    @classmethod
    def of(cls, address: str | KafkaAddress) -> KafkaAddress:
        """The address in a text; a ConfigError if it is none."""
        if isinstance(address, KafkaAddress):
            return address
        if not address.startswith(SCHEME):
            raise ConfigError(f"{address!r} is not the address of a topic; {_EXAMPLE}")
        place, question, query = address[len(SCHEME) :].partition("?")
        brokers, slash, topic = place.partition("/")
        if not slash or not brokers:
            raise ConfigError(f"{address!r} names no {'topic' if brokers else 'broker'}; {_EXAMPLE}")
        if question:
            given = parse_qsl(query, keep_blank_values=True) or [("format", "arrow")]
            options = " ".join(f"--{_OPTIONS.get(name, name)} {value}".rstrip() for name, value in given)
            raise ConfigError(f"{address!r}: an address has no options behind a question mark. Use {options} instead.")
        each = [str(Address.of(broker)) for broker in brokers.split(",")]
        return cls(",".join(each), check_topic(topic))

    def __str__(self) -> str:
        return f"{SCHEME}{self.brokers}/{self.topic}"


def check_topic(name: str) -> str:
    """The name, if it is valid for a topic."""
    if not _TOPIC.fullmatch(name) or name in (".", ".."):
        raise ConfigError(f"{name!r} is not a valid topic name: up to 249 letters, digits, '.', '_' and '-'.")
    return name


def client_properties(path: str | Path | None) -> dict[str, str]:
    """The properties of librdkafka in a file, ``name=value`` per line: the place for passwords.

    Empty lines and lines that begin with ``#`` are skipped.
    """
    found: dict[str, str] = {}
    try:
        lines = [] if path is None else Path(path).read_text("utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"the properties of the Kafka client cannot be read from {str(path)!r}: {error}.") from error
    for number, line in enumerate(lines, 1):
        name, equals, value = line.partition("=")
        if not line.strip() or line.lstrip().startswith("#"):
            continue
        if not equals or not name.strip():
            raise ConfigError(f"{path}, line {number}: {line!r} is not name=value, e.g. security.protocol=SASL_SSL.")
        found[name.strip()] = value.strip()
    return found


def output_topics(
    sink: str, late: str | None = None, quarantine: str | None = None, duplicates: bool = False
) -> dict[str, str]:
    """The topic of each kind of output record, the sink's own first. Duplicates have one only where they are written.

    >>> output_topics("found", late="too-late")
    {'event': 'found', 'late': 'too-late', 'quarantine': 'found-quarantine'}
    """
    topics = {"event": sink, "late": late or f"{sink}-late", "quarantine": quarantine or f"{sink}-quarantine"}
    if duplicates:
        topics["duplicate"] = f"{sink}-duplicates"
    return {kind: check_topic(topic) for kind, topic in topics.items()}


def described(topics: Mapping[str, str]) -> str:
    """Where records go that are no events, in words."""
    duplicates = f", duplicates to {topics['duplicate']}" if "duplicate" in topics else ""
    return f"late events to {topics['late']}, quarantined ones to {topics['quarantine']}{duplicates}"


@dataclass(frozen=True, slots=True)
class KafkaSettings:
    """What a :class:`~slackline.connectors.kafka.KafkaHost` reads and writes, and with which guarantee.

    ``source``, ``sink``  ``kafka://HOST:PORT/TOPIC``, both of one cluster; both topics must exist. All other topics are
                   created if they do not exist.
    ``group``      the name of the application, the same for all its processes: they share the partitions.
    ``schema``     how messages become events. Where its key is ``key`` and records have no such field, the message's
                   own key is used.
    ``engine_options``  options of :class:`~slackline.Engine`. ``Speculation(alpha="auto")`` is refused: its early
                   results depend on the load of the process, and could not be repeated.
    ``shards``     hash the keys of a partition into so many engines, each ordered as one stream.
    ``idle_timeout``, ``state_ttl``  flush a key, drop the state of a key, without arrivals for so long. The time counts
                   while all input is read: not during a backlog or while no broker answers.
    ``delivery``   ``"exactly-once"``: outputs, offsets and checkpoints in transactions; consumers that read
                   ``read_committed`` get each output once. ``"at-least-once"``: outputs at once; after a crash some
                   are repeated, with the same header ``id``.
    ``start``      where a new group begins to read: ``"earliest"`` or ``"latest"``.
    ``commit_interval``   seconds between two transactions: the less, the lower the latency and the higher the load.
    ``checkpoint_every``  seconds between two checkpoints: the more, the longer a restart takes.
    ``state``      where checkpoints are: a topic, or a folder if it has a slash. The topic ``GROUP-state`` by default.
    ``late_topic``, ``quarantine_topic``  ``SINK-late`` and ``SINK-quarantine`` by default.
    ``duplicates`` ``"write"``: events that are dropped as duplicates go to the topic ``SINK-duplicates``.
    ``client``     properties of librdkafka.

    All records of a key must be in one partition: write them with the key as the message's. Without keys there is one
    engine, and one partition.
    """

    source: str | KafkaAddress
    sink: str | KafkaAddress
    _: KW_ONLY
    group: str
    schema: RecordSchema = field(default_factory=RecordSchema)
    engine_options: Mapping[str, Any] = field(default_factory=dict)
    shards: int | None = None
    idle_timeout: str | float | None = None
    state_ttl: str | float | None = None
    delivery: str = "exactly-once"
    start: str = "earliest"
    commit_interval: float = 0.01
    checkpoint_every: float = 30.0
    state: str = ""
    late_topic: str | None = None
    quarantine_topic: str | None = None
    duplicates: Literal["drop", "write"] = "drop"
    client: Mapping[str, str] = field(default_factory=dict)
    #: From the fields above: both addresses, the topics of the output by kind, and the timeouts.
    input: KafkaAddress = field(init=False)
    output: KafkaAddress = field(init=False)
    topics: Mapping[str, str] = field(init=False)
    timeouts: Timeouts = field(init=False)

    def __post_init__(self) -> None:
        check.text("group", self.group)
        check.one_of("delivery", self.delivery, DELIVERIES)
        check.one_of("start", self.start, STARTS)
        check.one_of("duplicates", self.duplicates, ("drop", "write"))
        check.number("commit_interval", self.commit_interval, 0)
        check.number("checkpoint_every", self.checkpoint_every, 0)
        source, sink = KafkaAddress.of(self.source), KafkaAddress.of(self.sink)
        written = output_topics(sink.topic, self.late_topic, self.quarantine_topic, self.duplicates == "write")
        object.__setattr__(self, "input", source)
        object.__setattr__(self, "output", sink)
        object.__setattr__(self, "topics", written)
        object.__setattr__(self, "timeouts", Timeouts.of(self.idle_timeout, self.state_ttl))
        if self.timeouts:
            self.check_flush("idle_timeout or state_ttl")
        self._check_speculation()
        states = [] if self.state_folder else [check_topic(self.state_topic)]
        topics = [source.topic, *written.values(), *states]
        if len(set(topics)) < len(topics):
            raise ConfigError(f"input, results, late events, quarantine and state need a topic each; got {topics}.")
        if source.brokers != sink.brokers:
            raise ConfigError(
                f"input is at {source.brokers} and output at {sink.brokers}: a transaction cannot span two clusters. "
                f"Give the same brokers for both."
            )

    @classmethod
    def of(cls, options: RunOptions) -> KafkaSettings:
        """The settings by the options of the command line."""
        if len(options.sources) != 1:
            raise ConfigError(
                f"--from {' --from '.join(options.sources)}: between topics, one is read. Give one --from, or another "
                f"--to: a folder takes records of several topics."
            )
        if options.fresh or options.follow:
            raise ConfigError("--fresh and --follow are for files and folders. On Kafka a new --group starts anew.")
        if options.group is None:
            raise ConfigError("--group is missing: the name of the application, the same for all its processes.")
        names = (
            "group", "schema", "shards", "idle_timeout", "state_ttl", "delivery", "start", "commit_interval",
            "checkpoint_every", "state", "late_topic", "quarantine_topic", "duplicates",
        )  # fmt: skip
        given: dict[str, Any] = {name: getattr(options, name) for name in names}
        return cls(
            options.sources[0],
            options.to,
            engine_options=options.engine_options,
            client=client_properties(options.kafka_config),
            **{name: value for name, value in given.items() if value is not None},
        )

    @property
    def is_exact(self) -> bool:
        """Whether outputs, offsets and checkpoints are committed together."""
        return self.delivery == "exactly-once"

    @property
    def is_keyed(self) -> bool:
        """Whether each key has its own engine."""
        return self.schema.key is not None

    @property
    def speculates(self) -> bool:
        """Whether results are emitted early."""
        return self.engine_options.get("speculation") is not None

    @property
    def state_topic(self) -> str:
        """The compacted topic of the checkpoints, unless they are in a folder."""
        return self.state if self.state and self.state_folder is None else f"{self.group}-state"

    @property
    def state_folder(self) -> Path | None:
        """The folder of the checkpoints: ``state`` is one if it has a slash."""
        return Path(self.state) if "/" in self.state else None

    def transactional_id(self, partition: int) -> str:
        """The id of a partition's transactions. The owner of the partition takes it, which fences the one before."""
        return f"{self.group}-{self.input.topic}-{partition}"

    def check_flush(self, option: str) -> None:
        """Refuse to flush where a restart might not know of it.

        Nothing in the input shows a flush, so it is logged or followed by a checkpoint. In a topic these are in the
        transaction of the outputs; a file is written after it, and a process that is killed in between would flush
        again.
        """
        if self.is_exact and self.state_folder is not None:
            raise ConfigError(
                f"{option} flushes buffered events, which is exactly once only with the state in a topic, where it is "
                f"written in the transaction of the outputs; the state is in the folder {self.state!r}. Give a topic "
                f"(state=NAME), or delivery='at-least-once'."
            )

    def _check_speculation(self) -> None:
        given = self.engine_options.get("speculation")
        each = given.values() if isinstance(given, Mapping) else [given]
        if any(isinstance(one, Speculation) and one.alpha == "auto" for one in each):
            raise ConfigError(
                "Speculation(alpha='auto') is set from the load of the process, so that records that are read again "
                "after a crash would give other early results than those that were written. On Kafka give alpha a "
                "number."
            )

    def plan(self) -> list[tuple[str, str]]:
        """From where to where, and what is guaranteed: a line each."""
        guarantee = "at least once: after a crash some outputs are repeated, with the same header id"
        if self.is_exact:
            guarantee = f"exactly once for read_committed consumers, a transaction every {self.commit_interval:g} s"
        state = self.state_folder or f"topic {self.state_topic}"
        return [
            ("from", f"{self.input} ({self.schema.format}), group {self.group}"),
            ("to", f"{self.output}; {described(self.topics)}"),
            ("state", f"{state}, a checkpoint every {self.checkpoint_every:g} s"),
            ("guarantee", guarantee),
        ]
