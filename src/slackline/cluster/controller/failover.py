"""Failover: which node resumes a lost one from the shared checkpoint store.

A node whose lease has run out is lost; it may reconnect, or restart. If it stays away for ``after`` seconds more, one
of the connected nodes resumes it as a whole, from its last checkpoint and under its name, in the next incarnation: with
its detectors, its publications, and the types that enter there. To its peers this is a restart. Placement policies may
then migrate its detectors. A node that runs nothing is resumed, too: a detector may be on its way there, and publishers
retain events for it.

A node resumes another only if it and its peers are at least half of the cluster, and none of them is connected to it.
These conditions avoid needless failovers. That nothing is published twice does not depend on them: the store admits one
successor of each incarnation and fences the former one, and peers drop the messages of a former incarnation.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from slackline.cluster.controller.metrics import PRESENT


class Failover:
    """Decides which lost nodes this node resumes."""

    def __init__(self, name: str, after: float) -> None:
        self.name = name
        self.after = after
        # By lost node: since when it can be resumed, as far as this node knows.
        self._since: dict[str, float] = {}

    def on_heartbeat(self, overview: Mapping[str, Any], now: float) -> list[str]:
        """The nodes to resume here now."""
        nodes = overview["nodes"]
        present = {name: shown for name, shown in nodes.items() if shown["state"] in PRESENT}
        lost = [name for name, shown in nodes.items() if shown["state"] == "lost"]
        agreed = [name for name in lost if all(_is_cut_off(shown, name) for shown in present.values())]
        if 2 * len(present) < len(present) + len(lost):
            agreed = []
        self._since = {name: self._since.get(name, now) for name in agreed}
        wait = self.after * (1 + self._turn(present))
        due = [name for name in agreed if now - self._since[name] >= wait]
        self._since |= dict.fromkeys(due, now)
        return due

    def _turn(self, present: Mapping[str, Mapping[str, Any]]) -> int:
        """How many nodes come first: those with fewer detectors. One may not know the lost node, or may fail."""
        able = [name for name, shown in present.items() if shown.get("failover") is True or name == self.name]
        return sorted(able, key=lambda name: (len(present[name]["runs"]), name)).index(self.name)


def _is_cut_off(shown: Mapping[str, Any], name: str) -> bool:
    """Whether a node reports its connections, and none to another one."""
    reported = shown.get("connected")
    return isinstance(reported, list) and name not in reported
