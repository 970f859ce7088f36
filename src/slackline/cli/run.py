"""``slackline run APP``: a hierarchy at work, from files, HTTP or MQTT to files, HTTP or MQTT; or on Kafka or Spark."""

from __future__ import annotations

import asyncio
import contextlib
import importlib
import logging
import signal
from pathlib import Path
from typing import Annotated, Any, Literal

import typer

from slackline.cli.engine_options import engine_options
from slackline.cli.failure import reports_errors
from slackline.cli.hierarchies import load_application
from slackline.cli.live import Status
from slackline.cli.logs import LogForm, MetricsPort, say_on_stderr, served_metrics
from slackline.cli.on_spark import run_on_spark
from slackline.cli.planned import at_stop_of, places, plan_text, promises
from slackline.cli.settings import CHECKPOINT_EVERY, RunSettings, settings_of
from slackline.connectors.runhost import RunHost
from slackline.connectors.sources import open_sources, scheme_of
from slackline.connectors.targets import open_target
from slackline.core.errors import ConfigError
from slackline.core.extras import explain
from slackline.core.hierarchy import Hierarchy
from slackline.runtime.roles import Roles
from slackline.runtime.sites import Sites
from slackline.runtime.vitals import Vitals

#: Schemes that bring a host of their own, since sources and sinks belong together there: the module whose
#: ``Application(settings, hierarchy, roles)`` has ``run(watch)``, and for the plan ``key``, ``places``, ``promises``.
OWN_HOSTS = {"kafka": "slackline.connectors.kafka"}

logger = logging.getLogger("slackline.run")


@reports_errors
def run(
    app: Annotated[
        str | None,
        typer.Argument(
            metavar="APP",
            help="The hierarchy: module:name, a file (app.py:name), or app.py for the `hierarchy` in it. May be left "
            "out where --config names it.",
        ),
    ] = None,
    sources: Annotated[
        list[str] | None,
        typer.Option(
            "--from",
            help="Where events come from: a file (CSV, JSON lines, both also .gz, or Parquet), a folder of such, - "
            "(standard input, JSON lines), http://…, https://… (JSON lines or server-sent events), mqtt://HOST/TOPIC. "
            "Several times. Or kafka://HOST:PORT/TOPIC, with --to such a topic.",
            show_default=False,
        ),
    ] = None,
    to: Annotated[
        str | None,
        typer.Option(
            help="Where results go: a folder (with checkpoints, so that the same command goes on where it was), a "
            ".jsonl file, - (standard output), http://…, https://… (POST), mqtt://HOST/TOPIC.",
            show_default=False,
        ),
    ] = None,
    key: Annotated[
        str | None,
        typer.Option(
            help="Field that tells whose an event is, e.g. van: each value has an engine of its own. Unless given, "
            "there is one for all."
        ),
    ] = None,
    ts: Annotated[str | None, typer.Option(help="Field of occurrence times; ts unless given.")] = None,
    type: Annotated[
        str | None, typer.Option(help="Field of event types; type unless given. Not needed if there is only one.")
    ] = None,
    source: Annotated[
        str | None, typer.Option(help="Field that names the source; source unless given, if there is one.")
    ] = None,
    seq: Annotated[
        str | None, typer.Option(help="Field of sequence numbers; seq unless given, if there is one.")
    ] = None,
    unit: Annotated[
        Literal["s", "ms", "us", "ns"] | None,
        typer.Option(help="Unit of the time stamps; dates become it. us unless given."),
    ] = None,
    engine: Annotated[
        list[str] | None,
        typer.Option(help="Option of the engine: KEY=VALUE, e.g. policy=slack or late_target=0.01. Several times."),
    ] = None,
    follow: Annotated[
        bool | None, typer.Option("--follow", help="Go on at the end of files: wait for more lines, or files.")
    ] = None,
    on: Annotated[
        Literal["process", "spark"] | None,
        typer.Option(help="Where to run: in this process, or on Spark, through slackline.spark.detect."),
    ] = None,
    at_stop: Annotated[
        Literal["flush", "keep"] | None,
        typer.Option(
            help="What becomes of what waits, at Ctrl-C or SIGTERM: it goes on as it is, or is kept for the next run. "
            "keep with a folder, flush otherwise, unless given."
        ),
    ] = None,
    checkpoint_every: Annotated[
        float | None,
        typer.Option(
            help="Seconds between checkpoints, with a folder (1 unless given; over files more, if they take long), or "
            "between snapshots, on Kafka (30).",
            min=0.01,
        ),
    ] = None,
    metrics: MetricsPort = None,
    log: Annotated[
        LogForm | None, typer.Option(help="How to say on stderr what happens: text (unless given), or json.")
    ] = None,
    group: Annotated[
        str | None, typer.Option(help="On Kafka: the application's name, the same for all its processes.")
    ] = None,
    delivery: Annotated[
        Literal["exactly-once", "at-least-once"] | None,
        typer.Option(help="On Kafka: in transactions (unless given), or at once, some outputs twice after a crash."),
    ] = None,
    config: Annotated[
        Path | None,
        typer.Option(help="TOML file with options, called as here; the command line wins.", dir_okay=False),
    ] = None,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Print what would be done, with its guarantees, and do nothing.")
    ] = False,
) -> None:
    """Run an application until its input ends, or Ctrl-C.

    `slackline run app.py --from events.csv --to found/` reads a file and writes outputs.jsonl, late.jsonl and
    quarantined.jsonl; interrupted in any way, the same command goes on, and nothing is lost or found twice. Look at
    the plan first: add --dry-run.
    """
    given = {
        "app": app, "from": sources or None, "to": to, "key": key, "ts": ts, "type": type, "source": source,
        "seq": seq, "unit": unit, "engine": engine_options(engine or []), "follow": follow, "on": on,
        "at-stop": at_stop, "checkpoint-every": checkpoint_every, "metrics": metrics, "log": log,
        "group": group, "delivery": delivery,
    }  # fmt: skip
    settings = settings_of(given, config)
    hierarchy, _ = load_application(settings.app, None)
    roles = Roles(settings.ts, settings.type, settings.source, settings.seq, settings.unit, settings.key)
    if settings.on == "spark":
        run_on_spark(settings, hierarchy, roles, dry_run, _watched)
        return
    schemes = {scheme_of(url) for url in (*settings.sources, settings.to)} & set(OWN_HOSTS)
    if schemes:
        _run_elsewhere(schemes.pop(), settings, hierarchy, roles, dry_run)
        return
    if settings.group or settings.delivery:
        raise ConfigError("--group and --delivery are for kafka:// addresses; there is none.")
    found = open_sources(settings.sources, hierarchy, roles, settings.follow)
    target = open_target(settings.to)
    sites = Sites(hierarchy, settings.engine, keyed=settings.key is not None)
    if at_stop_of(settings, target) == "keep" and not target.keeps:
        raise ConfigError(f"--at-stop keep needs a folder to keep things in, and --to {settings.to} is none.")
    if settings.checkpoint_every is not None and not target.keeps:
        raise ConfigError("--checkpoint-every is for a folder to keep checkpoints in, and for Kafka.")
    if dry_run:
        parts = (settings, found, target)
        typer.echo(plan_text(settings, hierarchy, settings.key, places(*parts), promises(*parts)))
        return
    say_on_stderr("slackline", settings.log)
    with _watched(settings) as watch:
        _in_process(RunHost(
            sites, found, target, roles, at_stop=at_stop_of(settings, target),
            every=settings.checkpoint_every or CHECKPOINT_EVERY,
            watch=watch,
        ))  # fmt: skip


@contextlib.contextmanager
def _watched(settings: RunSettings) -> Any:
    """Who is to be told how it fares: the terminal or the log, and metrics."""
    metrics = served_metrics(settings.metrics)
    last: list[Vitals] = []
    try:
        with Status(settings.app) as status:

            def watch(vitals: Vitals) -> None:
                last[:] = [vitals]
                status(vitals)
                if metrics is not None:
                    metrics(vitals)

            yield watch
        if last:
            status.log(last[0])
    finally:
        if metrics is not None:
            metrics.close()


def _in_process(host: RunHost) -> None:
    async def until_the_end() -> None:
        task = asyncio.current_task()
        assert task is not None
        asked: list[int] = []

        def stop(number: int) -> None:
            """The first time in order, then at once."""
            asked.append(number)
            host.stop() if len(asked) == 1 else task.cancel()

        for number in (signal.SIGINT, signal.SIGTERM):
            asyncio.get_running_loop().add_signal_handler(number, stop, number)
        await host.run()

    try:
        asyncio.run(until_the_end())
    except (asyncio.CancelledError, KeyboardInterrupt):
        logger.warning("stopped at once; what was not in the last checkpoint is done again by the next run")
        raise typer.Exit(1) from None


def _run_elsewhere(scheme: str, settings: RunSettings, hierarchy: Hierarchy, roles: Roles, dry_run: bool) -> None:
    try:
        application: Any = importlib.import_module(OWN_HOSTS[scheme]).Application
    except ImportError as error:
        if (error.name or "").startswith(OWN_HOSTS[scheme]):
            raise ConfigError(
                f"{scheme}:// addresses need {OWN_HOSTS[scheme]}, which is not in this release."
            ) from None
        raise explain(error, f"{scheme}://") from error
    host = application(settings, hierarchy, roles)
    if dry_run:
        typer.echo(plan_text(settings, hierarchy, host.key, host.places, host.promises))
        return
    say_on_stderr("slackline", settings.log)
    with _watched(settings) as watch:
        host.run(watch)
