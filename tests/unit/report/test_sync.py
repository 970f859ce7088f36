import html
import re

import numpy as np
import pytest

from slackline.report import SyncSummary, sync_page
from slackline.report.sync import best_window, disabled_spans
from slackline.study import RecordedStream, SyncRecording, synchronise_recording
from slackline.study.recording import Failed


def made(streams=3, rows=300, silent_from=None, seed=1, names=None, recorded=True, failed=()):
    """Streams that deliver in turn with a random delay; the first may fall silent."""
    rng = np.random.default_rng(seed)
    ts = np.arange(rows) * 10
    source = np.arange(rows) % streams
    if silent_from is not None:
        source[(source == 0) & (np.arange(rows) >= silent_from)] = 1
    arrival = ts + rng.integers(0, 40, rows)
    order = np.argsort(arrival, kind="stable")
    stream = RecordedStream(arrival[order], ts[order], source[order], "ms")
    names = names or tuple(f"s{i}" for i in range(streams))
    return SyncRecording(names, stream, np.arange(rows), (), recorded, {}, None, failed, ())


def text_of(page):
    body = page[page.index("<main>") :]
    plain = re.sub(r"<[^>]+>", " ", re.sub(r"<script.*?</script>", "", body, flags=re.S))
    return html.unescape(re.sub(r"\s+", " ", plain))


def test_the_page_shows_order_waits_and_the_slowest_streams():
    result = synchronise_recording(made())
    text = text_of(sync_page(result, "three.csv"))
    for part in (
        "Many streams in one order: three.csv",
        "300 events of 3 streams",
        "The slowest stream is",
        "Which streams blocked the others",
        "All figures by stream",
    ):
        assert part in text, part


def test_every_stream_is_in_the_table_and_the_dead_are_marked():
    page = sync_page(synchronise_recording(made(silent_from=100), max_delay=200))
    rows = re.findall(r"<tr.*?</tr>", page)
    assert len(rows) == 1 + 3
    (marked,) = (row for row in rows if "class=mark" in row)
    assert ">s0<" in marked and "disabled since" in marked


def test_the_page_fetches_nothing_and_holds_the_plot_library_once():
    page = sync_page(synchronise_recording(made()))
    assert not re.search(r"<(script|link|img)[^>]+(src|href)=", page)
    assert page.count("plotly.js v") == 1


def test_names_are_no_markup():
    page = sync_page(synchronise_recording(made(names=("<b>x", "y", "z"))), title="<b>evil</b>")
    assert "<b>evil" not in page and "<b>x" not in re.sub(r"<script.*?</script>", "", page, flags=re.S)
    assert '"\\u003cb\\u003ex' not in page  # nor in a label of a plot


def test_only_the_worst_streams_have_lanes_and_the_page_says_so():
    text = text_of(sync_page(synchronise_recording(made(streams=60, rows=1200))))
    assert "the 40 of 60 that blocked longest" in text


def test_a_long_recording_is_shown_in_part_and_the_page_says_so():
    assert "Shown are 120 of 5,000 events" in text_of(sync_page(synchronise_recording(made(rows=5000))))
    assert "All events are shown." in text_of(sync_page(synchronise_recording(made(rows=60))))


def test_the_window_is_where_most_is_to_be_seen():
    result = synchronise_recording(made(rows=5000, silent_from=3000), max_delay=300)
    window = best_window(result)
    since = result.disabled[0].since
    arrival = result.recording.stream.arrival
    assert arrival[window.first] <= since <= arrival[window.last - 1]


@pytest.mark.parametrize("rows", [1, 2, 3])
def test_even_the_smallest_recording_has_a_page(rows):
    assert "</html>" in sync_page(synchronise_recording(made(rows=rows)))


def test_streams_that_never_deliver_have_a_page():
    result = synchronise_recording(made(streams=2, names=("a", "b", "ghost")))
    text = text_of(sync_page(result))
    assert "'ghost' never delivered" in text and "1 of 3 streams dead" in text


def test_files_that_failed_are_noted():
    text = text_of(sync_page(synchronise_recording(made(failed=(Failed("lift", "it is cut off"),)))))
    assert "lift is left out: it is cut off" in text


def test_spans_that_cannot_be_distinguished_are_drawn_as_one():
    result = synchronise_recording(made(streams=8, rows=400), max_delay=5, max_failures=1)
    apart = disabled_spans(result, 0, 0, 10**6, 0)
    together = disabled_spans(result, 0, 0, 10**6, 10**6)
    assert len(apart) > 5 and len(together) == 1
    assert together[0] == (apart[0][0], apart[-1][1])


def test_an_impatient_delay_is_pointed_out():
    notes = SyncSummary(synchronise_recording(made(streams=8, rows=400), max_delay=5, max_failures=1)).notes()
    assert any("--max-delay 5 is probably shorter" in note for note in notes)
    assert not any("probably shorter" in note for note in SyncSummary(synchronise_recording(made())).notes())


def test_waits_without_arrival_times_are_explained():
    assert "those of synchronisation alone" in SyncSummary(synchronise_recording(made(recorded=False))).notes()[0]


def test_one_stream_waits_for_no_other():
    assert SyncSummary(synchronise_recording(made(streams=1))).slowest() == "No stream had to wait for another."
