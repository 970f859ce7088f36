"""Settings of a Kafka host."""

from typing import Any

import pytest
from tests.kafka.app import hierarchy

from slackline import Speculation
from slackline.connectors.kafka import KafkaHost, KafkaSettings
from slackline.connectors.kafka.brokers import Brokers
from slackline.core.errors import ConfigError

SOURCE, SINK = "kafka://127.0.0.1:9092/in", "kafka://127.0.0.1:9092/out"


def host(source: str = SOURCE, sink: str = SINK, **given: Any) -> KafkaHost:
    return KafkaHost(hierarchy, KafkaSettings(source, sink, **({"group": "app"} | given)))


def settings(**given: Any) -> KafkaSettings:
    return host(**given).settings


def test_topics_of_the_application_are_named_after_its_sink_and_group() -> None:
    found = settings()
    assert (found.state_topic, found.state_folder) == ("app-state", None)
    assert found.topics == {"event": "out", "late": "out-late", "quarantine": "out-quarantine"}
    assert settings(duplicates="write").topics["duplicate"] == "out-duplicates"
    given = settings(quarantine_topic="bad", late_topic="late")
    assert given.topics == {"event": "out", "late": "late", "quarantine": "bad"}
    assert settings(state="states").state_topic == "states"
    assert str(settings(state="./states").state_folder) == "states"
    assert found.transactional_id(3) == "app-in-3"


@pytest.mark.parametrize(
    ("given", "why"),
    [
        ({"group": ""}, "group=''"),
        ({"delivery": "twice"}, "delivery='twice'"),
        ({"start": "now"}, "start='now'"),
        ({"commit_interval": -1}, "commit_interval=-1"),
        ({"checkpoint_every": "often"}, "checkpoint_every='often'"),
        ({"duplicates": "keep"}, "duplicates='keep'"),
        ({"idle_timeout": 0}, "idle_timeout=0"),
        ({"idle_timeout": 30, "state": "./states"}, "exactly once only with the state in a topic"),
        ({"state_ttl": 30, "state": "./states"}, "exactly once only with the state in a topic"),
        ({"shards": 4}, "shards need keys: give a key"),
        ({"engine_options": {"speed": 3}}, "no options"),
        ({"state": "in"}, "a topic each"),
        ({"quarantine_topic": "out"}, "a topic each"),
        ({"late_topic": "out-quarantine"}, "a topic each"),
        ({"sink": "kafka://127.0.0.2:9092/out"}, "two clusters"),
        ({"source": f"{SOURCE}?commit=1"}, "Use --commit-interval 1 instead"),
    ],
)
def test_settings_that_cannot_work_are_refused_with_the_reason(given: dict[str, Any], why: str) -> None:
    with pytest.raises(ConfigError, match=why):
        host(**given)


def test_nothing_is_flushed_where_a_restart_might_do_it_again() -> None:
    with pytest.raises(ConfigError, match="flush flushes buffered events"):
        host(state="./states").stop(flush=True)
    host(state="./states").stop()
    host(state="./states", delivery="at-least-once", idle_timeout=30).stop(flush=True)


def test_early_results_that_depend_on_the_load_are_refused() -> None:
    for speculation in (Speculation(), {"Sums": Speculation()}):
        with pytest.raises(ConfigError, match="alpha"):
            host(engine_options={"speculation": speculation})
    host(engine_options={"speculation": Speculation(alpha=0.5)})


def test_properties_of_the_client_do_not_override_the_guarantees() -> None:
    client = {"enable.auto.commit": "true", "isolation.level": "read_uncommitted", "session.timeout.ms": "9000"}
    brokers = Brokers("127.0.0.1:9092", "app", client, lambda: False)
    consumer = brokers.consumer("app")
    assert (consumer["enable.auto.commit"], consumer["isolation.level"]) == (False, "read_committed")
    assert consumer["session.timeout.ms"] == "9000"
    assert brokers.producer(100)["enable.idempotence"] is True
