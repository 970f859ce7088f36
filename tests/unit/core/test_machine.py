"""State machines: which transition is taken, what is refused when the class is made, and what a snapshot holds."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

import slackline as sl
from slackline.core.codec import decode, encode
from slackline.core.errors import ConfigError
from slackline.core.machine import ANY


class Turnstile(sl.StateMachine):
    """Coins open it, pushes close it; every tenth coin is published."""

    listens, publishes = ("coin", "push", "reset"), ("opened", "full")
    states = ("locked", "open")
    transitions = (
        sl.Transition("locked", on="coin", to="open", when="is_real", then="count"),
        sl.Transition("open", on="push", to="locked"),
        sl.Transition("open", on="coin", when="is_real", then="refuse"),
        sl.Transition(ANY, on="reset", to="locked", then="clear"),
    )

    def __init__(self) -> None:
        self.coins = 0

    def is_real(self, event: sl.Event) -> bool:
        return bool(event["value"] > 0)

    def count(self, event: sl.Event) -> Iterator[sl.Event]:
        self.coins += 1
        yield event.derive("opened", state=self.state, coins=self.coins)

    def refuse(self, event: sl.Event) -> list[sl.Event]:
        if event["value"] > 100:
            raise ValueError("too much")
        return [event.derive("full")]

    def clear(self, event: sl.Event) -> None:
        self.coins = 0


def coin(ts: int, value: int = 1) -> sl.Event:
    return sl.Event("coin", ts=ts, value=value)


def drive(machine: sl.StateMachine, *events: sl.Event) -> list[str]:
    return [found.type for event in events for found in machine.on_event(event)]


def test_machine_starts_in_its_first_state_and_moves_by_its_table() -> None:
    machine = Turnstile()
    assert machine.state == "locked"
    assert drive(machine, coin(1)) == ["opened"]
    assert machine.state == "open"
    assert drive(machine, sl.Event("push", ts=2)) == []
    assert machine.state == "locked"


def test_event_without_a_transition_is_passed_over() -> None:
    machine = Turnstile()
    assert drive(machine, sl.Event("push", ts=1)) == []
    assert machine.state == "locked"


def test_transition_whose_guard_says_no_is_not_taken() -> None:
    machine = Turnstile()
    assert drive(machine, coin(1, value=0)) == []
    assert (machine.state, machine.coins) == ("locked", 0)


def test_any_stands_for_every_state_and_no_target_means_stay() -> None:
    machine = Turnstile()
    assert drive(machine, coin(1), coin(2)) == ["opened", "full"]
    assert machine.state == "open"
    drive(machine, sl.Event("reset", ts=3))
    assert (machine.state, machine.coins) == ("locked", 0)


def test_action_runs_before_the_state_changes_even_if_it_yields() -> None:
    (found,) = Turnstile().on_event(coin(1))
    assert found["state"] == "locked"


def test_state_stays_when_the_action_raises() -> None:
    machine = Turnstile()
    drive(machine, coin(1))
    with pytest.raises(ValueError, match="too much"):
        machine.on_event(coin(2, value=101))
    assert machine.state == "open"


def test_first_transition_that_fits_wins() -> None:
    class Twice(sl.StateMachine):
        listens = ("a",)
        states = ("start", "first", "second")
        transitions = (sl.Transition("start", on="a", to="first"), sl.Transition("start", on="a", to="second"))

    machine = Twice()
    drive(machine, sl.Event("a", ts=1))
    assert machine.state == "first"


def test_machines_of_one_class_do_not_share_their_state() -> None:
    one, other = Turnstile(), Turnstile()
    drive(one, coin(1))
    assert (one.state, other.state) == ("open", "locked")


@pytest.mark.parametrize("before", range(5))
def test_restored_machine_continues_where_the_saved_one_was(before: int) -> None:
    events = [coin(1), coin(2), sl.Event("push", ts=3), coin(4), sl.Event("reset", ts=5)]
    whole = drive(Turnstile(), *events)
    first, second = Turnstile(), Turnstile()
    found = drive(first, *events[:before])
    drive(second, coin(0), coin(0))  # whatever it did before is forgotten
    second.restore(decode(encode(first.snapshot())))
    assert found + drive(second, *events[before:]) == whole


def test_machine_runs_in_an_engine_on_events_out_of_order() -> None:
    arrivals = [coin(1), sl.Event("push", ts=30), coin(2), coin(40), coin(41)]
    engine = sl.Engine(sl.Hierarchy([Turnstile()], clock=("coin", "push")))
    outputs = engine.push(arrivals) + engine.close()
    assert [(output.event.type, output.event.ts) for output in outputs] == [
        ("opened", 1),
        ("full", 2),
        ("opened", 40),
        ("full", 41),
    ]


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"transitions": (sl.Transition("shut", on="coin"),)}, "unknown state 'shut'"),
        ({"transitions": (sl.Transition("locked", on="coin", to="ajar"),)}, "unknown state 'ajar'"),
        ({"transitions": (sl.Transition("locked", on="kick"),)}, "does not listen; add it to `listens`"),
        ({"transitions": (sl.Transition("locked", on="coin", when="is_gold"),)}, "'is_gold', which is not a method"),
        ({"transitions": (sl.Transition("locked", on="coin", then="ring"),)}, "'ring', which is not a method"),
        ({"states": ()}, "no states"),
        ({"states": ("locked", "open", "open")}, "must differ"),
        ({"states": ("locked", "open", ANY)}, "none may be"),
    ],
)
def test_table_that_cannot_work_is_refused_when_the_class_is_made(wrong: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message.replace("(", "\\(")):
        type("Broken", (Turnstile,), wrong)


def test_subclass_may_replace_an_action_and_the_table() -> None:
    class Free(Turnstile):
        transitions = (sl.Transition("locked", on="push", to="open", then="count"),)

    assert drive(Free(), sl.Event("push", ts=1)) == ["opened"]


def test_base_without_a_table_of_its_own_may_be_shared() -> None:
    class Base(sl.StateMachine):
        def note(self, event: sl.Event) -> None:
            self.noted = event.ts

    class Machine(Base):
        listens = ("a",)
        states = ("only",)
        transitions = (sl.Transition("only", on="a", then="note"),)

    machine = Machine()
    drive(machine, sl.Event("a", ts=7))
    assert machine.noted == 7
