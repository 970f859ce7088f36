"""``slackline run`` between two topics: its options and its plan."""

from pathlib import Path
from typing import Any

import pytest
from tests.kafka.app import hierarchy

from slackline.connectors.kafka import KafkaApplication
from slackline.core.errors import ConfigError
from slackline.runtime.options import RunOptions

AT = "kafka://127.0.0.1:9092/"


def application(**given: Any) -> KafkaApplication:
    options: dict[str, Any] = {"app": "app.py", "sources": (f"{AT}in",), "to": f"{AT}out", "group": "vans", **given}
    return KafkaApplication(RunOptions(**options), hierarchy)


def test_options_become_settings_of_the_host(tmp_path: Path) -> None:
    client = tmp_path / "client.properties"
    client.write_text("security.protocol=SSL\n")
    settings = application(
        key="van", format="arrow", idle_timeout="30s", state_ttl=60, start="latest", commit_interval=0.0,
        checkpoint_every=5.0, late_topic="late", duplicates="write", kafka_config=str(client), state="states",
    ).host.settings  # fmt: skip
    assert (settings.schema.key, settings.schema.format) == ("van", "arrow")
    assert (settings.timeouts.idle, settings.timeouts.ttl) == (30_000, 60_000)
    assert (settings.start, settings.commit_interval, settings.checkpoint_every) == ("latest", 0.0, 5.0)
    assert list(settings.topics.values()) == ["out", "late", "out-quarantine", "out-duplicates"]
    assert (settings.client, settings.state_topic) == ({"security.protocol": "SSL"}, "states")


def test_the_plan_says_from_where_to_where_and_what_is_guaranteed() -> None:
    plan = dict(application(key="van").plan())
    assert plan == {
        "from": f"{AT}in (json), group vans",
        "to": f"{AT}out; late events to out-late, quarantined ones to out-quarantine",
        "state": "topic vans-state, a checkpoint every 30 s",
        "guarantee": "exactly once for read_committed consumers, a transaction every 0.01 s",
        "at a stop": "buffered events are stored in the checkpoint",
    }
    plan = dict(application(delivery="at-least-once", at_stop="flush", duplicates="write").plan())
    assert plan["guarantee"].startswith("at least once") and plan["at a stop"] == "buffered events are flushed"
    assert "duplicates to out-duplicates" in plan["to"]


@pytest.mark.parametrize(
    ("given", "why"),
    [
        ({"group": None}, "--group is missing"),
        ({"sources": (f"{AT}in", f"{AT}more")}, "one is read"),
        ({"at_stop": "flush", "state": "./states"}, "--at-stop flush flushes buffered events"),
        ({"idle_timeout": "soon"}, "idle_timeout='soon'"),
    ],
)
def test_options_that_cannot_work_are_refused(given: dict[str, Any], why: str) -> None:
    with pytest.raises(ConfigError, match=why):
        application(**given)
