"""A detector that joins an engine where sensor types come from elsewhere: what it has missed, and nothing else."""

from __future__ import annotations

from typing import Any

import pytest
from tests.unit.engine.spread import a, b, engine, of, table

import slackline as sl
from slackline.core.errors import ConfigError


def test_a_detector_gets_what_it_has_missed_and_no_other_does() -> None:
    here, there = engine(["a"], ["Sees"], policy="ordered"), engine(["b"], ["SeesToo"], policy="ordered")
    here.push(table([a(ts) for ts in (10, 20, 30)]))
    there.host.receive([of("a", here.host.progress_updates())])
    there.push(table([b(ts) for ts in (5, 15, 25)]))
    here.host.receive([of("b", there.host.progress_updates())])
    data = here.host.detach("Sees")
    here.push(table([a(40)]))
    there.push(table([b(35)]))
    missed = [item for item in (*here.host.progress_updates(), *there.host.progress_updates()) if item.type in "ab"]
    there.host.receive([item for item in missed if item.type == "a"])
    there.host.attach(data, missed)
    here.host.end("a")
    there.host.end("b")
    there.host.receive(here.host.progress_updates())
    expected = [("b", 5), ("a", 10), ("b", 15), ("a", 20), ("b", 25), ("a", 30), ("b", 35), ("a", 40)]
    assert there.detectors["Sees"].seen == there.detectors["SeesToo"].seen == expected  # type: ignore[attr-defined]


def test_events_buffered_for_others_do_not_go_to_a_joining_detector() -> None:
    here, there = (
        engine(["b"], ["Sees"], policy=sl.Auto(warmup=9)),
        engine(["a"], ["SeesToo"], policy=sl.Auto(warmup=9)),
    )
    there.push(table([a(ts) for ts in (10, 20, 30)]))  # waits for progress of "b"
    here.host.receive([of("a", there.host.progress_updates())])
    assert len(here.buffered()["Sees"]) == len(there.buffered()["SeesToo"]) == 3
    there.host.attach(here.host.detach("Sees"))
    assert there.buffered()["Sees"] == there.buffered()["SeesToo"] == [a(10), a(20), a(30)]


def test_nothing_is_learnt_of_inputs_from_another_engine() -> None:
    here, there = engine(["a", "b"], ["Sees"]), engine([])
    here.push([a(ts) for ts in range(0, 100, 10)])
    there.host.attach(here.host.detach("Sees"))
    known = there.stats()["types"]["a"]
    assert (known["events"], known["sources"], known["K"]) == (0, 0, 0)
    assert there.stats()["stream_time"] == 90


def test_by_slack_a_detector_starts_from_the_delays_it_is_given() -> None:
    here, there = engine(["a", "b"], ["Sees"], policy="slack"), engine([], policy="slack")
    here.push([a(100), b(80), a(110)])
    data = here.host.detach("Sees")
    there.host.receive([sl.ProgressUpdate("a", (a(100), a(101)), (), 0, 0, 101)])
    there.host.attach(data, delays={"a": 35, "b": 70})
    types = there.stats()["types"]
    assert (types["a"]["K"], types["b"]["K"]) == (0, 70)  # of "a" something is known


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"missed": [sl.ProgressUpdate("low", (), (), 0, 0, 0)]}, "does not listen to"),
        ({"missed": ["a"]}, "progress_updates"),
        ({"missed": [sl.ProgressUpdate("a", (b(3),), (), 0, 0, 0)]}, "contains invalid events"),
        ({"delays": {"low": 3}}, "does not listen to"),
        ({"delays": {"a": -3}}, r"delays\['a'\]=-3"),
    ],
)
def test_a_detector_is_not_attached_with_what_is_not_its_own(arguments: dict[str, Any], message: str) -> None:
    here, there = engine(["a"], ["Sees"]), engine(["b"])
    data, before = here.host.detach("Sees"), there.save()
    with pytest.raises(ConfigError, match=message):
        there.host.attach(data, **arguments)
    assert there.save() == before


# Checkpoints.
