"""How do adaptive watermarks that others have published compare with `auto` on recorded streams?

    slackline bench published FILE… [--markdown | --json]

studies the files given and the phones of examples/data, and prints for each stream and target the steady late share and
the steady mean wait (after the first 1,000 arrivals) of `auto` with that target; of the fixed watermark and the fixed
timer that hindsight would choose to lose no more; of policies that are asked for the same share: sliding quantile,
histogram percentile, ADWIN and AQ-K-slack; of maximal K-slack; and of one who knows the future. ``late`` is the late
share of `auto` over the whole stream, ``ratio`` its steady mean wait over that of the cheaper of watermark and timer.

Fields of a file are found by their names: `ts…`, `arrival…`, `source`.
"""

# mypy: disable-error-code="union-attr, arg-type, assignment, misc, redundant-expr, operator"

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from itertools import groupby
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from _figures import parser
from slackline.connectors.formats import read_records
from slackline.core.errors import SlacklineError
from slackline.report import Scale, share_text
from slackline.runtime import RecordSchema
from slackline.study import FIXED, STEADY, PolicyFigures, RecordedStream, StudyResult, load_stream, study

TARGETS = (0.001, 0.002, 0.005)
PHONES = Path(__file__).parents[1] / "examples" / "data"
#: What each published policy is asked for, so that it should lose a given share.
ASKED = {
    "quantile": lambda target: {"q": 1 - target, "window": 2_000},
    "percentile": lambda target: {"q": 1 - target},
    "adwin": lambda target: {"threshold": target},
    "aqkslack": lambda target: {"coverage": 1 - target},
    "max_slack": lambda _: {},
}
COLUMNS = ("auto", *FIXED, *ASKED, "clairvoyant")


def main(argv: list[str] | None = None) -> int:
    options = parser("published", __doc__)
    options.add_argument("files", nargs="*", type=Path, metavar="FILE", help="recordings, as for `slackline study`")
    options.add_argument("--markdown", action="store_true", help="print a table in Markdown")
    given = options.parse_args(argv)
    streams = {path.name.split(".")[0]: _load(path) for path in [*given.files, *sorted(PHONES.glob("d-*.csv.gz"))]}
    rows = [row for name, stream in streams.items() for row in compared(name, stream)]
    if given.json:
        print(json.dumps(rows))
    elif given.markdown:
        print("\n".join(_markdown(rows)))
    else:
        _print(rows)
    return 0


def _load(path: Path) -> RecordedStream:
    names = list(read_records(path, None).column_names)
    fields = {role: next((n for n in names if n.startswith(role)), None) for role in ("ts", "arrival", "source")}
    if None in fields.values():
        raise SlacklineError(
            f"{path.name} has the columns {names}; expected names that begin with ts, arrival, source."
        )
    stream = load_stream(path, RecordSchema(**fields))
    if len(stream) <= STEADY:
        raise SlacklineError(f"{path.name} has {len(stream):,} events; give a recording of more than {STEADY:,}.")
    return stream


def compared(name: str, stream: RecordedStream) -> Iterator[dict[str, Any]]:
    """One row per target; waits in the unit of the stream."""
    print(f"{name}: {len(stream):,} events", file=sys.stderr)
    result = study(stream)
    for target in TARGETS:
        auto = next(p for p in result.policies if p.params == {"late_target": target})
        figures = {"auto": auto.waits, "clairvoyant": result.clairvoyant}
        for policy in FIXED:
            best = result.cheapest(policy, steady=True, than=auto)
            figures[policy] = best.waits if best is not None else None
        figures |= {policy: _of(result, policy, asked(target)) for policy, asked in ASKED.items()}
        fixed = [w.steady_mean_wait for p in FIXED if (w := figures[p]) is not None and w.steady_mean_wait is not None]
        yield {
            "stream": name,
            "events": len(stream),
            "unit": stream.unit,
            "target": target,
            "late": auto.waits.late_share,
            "ratio": auto.waits.steady_mean_wait / min(fixed) if fixed and min(fixed) else None,
            **{policy: _steady(figures[policy]) for policy in COLUMNS},
        }


def _of(result: StudyResult, policy: str, params: dict[str, Any]) -> PolicyFigures | None:
    return next((p.waits for p in result.policies if p.policy == policy and p.params == params), None)


def _steady(waits: PolicyFigures | None) -> dict[str, float | None] | None:
    return None if waits is None else {"late": waits.steady_late_share, "wait": waits.steady_mean_wait}


def _texts(rows: list[dict[str, Any]]) -> Iterator[list[str]]:
    """Rows as text; waits of a stream in one unit."""
    for _, of_stream in groupby(rows, lambda row: row["stream"]):
        same = list(of_stream)
        waits = [row[policy]["wait"] for row in same for policy in ("auto", *FIXED) if row[policy]]
        yield from (_cells(row, Scale.of(waits, row["unit"])) for row in same)


def _cells(row: dict[str, Any], scale: Scale) -> list[str]:
    """A row as text: waits behind each late share."""
    start = [row["stream"], share_text(row["target"]), share_text(row["late"])]
    shown = [
        "-" if (each := row[policy]) is None else f"{share_text(each['late'])}, {scale.text(each['wait'])}"
        for policy in COLUMNS
    ]
    return [*start, "-" if row["ratio"] is None else f"{row['ratio']:.2f}", scale.name, *shown]


HEADINGS = ("stream", "target", "late", "ratio", "unit", *COLUMNS)


def _markdown(rows: list[dict[str, Any]]) -> Iterator[str]:
    yield f"| {' | '.join(HEADINGS)} |"
    yield f"|---|{'---:|' * (len(HEADINGS) - 1)}"
    for cells in _texts(rows):
        yield f"| {' | '.join(cells)} |"


def _print(rows: list[dict[str, Any]]) -> None:
    table = Table(*HEADINGS, title="steady late share and steady mean wait")
    for cells in _texts(rows):
        table.add_row(*cells)
    Console(width=220).print(table)


if __name__ == "__main__":
    raise SystemExit(main())
