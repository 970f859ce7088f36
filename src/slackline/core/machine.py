"""Detectors as state machines: patterns of events as a table [Thesis, 6.2.2 and A.7].

A transition says in which *state*, *on* which event, *to* which state the machine goes, under which guard (*when*) and
with which action (*then*). The table is data: it is checked when the class is defined, not when a rare event arrives.
The state is a string, so that snapshots hold plain data and a machine can be migrated, restarted and read in a log.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

from slackline.core.detector import Detector
from slackline.core.errors import ConfigError
from slackline.core.event import Event
from slackline.core.types import type_names

#: Any state in a transition's ``state``, and the current state in its ``to``.
ANY = "*"


@dataclass(frozen=True, slots=True)
class Transition:
    """In ``state``, on an event of type ``on``, go to ``to`` if ``when`` holds, and do ``then``.

    ``when`` and ``then`` name methods that take the event: the guard says yes or no and changes nothing; the action
    may change attributes, and yields or returns the events to publish. Without ``to`` the machine stays where it is.
    """

    state: str
    on: str
    to: str = ANY
    when: str | None = None
    then: str | None = None


class StateMachine(Detector):
    """A detector given as a table of transitions. The first of ``states`` is where it starts.

    Of the transitions from its state on the event's type, the first whose guard holds is taken; an event for which
    there is none is passed over. The action runs before the state changes; if it raises, the state stays.

    >>> class TwoInARow(StateMachine):
    ...     '''The same player hits the ball twice.'''
    ...     listens, publishes = ("hit", "ball_left"), ("two_in_a_row",)
    ...     states = ("free", "held")
    ...     transitions = (
    ...         Transition("free", on="hit", to="held", then="remember"),
    ...         Transition("held", on="hit", when="is_same", then="report"),
    ...         Transition("held", on="hit", then="remember"),
    ...         Transition(ANY, on="ball_left", to="free"),
    ...     )
    ...     def is_same(self, event):
    ...         return event["player"] == self.player
    ...     def remember(self, event):
    ...         self.player = event["player"]
    ...     def report(self, event):
    ...         yield event.derive("two_in_a_row", player=self.player)
    >>> machine = TwoInARow()
    >>> hits = [Event("hit", ts=ts, player=player) for ts, player in [(1, "A1"), (2, "B4"), (3, "B4")]]
    >>> [found for hit in hits for found in machine.on_event(hit)]
    [Event('two_in_a_row', ts=3, player='B4')]
    >>> machine.state, machine.snapshot()
    ('held', {'player': 'B4', 'state': 'held'})
    """

    states: ClassVar[tuple[str, ...]] = ()
    transitions: ClassVar[tuple[Transition, ...]] = ()

    #: Where the machine is. An instance has its own from its first transition on, so that no ``__init__`` is needed.
    state: str = ""

    _moves: ClassVar[Mapping[tuple[str, str], tuple[Transition, ...]]] = {}

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        if not cls.states and not cls.transitions:
            return  # a common base of several machines
        _check(cls)
        cls.state = cls.states[0]
        moves: dict[tuple[str, str], list[Transition]] = {}
        for move in cls.transitions:
            for state in cls.states if move.state == ANY else (move.state,):
                moves.setdefault((state, move.on), []).append(move)
        cls._moves = {key: tuple(found) for key, found in moves.items()}

    def on_event(self, event: Event) -> Iterable[Event]:
        """Take the first transition that fits, if any does."""
        for move in self._moves.get((self.state, event.type), ()):
            if move.when is None or getattr(self, move.when)(event):
                published: Iterable[Event] | None = None if move.then is None else getattr(self, move.then)(event)
                # An action that yields runs here and not later, when the state is another one.
                found = () if published is None else list(published)
                if move.to != ANY:
                    self.state = move.to
                return found
        return ()


def _check(machine: type[StateMachine]) -> None:
    """Refuse a table that cannot work, when the class is made."""
    name, states = machine.__name__, machine.states
    if not states:
        raise ConfigError(f"state machine {name} has transitions but no states; give `states`, the first is the start.")
    if len(set(states)) < len(states) or ANY in states:
        raise ConfigError(f"the states of {name} must differ and none may be {ANY!r}; got {states}.")
    listens = type_names(machine.listens)
    for move in machine.transitions:
        for state in (move.state, move.to):
            if state != ANY and state not in states:
                raise ConfigError(f"{move} of {name} names the unknown state {state!r}; its states are {states}.")
        if move.on not in listens:
            raise ConfigError(
                f"{move} of {name} is triggered by {move.on!r}, to which {name} does not listen; add it to `listens` "
                f"({listens}), or correct the type."
            )
        for method in (move.when, move.then):
            if method is not None and not callable(getattr(machine, method, None)):
                raise ConfigError(f"{move} of {name} names {method!r}, which is not a method of {name}; write it.")
