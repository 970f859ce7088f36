"""What a host on Kafka may be asked for."""

from typing import Any

import pytest
from tests.kafka.app import hierarchy

from slackline import Speculation
from slackline.connectors.kafka import KafkaHost
from slackline.connectors.kafka.settings import KafkaSettings
from slackline.core.errors import ConfigError

SOURCE, SINK = "kafka://127.0.0.1:9092/in", "kafka://127.0.0.1:9092/out"


def settings(source: str = SOURCE, sink: str = SINK, **given: Any) -> KafkaSettings:
    return KafkaSettings.of(source, sink, **({"group": "app"} | given))


def test_an_address_may_say_what_an_option_would() -> None:
    assert settings(f"{SOURCE}?key=van&format=arrow") == settings(key="van", format="arrow")
    assert settings(sink=f"{SINK}?quarantine=bad").quarantine_topic == "bad"
    assert settings(f"{SOURCE}?commit=0.5&state=kept&idle=30") == settings(commit=0.5, state="kept", idle=30)
    assert KafkaSettings.of(f"{SOURCE}?group=app", SINK) == settings()


def test_topics_of_its_own_are_named_after_the_application() -> None:
    told = settings()
    assert (told.state_topic, told.state_folder, told.quarantine_topic) == ("app-state", None, "out-quarantine")
    assert settings(state="states").state_topic == "states"
    assert str(settings(state="./states").state_folder) == "states"
    assert told.transactional_id(3) == "app-in-3"


@pytest.mark.parametrize(
    ("given", "why"),
    [
        ({"group": ""}, "group=''"),
        ({"delivery": "twice"}, "delivery='twice'"),
        ({"start": "now"}, "start='now'"),
        ({"commit": -1}, "commit=-1"),
        ({"snapshot": "often"}, "snapshot=often"),
        ({"idle": 0}, "idle=0"),
        ({"idle": 30, "state": "./states"}, "exactly once only with the state in a topic"),
        ({"source": f"{SOURCE}?commit=soon"}, "a number of seconds"),
        ({"format": "xml"}, "format='xml'"),
        ({"format": "avro"}, "Avro needs a schema"),
        ({"key": "ts"}, "different fields"),
        ({"state": "in"}, "four topics"),
        ({"quarantine": "out"}, "four topics"),
        ({"sink": "kafka://127.0.0.2:9092/out"}, "one cluster"),
        ({"speed": 3}, r"no options \['speed'\]"),
        ({"source": f"{SOURCE}?speed=3"}, r"no options \['speed'\]"),
        ({"source": f"{SOURCE}?key=a", "key": "b"}, "say it once"),
    ],
)
def test_what_cannot_work_is_refused_with_the_reason(given: dict[str, Any], why: str) -> None:
    with pytest.raises(ConfigError, match=why):
        settings(**given)


def test_what_waits_is_not_let_go_where_a_restart_might_do_it_again() -> None:
    folder = {"group": "app", "state": "./states"}
    with pytest.raises(ConfigError, match="flush lets go what waits"):
        KafkaHost(hierarchy, SOURCE, SINK, **folder).stop(flush=True)
    KafkaHost(hierarchy, SOURCE, SINK, **folder).stop()
    KafkaHost(hierarchy, SOURCE, SINK, **folder, delivery="at-least-once", idle=30).stop(flush=True)


def test_a_host_needs_a_group() -> None:
    with pytest.raises(ConfigError, match="needs a group"):
        KafkaHost(hierarchy, SOURCE, SINK)


def test_answers_that_depend_on_how_busy_a_process_was_are_refused() -> None:
    for speculation in (Speculation(), {"Sums": Speculation()}):
        with pytest.raises(ConfigError, match="alpha"):
            KafkaHost(hierarchy, SOURCE, SINK, group="app", options={"speculation": speculation})
    KafkaHost(hierarchy, SOURCE, SINK, group="app", options={"speculation": Speculation(alpha=0.5)})


def test_what_a_guarantee_rests_on_cannot_be_overruled() -> None:
    client = {"enable.auto.commit": "true", "isolation.level": "read_uncommitted", "session.timeout.ms": "9000"}
    consumer = settings(client=client).consumer()
    assert (consumer["enable.auto.commit"], consumer["isolation.level"]) == (False, "read_committed")
    assert consumer["session.timeout.ms"] == "9000"
