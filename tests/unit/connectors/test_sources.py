"""Where events come from, and which of their fields is what."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path

import pytest
from tests.unit.runtime.steps_app import records, steps, write_records

from slackline import Detector, Event, Hierarchy
from slackline.connectors.delivery import joined, merged
from slackline.connectors.sources import ReadPlace, Source, open_sources
from slackline.core.errors import ConfigError
from slackline.runtime.forms import events_of
from slackline.runtime.roles import Roles


def read(sources: list[Source]) -> list[Event]:
    async def work() -> list[Event]:
        found = joined([delivery async for delivery in merged(sources)]).rows
        return found if isinstance(found, list) else events_of(found)

    return asyncio.run(work())


def opened(*urls: str, follow: bool = False) -> list[Source]:
    return open_sources(urls, steps(), Roles(), follow)


def test_files_side_by_side_come_by_the_age_of_their_next_event(tmp_path: Path) -> None:
    write_records(tmp_path / "a.jsonl", [{"ts": 1}, {"ts": 7}, {"ts": 3}])
    write_records(tmp_path / "b.jsonl", [{"ts": 2}, {"ts": 4}])
    (tmp_path / "c.csv").write_text("ts,x\n5,1\n")
    (tmp_path / "notes.txt").write_text("not read")
    (tmp_path / "_half.jsonl").write_text("not ready")
    found = read(opened(str(tmp_path)))
    assert [(event.ts, event.source) for event in found] == [
        (1, "a"), (2, "b"), (4, "b"), (5, "c"), (7, "a"), (3, "a"),
    ]  # fmt: skip


def test_what_was_taken_before_is_left_out(tmp_path: Path) -> None:
    path = str(write_records(tmp_path / "a.jsonl", records(50)))
    whole = read(opened(path))
    (again,) = opened(path)
    assert again.go_on(ReadPlace(20, 0, (10,))) is None
    assert read([again]) == whole[20:]
    assert again.place.taken == 20  # nobody has said that more were taken


@pytest.mark.parametrize(
    ("url", "message"),
    [
        ("nothing.csv", "there is no such file or folder"),
        ("notes.txt", "cannot tell what"),
        ("empty", "no file in this folder that ends with"),
        ("ftp://host/file", r"nothing here opens ftp:// addresses; known are http://, https://, mqtt://, paths and -"),
        ("mqtt://127.0.0.1", "names no broker and topic"),
        ("http://", "none that HTTP can fetch"),
    ],
)
def test_an_address_that_cannot_be_read_is_told_at_once(url: str, message: str, tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_text("x")
    (tmp_path / "empty").mkdir()
    with pytest.raises(ConfigError, match=message):
        opened(url if "://" in url else str(tmp_path / url))


def test_nothing_and_the_same_twice_are_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="nothing to read"):
        opened()
    path = str(write_records(tmp_path / "a.jsonl", []))
    with pytest.raises(ConfigError, match="several times"):
        opened(path, path)


def test_fields_that_are_called_like_their_roles_are_taken_for_them() -> None:
    event = Event.of("at", 5, "file", None, {"type": "kick", "seq": 4, "van": 7, "x": 1})
    assert Roles(key="van").place(event) == (Event("kick", ts=5, source="file", seq=4, x=1), 7)
    event = Event("at", ts=5, source="file", sensor="s1", x=1)
    assert Roles(source="sensor").place(event) == (Event("at", ts=5, source="s1", x=1), None)
    assert Roles(source="sensor", key="sensor").place(event) == (Event("at", ts=5, source="s1", x=1), "s1")
    odd = Event.of("at", 5, "file", None, {"seq": "no number"})
    assert Roles().place(odd) == (odd, None)


def test_of_many_sensor_types_each_record_names_one(tmp_path: Path) -> None:
    class Both(Detector):
        listens, publishes = ("a", "b"), ()

        def on_event(self, event: Event) -> None:
            pass

    path = tmp_path / "in.jsonl"
    path.write_text("".join(json.dumps(each) + "\n" for each in ({"ts": 1, "type": "a"}, {"ts": 2})))
    (source,) = open_sources([str(path)], Hierarchy([Both()], clock="a"), Roles(), follow=False)
    assert [event.type for event in read([source])] == ["a"]
    assert [record.place for record in source.rejected()] == ["line 2"]


def test_roles_that_exclude_each_other_are_refused() -> None:
    with pytest.raises(ConfigError, match="a field of its own"):
        Roles(key="ts")
    with pytest.raises(ConfigError, match="unit='h'"):
        Roles(unit="h")
