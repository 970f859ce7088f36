"""What followed what, within a sliding window: the bookkeeping of :class:`Dependencies`.

A transition is a *cause* of everything that comes after it within ``max_lag``. It waits that long and is then
**settled**: all that may follow it has come. Settled causes count until they are older than the window.

- Each cause is matched with the first transition of each kind after it, and the last before it, of another device.
- A match is **near** if no other cause of this kind lies between. So an effect is near to one cause before it and one
  after it, at most; only near matches go into the comparison with chance (``chance.py``).
- Two transitions at one time say nothing about who was first: they are neither before nor after each other.

A transition costs O(r), with r transitions in the last ``max_lag``. All counts are kept as they change.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field

from slackline.occurrence.overlaps import Device, State

#: A kind of transition: device, state before, state after (None: silent).
Kind = tuple[Device, State, State | None]


@dataclass(slots=True)
class Cause:
    """One transition: how long before and after it its kind did not happen, what else did, and at which distance."""

    ts: int
    kind: Kind
    alone_before: int
    alone_after: int
    whole: bool  # nothing is missing before it, so that it can be compared
    before: dict[Kind, int]
    after: dict[Kind, int] = field(default_factory=dict)

    @property
    def size(self) -> int:
        return 1 + len(self.before) + len(self.after)

    def one_sided(self) -> tuple[set[Kind], set[Kind]]:
        """The kinds that are near after it and not before, and those that are near before it and not after."""
        after = {kind for kind, lag in self.after.items() if lag <= self.alone_after}
        before = {kind for kind, lag in self.before.items() if lag <= self.alone_before}
        return after - before, before - after


@dataclass(slots=True)
class Tally:
    """How often a kind happened in the window; of these settled; of these whole. And when it happened last."""

    seen: int = 0
    settled: int = 0
    whole: int = 0
    last: int = 0


@dataclass(slots=True)
class Pair:
    """What is known of a cause and an effect: how many settled causes were followed; and of the whole ones, how many
    were preceded, and how many have the effect near on one side only, after or before."""

    followed: int = 0
    preceded: int = 0
    after: int = 0
    before: int = 0
    holds: bool = False


@dataclass(slots=True)
class CauseWindow:
    """All causes of the window. Time never runs back."""

    window: int
    max_lag: int
    known_from: int | None = None  # from when on nothing is missing: the first transition, or after the last forsaken
    waiting: deque[Cause] = field(default_factory=deque)
    settled: deque[Cause] = field(default_factory=deque)
    kinds: dict[Kind, Tally] = field(default_factory=dict)
    pairs: dict[Kind, dict[Kind, Pair]] = field(default_factory=dict)  # cause, then effect
    size: int = 0  # causes and matches held

    def next_to_settle(self, now: int) -> bool:
        """Whether, before ``now``, a cause is to be settled; and no settled one is to be dropped before that."""
        if not self.waiting or self.waiting[0].ts + self.max_lag >= now:
            return False
        return not self.settled or self.waiting[0].ts + self.max_lag <= self.settled[0].ts + self.window

    def next_to_drop(self, now: int) -> bool:
        """Whether a settled cause is older than the window."""
        return bool(self.settled) and self.settled[0].ts + self.window < now

    def add(self, kind: Kind, now: int) -> None:
        """A transition: the effect of those that wait, and a cause of its own."""
        if self.known_from is None:
            self.known_from = now
        tally = self.kinds.setdefault(kind, Tally())
        before: dict[Kind, int] = {}
        for cause in self.waiting:
            if cause.kind == kind:
                cause.alone_after = min(cause.alone_after, now - cause.ts)
            elif cause.ts < now and cause.kind[0] != kind[0]:
                before[cause.kind] = now - cause.ts
                if kind not in cause.after:
                    cause.after[kind] = now - cause.ts
                    self.size += 1
        alone = min(now - tally.last, self.max_lag) if tally.seen else self.max_lag
        whole = now - self.known_from >= self.max_lag
        tally.seen += 1
        tally.last = now
        self.waiting.append(Cause(now, kind, alone, self.max_lag, whole, before))
        self.size += self.waiting[-1].size

    def settle(self) -> Cause:
        """The oldest cause that waits has seen all that may follow it."""
        cause = self.waiting.popleft()
        self.settled.append(cause)
        self._count(cause, 1)
        return cause

    def drop(self) -> Cause:
        """The oldest settled cause leaves the window. Pairs without any cause are left for ``tidy``."""
        cause = self.settled.popleft()
        self.size -= cause.size
        self._count(cause, -1)
        self._leave(cause.kind)
        return cause

    def forsake(self) -> None:
        """The oldest cause that waits leaves unsettled. What comes soon after it is not whole."""
        cause = self.waiting.popleft()
        self.known_from = cause.ts + 1
        self.size -= cause.size
        self._leave(cause.kind)

    def tidy(self, cause: Cause) -> None:
        """Forget the pairs of a dropped cause that nothing is known of any more."""
        pairs = self.pairs.get(cause.kind, {})
        for effect in (*cause.after, *cause.before):
            pair = pairs.get(effect)
            if pair is not None and not pair.followed and not pair.preceded:
                del pairs[effect]
        if not pairs:
            self.pairs.pop(cause.kind, None)

    def lags(self, cause: Kind, effect: Kind) -> list[int]:
        """After how long the settled causes were followed, in order of size. Goes through the window."""
        return sorted(one.after[effect] for one in self.settled if one.kind == cause and effect in one.after)

    def _count(self, cause: Cause, by: int) -> None:
        """Let a settled cause count, or no longer."""
        tally = self.kinds[cause.kind]
        tally.settled += by
        pairs = self.pairs.setdefault(cause.kind, {})
        for effect in (*cause.after, *cause.before):
            if effect not in pairs:
                pairs[effect] = Pair()
        for effect in cause.after:
            pairs[effect].followed += by
        if cause.whole:
            tally.whole += by
            for effect in cause.before:
                pairs[effect].preceded += by
            after, before = cause.one_sided()
            for effect in after:
                pairs[effect].after += by
            for effect in before:
                pairs[effect].before += by

    def _leave(self, kind: Kind) -> None:
        self.kinds[kind].seen -= 1
        if not self.kinds[kind].seen:
            del self.kinds[kind]
