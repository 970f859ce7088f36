"""What nodes show of themselves: plain values that JSON can hold."""

from __future__ import annotations

from typing import Any

from slackline.engine import Engine
from slackline.nodes.directory import Directory
from slackline.nodes.exchange import Exchange
from slackline.nodes.handover import Handovers
from slackline.nodes.membership import Membership

_SHOWN = ("K", "horizon", "buffered", "delivered", "late", "published", "wait_mean")


def awaited_by(engine: Engine) -> set[str]:
    """The types that hold up what waits."""
    waits = [each["waits_for"] for each in engine.stats()["detectors"].values()]
    return {wait["type"] for wait in waits if wait is not None}


def figures_of(engine: Engine, exchange: Exchange, now: float) -> dict[str, Any]:
    """What a node tells others of its work; ``at`` is when that was, in seconds of its own clock."""
    stats = engine.stats()
    return {
        "at": now,
        "clk": stats["clk"],
        "arrivals": stats["arrivals"],
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
    moving = {each: "arriving" for each in handovers.arriving} | {each: "leaving" for each in handovers.leaving}
    detectors, kinds = directory.missing()
    return {"seen_from": name, "nodes": nodes, "moving": moving, "missing": {"detectors": detectors, "types": kinds}}
