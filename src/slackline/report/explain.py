"""Answers of :mod:`slackline.explain` as text and as a page."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from html import escape
from typing import Any

from slackline.ordering.input import SOURCE_LIMIT
from slackline.report.summaries import late_source_text

Answer = Mapping[str, Any]

_STYLE = """
body { margin: 0 auto; max-width: 1000px; padding: 24px; color: #1f2933; background: #f5f7f9;
  font: 16px/1.5 system-ui, -apple-system, "Segoe UI", Roboto, Arial, sans-serif; }
pre { background: #fff; border: 1px solid #dfe4e9; border-radius: 8px; padding: 16px; overflow-x: auto;
  font: 14px/1.5 ui-monospace, Menlo, Consolas, monospace; white-space: pre-wrap; }
table { border-collapse: collapse; background: #fff; } td, th { border: 1px solid #dfe4e9; padding: 4px 12px;
  text-align: left; } td.n { text-align: right; }
"""


def answer_text(answer: Answer) -> str:
    """An answer about one event, as lines.

    >>> print(answer_text({"event": "ping@5", "fields": {}, "kind": "arrival", "at": {"what": "arrival",
    ...     "arrival": 1, "stream_time": 5}, "refused": {"reason": "duplicate", "detail": ""}}))
    ping@5: arrival 1, at stream time 5
      not processed: duplicate
    """
    return "\n".join(_lines(answer))


def _lines(answer: Answer) -> Iterator[str]:
    fields = _fields(answer)
    key = f", key {answer['key']}" if "key" in answer else ""
    verb = "published at" if answer["kind"] == "result" else ""
    yield f"{answer['event']}{fields}: {verb}{' ' if verb else ''}{_arrival(answer['at'])}{key}"
    if refused := answer.get("refused"):
        yield f"  not processed: {refused['reason']}{': ' if refused['detail'] else ''}{refused['detail']}"
    for fate in answer.get("detectors", ()):
        yield from _fate(fate, answer)
    if "late_source" in answer:
        yield (
            f"  more than {SOURCE_LIMIT} times the target are late of its source "
            f"{late_source_text(answer['late_source'])} at the end of the trace"
        )
    if "from" in answer:
        yield "  comes from"
        yield from _lineage(answer["from"], 2)


def _fields(answer: Answer) -> str:
    return f" {json.dumps(answer['fields'], ensure_ascii=False)}" if answer["fields"] else ""


def _arrival(step: Answer | None) -> str:
    """A step, in words."""
    if step is None:
        return "before the trace"
    when = "" if step["stream_time"] is None else f", at stream time {step['stream_time']}"
    when += f", arrival time {step['arrival_time']}" if "arrival_time" in step else ""
    if step["what"] == "arrival":
        return f"arrival {step['arrival']}{when}"
    return f"{'arrival time' if step['what'] == 'time' else step['what']} after arrival {step['arrival']}{when}"


def _cause(step: Answer) -> str:
    return f" ({step['event']})" if "event" in step else ""


def _fate(fate: Answer, answer: Answer) -> Iterator[str]:
    name, waited = fate["detector"], fate["waited_for"]
    if fate["outcome"] == "waiting":
        yield f"  {name}: still waits at the end of the trace"
    elif fate["outcome"] == "late":
        yield f"  {name}: late by {fate['lateness']}; the watermark had passed it at {_place(fate['at'])}"
        for each in waited:
            yield f"    {_advanced(each)}"
        return
    elif not waited and fate["at"] == answer["at"]:
        yield f"  {name}: delivered at once"
    else:
        real = f", {fate['arrival_time_wait']} of arrival time" if "arrival_time_wait" in fate else ""
        yield f"  {name}: delivered at {_place(fate['at'])}, after {fate['wait']} of stream time{real}"
    for each in waited:
        yield from _waited(each, 2)


def _place(step: Answer | None) -> str:
    return _arrival(step) if step is None else f"{_arrival(step)}{_cause(step)}"


def _waited(waited: Answer, depth: int) -> Iterator[str]:
    indent, name = "  " * depth, waited["input"]
    reached = waited["complete_up_to"]
    held = f"{indent}it waited for {name}, which was complete up to {reached}"
    if "detector" in waited:
        held = held if reached is not None else f"{indent}it waited for {name}"
        yield f"{held}: {waited['detector']} had processed no more"
        for below in waited["waited_for"]:
            yield from _waited(below, depth + 1)
        return
    if reached is None:
        yield f"{indent}it waited for {name}, whose delays were not known yet (warm-up)"
    else:
        yield f"{held} ({_evidence(waited)})"
    if "source" in waited:
        since = waited.get("since")
        last = f", last with {_place(since)}" if since else ""
        yield f"{indent}  slowest source {waited['source']}: delivered up to {waited['last']}{last}"
    if (then := waited.get("then")) and then["by"]:
        yield f"{indent}  released by {_by(name, then)}"


def _evidence(waited: Answer) -> str:
    parts = [f"{kind} {reached}" for kind, reached in waited["evidence"].items() if reached is not None]
    return ", ".join([*parts, f"K {waited['K']}"])


def _advanced(waited: Answer) -> str:
    then, before = waited["then"], waited["complete_up_to"]
    start = "the start" if before is None else before
    name = waited["input"]
    by = f", by {_by(name, then)}" if then["by"] else ""
    return f"{name} advanced from {start} to {then['complete_up_to']}{by}"


def _by(name: str, then: Answer) -> str:
    return " and ".join(_kind(name, kind, then) for kind in then["by"])


def _kind(name: str, kind: str, then: Answer) -> str:
    reached = then["evidence"][kind]
    match kind:
        case "slack":
            return f"slack (stream time - K of {then['K']} = {reached})"
        case "readiness":
            return f"readiness (no more events of {name} are expected up to {reached})"
        case "arrival time":
            return f"arrival time (all that is not delayed unusually had arrived up to {reached})"
        case "progress":
            return f"progress of its detector (up to {reached})"
    return f"the order of the input (up to {reached})"


def _lineage(lineage: Answer, depth: int) -> Iterator[str]:
    fields = _fields(lineage)
    indent = "  " * depth
    if "detector" not in lineage:
        yield f"{indent}{lineage['event']}{fields}: {_arrival(lineage['at'])}"
        return
    on = lineage["on"]
    cause = f"the timer at {on['timer']}" if "timer" in on else on["event"]
    note = f" (only that is shown: {lineage['note']})" if "note" in lineage else ""
    yield f"{indent}{lineage['event']}{fields}: by {lineage['detector']} on {cause}{note}"
    for each in lineage["inputs"]:
        yield from _lineage(each, depth + 1)


def summary_text(summary: Answer) -> str:
    """A whole trace in words."""
    lines = [_counts(summary)]
    for name, mine in summary["detectors"].items():
        parts = [f"{mine.get('delivered', 0):,} delivered", f"{mine.get('waited', 0):,} of them waited"]
        parts += [f"{mine[kind]:,} {kind}" for kind in ("late", "waiting") if mine.get(kind)]
        most = [f"{what} ({count:,})" for what, count in list(summary["waited_for"].get(name, {}).items())[:5]]
        lines.append(f"{name}: {', '.join(parts)}{'; waited for ' if most else ''}{', '.join(most)}")
    lines += [f"error: {text}" for text in summary["errors"]]
    for title, answers in _sections(summary):
        lines += ["", f"{title}:", *(answer_text(answer) for answer in answers)]
    return "\n".join(lines)


def _counts(summary: Answer) -> str:
    kinds = ("arrivals", "late", "quarantined", "duplicates", "results")
    counts = [(summary["counts"].get(kind, 0), kind) for kind in kinds]
    return ", ".join(f"{count:,} {kind.removesuffix('s') if count == 1 else kind}" for count, kind in counts)


def _sections(summary: Answer) -> list[tuple[str, Sequence[Answer]]]:
    found = [("the longest waits", summary["longest"]), ("late events", summary["late"])]
    return [(title, answers) for title, answers in found if answers]


def explain_page(title: str, summary: Answer, answers: Iterable[Answer] = ()) -> str:
    """A page: the answers about the events that were asked for, and what happened in the whole trace."""
    rows = "".join(
        f"<tr><td>{escape(name)}</td>"
        + "".join(f"<td class=n>{mine.get(kind, 0):,}</td>" for kind in ("delivered", "waited", "late", "waiting"))
        + f"<td>{escape(', '.join(f'{w} ({n:,})' for w, n in list(summary['waited_for'].get(name, {}).items())[:5]))}"
        "</td></tr>"
        for name, mine in summary["detectors"].items()
    )
    asked = list(answers)
    sections = [("what was asked", asked)] * bool(asked) + _sections(summary)
    body = "".join(
        f"<h2>{escape(name.capitalize())}</h2>" + "".join(f"<pre>{escape(answer_text(each))}</pre>" for each in some)
        for name, some in sections
    )
    return (
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f"<title>{escape(title)}</title><style>{_STYLE}</style></head><body><h1>{escape(title)}</h1>"
        f"<p>{escape(_counts(summary))}</p><table><tr><th>detector</th><th>delivered</th><th>of them waited</th>"
        f"<th>late</th><th>still waiting</th><th>waited for</th></tr>{rows}</table>{body}</body></html>\n"
    )
