"""``slackline explain``: why an event waited, why it was late, what a result comes from."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer

from slackline.cli.console import reports_errors, write_page
from slackline.connectors.addresses import check_output
from slackline.core.errors import ConfigError
from slackline.core.hierarchy import Hierarchy
from slackline.explain import explain as explain_trace
from slackline.report import answer_text, explain_page, summary_text
from slackline.runtime.application import load_application


@reports_errors
def explain(
    file: Annotated[
        Path, typer.Argument(help="A trace: of `slackline run --trace FILE`, or of engine.trace.", dir_okay=False)
    ],
    event: Annotated[
        str | None,
        typer.Argument(help="TYPE@TS, TYPE/SOURCE#SEQ@TS, or the id of an output record. All events unless given."),
    ] = None,
    app: Annotated[
        str | None, typer.Option(help="The application, as for `slackline run`; unless given, that in the trace.")
    ] = None,
    key: Annotated[str | None, typer.Option(help="Only events of this key, where each key has its engine.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print the answers as JSON.")] = False,
    html: Annotated[Path | None, typer.Option(help="Write a page to this file.", dir_okay=False)] = None,
) -> None:
    """Explain a recorded run: why an event waited and for which source, why it was late, what a result comes from.

    The trace is replayed with its application, which decides the same again. Without EVENT: what detectors waited for,
    the longest waits, and late events.
    """

    def loaded(named: str | None) -> Hierarchy:
        if (app or named) is None:
            raise ConfigError(f"{file} does not name its application; give it by --app, as for `slackline run`.")
        return load_application(str(app or named), None)[0]

    if html is not None:
        check_output("--html", html, [file])
    explained = explain_trace(file, loaded)
    answers = [] if event is None else explained.event(event, key)
    summary = explained.summary(key) if event is None or html is not None else {}
    if html is not None:
        write_page(html, explain_page(f"Explanation of {file.name}", summary, answers))
    if as_json:
        typer.echo(json.dumps(summary if event is None else answers, indent=2, default=str))
    else:
        typer.echo(summary_text(summary) if event is None else "\n".join(map(answer_text, answers)))
