"""What nodes show of themselves: plain values that JSON can hold."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from slackline.cluster.controller.metrics import PRESENT
from slackline.cluster.protocol.directory import Directory
from slackline.cluster.protocol.exchange import Exchange
from slackline.cluster.protocol.handover import Handovers
from slackline.cluster.protocol.membership import Membership
from slackline.cluster.settings import NodeSettings
from slackline.engine import Engine

_SHOWN = ("K", "watermark", "buffered", "delivered", "late", "published", "wait_mean", "cpu")


def figures_of(
    engine: Engine, exchange: Exchange, membership: Membership, settings: NodeSettings, willing: bool, now: float
) -> dict[str, Any]:
    """What a node tells others of its work; ``at`` is when that was, in seconds of its own clock.

    ``willing``: whether it would be the master.
    """
    stats = engine.stats()
    return {
        "at": now,
        "limit": settings.limit,
        "stays": list(settings.stays),
        "master": willing,
        "round_trips": membership.round_trips(),
        "clk": stats["clk"],
        "arrivals": stats["arrivals"],
        "duplicates": stats["duplicates"],
        "detectors": {
            name: {key: each[key] for key in _SHOWN} | {"waits_for": (each["waits_for"] or {}).get("type")}
            for name, each in stats["detectors"].items()
        },
        "sent": {
            kind: {
                "events": outgoing.next - 1,
                "kept": len(outgoing.kept),
                "given_up": outgoing.given_up,
                "dropped": sum(each.dropped for each in outgoing.subscribers.values()),
            }
            for kind, outgoing in exchange.outgoing.items()
        },
        "received": {
            kind: {"events": max(0, feed.next - 1), "lost": feed.lost, "doubled": feed.doubled}
            for kind, feed in exchange.feeds.items()
            if not feed.ticks
        },
    }


def awaited(engine: Engine) -> set[str]:
    """The types that hold up what waits."""
    waits = [each["waits_for"] for each in engine.stats()["detectors"].values()]
    return {wait["type"] for wait in waits if wait is not None}


def overview_of(
    name: str,
    load: float,
    figures: dict[str, Any],
    membership: Membership,
    directory: Directory,
    handovers: Handovers,
) -> dict[str, Any]:
    """The network, node by node."""
    nodes = {name: {"state": "here", "load": load, "round_trip": None, **figures}}
    for peer in membership.peers.values():
        state = "left" if peer.has_left else "there" if peer.is_there else "lost"
        nodes[peer.name] = {**peer.figures, "state": state, "load": peer.load, "round_trip": peer.session.rtt}
    for node, shown in nodes.items():
        shown["runs"] = sorted(directory.runs.get(node, {}))
        shown["enters"] = list(directory.enters.get(node, ()))
    hierarchy = directory.hierarchy
    moving = {each: "arriving" for each in handovers.arriving} | {each: "leaving" for each in handovers.leaving}
    detectors, kinds = directory.missing()
    return {
        "seen_from": name,
        "nodes": nodes,
        "moving": moving,
        "missing": {"detectors": detectors, "types": kinds},
        "hierarchy": {
            each: {"listens": list(hierarchy.listens[each]), "publishes": hierarchy.published(each)}
            for each in hierarchy.names
        },
        "master": master_of(nodes),
    }


def master_of(nodes: Mapping[str, Mapping[str, Any]]) -> str | None:
    """Who optimises: of those who are there and willing, the one with the least name.

    All nodes know what all nodes say, so nobody needs to be asked; when it dies, the next is it. While one that would
    come before has not said yet whether it is willing, nobody is.
    """
    there = {name: shown for name, shown in nodes.items() if shown["state"] in PRESENT}
    for name in sorted(there):
        if "at" not in there[name]:
            return None
        if there[name].get("master") is True:
            return name
    return None
