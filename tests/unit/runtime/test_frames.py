import pytest
from hypothesis import given
from hypothesis import strategies as st

from slackline.nodes.messages import ProtocolError
from slackline.runtime.frames import FrameError, Frames, framed


@given(st.lists(st.binary(max_size=40)), st.lists(st.integers(1, 50), min_size=1))
def test_where_the_bytes_are_cut_means_nothing(contents, cuts):
    data = b"".join(map(framed, contents))
    frames, found = Frames(40), []
    at = 0
    while at < len(data):
        size = cuts[at % len(cuts)]
        found += frames.feed(data[at : at + size])
        at += size
    frames.end()
    assert found == contents


def test_a_frame_that_is_too_long_is_refused_at_its_length():
    frames = Frames(10)
    assert frames.feed(framed(b"0123456789")) == [b"0123456789"]
    with pytest.raises(FrameError, match="a frame of 11 bytes; at most 10"):
        frames.feed(framed(b"01234567890")[:4])


def test_garbage_is_a_protocol_error():
    with pytest.raises(ProtocolError, match="a frame of 1195725856 bytes"):
        Frames(1000).feed(b"GET / HTTP/1.1\r\n\r\n")


def test_an_end_inside_a_frame_is_told():
    frames = Frames(10)
    frames.feed(framed(b"abc")[:-1])
    with pytest.raises(FrameError, match="ended inside a frame"):
        frames.end()
