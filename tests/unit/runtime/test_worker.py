"""The worker: exactly once from files to a folder, whatever interrupts it."""

from __future__ import annotations

import asyncio
import json
import logging
import math
import sys
import time
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

import pytest
from tests.unit.runtime.steps_app import Steps, lines_of, records, steps, write_records

from slackline.connectors.addresses import open_sink, open_sources
from slackline.connectors.files import FileSource, FolderSink
from slackline.core.errors import ConfigError, SlacklineError, StateError
from slackline.core.event import Event
from slackline.core.hierarchy import Hierarchy
from slackline.runtime import reader as reader_module
from slackline.runtime import worker as worker_module
from slackline.runtime.checkpoint import Checkpoint
from slackline.runtime.keyed import KeyedEngines
from slackline.runtime.metrics import Metrics
from slackline.runtime.output import OutputRecord
from slackline.runtime.schema import RecordSchema
from slackline.runtime.sink import Sink, SinkError
from slackline.runtime.source import Source, SourceError
from slackline.runtime.worker import Worker

FILES = ("outputs.jsonl", "late.jsonl", "quarantined.jsonl")


class Crash(BaseException):
    """The process dies: nothing in it has a chance to react."""


class FailingFolder(FolderSink):
    """Dies in the middle of its n-th write, or, if ``in_commit``, of its n-th checkpoint."""

    def __init__(self, path: Path, after: int, in_commit: bool) -> None:
        super().__init__(path)
        self._left, self._in_commit = after, in_commit

    async def write(self, records: Sequence[OutputRecord]) -> None:
        await super().write(records)
        self._count(not self._in_commit)

    def commit(self, checkpoint: Checkpoint) -> None:
        self._count(self._in_commit)
        super().commit(checkpoint)

    def _count(self, counts: bool) -> None:
        self._left -= counts
        if self._left == 0:
            raise Crash


def worker_of(
    sources: list[str] | list[Source], sink: Sink, key: str | None = "van", follow: bool = False, **options: Any
) -> tuple[list[Worker], Callable[[], Metrics | None]]:
    """A list that holds the worker as soon as there is one, and what runs it."""
    schema = options.pop("schema", RecordSchema(key=key, unit="us"))
    made: list[Worker] = []

    async def work() -> Metrics | None:
        found: list[Source] = []
        for each in sources:
            if isinstance(each, Source):
                found.append(each)
            elif follow:
                found.append(FileSource(each, follow=True, poll=0.02))
            else:
                found += open_sources([each])
        worker = Worker(KeyedEngines(steps(), keyed=schema.key is not None), found, sink, schema, **options)
        made.append(worker)
        return await worker.run()

    return made, lambda: asyncio.run(work())


def run_to(sources: list[str] | list[Source], sink: Sink, **options: Any) -> Metrics | None:
    return worker_of(sources, sink, **options)[1]()


def found_in(folder: Path) -> list[list[dict[str, Any]]]:
    """What the files of a folder hold, whatever the order between keys."""
    files = [lines_of(folder / name) for name in FILES]
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
    assert run_to([source], FolderSink(tmp_path / "out")) is not None
    outputs, late, quarantined = found_in(tmp_path / "out")
    assert len(outputs) + len(late) == 400
    assert {line["key"] for line in outputs} == {f"v{n}" for n in range(5)}
    assert sorted(line["reason"] for line in quarantined) == ["no key", "not an event", "not an event"]
    places = {line["payload"].get("place") for line in quarantined}
    assert places == {None, "line 78", "record 201"}


@pytest.mark.parametrize("in_commit", [False, True])
@pytest.mark.parametrize("every", [1e-9, 1e9])
def test_crashes_at_any_moment_change_nothing(
    source: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, in_commit: bool, every: float
) -> None:
    for module, name in ((worker_module, "LEAST"), (worker_module, "MOST"), (reader_module, "PIECE")):
        monkeypatch.setattr(module, name, 23)
    monkeypatch.setattr(worker_module, "CHECKPOINTS", math.inf)
    run_to([source], FolderSink(tmp_path / "whole"))
    crashes = 0
    for after in (1, 2, 3, 5, 2) if every < 1 else (1, 2):
        try:
            run_to([source], FailingFolder(tmp_path / "out", after, in_commit), checkpoint_every=every)
        except Crash:
            crashes += 1
    assert crashes >= (4 if every < 1 else 2)
    run_to([source], FolderSink(tmp_path / "out"), checkpoint_every=every)
    assert found_in(tmp_path / "out") == found_in(tmp_path / "whole")


def test_a_run_that_has_ended_is_not_run_again(source: str, tmp_path: Path) -> None:
    assert run_to([source], FolderSink(tmp_path / "out")) is not None
    before = found_in(tmp_path / "out")
    assert run_to([source], FolderSink(tmp_path / "out")) is None
    assert found_in(tmp_path / "out") == before


def test_several_files_are_read_by_the_age_of_what_comes_next(tmp_path: Path) -> None:
    found = records(600)
    urls = [str(write_records(tmp_path / f"{n}.jsonl", found[n::3])) for n in range(3)]
    run_to(urls, FolderSink(tmp_path / "out"))
    outputs, late, _ = found_in(tmp_path / "out")
    assert len(outputs) + len(late) == 600
    assert len(late) <= 6  # read one after the other, two thirds would be


def run_until(events: int, file: Path, folder: Path, at_stop: str = "keep") -> None:
    """Follow a file, and stop after so many events of all runs together."""

    def stop(metrics: Metrics) -> None:
        if metrics.events >= events and not made[0]._stops:
            made[0].stop()

    made, work = worker_of([str(file)], FolderSink(folder), follow=True, at_stop=at_stop, listener=stop)
    work()


@pytest.mark.parametrize("at_stop", ["keep", "flush"])
def test_on_shutdown_buffered_events_are_stored_or_flushed_and_the_next_run_resumes(
    tmp_path: Path, at_stop: str
) -> None:
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


class Large(Steps):
    listens, publishes = ("step",), ("large",)

    def on_event(self, event: Event) -> Iterable[Event]:
        yield event.derive("large")


def test_a_run_resumes_with_a_changed_hierarchy_and_reports_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    out = tmp_path / "out"
    file = write_records(tmp_path / "in.jsonl", records()[:200])
    run_until(200, file, out)
    before = len(found_in(out)[0])
    write_records(file, records())
    monkeypatch.setattr(sys.modules[__name__], "steps", lambda: Hierarchy([Steps(), Large()], clock="at"))
    with caplog.at_level(logging.WARNING):
        run_until(400, file, out, "flush")
    outputs, late, _ = found_in(out)
    steps_found = [line for line in outputs if line["type"] == "step"]
    assert len(steps_found) + len([line for line in late if line["type"] == "at"]) == 400
    assert len(outputs) - len(steps_found) == len(steps_found) - before
    assert caplog.text.count("state upgraded: detectors kept Steps; new Large") == 1


def test_a_followed_file_that_was_replaced_meanwhile_is_read_from_its_start(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    file = write_records(tmp_path / "in.jsonl", records(100))
    run_until(100, file, tmp_path / "out")
    file.rename(tmp_path / "old.jsonl")
    write_records(file, records(250)[100:])
    with caplog.at_level(logging.WARNING):
        run_until(250, file, tmp_path / "out")
    assert "another file than at the checkpoint" in caplog.text


def test_a_file_that_has_shrunk_is_refused(tmp_path: Path) -> None:
    file = write_records(tmp_path / "in.jsonl", records(300))
    with pytest.raises(Crash):
        run_to([str(file)], FailingFolder(tmp_path / "out", 2, in_commit=True), checkpoint_every=1e-9)
    write_records(file, records(20))
    with pytest.raises(StateError, match="bytes and had"):
        run_to([str(file)], FolderSink(tmp_path / "out"))


def test_a_source_that_is_not_given_again_is_asked_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    one, two = (str(write_records(tmp_path / name, records(50))) for name in ("one.jsonl", "two.jsonl"))
    with pytest.raises(Crash):
        run_to([one, two], FailingFolder(tmp_path / "out", 2, in_commit=True), checkpoint_every=1e-9)
    with pytest.raises(StateError, match="has positions of two, which is not an input now"):
        run_to([one], FolderSink(tmp_path / "out"))


def test_a_folder_of_a_run_with_keys_is_none_for_one_without(source: str, tmp_path: Path) -> None:
    with pytest.raises(Crash):
        run_to([source], FailingFolder(tmp_path / "out", 2, in_commit=True), checkpoint_every=1e-9)
    with pytest.raises(StateError, match="key was 'van', is None"):
        run_to([source], FolderSink(tmp_path / "out"), key=None)


def test_a_source_that_fails_ends_the_run_and_what_was_found_is_there(tmp_path: Path) -> None:
    file = tmp_path / "in.jsonl.gz"
    file.write_bytes(b"this is not gzip")
    with pytest.raises(SourceError, match="cannot read"):
        run_to([str(file)], FolderSink(tmp_path / "out"))


def test_two_sources_of_one_name_are_refused(source: str, tmp_path: Path) -> None:
    twice: list[Source] = [FileSource(source, name="a"), FileSource(source, name="a")]
    with pytest.raises(ConfigError, match="two sources are called 'a'"):
        run_to(twice, FolderSink(tmp_path / "out"))


def test_a_sink_that_raises_ends_the_run_and_its_records_are_unwritten(source: str) -> None:
    class Full(Sink):
        async def write(self, records: Any) -> None:
            raise ValueError("no room")

    made, run = worker_of([source], Full())
    with pytest.raises(SinkError, match=r"the sink raised ValueError: no room on \d+ records, the first of them"):
        run()
    assert made[0].unwritten


def test_a_detector_that_raises_ends_the_run(tmp_path: Path) -> None:
    file = write_records(tmp_path / "in.jsonl", [{"ts": n, "x": "text" if n == 50 else 1} for n in range(100)])
    with pytest.raises(SlacklineError, match="Steps"):
        run_to([str(file)], FolderSink(tmp_path / "out"), key=None)


def test_all_kinds_go_to_one_file_each_line_with_its_kind(source: str, tmp_path: Path) -> None:
    run_to([source], open_sink(str(tmp_path / "out.jsonl")))
    lines = lines_of(tmp_path / "out.jsonl")
    assert {line["kind"] for line in lines} >= {"event", "quarantine"}
    assert sum(line["kind"] in ("event", "late") for line in lines) == 400


def test_arrival_time_releases_what_is_buffered_when_a_followed_file_is_silent(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The stream stands still, and its last events are emitted all the same."""
    monkeypatch.setattr(worker_module, "LOOK", 0.02)
    file = tmp_path / "in.jsonl"
    file.touch()
    start, step = 1_000_000.0, [0.0]
    found: list[OutputRecord] = []

    class Collected(Sink):
        async def write(self, records: Sequence[OutputRecord]) -> None:
            found.extend(records)

    def wall() -> float:
        return start + step[0]

    def listener(metrics: Metrics) -> None:
        if metrics.events < 400:
            with file.open("a") as more:
                for n in range(20):
                    at = metrics.events + n
                    more.write(json.dumps({"ts": at * 100_000, "x": at, "source": f"s{at % 2}"}) + "\n")
            step[0] += 2.0
        else:
            step[0] += 60.0
            if len(found) == metrics.events:
                made[0].stop()

    made, work = worker_of(
        [str(file)], Collected(), key=None, follow=True, listener=listener, wall=wall, now=_fast_clock(), at_stop="keep"
    )
    work()
    assert [record.ts for record in found] == [at * 100_000 for at in range(len(found))]
    assert not any(record.flushed for record in found)


def _fast_clock() -> Callable[[], float]:
    """Seconds that pass with each look, so that the test does not wait."""
    ticks = [0.0]

    def now() -> float:
        ticks[0] += 0.05
        return ticks[0]

    return now


@pytest.mark.parametrize(
    "schema", [RecordSchema(key="x", unit="us"), RecordSchema(key="van", unit="ms"), RecordSchema(key="van", seq="seq")]
)
def test_the_same_folder_with_another_schema_is_refused(source: str, tmp_path: Path, schema: RecordSchema) -> None:
    with pytest.raises(Crash):
        run_to([source], FailingFolder(tmp_path / "out", 2, in_commit=True), checkpoint_every=1e-9)
    with pytest.raises(StateError, match="another record schema"):
        run_to([source], FolderSink(tmp_path / "out"), schema=schema)


def test_a_finished_run_of_another_version_says_so_and_a_fresh_one_starts_anew(source: str, tmp_path: Path) -> None:
    run_to([source], FolderSink(tmp_path / "out"), application="one")
    assert run_to([source], FolderSink(tmp_path / "out"), application="one") is None
    with pytest.raises(StateError, match=r"another version of the application.*--fresh"):
        run_to([source], FolderSink(tmp_path / "out"), application="two")
    before = found_in(tmp_path / "out")
    assert run_to([source], FolderSink(tmp_path / "out", fresh=True), application="two") is not None
    assert found_in(tmp_path / "out") == before


def test_the_log_says_how_records_are_read(source: str, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO):
        run_to([source], FolderSink(tmp_path / "out"), schema=RecordSchema(key="van"))
    assert "record schema: ts 'ts', in us" in caplog.text and "seq 'seq', by its name" in caplog.text
    assert "event times are taken as us, by default" in caplog.text


def test_many_duplicates_are_a_warning_that_names_the_field(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    rows = [{"ts": 10 * n, "x": 1, "nr": n // 2} for n in range(300)]
    file = write_records(tmp_path / "in.jsonl", rows)
    with caplog.at_level(logging.WARNING):
        metrics = run_to([str(file)], FolderSink(tmp_path / "out"), schema=RecordSchema(seq="nr"))
    assert metrics is not None and metrics.duplicates == 150
    assert "150 of 300 events (50 %) were dropped as duplicates" in caplog.text and "(field 'nr')" in caplog.text


def test_a_key_that_no_record_has_is_a_warning_at_once(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    file = write_records(tmp_path / "in.jsonl", records(50))
    with caplog.at_level(logging.WARNING):
        metrics = run_to([str(file)], FolderSink(tmp_path / "out"), key="nokey")
    assert metrics is not None and metrics.quarantined == {"no key": 50}
    assert "none of 50 records has a field 'nokey' for the key" in caplog.text


class Numbers(Source):
    """A source of its own, that resumes."""

    name, bounded = "numbers", True

    def __init__(self) -> None:
        self.next = 0

    async def batches(self) -> Any:
        while self.next < 400:
            self.next += 37
            yield [{"ts": 1000 * n, "van": f"v{n % 5}", "x": n % 7} for n in range(self.next - 37, self.next)]

    def position(self) -> int:
        return self.next

    def seek(self, position: int) -> None:
        self.next = position


@pytest.mark.parametrize("in_commit", [False, True])
def test_a_source_of_ones_own_resumes_exactly_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, in_commit: bool
) -> None:
    for module, name in ((worker_module, "LEAST"), (worker_module, "MOST"), (reader_module, "PIECE")):
        monkeypatch.setattr(module, name, 23)
    monkeypatch.setattr(worker_module, "CHECKPOINTS", math.inf)
    run_to([Numbers()], FolderSink(tmp_path / "whole"))
    for after in (1, 2, 3, 2):
        with pytest.raises(Crash):
            run_to([Numbers()], FailingFolder(tmp_path / "out", after, in_commit), checkpoint_every=1e-9)
    run_to([Numbers()], FolderSink(tmp_path / "out"))
    assert found_in(tmp_path / "out") == found_in(tmp_path / "whole")
    assert len(found_in(tmp_path / "out")[0]) + len(found_in(tmp_path / "out")[1]) == 407


class Ticking(Source):
    """A live source: one key is silent after its first event, another one sends all the time."""

    name, live = "ticking", True

    async def batches(self) -> Any:
        yield [{"ts": 0, "van": "silent", "x": 1}]
        for n in range(1, 150):
            await asyncio.sleep(0.01)
            yield [{"ts": 1000 * n, "van": "busy", "x": n}]


def test_a_key_is_idle_while_another_one_sends() -> None:
    seen: list[tuple[Any, str | None, float]] = []

    class Collected(Sink):
        async def write(self, records: Sequence[OutputRecord]) -> None:
            seen.extend((record.key, record.flushed, time.monotonic()) for record in records)

    async def work() -> None:
        engines = KeyedEngines(steps(), idle_timeout=0.3)
        await Worker(engines, [Ticking()], Collected(), RecordSchema(key="van", unit="us"), look=0.05).run()

    asyncio.run(work())
    (silent,) = [index for index, (key, *_) in enumerate(seen) if key == "silent"]
    assert seen[silent][1] == "idle"
    assert silent < len(seen) - 10  # long before the other one has ended
