"""Policies as objects, and flat as in files and checkpoints."""

from __future__ import annotations

import pickle
from dataclasses import FrozenInstanceError
from typing import Any

import pytest

import slackline as sl
from slackline.core.errors import ConfigError
from slackline.ordering.policy import Policy, policy_of, with_policy
from slackline.ordering.watermark import POLICIES
from slackline.runtime.keyed import EngineFactory

SOME: list[Policy] = [
    sl.Auto(), sl.Auto(timeout=0), sl.Auto(margin=0, warmup=9), sl.Slack(), sl.Slack(margin=2.5, window=64, warmup=3),
    sl.Ready(), sl.Ready(timeout=7), sl.Ordered(),
]  # fmt: skip


class Echo(sl.Detector):
    listens = ("a",)

    def on_event(self, event: sl.Event) -> None: ...


@pytest.mark.parametrize("policy", SOME, ids=repr)
def test_a_policy_is_the_same_after_it_was_flat_pickled_or_printed(policy: Policy) -> None:
    assert with_policy({**policy.flat(), "late": "divert"}) == {"policy": policy, "late": "divert"}
    assert pickle.loads(pickle.dumps(policy)) == policy
    assert eval(repr(policy), vars(sl)) == policy
    engine = sl.Engine(sl.Hierarchy([Echo()]), policy=policy)
    assert sl.Engine.load(engine.save(), sl.Hierarchy([Echo()]), policy=policy).stats()["changed"] == {}


def test_a_name_is_the_policy_with_its_defaults() -> None:
    assert {policy_of(name).name for name in POLICIES} == set(POLICIES)
    assert policy_of("slack") == sl.Slack(margin=0.5, window=2048, warmup=0)
    with pytest.raises(ConfigError, match=r"policy='fast' is unknown; choose one of \['auto', 'slack'"):
        policy_of("fast")


def test_a_policy_cannot_change() -> None:
    with pytest.raises(FrozenInstanceError):
        sl.Slack().margin = 3  # type: ignore[misc]


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ({}, {}),
        ({"timeout": None, "late": "divert"}, {"late": "divert"}),
        ({"margin": 1}, {"policy": sl.Auto(margin=1)}),
        ({"policy": "ready"}, {"policy": sl.Ready()}),
    ],
)
def test_without_a_name_flat_options_are_those_of_auto(given: dict[str, Any], expected: dict[str, Any]) -> None:
    assert with_policy(given) == expected


def test_an_option_of_a_policy_that_is_given_to_the_engine_is_an_error_with_a_remedy() -> None:
    with pytest.raises(ConfigError, match=r"no options \['margin'\].*policy=slackline.Auto\(margin=...\)"):
        EngineFactory.of(sl.Hierarchy([Echo()]), {"policy": "slack", "margin": 1})
