"""``slackline node APP``: run a node of a cluster in this process."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any

import typer

from slackline.cli.console import reports_errors
from slackline.cli.logs import log_to_stderr, served_metrics
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
    takes,
)  # fmt: skip
from slackline.cluster.links import Credentials
from slackline.cluster.process import NodeOptions, NodePlan, NodeProcess
from slackline.cluster.protocol import NodeSettings
from slackline.core.errors import ConfigError

#: Options of the engine that are set by other options of the node.
NOT_GIVEN = ("late", "pause")


@takes(*OF_NODES, "metrics")
@reports_errors
def node(
    app: Annotated[
        str,
        typer.Argument(metavar="APP", help="module:name of a Hierarchy, the same on all nodes, in the same version."),
    ],
    name: Annotated[str, typer.Option(help="Name of this node, unique in the cluster.")],
    inputs: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="INPUT",
            help="Input of this node: a file (CSV, JSON lines, both also .gz, or Parquet), a folder of files, - "
            "(standard input, JSON lines), http://…, https://…, mqtt://HOST/TOPIC, kafka://HOST:PORT/TOPIC; or the "
            "recording that the application reads itself, which all nodes of such an application need.",
        ),
    ] = None,
    listen: Annotated[
        str, typer.Option(help="HOST:PORT at which other nodes reach this one; port 0: any free port.")
    ] = "127.0.0.1:0",
    join: Annotated[
        list[str] | None,
        typer.Option(
            help="HOST:PORT of a node of the cluster; the addresses of the others are found there. Several times."
        ),
    ] = None,
    run: Annotated[
        str | None,
        typer.Option(
            help="Detectors that run here at first, separated by commas; '' is none. Default: all without --join, none "
            "with it."
        ),
    ] = None,
    ingress: Annotated[
        str | None,
        typer.Option(
            help="Sensor types that enter here, from INPUT, separated by commas; rows of other types are skipped. "
            "Default: all without --join, if there is an INPUT; none with it."
        ),
    ] = None,
    parts: Annotated[
        list[str] | None,
        typer.Option(
            metavar="TYPE=N",
            help="A sensor type enters in N parts, each at a node of its own: reading=2, with --ingress reading/0 at "
            "one node, reading/1 at another. Of a topic of Kafka a part is every Nth partition, of other input the "
            "rows of some sources. The same on all nodes. Several times.",
        ),
    ] = None,
    idle_timeout: Annotated[
        float,
        typer.Option(
            help="Seconds without arrivals after which the other parts of a type no longer wait for the part that "
            "enters here; what arrives then may be late.",
            min=0.0,
        ),
    ] = NodeSettings().idle_timeout,
    folder: Annotated[
        str | None,
        typer.Option(
            help="Folder, or URI of one (s3://…, hdfs://…), for outputs, late and quarantined events (JSON lines) and "
            "checkpoints, from which the node resumes after a crash, with --run and --ingress as they were. Without "
            "it, outputs are printed, and a crash loses the node's state."
        ),
    ] = None,
    shared_folder: Annotated[
        str | None,
        typer.Option(
            help="Folder that all nodes share, or URI of one, instead of --folder: this node uses the folder NAME in "
            "it. A node that is lost for --failover-after seconds is resumed from there by another node, with its "
            "detectors and input."
        ),
    ] = None,
    bus: Annotated[
        str | None,
        typer.Option(
            help="kafka://HOST:PORT/PREFIX, the same PREFIX on all nodes: events go through topics PREFIX.TYPE, which "
            "retain them, and not from node to node. A migration transfers state and positions only."
        ),
    ] = None,
    failover_after: Annotated[
        float,
        typer.Option(help="Seconds after which a lost node is resumed by another, with --shared-folder.", min=0.0),
    ] = 5.0,
    to: To = None,
    checkpoint_every: Annotated[
        float, typer.Option(help="Seconds between checkpoints, with --folder.", min=0.01)
    ] = 1.0,
    speed: Speed = "max",
    unit: NodeUnit = None,
    engine: EngineOptions = None,
    optimise: Optimise = None,
    limit: Annotated[
        float,
        typer.Option(help="The share of a core that detectors may use here, for placement and load shedding.", min=0.0),
    ] = NodeSettings().limit,
    shed: Annotated[
        bool,
        typer.Option("--shed", help="Migrate detectors to other nodes before those here need more than --limit."),
    ] = False,
    stays: Annotated[str, typer.Option(help="Detectors that must run on this node, separated by commas.")] = "",
    pause: Annotated[
        float | None,
        typer.Option(
            help="Defer detectors while this node is busy for more than this share of the time, e.g. 0.9; their "
            "results are the same, later. Per node."
        ),
    ] = None,
    until_end: UntilEnd = False,
    tls_cert: TlsCert = None,
    tls_key: TlsKey = None,
    tls_ca: TlsCa = None,
    **shared: Any,
) -> None:
    """Run some detectors of a hierarchy as one node of a cluster, until Ctrl-C.

    The first node of a cluster needs no --join; the others join it, or any other. On Ctrl-C or SIGTERM its detectors
    migrate to other nodes first; a second signal stops it at once. After a crash it resumes from its --folder.

    A cluster on one machine: `slackline node app:hierarchy FILE --name n1 --listen 127.0.0.1:7001 --run Low`, then
    `slackline node app:hierarchy --name n2 --join 127.0.0.1:7001 --run High`. Show what runs where with
    `slackline nodes --at 127.0.0.1:7001`, and move one with `slackline migrate High n1 --at 127.0.0.1:7001`.
    """
    tls = [str(path) for path in (tls_cert, tls_key, tls_ca) if path is not None]
    if len(tls) not in (0, 3):
        Credentials.of(tls_cert, tls_key, tls_ca)  # raises
    plan = NodePlan.of(
        NodeOptions(
            app=app,
            name=name,
            inputs=inputs or [],
            listen=listen,
            join=join or [],
            run=_names(run),
            ingress=_names(ingress),
            parts=_parts(parts or []),
            idle_timeout=idle_timeout,
            folder=folder,
            to=to,
            shared_folder=shared_folder,
            bus=bus,
            failover_after=failover_after,
            checkpoint_every=checkpoint_every,
            speed=speed_of(speed),
            unit=unit,
            engine=engine_options(engine or [], NOT_GIVEN),
            optimise=optimise,
            limit=limit,
            shed=shed,
            stays=_names(stays) or [],
            pause=pause,
            until_end=until_end,
            tls=tls,
            records=plain(shared),
        )
    )
    plan.compile()
    log_to_stderr(name, shared["log"] or "text")
    metrics = served_metrics(shared["metrics"])
    try:
        asyncio.run(NodeProcess(plan, metrics).run())
    finally:
        for number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(number, signal.SIG_IGN)  # the node has stopped: one more signal must not change the exit code
        if metrics is not None:
            metrics.close()


def plain(options: Mapping[str, Any]) -> dict[str, Any]:
    """Options as they can be stored."""
    return {name: str(value) if isinstance(value, Path) else value for name, value in options.items()}


def _names(text: str | None) -> list[str] | None:
    """
    >>> _names("Low, High"), _names(""), _names(None)
    (['Low', 'High'], [], None)
    """
    return None if text is None else [name.strip() for name in text.split(",") if name.strip()]


def _parts(given: list[str]) -> dict[str, int]:
    """
    >>> _parts(["reading=2"])
    {'reading': 2}
    """
    found: dict[str, int] = {}
    for text in given:
        kind, _, number = text.rpartition("=")
        if not kind or not number.isdecimal():
            raise ConfigError(f"--parts {text} is not valid; give TYPE=N, such as reading=2.")
        found[kind] = int(number)
    return found


def speed_of(text: str) -> float:
    """
    >>> speed_of("max"), speed_of("2.5")
    (0.0, 2.5)
    """
    try:
        speed = 0.0 if text == "max" else float(text)
    except ValueError:
        speed = -1.0
    if not 0 <= speed < float("inf"):
        raise ConfigError(f"--speed {text} is not valid; give 'max', or a factor: 1 is real time.")
    return speed
