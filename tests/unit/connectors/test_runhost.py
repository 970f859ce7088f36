"""A run in this process: exactly once from files to a folder, whatever interrupts it."""

from __future__ import annotations

import asyncio
import json
import logging
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tests.unit.runtime.steps_app import lines_of, records, steps, write_records

from slackline.connectors import AdapterError, delivery, runhost
from slackline.connectors.runhost import RunHost
from slackline.connectors.sources import open_sources
from slackline.connectors.targets import FolderTarget, LinesTarget, Results, Target, open_target
from slackline.core.errors import SlacklineError, StateError
from slackline.runtime.keeping import LATE, OUTPUTS, QUARANTINED
from slackline.runtime.roles import Roles
from slackline.runtime.sites import Sites
from slackline.runtime.vitals import Vitals


class Crash(BaseException):
    """The process dies: nothing in it has a chance to react."""


class FailingFolder(FolderTarget):
    """Dies in the middle of its n-th write, or, if ``in_keep``, of its n-th checkpoint."""

    def __init__(self, path: Path, after: int, in_keep: bool) -> None:
        super().__init__(path)
        self._left, self._in_keep = after, in_keep

    async def write(self, results: Results) -> None:
        await super().write(results)
        self._count(not self._in_keep)

    def keep(self, kept: Any) -> None:
        self._count(self._in_keep)
        super().keep(kept)

    def _count(self, counts: bool) -> None:
        self._left -= counts
        if self._left == 0:
            raise Crash


def run_host(
    urls: list[str], target: Target, key: str | None = "van", follow: bool = False, poll: float = 0.02, **options: Any
) -> tuple[list[RunHost], Callable[[], bool]]:
    """A list that holds the host as soon as there is one, and what runs it."""
    roles = Roles(key=key)
    hierarchy = steps()
    made: list[RunHost] = []

    async def work() -> bool:
        sources = open_sources(urls, hierarchy, roles, follow)
        for source in sources:
            source.adapter._poll = poll  # type: ignore[union-attr]
        host = RunHost(
            Sites(hierarchy, keyed=key is not None),
            sources,
            target,
            roles,
            **options,
        )
        made.append(host)
        return await host.run()

    return made, lambda: asyncio.run(work())


def run_to(urls: list[str], target: Target, **options: Any) -> bool:
    return run_host(urls, target, **options)[1]()


def found_in(folder: Path) -> list[list[dict[str, Any]]]:
    """What the files of a folder hold, whatever the order between keys."""
    files = [lines_of(folder / name) for name in (OUTPUTS, LATE, QUARANTINED)]
    return [sorted(lines, key=lambda line: json.dumps(line, sort_keys=True)) for lines in files]


@pytest.fixture
def source(tmp_path: Path) -> str:
    file = write_records(tmp_path / "in.jsonl", records())
    text = file.read_text().splitlines()
    text.insert(77, "no json")
    text.insert(200, '{"van": "v1"}')
    text.insert(300, '{"ts": 150000, "x": 3}')
    file.write_text("\n".join(text) + "\n")
    return str(file)


def test_a_file_goes_to_a_folder_and_nothing_is_lost(source: str, tmp_path: Path) -> None:
    assert run_to([source], FolderTarget(tmp_path / "out"))
    outputs, late, quarantined = found_in(tmp_path / "out")
    assert len(outputs) + len(late) == 400
    assert {line["key"] for line in outputs} == {f"v{n}" for n in range(5)}
    assert sorted(line["reason"] for line in quarantined) == ["no key", "not an event", "not an event"]
    assert {line.get("place") for line in quarantined} == {None, "line 78", "line 201"}


@pytest.mark.parametrize("in_keep", [False, True])
@pytest.mark.parametrize("every", [1e-9, 1e9])
def test_crashes_at_any_moment_change_nothing(
    source: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, in_keep: bool, every: float
) -> None:
    for module, name in ((runhost, "LEAST"), (runhost, "MOST"), (delivery, "PIECE")):
        monkeypatch.setattr(module, name, 23)
    monkeypatch.setattr(runhost, "CHECKPOINTS", math.inf)
    run_to([source], FolderTarget(tmp_path / "whole"))
    crashes = 0
    for after in (1, 2, 3, 5, 2) if every < 1 else (1, 2):
        try:
            run_to([source], FailingFolder(tmp_path / "out", after, in_keep), every=every)
        except Crash:
            crashes += 1
    assert crashes >= (4 if every < 1 else 2)
    run_to([source], FolderTarget(tmp_path / "out"), every=every)
    assert found_in(tmp_path / "out") == found_in(tmp_path / "whole")


def test_a_run_that_has_ended_is_not_run_again(source: str, tmp_path: Path) -> None:
    assert run_to([source], FolderTarget(tmp_path / "out"))
    before = found_in(tmp_path / "out")
    assert not run_to([source], FolderTarget(tmp_path / "out"))
    assert found_in(tmp_path / "out") == before


def test_several_files_are_read_by_the_age_of_what_comes_next(tmp_path: Path) -> None:
    found = records(600)
    urls = [str(write_records(tmp_path / f"{n}.jsonl", found[n::3])) for n in range(3)]
    run_to(urls, FolderTarget(tmp_path / "out"))
    outputs, late, _ = found_in(tmp_path / "out")
    assert len(outputs) + len(late) == 600
    assert len(late) <= 6  # read one after the other, two thirds would be


def run_until(arrivals: int, file: Path, folder: Path, at_stop: str = "keep") -> None:
    """Follow a file, and stop after so many arrivals, which came in all lives together."""

    def stop(vitals: Vitals) -> None:
        if vitals.numbers.arrivals >= arrivals and not made[0]._stops:
            made[0].stop()

    made, work = run_host([str(file)], FolderTarget(folder), follow=True, at_stop=at_stop, watch=stop)
    work()


@pytest.mark.parametrize("at_stop", ["keep", "flush"])
def test_at_a_stop_what_waits_is_kept_or_flushed_and_the_next_run_goes_on(tmp_path: Path, at_stop: str) -> None:
    out = tmp_path / "out"
    file = write_records(tmp_path / "in.jsonl", records()[:200])
    run_until(200, file, out, at_stop)
    outputs, late, _ = found_in(out)
    assert ("stop" in {line.get("flushed") for line in outputs}) == (at_stop == "flush")
    assert (len(outputs) + len(late) < 200) == (at_stop == "keep")
    write_records(file, records())
    run_until(400, file, out, "flush")
    outputs, late, _ = found_in(out)
    assert len(outputs) + len(late) == 400
    ids = [(line["key"], line["id"]) for line in outputs]
    assert len(set(ids)) == len(ids)


def test_a_followed_file_that_was_replaced_meanwhile_is_read_from_its_start(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    file = write_records(tmp_path / "in.jsonl", records(100))
    run_until(100, file, tmp_path / "out")
    file.rename(tmp_path / "old.jsonl")
    write_records(file, records(250)[100:])
    with caplog.at_level(logging.WARNING):
        run_until(250, file, tmp_path / "out")
    assert "another file than the one that was read before" in caplog.text


def test_a_file_that_has_shrunk_is_refused(tmp_path: Path) -> None:
    file = write_records(tmp_path / "in.jsonl", records(300))
    with pytest.raises(Crash):
        run_to([str(file)], FailingFolder(tmp_path / "out", 2, in_keep=True), every=1e-9)
    write_records(file, records(20))
    with pytest.raises(StateError, match="bytes, and had"):
        run_to([str(file)], FolderTarget(tmp_path / "out"))


def test_a_source_that_is_not_given_again_is_asked_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    one, two = (str(write_records(tmp_path / name, records(50))) for name in ("one.jsonl", "two.jsonl"))
    with pytest.raises(Crash):
        run_to([one, two], FailingFolder(tmp_path / "out", 2, in_keep=True), every=1e-9)
    with pytest.raises(StateError, match=r"two\.jsonl was read before and is not given now"):
        run_to([one], FolderTarget(tmp_path / "out"))


def test_a_folder_of_a_run_with_keys_is_none_for_one_without(source: str, tmp_path: Path) -> None:
    with pytest.raises(Crash):
        run_to([source], FailingFolder(tmp_path / "out", 2, in_keep=True), every=1e-9)
    with pytest.raises(StateError, match="one engine per key"):
        run_to([source], FolderTarget(tmp_path / "out"), key=None)


def test_a_source_that_fails_ends_the_run_and_what_was_found_is_there(tmp_path: Path) -> None:
    file = tmp_path / "in.jsonl.gz"
    file.write_bytes(b"this is not gzip")
    with pytest.raises(AdapterError, match="cannot read"):
        run_to([str(file)], FolderTarget(tmp_path / "out"))


def test_a_detector_that_raises_ends_the_run(tmp_path: Path) -> None:
    file = write_records(tmp_path / "in.jsonl", [{"ts": n, "x": "text" if n == 50 else 1} for n in range(100)])
    with pytest.raises(SlacklineError, match="Steps"):
        run_to([str(file)], FolderTarget(tmp_path / "out"), key=None)


def test_all_kinds_go_to_one_file_each_line_with_its_kind(source: str, tmp_path: Path) -> None:
    run_to([source], open_target(str(tmp_path / "out.jsonl")))
    lines = lines_of(tmp_path / "out.jsonl")
    assert {line["kind"] for line in lines} >= {"output", "quarantined"}
    assert sum(line["kind"] in ("output", "late") for line in lines) == 400


def test_wall_time_lets_go_what_waits_when_a_followed_file_is_silent(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The stream stands still, and its last events come out all the same."""
    monkeypatch.setattr(runhost, "LOOK", 0.02)
    file = tmp_path / "in.jsonl"
    file.touch()
    start, step = 1_000_000.0, [0.0]
    lines: list[dict[str, Any]] = []

    class Collected(LinesTarget):
        async def write(self, results: Results) -> None:
            lines.extend(map(json.loads, results.lines()))

    def wall() -> float:
        return start + step[0]

    def watch(vitals: Vitals) -> None:
        if vitals.numbers.arrivals < 400:
            with file.open("a") as more:
                for n in range(20):
                    at = vitals.numbers.arrivals + n
                    more.write(json.dumps({"ts": at * 100_000, "x": at, "source": f"s{at % 2}"}) + "\n")
            step[0] += 2.0
        else:
            step[0] += 60.0
            if len(lines) == vitals.numbers.arrivals:
                made[0].stop()

    made, work = run_host(
        [str(file)], Collected(None), key=None, follow=True, watch=watch, wall=wall, now=_fast_clock(), at_stop="keep"
    )
    work()
    assert [line["event"]["ts"] for line in lines] == [at * 100_000 for at in range(len(lines))]
    assert not any("flushed" in line for line in lines)


def _fast_clock() -> Callable[[], float]:
    """Seconds that pass with each look, so that nobody waits for them."""
    ticks = [0.0]

    def now() -> float:
        ticks[0] += 0.05
        return ticks[0]

    return now
