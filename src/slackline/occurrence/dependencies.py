"""Dependencies: which transitions of one device regularly follow those of another [Sync, V: what DSCPE is for].

Whether they do is decided over a sliding window of stream time. A pair of kinds of transitions **holds** when

1. enough causes were followed by the effect within ``max_lag`` (support),
2. as a large enough share of all causes (confidence), and
3. far more often than chance would have it (``chance.py``). Many pairs are looked at, so each must be as unlikely
   by chance as ``significance`` divided by their number (Bonferroni).

*Follows* is not *is caused by*. If B follows A and C follows B, then C follows A as well, and that is reported; if B
and C both follow A, one of them follows the other. The lags tell which is which.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass

from slackline.core import check
from slackline.core.detector import Detector
from slackline.core.errors import ConfigError
from slackline.core.event import Event
from slackline.occurrence.chance import coin
from slackline.occurrence.following import CauseWindow, Kind, Pair, Tally
from slackline.occurrence.occurrences import OutOfOrderError
from slackline.occurrence.overlaps import Device, State

#: What holds is given up below this part of what it took to begin, so that it does not come and go at the edge.
KEEP = 0.8


@dataclass(frozen=True, slots=True)
class Dependency:
    """One kind of transition that follows another, as the window has it.

    ``lag`` is the median and ``spread`` the width of the middle half of the lags. ``support`` of ``causes`` were
    followed, which is the ``confidence``. ``chance`` is how often the effect came as shortly *before* a cause, which is
    what a confidence would be without any dependency; ``p_value`` is how likely chance alone would have done as well.
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
    """Learns which devices depend on which, and when one no longer does.

    ``window``          over how much stream time.
    ``max_lag``         how long after its cause an effect may come. Little more than the lags to be found is best:
                        causes that are closer together than this cannot be told apart.
    ``min_support``     how many causes must have been followed. Chance asks for more if there are many kinds: with
                        30, that 20 were followed and none preceded.
    ``min_confidence``  which share of the causes must have been followed.
    ``significance``    how likely it may be that, with all pairs together, one is found by chance in a window.
    ``max_size``        how many causes and matches are held. Beyond, the oldest are dropped before they leave the
                        window; ``cut`` counts them, and ``dependencies_cut`` is published.

    Publishes, with the fields of :class:`Dependency`, ``dependency`` when a pair begins to hold and
    ``dependency_lost`` when it no longer does. The latter has a ``reason`` too: ``"unfollowed"`` (the causes are still
    there, the effects are not), ``"rare"`` (there are too few causes to say) or ``"chance"`` (the effect now comes
    before its cause too, more than half as often as after it). ``dependencies_cut`` has ``max_size``, ``cut`` and
    ``reaches``, how long the window still is; it comes at most once per window.

    A cause counts once ``max_lag`` has passed, whether it was followed or not; so everything is reported that much
    later, with the time stamp of the transition that showed the time. Transitions of one device are no pair.

    A transition costs O(r), with r transitions in the last ``max_lag``, and each pair that passes 1. and 2. a test of
    O(causes) at most. Memory: the transitions of the window and what came within ``max_lag`` before and after each,
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
        self.frequent = 0  # kinds that happened often enough to be looked at
        self.cut = 0
        self.cut_told: int | None = None

    def holding(self) -> list[Dependency]:
        """The dependencies that hold after the last transition, with their figures of that moment."""
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
        """Settle and drop causes, in the order in which that was due."""
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
                self.following.forsake()
        if self.cut > cut and (self.cut_told is None or event.ts - self.cut_told > self.following.window):
            self.cut_told = event.ts
            held = self.following.settled or self.following.waiting
            reaches = event.ts - held[0].ts if held else 0
            found.append(event.derive("dependencies_cut", max_size=self.max_size, cut=self.cut, reaches=reaches))
        return found

    def _look(self, event: Event, cause: Kind, effects: list[Kind]) -> list[Event]:
        """See which pairs of this cause have begun to hold, and which no longer do."""
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
                    told = asdict(self._dependency(cause, effect))
                    found.append(event.derive("dependency_lost", **told, reason=reason))
            elif pair.followed >= enough and self._is_no_chance(pair, effect):
                pair.holds = True
                self.held.setdefault(cause, []).append(effect)
                found.append(event.derive("dependency", **asdict(self._dependency(cause, effect))))
        if not self.held.get(cause, True):
            del self.held[cause]
        return found

    def _is_no_chance(self, pair: Pair, effect: Kind) -> bool:
        if self.following.kinds[effect].seen < self.min_support:  # not one of those that are counted as looked at
            return False
        pairs = max(1, self.frequent * (self.frequent - 1))
        return coin(pair.after, pair.before) <= self.significance / pairs

    def _why_lost(self, pair: Pair, tally: Tally, enough: float) -> str | None:
        if tally.settled < KEEP * self.min_support:
            return "rare"
        if pair.followed < enough:
            return "unfollowed"
        if coin(pair.after, pair.before) <= self.significance:
            return None
        # A clear difference that proves nothing any more is one of too few causes.
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
            p_value=coin(pair.after, pair.before),
        )
