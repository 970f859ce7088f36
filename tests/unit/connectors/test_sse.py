"""Server-sent events out of bytes: cut anywhere, and never more of them in memory than one event may have."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from slackline.connectors.formats import MAX_LINE, MAX_TEXT
from slackline.connectors.http import ServerSentEvents

FEED = (
    b": a comment\n\nid: 1\ndata: one\ndata: \xc3\xa4\n\n"
    b"event: open\r\nid: 2\r\ndata: two\r\n\r\n"
    b"data: three\r\rdata:four\n\r\ndata: cut off"
)


def read(*chunks: bytes) -> list[tuple[str, str, str] | str]:
    """Id, type and data of each event; of one that is too long its id."""
    events = ServerSentEvents()
    found: list[tuple[str, str, str] | str] = []
    last = ""
    for chunk in chunks:
        for sent in events.feed(chunk):
            last = sent.id or last
            found.append(last if len(sent.data) > MAX_LINE else (last, sent.event, sent.data))
    return found


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
        [b"data:\n" * 1_000] * 1_100,
    ],
)
def test_an_event_that_is_too_long_is_cut_behind_the_limit_and_its_id_is_kept(long: list[bytes]) -> None:
    found = read(b"id: 7\nevent: open\n", *long, b"id: 8\n", b"data: the rest\n\n", b"data: next\n\n")
    assert found == ["8", ("8", "message", "next")]


def test_what_never_ends_takes_no_more_memory_than_an_event_may() -> None:
    for chunk in (b"x" * 65_536, b"data: " + b"x" * 1_000 + b"\n", b"data:\n" * 1_000, b"id: 1\n" * 20):
        events = ServerSentEvents()
        for _ in range(2_000):
            assert not list(events.feed(chunk))
        assert len(events._lines._open) + len(events._event) <= 6 * MAX_LINE + MAX_TEXT


def test_comments_that_keep_the_connection_alive_do_not_count() -> None:
    keep_alive = [b": still here " + b"." * 10_000 + b"\n"] * 200
    assert read(b"data: one\n", *keep_alive, b"data: two\n\n") == [("", "message", "one\ntwo")]


@pytest.mark.parametrize(("size", "is_long"), [(MAX_LINE, False), (MAX_LINE + 1, True)])
def test_data_of_the_largest_size_is_whole(size: int, is_long: bool) -> None:
    for lines in ([b"x" * size], [b"x" * (size - 10), b"y" * 9], [b"x" * (size - 1), b""]):
        data = b"".join(b"data: %s\n" % line for line in lines) + b"\n"
        (found,) = read(data)
        assert found == ("" if is_long else ("", "message", b"\n".join(lines).decode()))
