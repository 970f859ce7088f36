"""What users see of an engine, and what its host sees."""

from __future__ import annotations

from typing import Any

import pytest

import slackline as sl
from slackline.core.errors import ConcurrentUseError, DetectorError
from slackline.engine.host import HostInterface

USERS = (
    "push flush close drain save load stats late quarantined duplicates deferred waiting buffered detectors hierarchy "
    "host check_invariants"
)
HOSTS = (
    "default_slack pooled_estimators use_pool progress_updates receive end detach attach worked end_types "
    "copy detach_copied receiver stats follow"
)


def public(kind: type) -> set[str]:
    return {name for name in vars(kind) if not name.startswith("_")}


def test_users_see_what_they_need_and_hosts_the_rest() -> None:
    assert public(sl.Engine) == set(USERS.split())
    assert public(HostInterface) == set(HOSTS.split())


def test_a_call_of_the_host_excludes_those_of_users_and_the_other_way_round() -> None:
    class Curious(sl.Detector):
        listens = ("a",)

        def on_event(self, event: sl.Event) -> Any:
            engine.host.progress_updates()

    engine = sl.Engine(sl.Hierarchy([Curious()]), policy="ordered")
    with pytest.raises(DetectorError) as error:
        engine.push([sl.Event("a", 1), sl.Event("a", 2), sl.Event("a", 3)])
    assert isinstance(error.value.cause, ConcurrentUseError)
    assert engine.host.progress_updates() == []
