"""The ordering policies: which evidence advances watermarks, and the options of each.

``policy="slack"`` is short for ``policy=Slack()``. Command lines, configuration files, checkpoints and metrics have no
objects: there a policy is its name and its options side by side, see :meth:`Policy.flat` and :func:`with_policy`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from datetime import timedelta
from typing import Any, Self

from slackline.core.check import number, one_of, whole_number
from slackline.core.errors import ConfigError
from slackline.core.time import duration, seconds_in
from slackline.ordering.input import Evidence
from slackline.ordering.watermark import POLICIES, WARMUP


def _length(option: str, value: Any, least: int) -> None:
    """Refuse what is no length of time; one with its own unit becomes a number once the unit of the stream is known."""
    if seconds_in(value) is None:
        whole_number(option, value, least)


#: The options of policies: how each is validated, and its least value.
_CHECKS: dict[str, tuple[Any, int]] = {
    "margin": (number, 0), "window": (whole_number, 1), "timeout": (_length, 0), "warmup": (whole_number, 0),
}  # fmt: skip
OPTIONS = tuple(_CHECKS)


@dataclass(frozen=True, slots=True, repr=False)
class Policy:
    """An ordering policy: one of :class:`Auto`, :class:`Slack`, :class:`Ready` and :class:`Ordered`.

    ``margin``   λ: K is the largest recent delay plus λ standard deviations.
    ``window``   minimum number of recent delays from which such a K is computed.
    ``timeout``  how long the watermark waits for a silent source: in units of ``ts``, or ``"10 s"``, ``timedelta``.
    ``warmup``   number of events at the start of the stream before the first is released.
    """

    def __post_init__(self) -> None:
        for option in fields(self):
            value = getattr(self, option.name)
            if value is not None or option.default is not None:
                check, least = _CHECKS[option.name]
                check(option.name, value, least)

    def __repr__(self) -> str:
        given = [(each.name, getattr(self, each.name), each.default) for each in fields(self)]
        shown = ", ".join(f"{name}={value!r}" for name, value, default in given if value != default)
        return f"{type(self).__name__}({shown})"

    @property
    def name(self) -> str:
        """The name for the defaults, such as ``"auto"``."""
        return type(self).__name__.lower()

    def evidence(self, target: float | None) -> Evidence:
        """How input watermarks are computed, with a late target if K follows from one."""
        given = {name: value for name in OPTIONS if (value := getattr(self, name, None)) is not None}
        return Evidence(POLICIES[self.name], late_target=target, **given)

    def resolved(self, unit: str | None) -> Self:
        """The policy with lengths of time as whole numbers of the unit of event times."""
        timeout = getattr(self, "timeout", None)
        if timeout is None or isinstance(timeout, int):
            return self
        return replace(self, **{"timeout": duration("timeout", timeout, unit)})

    def flat(self) -> dict[str, Any]:
        """The name and all options of policies; None for those that this policy does not have."""
        return {"policy": self.name, **{option: getattr(self, option, None) for option in OPTIONS}}


@dataclass(frozen=True, slots=True, repr=False)
class Auto(Policy):
    """Slack, readiness and progress together: the default.

    K is the smallest wait that keeps the share of late events at the engine's ``late_target``. ``margin``, ``window``
    or ``timeout`` replace the target: K is then that of :class:`Slack`, and a source may be silent for ``timeout``,
    or K. ``warmup`` is by default until delays are known, at least 16 events; without a target 32.

    >>> Auto(margin=0).by_target, Auto(warmup=100)
    (False, Auto(warmup=100))
    """

    margin: float | None = None
    window: int | None = None
    timeout: int | str | timedelta | None = None
    warmup: int | None = None

    @property
    def by_target(self) -> bool:
        """Whether K is computed from a late target."""
        return self.margin is None and self.window is None and self.timeout is None

    def evidence(self, target: float | None) -> Evidence:
        warmup = WARMUP if self.warmup is None and target is None else self.warmup
        return replace(Policy.evidence(self, target), warmup=warmup)


@dataclass(frozen=True, slots=True, repr=False)
class Slack(Policy):
    """Slack alone, as in [Order]: K is the largest recent delay plus a margin.

    >>> Slack(margin=-1)
    Traceback (most recent call last):
    slackline.core.errors.ConfigError: margin=-1 is not valid; it must be a number of at least 0.
    """

    margin: float = 0.5
    window: int = 2048
    warmup: int = 0


@dataclass(frozen=True, slots=True, repr=False)
class Ready(Policy):
    """Readiness alone, as in [Sync]: the watermark waits for all sources, for a silent one ``timeout`` or 4·K."""

    margin: float = 0.5
    window: int = 2048
    timeout: int | str | timedelta | None = None
    warmup: int = WARMUP


@dataclass(frozen=True, slots=True, repr=False)
class Ordered(Policy):
    """The input is in order already, such as the output of a Synchroniser or a sorted file: nothing waits."""


_BY_NAME: dict[str, type[Policy]] = {policy.__name__.lower(): policy for policy in (Auto, Slack, Ready, Ordered)}


def policy_of(given: str | Policy) -> Policy:
    """The policy, or that of a name with its defaults."""
    if isinstance(given, Policy):
        return given
    one_of("policy", given, _BY_NAME)
    return _BY_NAME[given]()


def with_policy(options: Mapping[str, Any]) -> dict[str, Any]:
    """The options of an engine, from flat ones: those of the policy become an object. None: not given.

    >>> with_policy({"policy": "slack", "margin": 2.0, "late": "deliver"})
    {'policy': Slack(margin=2.0), 'late': 'deliver'}
    """
    policy = policy_of(options.get("policy", "auto"))
    engine = {name: value for name, value in options.items() if name not in OPTIONS}
    given = {name: options[name] for name in OPTIONS if options.get(name) is not None}
    for name, value in given.items():
        takers = [each for each, kind in _BY_NAME.items() if name in kind.__dataclass_fields__]
        if policy.name not in takers:
            raise ConfigError(
                f"{name}={value!r} is not an option of policy={policy.name!r}, which has "
                f"{[each.name for each in fields(policy)]}; leave it out, or choose one of {takers}."
            )
    return {**engine, "policy": replace(policy, **given)} if given or "policy" in engine else engine
