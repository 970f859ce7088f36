import pytest
from hypothesis import given
from hypothesis import strategies as st

from slackline.runtime.frames import FrameError, Frames, framed, frames


@given(st.lists(st.binary(max_size=40)), st.lists(st.integers(1, 50), min_size=1))
def test_chunk_boundaries_do_not_matter(contents, cuts):
    data = b"".join(map(framed, contents))
    reader, found = Frames(40), []
    at = 0
    while at < len(data):
        size = cuts[at % len(cuts)]
        found += reader.feed(data[at : at + size])
        at += size
    reader.end()
    assert found == list(frames(data)) == contents


def test_a_frame_that_is_too_long_is_refused_at_its_length():
    reader = Frames(10)
    assert reader.feed(framed(b"0123456789")) == [b"0123456789"]
    with pytest.raises(FrameError, match="a frame of 11 bytes exceeds the limit of 10"):
        reader.feed(framed(b"01234567890")[:4])


def test_garbage_is_a_frame_error():
    with pytest.raises(FrameError, match="a frame of 1195725856 bytes"):
        Frames(1000).feed(b"GET / HTTP/1.1\r\n\r\n")


def test_an_end_inside_a_frame_is_an_error():
    reader = Frames(10)
    reader.feed(framed(b"abc")[:-1])
    with pytest.raises(FrameError, match="ended inside a frame"):
        reader.end()


@given(st.lists(st.binary(max_size=20), min_size=1), st.integers(1, 10_000))
def test_bytes_that_are_cut_short_are_an_error_unless_cut_between_frames(contents, cut):
    data = b"".join(map(framed, contents))
    rest = data[: len(data) - 1 - cut % len(data)]
    starts = [len(b"".join(map(framed, contents[:n]))) for n in range(len(contents))]
    if len(rest) in starts:
        assert list(frames(rest)) == contents[: starts.index(len(rest))]
    else:
        with pytest.raises(FrameError, match="incomplete frame at byte"):
            list(frames(rest))
