"""Where records are read and written: ``kafka://HOST:PORT[,HOST:PORT…]/TOPIC[?name=value&…]``."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import parse_qsl

from slackline.core.errors import ConfigError
from slackline.runtime.address import Address

SCHEME = "kafka://"
_TOPIC = re.compile(r"[A-Za-z0-9._-]{1,249}")


@dataclass(frozen=True, slots=True)
class KafkaAddress:
    """A topic and the brokers to ask for it. ``options`` is what stands behind the question mark.

    >>> address = KafkaAddress.of("kafka://10.0.0.7:9092,10.0.0.8:9092/positions?format=arrow")
    >>> address.brokers, address.topic, dict(address.options)
    ('10.0.0.7:9092,10.0.0.8:9092', 'positions', {'format': 'arrow'})
    """

    brokers: str
    topic: str
    options: Mapping[str, str] = field(default_factory=dict)

    @classmethod
    def of(cls, text: str) -> KafkaAddress:
        """The address that is written like this; a ConfigError if it is none."""
        example = "write kafka://HOST:PORT/TOPIC, e.g. kafka://127.0.0.1:9092/positions."
        if not text.startswith(SCHEME):
            raise ConfigError(f"{text!r} is no address of a topic; {example}")
        place, _, query = text[len(SCHEME) :].partition("?")
        brokers, slash, topic = place.partition("/")
        if not slash or not brokers:
            raise ConfigError(f"{text!r} names no {'topic' if brokers else 'broker'}; {example}")
        each = [str(Address.of(broker)) for broker in brokers.split(",")]
        try:
            pairs = parse_qsl(query, keep_blank_values=True, strict_parsing=bool(query))
        except ValueError as error:
            raise ConfigError(f"{text!r}: behind the ? stand name=value pairs, joined by &; {error}.") from error
        if len(dict(pairs)) < len(pairs):
            raise ConfigError(f"{text!r} says one thing twice: {sorted(name for name, _ in pairs)}.")
        return cls(",".join(each), check_topic(topic), dict(pairs))

    def __str__(self) -> str:
        return f"{SCHEME}{self.brokers}/{self.topic}"


def check_topic(name: str) -> str:
    """The name, if a topic can be called so."""
    if not _TOPIC.fullmatch(name) or name in (".", ".."):
        raise ConfigError(f"{name!r} is no name of a topic: up to 249 letters, digits, '.', '_' and '-'.")
    return name


def client_properties(path: str | Path) -> dict[str, str]:
    """The properties of librdkafka in a file, ``name=value`` per line: passwords do not belong into addresses.

    Empty lines and lines that begin with ``#`` are left out.
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
