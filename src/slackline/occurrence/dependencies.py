"""Dependencies: which transitions of one device regularly follow those of another [Sync, V: the purpose of DSCPE].

Dependencies are learned over a sliding window of stream time. A pair of kinds of transitions **holds** when

1. enough causes were followed by the effect within ``max_lag`` (support),
2. as a large enough share of all causes (confidence), and
3. significantly more often than by chance. Many pairs are tested, so the p-value of each must be below
   ``significance`` divided by their number (Bonferroni correction).

*Follows* does not mean *is caused by*. If B follows A and C follows B, then C follows A as well, and that is reported;
if B and C both follow A, one of them follows the other. The lags show which is which.

**Matching.** A transition is a *cause* of everything that comes after it within ``max_lag``. After that time it is
**settled**. Settled causes count until they are older than the window.

- Each cause is matched with the first transition of each kind after it, and the last before it, of another device.
- A match is **near** if no other cause of this kind lies between. So an effect is near to at most one cause before it
  and one after it; only near matches enter the test.
- Two transitions at the same time are neither before nor after each other.

A transition costs O(r), with r transitions in the last ``max_lag``. All counts are updated incrementally.

**Test.** How often the effect came after its cause is compared with how often it came before. If A and B are
independent, but active at the same hours, in the same sessions, in bursts, then the sequence ABBAAB is as likely as its
reverse, and B comes next after A as often as A after B. So of the causes that have the effect on one side only, half
have it after: a sign test. Each effect counts for the nearest cause on either side only, so one run of As and Bs,
however long, changes the balance by one at most. No model of the rates is needed.
"""

from __future__ import annotations

from collections import deque
from dataclasses import asdict, dataclass, field
from math import exp, lgamma, log

from slackline.core import check
from slackline.core.detector import Detector
from slackline.core.errors import ConfigError
from slackline.core.event import Event
from slackline.occurrence.occurrences import Device, OutOfOrderError, State

#: Hysteresis: a pair that holds is lost below this share of the thresholds at which it began to hold.
KEEP = 0.8


@dataclass(frozen=True, slots=True)
class Dependency:
    """One kind of transition that follows another, with its figures in the window.

    ``lag`` is the median and ``spread`` the width of the middle half of the lags. ``support`` of ``causes`` were
    followed, which is the ``confidence``. ``chance`` is how often the effect came as shortly *before* a cause, which is
    what a confidence would be without any dependency; ``p_value`` is the probability of such a result by chance.
    """

    cause: Device
    cause_before: State
    cause_after: State | None
    effect: Device
    effect_before: State
    effect_after: State | None
    lag: int
    spread: int
    support: int
    causes: int
    confidence: float
    chance: float
    p_value: float


class Dependencies(Detector):
    """Learns which devices depend on which, and reports when one no longer does.

    ``window``          the length of the window, in stream time.
    ``max_lag``         the maximum time from cause to effect. Best is little more than the lags to be found: causes
                        that are closer together than this cannot be distinguished.
    ``min_support``     how many causes must have been followed. The test needs more if there are many kinds: with 30
                        kinds, 20 followed and none preceded.
    ``min_confidence``  which share of the causes must have been followed.
    ``significance``    the probability that, of all pairs together, one is found by chance in a window.
    ``max_size``        how many causes and matches are stored. Beyond, the oldest are dropped before they leave the
                        window; ``cut`` counts them, and ``dependencies_cut`` is published.

    Publishes, with the fields of :class:`Dependency`, ``dependency`` when a pair begins to hold and
    ``dependency_lost`` when it no longer does. The latter has a ``reason`` too: ``"unfollowed"`` (the causes
    still occur, the effects do not), ``"rare"`` (there are too few causes) or ``"chance"`` (the effect now comes
    before its cause too, more than half as often as after it). ``dependencies_cut`` has ``max_size``, ``cut`` and
    ``reaches``, the remaining length of the window; it is published at most once per window.

    A cause counts after ``max_lag``, whether it was followed or not; so results are published that much later, with the
    time stamp of the transition that advanced the time. Transitions of one device are no pair.

    A transition costs O(r), with r transitions in the last ``max_lag``, and each pair that passes 1. and 2. a test of
    O(causes) at most. Memory: the transitions of the window and the matches within ``max_lag`` before and after each,
    ``max_size`` at most.
    """

    listens = ("transition",)
    publishes = ("dependency", "dependency_lost", "dependencies_cut")
    fixed = ("min_support", "min_confidence", "significance", "max_size")

    def __init__(
        self,
        *,
        window: int,
        max_lag: int,
        min_support: int = 10,
        min_confidence: float = 0.5,
        significance: float = 0.001,
        max_size: int = 1_000_000,
    ) -> None:
        check.whole_number("max_lag", max_lag, 1)
        if check.whole_number("window", window, 1) <= 2 * max_lag:
            raise ConfigError(
                f"window={window} must be longer than twice max_lag={max_lag}; better many times so long."
            )
        self.min_support = check.whole_number("min_support", min_support, 2)
        self.min_confidence = check.positive("min_confidence", min_confidence, 1)
        self.significance = check.positive("significance", significance, 1)
        self.max_size = check.whole_number("max_size", max_size, 1)
        self.following = CauseWindow(window, max_lag)
        self.now = 0
        self.held: dict[Kind, list[Kind]] = {}  # by cause
        self.frequent = 0  # kinds that are frequent enough to be tested
        self.cut = 0
        self.cut_published: int | None = None

    def holding(self) -> list[Dependency]:
        """The dependencies that hold after the last transition, with their present figures."""
        return [self._dependency(cause, effect) for cause, effects in self.held.items() for effect in effects]

    def on_event(self, event: Event) -> list[Event]:
        if event.ts < self.now:
            raise OutOfOrderError("Dependencies", event, self.now)
        kind = (event["device"], event["before"], event["after"])
        self.now = event.ts
        found = self._pass_time(event)
        self.following.add(kind, event.ts)
        self.frequent += self.following.kinds[kind].seen == self.min_support
        return found + self._bound(event)

    def _pass_time(self, event: Event) -> list[Event]:
        """Settle and drop causes, in the order in which they are due."""
        found: list[Event] = []
        while True:
            if self.following.next_to_settle(event.ts):
                cause = self.following.settle()
                effects = list(dict.fromkeys((*cause.after, *self.held.get(cause.kind, ()))))
                found += self._look(event, cause.kind, effects)
            elif self.following.next_to_drop(event.ts):
                found += self._drop(event)
            else:
                return found

    def _drop(self, event: Event) -> list[Event]:
        cause = self.following.settled[0]
        self._leaves(cause.kind)
        self.following.drop()
        found = self._look(event, cause.kind, list(self.held.get(cause.kind, ())))
        self.following.tidy(cause)
        return found

    def _leaves(self, kind: Kind) -> None:
        self.frequent -= self.following.kinds[kind].seen == self.min_support

    def _bound(self, event: Event) -> list[Event]:
        found: list[Event] = []
        cut = self.cut
        while self.following.size > self.max_size:
            self.cut += 1
            if self.following.settled:
                found += self._drop(event)
            else:
                self._leaves(self.following.waiting[0].kind)
                self.following.drop_unsettled()
        if self.cut > cut and (self.cut_published is None or event.ts - self.cut_published > self.following.window):
            self.cut_published = event.ts
            held = self.following.settled or self.following.waiting
            reaches = event.ts - held[0].ts if held else 0
            found.append(event.derive("dependencies_cut", max_size=self.max_size, cut=self.cut, reaches=reaches))
        return found

    def _look(self, event: Event, cause: Kind, effects: list[Kind]) -> list[Event]:
        """Publish which pairs of this cause begin to hold, and which no longer do."""
        found = []
        pairs, tally = self.following.pairs.get(cause, {}), self.following.kinds.get(cause) or Tally()
        enough = max(self.min_support, self.min_confidence * tally.settled)
        for effect in effects:
            pair = pairs[effect]
            if pair.holds:
                reason = self._why_lost(pair, tally, KEEP * enough)
                if reason is not None:
                    pair.holds = False
                    self.held[cause].remove(effect)
                    figures = asdict(self._dependency(cause, effect))
                    found.append(event.derive("dependency_lost", **figures, reason=reason))
            elif pair.followed >= enough and self._is_no_chance(pair, effect):
                pair.holds = True
                self.held.setdefault(cause, []).append(effect)
                found.append(event.derive("dependency", **asdict(self._dependency(cause, effect))))
        if not self.held.get(cause, True):
            del self.held[cause]
        return found

    def _is_no_chance(self, pair: Pair, effect: Kind) -> bool:
        if self.following.kinds[effect].seen < self.min_support:  # not counted in ``frequent``
            return False
        pairs = max(1, self.frequent * (self.frequent - 1))
        return sign_test(pair.after, pair.before) <= self.significance / pairs

    def _why_lost(self, pair: Pair, tally: Tally, enough: float) -> str | None:
        if tally.settled < KEEP * self.min_support:
            return "rare"
        if pair.followed < enough:
            return "unfollowed"
        if sign_test(pair.after, pair.before) <= self.significance:
            return None
        # A clear difference without significance comes from too few causes.
        return "chance" if 2 * pair.preceded > pair.followed else "rare"

    def _dependency(self, cause: Kind, effect: Kind) -> Dependency:
        pair, tally = self.following.pairs[cause][effect], self.following.kinds[cause]
        lags = self.following.lags(cause, effect)
        return Dependency(
            *cause,
            *effect,
            lag=lags[(len(lags) - 1) // 2],
            spread=lags[3 * len(lags) // 4] - lags[len(lags) // 4],
            support=pair.followed,
            causes=tally.settled,
            confidence=pair.followed / tally.settled,
            chance=pair.preceded / tally.whole if tally.whole else 0.0,
            p_value=sign_test(pair.after, pair.before),
        )


#: A kind of transition: device, state before, state after (None: silent).
Kind = tuple[Device, State, State | None]


@dataclass(slots=True)
class Cause:
    """One transition: the time before and after it without its kind, and the distances of other kinds."""

    ts: int
    kind: Kind
    alone_before: int
    alone_after: int
    whole: bool  # nothing was dropped before it, so that it enters the test
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
    """Counts of a kind in the window: all, settled, whole; and its last time."""

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
    """All causes of the window. Time never decreases."""

    window: int
    max_lag: int
    known_from: int | None = None  # from when on nothing was dropped
    waiting: deque[Cause] = field(default_factory=deque)
    settled: deque[Cause] = field(default_factory=deque)
    kinds: dict[Kind, Tally] = field(default_factory=dict)
    pairs: dict[Kind, dict[Kind, Pair]] = field(default_factory=dict)  # cause, then effect
    size: int = 0  # causes and matches stored

    def next_to_settle(self, now: int) -> bool:
        """Whether, before ``now``, a cause is to be settled; and no settled one is to be dropped before that."""
        if not self.waiting or self.waiting[0].ts + self.max_lag >= now:
            return False
        return not self.settled or self.waiting[0].ts + self.max_lag <= self.settled[0].ts + self.window

    def next_to_drop(self, now: int) -> bool:
        """Whether a settled cause is older than the window."""
        return bool(self.settled) and self.settled[0].ts + self.window < now

    def add(self, kind: Kind, now: int) -> None:
        """Add a transition: an effect of unsettled causes, and a cause itself."""
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
        """Settle the oldest unsettled cause."""
        cause = self.waiting.popleft()
        self.settled.append(cause)
        self._count(cause, 1)
        return cause

    def drop(self) -> Cause:
        """Drop the oldest settled cause. Pairs without a cause are left for ``tidy``."""
        cause = self.settled.popleft()
        self.size -= cause.size
        self._count(cause, -1)
        self._leave(cause.kind)
        return cause

    def drop_unsettled(self) -> None:
        """Drop the oldest unsettled cause. Causes soon after it are not whole."""
        cause = self.waiting.popleft()
        self.known_from = cause.ts + 1
        self.size -= cause.size
        self._leave(cause.kind)

    def tidy(self, cause: Cause) -> None:
        """Drop the pairs of a dropped cause that have no counts any more."""
        pairs = self.pairs.get(cause.kind, {})
        for effect in (*cause.after, *cause.before):
            pair = pairs.get(effect)
            if pair is not None and not pair.followed and not pair.preceded:
                del pairs[effect]
        if not pairs:
            self.pairs.pop(cause.kind, None)

    def lags(self, cause: Kind, effect: Kind) -> list[int]:
        """The lags of the settled causes, sorted. Scans the window."""
        return sorted(one.after[effect] for one in self.settled if one.kind == cause and effect in one.after)

    def _count(self, cause: Cause, by: int) -> None:
        """Add a settled cause to the counts (``by=1``), or remove it (-1)."""
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


def sign_test(after: int, before: int) -> float:
    """The p-value of the sign test: the probability of ``after`` or more heads in ``after + before`` throws.

    In O(after + before) at most.

    >>> sign_test(4, 0), sign_test(9, 2), sign_test(2, 9), sign_test(0, 0)
    (0.0625, 0.0327..., 0.9941..., 1.0)
    """
    if after < before:  # from the far side, where the terms are not too small to begin with
        return 1.0 - sign_test(before + 1, after - 1) if after else 1.0
    throws = after + before
    term = exp(lgamma(throws + 1) - lgamma(after + 1) - lgamma(before + 1) - throws * log(2))
    total = 0.0
    for heads in range(after, throws + 1):  # beyond the middle the terms only fall
        total += term
        if term < 1e-17 * total:
            break
        term *= (throws - heads) / (heads + 1)
    return min(total, 1.0)
