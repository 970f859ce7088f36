"""The page of a synchronised recording."""

from __future__ import annotations

from slackline.report.page import facts, figure_card, heading, html_page, paragraph, table_card
from slackline.report.scale import share_text
from slackline.report.sync.lanes import Window, best_window, lanes_figure
from slackline.report.sync.looks import LANES
from slackline.report.sync.overview import BARS, held_up_figure, overview_figure
from slackline.report.sync.words import SyncWords
from slackline.study import SyncResult

#: So many streams are in the table.
ROWS = 200


def sync_page(result: SyncResult, title: str = "recorded streams") -> str:
    """The whole page, one file that fetches nothing."""
    words = SyncWords(result)
    window = best_window(result)
    return html_page(
        f"Slackline sync: {title}",
        [
            heading(f"Many streams in one order: {title}", 1),
            paragraph(words.headline(), "sub"),
            _facts(result, words),
            paragraph(words.blame(), "verdict"),
            *[paragraph(sentence, "verdict") for sentence in words.dead()],
            *_lanes(result, words, window),
            *_overview(result, words, window),
            *_held_up(result, words),
            heading("All figures by stream"),
            *_table(result, words),
            *[paragraph(f"Note: {note}", "note") for note in [*words.notes(), *words.warnings()]],
        ],
    )


def _facts(result: SyncResult, words: SyncWords) -> str:
    dead = sum(stream.dead for stream in result.streams)
    return facts(
        [
            (
                f"{share_text(result.out_of_order / len(result))} → {result.out_of_order_after:,}",
                "events out of order, on arrival and after",
            ),
            (f"{len(result.late):,}", "late events, set aside"),
            (words.waits.with_unit(result.waits.mean), "mean wait"),
            (words.waits.with_unit(result.waits.p99), "wait that 99 % stay below"),
            (f"{dead:,} of {len(result.streams):,}", "streams dead"),
        ]
    )


def _lanes(result: SyncResult, words: SyncWords, window: Window) -> list[str]:
    figure, height = lanes_figure(result, words, window)
    extent = (
        "All events are shown."
        if window.whole
        else f"Shown are {window.last - window.first:,} of {len(result):,} events, where most is to be seen: long "
        f"waits, late events, streams that fail or come back."
    )
    happened = "happened" if result.recording.recorded_arrival else "happened (here also its arrival)"
    return [
        heading("Every event waits until all streams have reached its time"),
        paragraph(
            f"One lane per stream{_worst(result, LANES)}. Each line is an event: it begins at the top of its lane when "
            f"it {happened}, passes the dot in the middle when it arrived, and ends at the bottom when it went out, in "
            f"order. A long slope below the dot is a long wait. {extent}"
        ),
        figure_card(figure, height),
    ]


def _overview(result: SyncResult, words: SyncWords, window: Window) -> list[str]:
    figure, height = overview_figure(result, words, window)
    return [
        heading("How long events waited, over the whole recording"),
        paragraph(
            f"The darker, the longer events of this stream waited that arrived then; white is silence"
            f"{_worst(result, LANES)}. A stream that is pale while the others are dark is the one they wait for."
        ),
        figure_card(figure, height),
    ]


def _held_up(result: SyncResult, words: SyncWords) -> list[str]:
    if not result.streams[0].held_up.all_time:
        return []
    figure, height = held_up_figure(result, words)
    return [
        heading("Who everybody waited for"),
        paragraph(
            f"The time that events of other streams waited for this one, added up{_worst(result, BARS)}. What "
            f"waited for several streams counts for each."
        ),
        figure_card(figure, height),
    ]


def _worst(result: SyncResult, shown: int) -> str:
    there = len(result.streams)
    return f" (the {shown} of {there:,} that were waited for longest)" if there > shown else ""


def _table(result: SyncResult, words: SyncWords) -> list[str]:
    shown = result.streams[:ROWS]
    waits, sums = words.waits, words.sums
    rows = [
        [
            stream.name,
            *[f"{count:,}" for count in (stream.events, stream.late, stream.backwards)],
            waits.text(stream.wait.mean),
            waits.text(stream.wait.max),
            f"{stream.failures:,}",
            f"{stream.held_up.all_events:,}",
            sums.text(stream.held_up.all_time),
            words.state(stream),
        ]
        for stream in shown
    ]
    header = [
        "stream",
        "events",
        "late",
        "back",
        f"wait ({waits.name})",
        f"longest ({waits.name})",
        "failures",
        "held up",
        f"for ({sums.name})",
        "state",
    ]
    marks = {i: "mark" for i, stream in enumerate(shown) if stream.dead}
    note = (
        "Back: came behind a newer event of the same stream. Wait: the mean, and the longest. Failures: events that "
        "timed out waiting for this stream. Held up: events of others that waited for this stream, "
        "and for how long altogether."
    )
    if len(result.streams) > ROWS:
        note += f" The {ROWS} streams that were waited for longest, of {len(result.streams):,}; --json has all."
    return [table_card(header, rows, numeric_from=1, marks=marks), paragraph(note, "note")]
