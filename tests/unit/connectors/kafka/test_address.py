"""Addresses of topics, and files with a client's properties."""

from pathlib import Path

import pytest

from slackline.connectors.kafka.settings import KafkaAddress, client_properties
from slackline.core.errors import ConfigError


def test_an_address_names_brokers_and_a_topic() -> None:
    address = KafkaAddress.of("kafka://127.0.0.1:9092,[::1]:9093/a.b-c_d")
    assert address == KafkaAddress("127.0.0.1:9092,[::1]:9093", "a.b-c_d") == KafkaAddress.of(address)
    assert str(address) == "kafka://127.0.0.1:9092,[::1]:9093/a.b-c_d"


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("http://127.0.0.1:9092/a", "is not the address of a topic"),
        ("kafka://127.0.0.1:9092", "names no topic"),
        ("kafka:///a", "names no broker"),
        ("kafka://127.0.0.1/a", "is not an address"),
        ("kafka://127.0.0.1:9092/a b", "is not a valid topic name"),
        ("kafka://127.0.0.1:9092/", "is not a valid topic name"),
        ("kafka://127.0.0.1:9092/a?key=x&idle=5", "Use --key x --idle-timeout 5 instead"),
        ("kafka://127.0.0.1:9092/a?snapshot=1&commit=2", "Use --checkpoint-every 1 --commit-interval 2 instead"),
        ("kafka://127.0.0.1:9092/a?", "Use --format arrow instead"),
    ],
)
def test_what_is_no_address_is_refused_with_the_reason(text: str, why: str) -> None:
    with pytest.raises(ConfigError, match=why):
        KafkaAddress.of(text)


def test_properties_of_the_client_are_read_from_a_file(tmp_path: Path) -> None:
    file = tmp_path / "client.properties"
    file.write_text("# credentials\nsecurity.protocol=SASL_SSL\n\nsasl.password = a=b \n")
    assert client_properties(file) == {"security.protocol": "SASL_SSL", "sasl.password": "a=b"}
    file.write_text("security.protocol\n")
    with pytest.raises(ConfigError, match="line 1"):
        client_properties(file)
    with pytest.raises(ConfigError, match="cannot be read"):
        client_properties(tmp_path / "none")
