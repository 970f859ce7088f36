"""Brokers that are away: whoever waits for them says so once, and once more when they are back."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from typing import Any, TypeVar

from confluent_kafka import KafkaError, KafkaException

from slackline.connectors.kafka.errors import AWAY, BrokerError, error_of

logger = logging.getLogger("slackline.kafka")

#: Seconds that one attempt may take, and between two.
ATTEMPT = 2.0
PAUSE = 0.2

Result = TypeVar("Result")


class StoppedError(Exception):
    """Somebody asked to stop while brokers were away. Never leaves this package."""


class Brokers:
    """Whether anybody answers. ``stopped`` tells whether to go on waiting."""

    def __init__(self, where: str, stopped: Callable[[], bool]) -> None:
        self.where = where
        self.stopped = stopped
        #: Whether nobody answers.
        self.are_away = False

    def heard(self, error: KafkaError) -> None:
        """librdkafka tells of its connections (``error_cb``)."""
        if error.code() == KafkaError._ALL_BROKERS_DOWN:
            self.lost(error)
        else:
            logger.info("%s: %s", self.where, error.str())

    def lost(self, why: object) -> None:
        """Nobody answers."""
        if not self.are_away:
            logger.warning("no broker answers at %s (%s); waiting for one, nothing is lost", self.where, why)
        self.are_away = True

    def found(self) -> None:
        """Somebody answered."""
        if self.are_away:
            logger.warning("a broker answers at %s again; going on", self.where)
        self.are_away = False

    def patiently(self, what: str, ask: Callable[[float], Result]) -> Result:
        """What ``ask(timeout)`` returns, asked again for as long as nobody answers. Other errors are BrokerErrors."""
        while True:
            try:
                result = ask(ATTEMPT)
            except KafkaException as raised:
                error = error_of(raised)
                if error.fatal() or not (error.code() in AWAY or error.retriable()):
                    raise BrokerError(f"{what} at {self.where}: {error.str()}.") from raised
                self.lost(error.str())
            else:
                self.found()
                return result
            if self.stopped():
                raise StoppedError
            time.sleep(PAUSE)

    def config(self, settings: dict[str, Any]) -> dict[str, Any]:
        """Settings of a client that tells us of its connections, and logs where we do."""
        return {**settings, "error_cb": self.heard, "logger": _quiet}


#: What librdkafka itself says is for those who look for it: of a broker that is away, some twenty lines a second.
_quiet = logging.getLogger("slackline.kafka.librdkafka")
_quiet.setLevel(logging.CRITICAL)
