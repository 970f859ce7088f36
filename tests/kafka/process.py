"""A host in a process of its own, to be killed: its settings are the argument, as JSON."""

import json
import logging
import signal
import sys
from typing import Any

from tests.kafka.app import hierarchy

from slackline.connectors.kafka import KafkaHost, KafkaSettings
from slackline.runtime.schema import RecordSchema

if __name__ == "__main__":
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(message)s")
    given: dict[str, Any] = json.loads(sys.argv[1])
    schema = RecordSchema(**given.pop("schema"))
    host = KafkaHost(hierarchy, KafkaSettings(schema=schema, **given))
    signal.signal(signal.SIGTERM, lambda *_: host.stop())
    host.run()
