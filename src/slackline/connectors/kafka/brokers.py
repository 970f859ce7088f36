"""Brokers that do not answer: a client waits for them, and logs once that they are away and once that they are back."""

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
    """A stop was requested while no broker answered. Never leaves this package."""


class Brokers:
    """Whether a broker answers. ``stopped`` says whether to give up waiting."""

    def __init__(self, where: str, stopped: Callable[[], bool]) -> None:
        self.where = where
        self.stopped = stopped
        self.are_away = False

    def on_error(self, error: KafkaError) -> None:
        """librdkafka reports on its connections (``error_cb``)."""
        if error.code() == KafkaError._ALL_BROKERS_DOWN:
            self.lost(error)
        else:
            logger.info("%s: %s", self.where, error.str())

    def lost(self, reason: object) -> None:
        """No broker answers."""
        if not self.are_away:
            logger.warning("no broker answers at %s (%s); waiting for one, nothing is lost", self.where, reason)
        self.are_away = True

    def found(self) -> None:
        """A broker answered."""
        if self.are_away:
            logger.warning("a broker answers at %s again; resumed", self.where)
        self.are_away = False

    def retry(self, what: str, ask: Callable[[float], Result]) -> Result:
        """What ``ask(timeout)`` returns, asked again while no broker answers. Other errors are BrokerErrors."""
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
        """The configuration of a client that reports its connections here, and logs to our logger."""
        return {**settings, "error_cb": self.on_error, "logger": _quiet}


#: librdkafka's own log, for debugging: for a broker that is away it has some twenty lines a second.
_quiet = logging.getLogger("slackline.kafka.librdkafka")
_quiet.setLevel(logging.CRITICAL)
