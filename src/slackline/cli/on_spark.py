"""``slackline run --on spark``: an application through ``slackline.spark``, over files or between topics."""

from __future__ import annotations

import logging
import sys
from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path

import typer

from slackline.cli.logs import log_to_stderr
from slackline.core.hierarchy import Hierarchy
from slackline.runtime.metrics import Metrics, MetricsListener
from slackline.runtime.options import RunOptions

#: Makes the listener of a run, for as long as it lasts.
ListenerContext = Callable[[RunOptions], AbstractContextManager[MetricsListener]]

logger = logging.getLogger("slackline.run")


def run_on_spark(
    options: RunOptions, hierarchy: Hierarchy, dry_run: bool, listener_context: ListenerContext
) -> Metrics | None:
    """Run an application on Spark, or print its plan; returns the last metrics."""
    from slackline.spark.application import SparkApplication

    file = Path(options.app.partition(":")[0])
    application = SparkApplication(options, hierarchy, sys.modules[file.stem] if file.suffix == ".py" else None)
    if dry_run:
        from slackline.cli.run import plan_text

        typer.echo(plan_text(options, hierarchy, application.plan()))
        return None
    log_to_stderr("slackline", options.log)
    with listener_context(options) as listener:
        metrics = application.run(listener)
    logger.info("wrote %s", options.to)
    return metrics
