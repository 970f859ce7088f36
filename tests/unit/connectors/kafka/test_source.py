"""The consumer of a topic: whatever the client has fetched is read once, in order, and so many at a time."""

import gc
from collections.abc import Sequence
from typing import Any

import pytest
from confluent_kafka import KafkaError
from confluent_kafka import Message as ClientMessage

from slackline.connectors.kafka import source
from slackline.connectors.kafka.brokers import Brokers
from slackline.connectors.kafka.formats import Message
from slackline.connectors.kafka.source import TopicConsumer


class Client:
    """What the consumer uses of a client that has fetched some messages."""

    def __init__(self, fetched: Sequence[ClientMessage]) -> None:
        self.fetched = list(fetched)

    def poll(self, wait: float) -> ClientMessage | None:
        return self.fetched.pop(0) if self.fetched else None

    def consume(self, most: int, wait: float) -> list[ClientMessage]:
        taken, self.fetched = self.fetched[:most], self.fetched[most:]
        return taken


def fetched(partition: int, offset: int, is_end: bool = False) -> ClientMessage:
    error = KafkaError(KafkaError._PARTITION_EOF) if is_end else None
    return ClientMessage(topic="in", partition=partition, offset=offset, key=b"k", value=b"v", error=error)


def consumer(*messages: ClientMessage) -> TopicConsumer:
    brokers = Brokers("127.0.0.1:1", "test", None, lambda: True)
    made = TopicConsumer("in", brokers.consumer("test"), brokers, "")
    client: Any = Client(messages)
    made.client.close()
    made.client = client
    return made


@pytest.mark.parametrize("most", [1, 3, 4, 5, 9, 100])
def test_no_message_is_lost_between_two_reads(monkeypatch: pytest.MonkeyPatch, most: int) -> None:
    monkeypatch.setattr(source, "SOME", 4)
    made = consumer(*(fetched(nr % 2, nr // 2) for nr in range(18)))
    read: dict[int, list[int]] = {0: [], 1: []}
    while found := made.read(most, 0.0):
        assert sum(map(len, found.values())) <= most
        for number, messages in found.items():
            read[number] += [message.offset for message in messages]
            assert made.positions[number] == read[number][-1] + 1
    assert read == {0: list(range(9)), 1: list(range(9))}


def test_a_partition_is_at_its_end_until_messages_follow() -> None:
    made = consumer(fetched(0, 4), fetched(0, 6, is_end=True))  # offset 5 marks the end of a transaction
    assert len(made.read(10, 0.0)[0]) == 1
    assert (made.positions[0], made.at_end) == (6, {0})
    made = consumer(fetched(0, 5, is_end=True), fetched(0, 5))
    made.read(10, 0.0)
    assert (made.positions[0], made.at_end) == (6, set())


def test_messages_of_a_partition_that_is_assigned_again_during_the_read_are_dropped(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(source, "SOME", 1)
    made = consumer(fetched(0, 4), fetched(1, 4), fetched(0, 2))
    poll, polls = made.client.poll, []

    def rebalanced(wait: float) -> Any:
        polls.append(wait)
        if len(polls) == 3:
            made.places({0: 2})
        return poll(wait)

    monkeypatch.setattr(made.client, "poll", rebalanced)
    found = made.read(10, 0.0)
    assert {number: [one.offset for one in messages] for number, messages in found.items()} == {1: [4], 0: [2]}
    assert made.positions == {0: 3, 1: 5}


def test_messages_are_not_tracked_by_the_garbage_collector() -> None:
    assert not gc.is_tracked(Message(0, b"k", b"v"))
