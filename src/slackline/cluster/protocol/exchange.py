"""Publish and subscribe: the types that leave this node and those that come to it [Thesis, 2.2.1, 2.2.2]."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import NamedTuple

from slackline.cluster.protocol.feed import Feed, Portion, Publisher, portion_of
from slackline.cluster.protocol.messages import Body, Item, Outlet, ProtocolError, Resend, Subscribe, Unsubscribe
from slackline.cluster.protocol.outgoing import Outgoing
from slackline.cluster.settings import NodeSettings
from slackline.core.hierarchy import Hierarchy
from slackline.core.outcome import ProgressUpdate
from slackline.core.time import FOREVER

#: Beats without a word of a type after which it is asked for anew.
SILENT = 3


class Want(NamedTuple):
    """How a type is wanted here."""

    reliable: bool
    ticks: bool


class Exchange:
    """All types of a node. It knows numbers, not what they are about."""

    def __init__(self, hierarchy: Hierarchy, settings: NodeSettings, slack: bool) -> None:
        self.hierarchy = hierarchy
        self.settings = settings
        self.slack = slack
        self.outgoing: dict[str, Outgoing] = {}
        self.feeds: dict[str, Feed] = {}
        #: The number that a type had here when it last stopped leaving or coming: so far the engine knows of it.
        self.known: dict[str, int] = {}
        published = [kind for name in hierarchy.names for kind in hierarchy.published(name)]
        self._order = (*hierarchy.sensor_types, *published)

    # Types that leave.

    def open(self, kind: str) -> Outgoing:
        """A type enters or is published here from now on."""
        keep, window = self.settings.keep, self.settings.window
        self.outgoing[kind] = Outgoing(kind, keep, window, self.slack)
        return self.outgoing[kind]

    def close(self, kind: str) -> Outlet:
        """A type is published here no longer."""
        self._remember(kind)
        return self.outgoing.pop(kind).outlet()

    def publish(self, updates: ProgressUpdate) -> Portion:
        """Number what this node has to say of one of its types."""
        outgoing = self.outgoing[updates.type]
        first = outgoing.next
        return Portion(first, updates, outgoing.publish(updates))

    def due(self, node: str) -> list[Item]:
        """What to send to a node now, lower levels first."""
        there = [self.outgoing[kind] for kind in self._order if kind in self.outgoing]
        return [item for outgoing in there if node in outgoing.subscribers for item in outgoing.due(node)]

    def standings(self, node: str) -> list[Item]:
        """How far all types have come that a node gets: what tells it that the last thing said got lost."""
        mine = [outgoing for outgoing in self.outgoing.values() if node in outgoing.subscribers]
        return [o.standing() for o in mine if o.subscribers[node].ticks or o.subscribers[node].next == o.next]

    def trim(self) -> list[str]:
        """Forget what everybody has; the types of which something reliable had to be given up."""
        return [kind for kind, outgoing in self.outgoing.items() if outgoing.trim()]

    @property
    def has_begun(self) -> bool:
        """Whether something was ever published here: everybody was there then, and a detector on its way is missed."""
        return any(outgoing.next > 1 for outgoing in self.outgoing.values())

    @property
    def is_full(self) -> bool:
        """Whether somebody has to catch up before more is published."""
        return any(outgoing.is_full for outgoing in self.outgoing.values())

    @property
    def is_through(self) -> bool:
        """Whether all types that leave have ended, and everybody has all of them."""
        return all(outgoing.watermark == FOREVER and not outgoing.kept for outgoing in self.outgoing.values())

    # Types that come.

    def follow(self, kind: str, want: Want, since: int) -> Feed:
        """Have a type from a number on; 0: not known yet."""
        self.drop(kind)
        feed = Feed(kind, kind in self.hierarchy.publisher, want.reliable, want.ticks, since)
        feed.durable = max(0, since - 1)
        self.feeds[kind] = feed
        return feed

    def drop(self, kind: str) -> Feed | None:
        """Have a type no longer."""
        self._remember(kind)
        return self.feeds.pop(kind, None)

    def _remember(self, kind: str) -> None:
        if kind not in self.feeds or not self.feeds[kind].ticks:
            self.known[kind] = max(self.known.get(kind, 0), self.number(kind))

    def number(self, kind: str) -> int:
        """The number of the next event of a type that detectors here will see; 0 if that is not known."""
        if kind in self.outgoing:
            return self.outgoing[kind].next
        return self.feeds[kind].next if kind in self.feeds else 0

    def offer(self, items: Iterable[Item], now: float) -> list[Portion]:
        """Take what has come; all of it, read. Raises before anything changed."""
        portions = []
        for item in items:
            if item.type not in self.hierarchy.publisher and item.type not in self.hierarchy.sensor_types:
                raise ProtocolError(f"events of type {item.type!r}, which the application does not know.")
            portions.append(portion_of(item, item.type in self.hierarchy.publisher))
        for portion in portions:
            feed = self.feeds.get(portion.item.type)
            if feed is not None:
                feed.offer(portion, now, self.settings.window)
        return portions

    def take(self, now: float, only: set[str] | None = None) -> list[Portion]:
        """What may be handed to the engine now, in the order of numbers; of these types only, where some are named."""
        feeds = [feed for feed in self.feeds.values() if only is None or feed.kind in only]
        return [portion for feed in feeds for portion in feed.take(now)]

    def subscriptions(
        self, wanted: Mapping[str, Want], publishers: Mapping[str, Publisher], now: float
    ) -> list[tuple[str, Body]]:
        """What to say to whom, so that everything that is wanted comes, and nothing else."""
        said: list[tuple[str, Body]] = []
        for kind in [kind for kind in self.feeds if kind not in wanted]:
            feed = self.drop(kind)
            if feed is not None and feed.asked is not None:
                said.append((feed.asked.node, Unsubscribe(kind)))
        for kind, want in wanted.items():
            feed = self.feeds.get(kind)
            if feed is None or (feed.ticks and not want.ticks) or (want.ticks and not feed.next):
                feed = self.follow(kind, want, 1)
            if feed.reliable < want.reliable:
                feed.reliable, feed.asked = True, None
            publisher, silent = publishers.get(kind), now - feed.heard_at >= SILENT * self.settings.beat
            if publisher is None or (feed.asked == publisher and not silent):
                continue
            moved = feed.asked is not None and feed.asked.node != publisher.node and kind in self.hierarchy.publisher
            if moved and not feed.confirmed and now - feed.asked_at < SILENT * self.settings.beat:
                continue  # an answer will come: with the detector moved who listens to it, or it was gone already
            if not (moved and feed.confirmed):
                said.append((publisher.node, Subscribe(kind, feed.next, feed.reliable, feed.ticks)))
                feed.confirmed = False
            feed.asked, feed.asked_at, feed.heard_at = publisher, now, now
            feed.moved_at = now if moved else feed.moved_at
        return said

    def gaps(self, now: float) -> list[tuple[str, Resend]]:
        """What to ask again, of whom; what is not reliable is given up instead.

        Not after its publisher has moved: what that sent before may be slower than what comes from its new place.
        """
        said = []
        for kind, feed in self.feeds.items():
            gap = feed.gap
            if gap is None or feed.gap_since is None or feed.paused or now < feed.gap_since + self.settings.reorder:
                continue
            feed.gap_since = now
            if gap[0] < feed.direct and now < feed.moved_at + self.settings.lost_after:
                continue  # a detector has come, and what is missing is forwarded
            if not feed.reliable and now >= feed.moved_at + self.settings.lost_after:
                feed.skip(gap[1] + 1)
            elif feed.asked is not None:
                said.append((feed.asked.node, Resend(kind, *gap)))
        return said

    def gap_at(self) -> float | None:
        """When the next gap is due."""
        gaps = [feed for feed in self.feeds.values() if feed.gap is not None and not feed.paused]
        times = [feed.gap_since for feed in gaps if feed.gap_since is not None]
        return min(times) + self.settings.reorder if times else None

    def acknowledgements(self, again: bool) -> dict[str, dict[str, tuple[int, int]]]:
        """By node and type: what we have that was not acknowledged yet; ``again``: or was, and it may have got lost."""
        said: dict[str, dict[str, tuple[int, int]]] = {}
        for kind, feed in self.feeds.items():
            have = (feed.next - 1, feed.durable if self.settings.checkpoint_every is not None else feed.next - 1)
            if feed.next and not feed.ticks and feed.asked is not None and (again or have != feed.acknowledged):
                feed.acknowledged = have
                said.setdefault(feed.asked.node, {})[kind] = have
        return said

    def survives(self) -> None:
        """What was handed on so far survives a crash."""
        for feed in self.feeds.values():
            feed.durable = max(feed.durable, feed.next - 1)

    def check_invariants(self) -> None:
        """What must hold between any two calls; tests call it."""
        assert not self.outgoing.keys() & self.feeds.keys(), "a type leaves and comes"
        for outgoing in self.outgoing.values():
            outgoing.check_invariants()
        for feed in self.feeds.values():
            feed.check_invariants()
