"""Server-sent events out of bytes: cut anywhere, and never more of them in memory than one event may have."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from slackline.connectors.sse import SentEvents
from slackline.runtime.lines import MAX_LINE

FEED = (
    b": a comment\n\nid: 1\ndata: one\ndata: \xc3\xa4\n\n"
    b"event: open\r\nid: 2\r\ndata: two\r\n\r\n"
    b"data: three\r\rdata:four\n\r\ndata: cut off"
)


def read(*chunks: bytes) -> list[tuple[str, str, str] | None]:
    """Id, type and data of each event; None of one that is too long."""
    events = SentEvents()
    found = [sent for chunk in chunks for sent in events.feed(chunk)]
    return [None if sent is None else (sent.id, sent.event, sent.data) for sent in found]


@given(st.lists(st.integers(0, len(FEED)), max_size=12).map(sorted))
def test_events_are_the_same_however_they_are_cut(cuts: list[int]) -> None:
    pieces = [FEED[start:end] for start, end in zip([0, *cuts], [*cuts, len(FEED)], strict=True)]
    assert read(*pieces) == [
        ("1", "message", "one\nä"),
        ("2", "open", "two"),
        ("2", "message", "three"),
        ("2", "message", "four"),
    ]


@pytest.mark.parametrize(
    "long",
    [
        [b"data: " + b"x" * (MAX_LINE + 1) + b"\n"],
        [b"data: ", *[b"x" * 65_536] * 40, b"\n"],
        [b"data: " + b"x" * 1_000 + b"\n"] * 3_000,
        [b"data:\n" * 1_000] * 1_000,
    ],
)
def test_an_event_that_is_too_long_is_rejected_once_and_its_id_is_kept(long: list[bytes]) -> None:
    found = read(b"id: 7\nevent: open\n", *long, b"id: 8\n", b"data: the rest\n\n", b"data: next\n\n")
    assert found == [None, ("8", "message", ""), ("8", "message", "next")]


def test_what_never_ends_takes_no_more_memory_than_an_event_may() -> None:
    for chunk in (b"x" * 65_536, b"data: " + b"x" * 1_000 + b"\n", b"id: 1\n"):
        events = SentEvents()
        for _ in range(3_000):
            list(events.feed(chunk))
        held = len(events._lines._open) + sum(map(len, events._decoder._data))
        assert held <= MAX_LINE


def test_comments_that_keep_the_connection_alive_do_not_count() -> None:
    keep_alive = [b": still here " + b"." * 10_000 + b"\n"] * 200
    assert read(b"data: one\n", *keep_alive, b"data: two\n\n") == [("", "message", "one\ntwo")]


def test_a_line_that_never_ends_is_rejected_as_soon_as_it_is_too_long() -> None:
    assert read(b"data: ", *[b"x" * 65_536] * 40) == [None]
