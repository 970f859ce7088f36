"""Lines on their way out: to a broker, to a web server; and lines on their way in by an open file."""

from __future__ import annotations

import asyncio
import json
import os
import threading
from pathlib import Path
from typing import Any

import pytest
from tests.unit.connectors.conftest import Broker
from tests.unit.connectors.helpers import all_of, run, until

from slackline.connectors import MqttStream
from slackline.connectors.sending import HttpSender, MqttSender, broker_of
from slackline.connectors.standard import LinesStream
from slackline.core.errors import ConfigError


def test_lines_are_published_and_again_when_the_broker_is_back(broker: Broker) -> None:
    async def scenario() -> list[int]:
        broker.start()
        stream = MqttStream("127.0.0.1", "found", port=broker.port, ts="ts", client_id="reader")
        got: list[int] = []

        async def read() -> None:
            async for event in stream:
                got.append(event.ts)

        reader = asyncio.create_task(read())
        await until(lambda: stream._subscribed)
        sender = MqttSender("127.0.0.1", "found", port=broker.port)
        await sender.send([json.dumps({"ts": ts}) for ts in (1, 2)])
        await until(lambda: got == [1, 2])
        broker.end()
        sending = asyncio.create_task(sender.send([json.dumps({"ts": ts}) for ts in (3, 4)]))
        await asyncio.sleep(0.3)
        assert not sending.done()
        broker.start()
        await sending
        await until(lambda: got[-1] == 4)
        await sender.close()
        reader.cancel()
        await asyncio.wait([reader])
        return got

    got = run(scenario())
    assert list(dict.fromkeys(got)) == [1, 2, 3, 4]  # at least once, in order


def test_an_address_that_cannot_be_sent_to_is_refused() -> None:
    with pytest.raises(ConfigError, match="nothing that HTTP can post to"):
        HttpSender("ftp://host/path")
    with pytest.raises(ConfigError, match="cannot be published to"):
        MqttSender("127.0.0.1", "hall/+")


@pytest.mark.parametrize("url", ["mqtt://host", "mqtt://host:99999/t", "mqtt:///t", "http://host/t", "mqtt://h/t?x=1"])
def test_an_address_that_names_no_broker_and_topic_is_refused(url: str) -> None:
    with pytest.raises(ConfigError, match="names no broker and topic"):
        broker_of(url)


def test_an_address_names_login_and_filter() -> None:
    found = broker_of("mqtt://ann:pw@host:1884/hall/#")
    assert found == {"host": "host", "topic": "hall/#", "port": 1884, "username": "ann", "password": "pw"}


@pytest.mark.parametrize("form", ["pipe", "file"])
def test_an_open_file_is_read_line_by_line_to_its_end(form: str, tmp_path: Path) -> None:
    text = b'{"ts": 1, "x": 2}\nno json\n{"ts": 5}'

    def opened() -> Any:
        if form == "file":
            (tmp_path / "in").write_bytes(text)
            return (tmp_path / "in").open("rb")
        out, into = os.pipe()

        def fill() -> None:
            with os.fdopen(into, "wb") as file:
                file.write(text)

        threading.Thread(target=fill).start()
        return os.fdopen(out, "rb")

    async def scenario() -> None:
        stream = LinesStream(opened(), ts="ts", type="at")
        assert [(event.ts, event.source) for event in await all_of(stream)] == [(1, "stdin"), (5, "stdin")]
        assert [record.place for record in stream.rejected] == ["line 2"]

    run(scenario())


def test_rejected_records_are_told_one_by_one_where_somebody_wants_to_know() -> None:
    told: list[str] = []

    async def scenario(file: Any) -> None:
        stream = LinesStream(file, ts="ts")
        stream.tell_rejected(lambda record: told.append(record.place))
        await all_of(stream)
        assert stream.rejected == [] and stream.counts()["rejected"] == 300

    out, into = os.pipe()
    os.write(into, b"bad\n" * 300)
    os.close(into)
    run(scenario(os.fdopen(out, "rb")))
    assert len(told) == 300
