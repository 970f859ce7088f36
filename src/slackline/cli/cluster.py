"""``slackline cluster``: start, watch and stop a cluster whose nodes are tasks on Spark; commands for any cluster."""

from __future__ import annotations

import logging
import os
import signal
import sys
import time
from typing import Annotated, Any

import typer

from slackline.cli.console import FAILED, reports_errors
from slackline.cli.logs import log_to_stderr
from slackline.cli.node import NOT_GIVEN, plain, speed_of
from slackline.cli.nodes import migrate, nodes
from slackline.cli.options import (
    OF_NODES,
    EngineOptions,
    NodeUnit,
    Optimise,
    Speed,
    TlsCa,
    TlsCert,
    TlsKey,
    To,
    UntilEnd,
    engine_options,
    setting,
    takes,
)  # fmt: skip
from slackline.cli.place import place
from slackline.cluster.protocol import NodeSettings
from slackline.cluster.registry import STOP, description_of
from slackline.connectors.store import Store, StoreLease
from slackline.core.errors import ConfigError, SlacklineError

#: Seconds between two looks whether the driver has stopped.
LOOK = 0.2

cluster = typer.Typer(
    no_args_is_help=True, help="A cluster: start it on Spark, show, migrate and place detectors, stop it."
)
cluster.command("status")(nodes)
cluster.command("migrate")(migrate)
cluster.command("place")(place)

logger = logging.getLogger("slackline.cluster")


@cluster.command()
@takes(*OF_NODES)
@reports_errors
def start(
    app: Annotated[str, typer.Argument(metavar="APP", help="module:name of a Hierarchy, or a file.")],
    inputs: Annotated[
        list[str],
        typer.Argument(metavar="INPUT", help="Input, as for `slackline node`; every executor must be able to open it."),
    ],
    checkpoint: Annotated[
        str,
        typer.Option(
            help="Folder that the driver and all executors share, or URI of one (s3://…, hdfs://…): results and "
            "checkpoints, by node. The same command resumes from there."
        ),
    ],
    nodes: Annotated[int | None, typer.Option(help="Number of nodes; each takes one slot of Spark.", min=1)] = None,
    node: Annotated[
        list[str] | None,
        typer.Option(metavar="NAME=DETECTOR,…", help="A node and its detectors, instead of --nodes. Several times."),
    ] = None,
    ingress: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAME=TYPE,…",
            help="Sensor types that enter at a node; default: all at the first. A type may enter in parts, at several "
            "nodes: n1=reading/0 and n2=reading/1. Several times.",
        ),
    ] = None,
    conf: Annotated[
        list[str] | None,
        typer.Option(
            metavar="KEY=VALUE",
            help="Setting of the Spark session, e.g. spark.master=spark://HOST:7077. Several times. Default: a local "
            "session with a core per node.",
        ),
    ] = None,
    to: To = None,
    take_over: Annotated[
        bool, typer.Option("--take-over", help="Stop another driver of a cluster in this folder; refused otherwise.")
    ] = False,
    failover_after: Annotated[
        float, typer.Option(help="Seconds after which a lost node is resumed by another.", min=0.0)
    ] = 5.0,
    idle_timeout: Annotated[
        float, typer.Option(help="How long other parts of a type wait for one that is idle, as for `slackline node`.")
    ] = NodeSettings().idle_timeout,
    checkpoint_every: Annotated[float, typer.Option(help="Seconds between checkpoints.", min=0.01)] = 1.0,
    speed: Speed = "max",
    unit: NodeUnit = None,
    engine: EngineOptions = None,
    optimise: Optimise = None,
    until_end: UntilEnd = False,
    tls_cert: TlsCert = None,
    tls_key: TlsKey = None,
    tls_ca: TlsCa = None,
    **shared: Any,
) -> None:
    """Run a hierarchy on executors of Spark, a task per node, until Ctrl-C or `slackline cluster stop`.

    Nodes that are processes are started by `slackline node`.

    Spark starts a node again whose executor dies; nothing is lost or emitted twice. Show what runs where with
    `slackline cluster status --at FOLDER`.
    """
    if (nodes is None) == (not node):
        raise ConfigError("give either --nodes NUMBER, or --node NAME=DETECTOR,… for each node.")
    placed = nodes if nodes is not None else named(node or [], "--node")
    settings = dict(map(setting, conf or ()))
    sys.path.insert(0, os.getcwd())  # applications here are found by executors on this machine, too
    from slackline import spark

    log = shared.pop("log")
    log_to_stderr("slackline", log or "text")
    session = spark.session(placed if isinstance(placed, int) else len(placed), **settings)
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        with spark.cluster(
            session, app, nodes=placed, source=inputs, sink=to, checkpoint=checkpoint,
            ingress=None if ingress is None else named(ingress, "--ingress"),
            tls=[path for path in (tls_cert, tls_key, tls_ca) if path is not None], take_over=take_over,
            failover_after=failover_after, idle_timeout=idle_timeout, checkpoint_every=checkpoint_every,
            speed=speed_of(speed), unit=unit,
            engine=engine_options(engine or [], NOT_GIVEN), optimise=optimise, until_end=until_end,
            records=plain(shared),
        ) as running:  # fmt: skip
            logger.info("the cluster runs; `slackline cluster status --at %s` shows it", checkpoint)
            running.wait()
    except KeyboardInterrupt:
        logger.info("stopped; the same command resumes")
    finally:
        session.stop()


@cluster.command()
@reports_errors
def stop(
    checkpoint: Annotated[str, typer.Argument(metavar="FOLDER", help="The checkpoint folder of the cluster.")],
    timeout: Annotated[float, typer.Option(help="Seconds to wait until it has stopped.", min=0.1)] = 30.0,
) -> None:
    """Stop a cluster on Spark. Its state stays in its checkpoint folder, from which `cluster start` resumes."""
    folder = Store.of(checkpoint)
    lease = StoreLease(folder)
    if not description_of(folder):
        raise ConfigError(f"{folder} is not the checkpoint folder of a cluster.")
    if not lease.is_renewed():
        typer.echo("The cluster does not run.", err=True)
        raise typer.Exit(FAILED)
    folder.write(STOP, ())
    until = time.monotonic() + timeout
    while lease.is_renewed():
        if time.monotonic() > until:
            raise SlacklineError(f"the driver of the cluster in {folder} has not stopped within {timeout:g} s.")
        time.sleep(LOOK)


def named(texts: list[str], option: str) -> dict[str, list[str]]:
    """
    >>> named(["n1=Low,High", "n2="], "--node")
    {'n1': ['Low', 'High'], 'n2': []}
    """
    found: dict[str, list[str]] = {}
    for text in texts:
        name, equals, rest = text.partition("=")
        if not name or not equals or name in found:
            raise ConfigError(f"{option} {text} is not valid; write NAME=A,B, each NAME once.")
        found[name] = [each.strip() for each in rest.split(",") if each.strip()]
    return found
