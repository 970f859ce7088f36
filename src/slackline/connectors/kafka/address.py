"""Addresses of topics, ``kafka://HOST:PORT[,HOST:PORT…]/TOPIC``, and files with properties of the client."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import parse_qsl

from slackline.core.errors import ConfigError
from slackline.runtime.address import Address

SCHEME = "kafka://"
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
            raise ConfigError(f"{address!r} is no address of a topic; {_EXAMPLE}")
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
        raise ConfigError(f"{name!r} is no name of a topic: up to 249 letters, digits, '.', '_' and '-'.")
    return name


def client_properties(path: str | Path) -> dict[str, str]:
    """The properties of librdkafka in a file, ``name=value`` per line: the place for passwords.

    Empty lines and lines that begin with ``#`` are skipped.
    """
    found: dict[str, str] = {}
    try:
        lines = Path(path).read_text("utf-8").splitlines()
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
