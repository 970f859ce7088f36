"""The frame of every page: style, the plot library (once), figures and tables."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from html import escape
from typing import Any

import plotly.graph_objects as go
from plotly.offline import get_plotlyjs

FONT = 'system-ui, -apple-system, "Segoe UI", Roboto, "Helvetica Neue", "DejaVu Sans", Arial, sans-serif'
INK = "#1f2933"
FAINT = "#6b7785"
GRID = "#e6eaee"
ACCENT = "#d1480b"

_STYLE = f"""
body {{ margin: 0; background: #f5f7f9; color: {INK}; font: 16px/1.5 {FONT}; }}
main {{ max-width: 1080px; margin: 0 auto; padding: 32px 24px 48px; }}
h1 {{ font-size: 28px; line-height: 1.2; margin: 0 0 4px; }}
h2 {{ font-size: 20px; margin: 40px 0 8px; }}
p {{ margin: 8px 0; max-width: 76ch; }}
.sub, .note, footer {{ color: {FAINT}; }}
.note, footer {{ font-size: 14px; }}
.card {{ background: #fff; border: 1px solid #dfe4e9; border-radius: 8px; padding: 16px; margin: 16px 0;
  overflow-x: auto; }}
.facts {{ display: grid; grid-template-columns: repeat(auto-fit, minmax(200px, 1fr)); gap: 16px;
  margin: 20px 0; }}
.fact {{ background: #fff; border: 1px solid #dfe4e9; border-radius: 8px; padding: 14px 16px; }}
.fact b {{ display: block; font-size: 24px; line-height: 1.3; font-weight: 650; }}
.fact span {{ color: {FAINT}; font-size: 14px; }}
.verdict {{ border-left: 4px solid {ACCENT}; padding: 4px 0 4px 16px; font-size: 18px; }}
h3 {{ font-size: 16px; margin: 24px 0 4px; }}
table {{ border-collapse: collapse; width: 100%; font-size: 15px; font-variant-numeric: tabular-nums; }}
th {{ text-align: left; font-weight: 600; color: {FAINT}; border-bottom: 2px solid #cfd6dd;
  padding: 6px 12px; white-space: nowrap; }}
td {{ border-bottom: 1px solid {GRID}; padding: 5px 12px; }}
th.n, td.n {{ text-align: right; white-space: nowrap; }}
tr.mark td {{ background: #fdf1ea; font-weight: 600; }}
tr.last td {{ border-top: 2px solid #cfd6dd; color: {FAINT}; }}
.dot {{ display: inline-block; width: 10px; height: 10px; border-radius: 50%; margin-right: 8px; }}
.plotly-graph-div {{ min-width: var(--min-width, 640px); }}
@media (max-width: 600px) {{
  main {{ padding: 20px 12px 32px; }}
  .card {{ padding: 8px; }}
  table {{ font-size: 10px; }}
  th, th.n {{ white-space: normal; }}
  th, td {{ padding: 4px 2.5px; }}
}}
"""

#: Above the plot, in the middle.
LEGEND = {"orientation": "h", "y": 1.0, "yanchor": "bottom", "x": 0.5, "xanchor": "center"}


def faded(color: str, opacity: float) -> str:
    """
    >>> faded("#1f5fa8", 0.5)
    'rgba(31,95,168,0.5)'
    """
    red, green, blue = (int(color[i : i + 2], 16) for i in (1, 3, 5))
    return f"rgba({red},{green},{blue},{opacity:g})"


def html_page(title: str, body: Iterable[str]) -> str:
    """A whole document; the plot library is inside, nothing is fetched."""
    return "\n".join(
        [
            "<!doctype html>",
            '<html lang="en"><head><meta charset="utf-8">',
            '<meta name="viewport" content="width=device-width, initial-scale=1">',
            f"<title>{escape(title)}</title>",
            f"<style>{_STYLE}</style>",
            f"<script>{get_plotlyjs()}</script>",
            "</head><body><main>",
            *body,
            "</main></body></html>",
        ]
    )


def figure_card(figure: go.Figure, height: int | str, min_width: int = 640) -> str:
    """A plot in a card, in the page's fonts and colours.

    ``height`` is in pixels, or a length of CSS; on screens narrower than ``min_width`` pixels the card scrolls.
    """
    figure.update_layout(
        template="none",
        height=height if isinstance(height, int) else None,
        font={"family": FONT, "size": 14, "color": INK},
        paper_bgcolor="#fff",
        plot_bgcolor="#fff",
        hoverlabel={"font": {"family": FONT, "size": 14}, "align": "left"},
    )
    axis = {
        "gridcolor": GRID,
        "linecolor": "#9aa5b1",
        "ticks": "outside",
        "tickcolor": "#9aa5b1",
        "zeroline": False,
    }
    figure.update_xaxes(**axis)
    figure.update_yaxes(**axis)
    options: dict[str, Any] = {"displaylogo": False, "responsive": True, "displayModeBar": False}
    inner = figure.to_html(
        full_html=False,
        include_plotlyjs=False,
        config=options,
        default_height=f"{height}px" if isinstance(height, int) else height,
    )
    return f'<div class="card" style="--min-width:{min_width}px">{inner}</div>'


def facts(items: Sequence[tuple[str, str]]) -> str:
    """A row of large figures with their meaning."""
    cells = "".join(
        f'<div class="fact"><b>{escape(value)}</b><span>{escape(what)}</span></div>' for value, what in items
    )
    return f'<div class="facts">{cells}</div>'


def table_card(
    header: Sequence[str],
    rows: Sequence[Sequence[str]],
    *,
    numeric_from: int = 1,
    marks: dict[int, str] | None = None,
    colors: Sequence[str | None] | None = None,
) -> str:
    """A table in a card.

    Columns from ``numeric_from`` on are numbers and align right; ``marks`` gives rows a class (`mark`,
    `last`); ``colors`` puts a dot before the first cell.
    """

    def cell(tag: str, column: int, text: str, before: str = "") -> str:
        return f"<{tag}{' class=n' if column >= numeric_from else ''}>{before}{escape(text)}</{tag}>"

    lines = ["<tr>" + "".join(cell("th", i, text) for i, text in enumerate(header)) + "</tr>"]
    for number, row in enumerate(rows):
        color = colors[number] if colors else None
        dot = f'<span class="dot" style="background:{color}"></span>' if color else ""
        mark = (marks or {}).get(number)
        cells = "".join(cell("td", i, text, "" if i else dot) for i, text in enumerate(row))
        lines.append(f"<tr{f' class={mark}' if mark else ''}>{cells}</tr>")
    return f'<div class="card"><table>{"".join(lines)}</table></div>'


def paragraph(text: str, kind: str = "") -> str:
    return f"<p{f' class={kind}' if kind else ''}>{escape(text)}</p>"


def heading(text: str, level: int = 2) -> str:
    return f"<h{level}>{escape(text)}</h{level}>"
