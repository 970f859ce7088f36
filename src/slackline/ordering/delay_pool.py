"""The delay pool: what engines of many keys know of delays, for those with few events of their own.

A key with a few hundred events ends before its late target allows a single late event. So keys share what they
measured: per event type, the pool has an estimator as an engine has (:mod:`slackline.ordering.target_slack`), which
accounts for the delays and the late events of all small keys as if they were one stream. Its K is the *pooled slack*,
and where its budget for late events of readiness is spent, it suspends readiness. Both are in force for every small
key, from its first event on. The late share of all small keys together is therefore kept as that of one stream is (law
9). Stream time, sources and order stay those of each key. A key is small until it has measured ``OWN / late_target``
delays.

**Epochs.** What the keys measure is added up and enters the pool at the end of an epoch, after a number of arrivals of
all keys that depends on nothing else. A key takes what is in the pool at its first arrival in an epoch. The sums are of
whole numbers, so that they do not depend on the order in which keys are processed. So results depend on the arrivals
of all keys in the order of arrival, but neither on how these are cut into pushes nor on restarts (laws 3 and 6). With
a target of 0 each arrival is an epoch: a delay of one key covers the next event of any other.

**Start.** The pool is used once the delays of ``KNOWN_KEYS`` keys are known, each as its own startup estimator says.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from slackline.core.batch import Floats, Ints
from slackline.core.time import FOREVER
from slackline.ordering import checked, delays, target_slack
from slackline.ordering.startup import STARTING, UNCERTAIN
from slackline.ordering.target_slack import BUCKETS, CAREFUL, LARGEST, NOT_POOLED, SUSPENDED

#: A key uses its own delays once it has measured so many times 1/target of them.
OWN = 20.0
#: Keys whose delays are known before the others use the pool.
KNOWN_KEYS = 8
#: Arrivals of the shortest and of the longest epoch. In between it is the largest power of two that is at most a
#: quarter of all before, so that the pool knows of four fifths of the past. An end within a push cuts it; at multiples
#: of powers of two pushes of the runtimes end, too. Ends at any eighth of the past cut twice as often.
LEAST_EPOCH, MOST_EPOCH = 128, 8192

#: The name of the lags of all types in arrival time, beside those of event types.
ARRIVAL_LAGS = ""

#: The counts of delays by bucket, and of the events late by slack and by readiness.
_COUNTS = BUCKETS + 2


class PooledEstimator:
    """One estimator of an engine as the pool sees it: its state, its target, and how it takes a pooled slack."""

    __slots__ = ("floats", "ints", "target", "use")

    def __init__(self, ints: Ints, floats: Floats, target: float, use: Callable[[int, bool], bool]) -> None:
        self.ints, self.floats, self.target, self.use = ints, floats, target, use

    @property
    def is_small(self) -> bool:
        """Whether it has measured too few delays of its own."""
        return bool(self.ints[delays.MEASURED] * self.target < OWN)


class DelayPool:
    """The pooled estimators by event type, and what was measured since the epoch began."""

    __slots__ = ("_counts", "_estimators", "_known_keys", "_left", "_newly_known", "_rows", "_targets", "epoch")

    def __init__(self) -> None:
        self._estimators: dict[str, tuple[Ints, Floats]] = {}
        self._targets: dict[str, float] = {}
        self._counts: dict[str, Ints] = {}
        self._known_keys = self._newly_known = 0
        self._rows = 0
        self._left = LEAST_EPOCH
        #: The number of the epoch under way; the first is 1.
        self.epoch = 1

    @property
    def left(self) -> int:
        """How many arrivals the epoch has left."""
        return self._left

    @property
    def is_known(self) -> bool:
        """Whether enough keys are known for others to rely on them."""
        return self._known_keys >= (KNOWN_KEYS if any(self._targets.values()) else 1)

    @property
    def default_slack(self) -> int:
        """The slack of types that the pool does not know; STARTING while the pool is not in use."""
        if not self.is_known:
            return STARTING
        types = (ints for name, (ints, _) in self._estimators.items() if name != ARRIVAL_LAGS)
        largest = max((int(ints[LARGEST]) for ints in types), default=0)
        return max(1, CAREFUL * min(largest, FOREVER // CAREFUL))

    def has(self, name: str) -> bool:
        """Whether a slack of this name is in the pool."""
        return self.is_known and name in self._estimators

    def lend(self, estimators: Mapping[str, PooledEstimator]) -> bool:
        """Let the estimators of a key use the pooled slack, at its first arrival in an epoch; whether that changes any.

        Those that have measured enough use their own.
        """
        changed = False
        for name, each in estimators.items():
            self._targets.setdefault(name, float(each.target))
            slack, suspends = NOT_POOLED, False
            if each.is_small and self.has(name):
                ints = self._estimators[name][0]
                slack, suspends = int(ints[delays.K]), bool(ints[SUSPENDED])
            changed |= each.use(slack, suspends)
        return changed

    def count(self, estimators: Mapping[str, PooledEstimator], sign: int) -> None:
        """Add what these have measured (``sign`` 1), or subtract it (-1): before and after their key has arrivals."""
        for name, each in estimators.items():
            if name not in self._counts:
                self._counts[name] = np.zeros(_COUNTS, dtype=np.int64)
            self._targets.setdefault(name, float(each.target))
            target_slack.add_counts(each.ints, each.floats, self._counts[name], sign)

    def count_known(self, before: int, after: int) -> None:
        """The default slack of a key's startup estimator has changed: from the first on that is certain it is known."""
        unknown = (STARTING, UNCERTAIN)
        self._newly_known += before in unknown and after not in unknown

    def advance(self, arrivals: int) -> None:
        """So many arrivals of the epoch were processed; at its end the pool learns what they showed."""
        self._rows += arrivals
        self._left -= arrivals
        if self._left > 0:
            return
        for name, counts in self._counts.items():
            if counts.any():
                self._learn(name, counts)
        self._known_keys, self._newly_known = self._known_keys + self._newly_known, 0
        each_arrival = self._targets and not any(self._targets.values())
        self._left = 1 if each_arrival else min(max(1 << self._rows.bit_length() - 3, LEAST_EPOCH), MOST_EPOCH)
        self.epoch += 1

    def _learn(self, name: str, counts: Ints) -> None:
        ints, floats = self._estimators.get(name) or target_slack.empty_state()
        floats, _ = target_slack.with_room(ints, floats, int(np.count_nonzero(counts)))
        target_slack.learn_counts(ints, floats, counts, self._targets[name])
        counts[:] = 0
        self._estimators[name] = ints, target_slack.trimmed(ints, floats)

    def state(self) -> dict[str, Any]:
        """A copy: a checkpoint may be written while further arrivals are processed."""
        return {
            "estimators": {name: {"ints": i.copy(), "floats": f.copy()} for name, (i, f) in self._estimators.items()},
            "targets": dict(self._targets),
            "counts": {name: each.copy() for name, each in self._counts.items()},
            "known_keys": self._known_keys,
            "newly_known": self._newly_known,
            "rows": self._rows,
            "left": self._left,
            "epoch": self.epoch,
        }

    def restore(self, state: Any) -> None:
        what = "delay pool"
        estimators = checked.mapping(checked.entry(state, what, "estimators"), what)
        self._estimators = {name: target_slack.restored(each, f"{what} {name!r}") for name, each in estimators.items()}
        self._targets = dict(checked.mapping(checked.entry(state, what, "targets"), what))
        counts = checked.mapping(checked.entry(state, what, "counts"), what)
        self._counts = {name: checked.ints(counts, what, name, (_COUNTS,), 0, checked.MANY) for name in counts}
        if not all(type(each) is float and 0 <= each < 1 for each in self._targets.values()) or not {
            *self._estimators, *self._counts,
        } <= set(self._targets):  # fmt: skip
            raise checked.wrong(f"{what}.targets", "are not a target for each name")
        self._known_keys = checked.number(state, what, "known_keys")
        self._newly_known, self._rows = (checked.number(state, what, name) for name in ("newly_known", "rows"))
        self._left = checked.number(state, what, "left", 1, MOST_EPOCH)
        self.epoch = checked.number(state, what, "epoch", 1)
