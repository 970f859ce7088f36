"""How a junction ends: by its sink, by stop(), by being cancelled; and how it resumes."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import msgspec
import pytest
from tests.unit.runtime.streams import LIMIT, Listed, Tap, events, points, run, turns, until

import slackline as sl
from slackline.core.errors import ClosedError, StateError
from slackline.runtime import Checkpoint, Junction, OutputRecord, RecordSchema, Sink, SinkError
from slackline.runtime.checkpoint import FolderCheckpointStore


@pytest.mark.parametrize("is_coroutine", [False, True])
def test_a_sink_that_raises_ends_the_run_and_what_was_not_written_is_pending(is_coroutine: bool) -> None:
    out: list[OutputRecord] = []

    def sink(found: list[OutputRecord]) -> None:
        if any(record.ts == 7 for record in found):
            found.clear()  # the list belongs to the sink
            raise ValueError("seven")
        out.extend(found)

    async def coroutine(found: list[OutputRecord]) -> None:
        sink(found)

    sources = [Listed("a", events("a", *range(0, 40, 2))), Listed("b", events("b", *range(1, 40, 2)))]
    junction = Junction(sources, coroutine if is_coroutine else sink, ahead=3)
    with pytest.raises(SinkError, match=r"ValueError: seven on \d+ records, the first of them event tick:") as caught:
        junction.run_blocking()
    assert isinstance(caught.value.__cause__, ValueError)
    assert 7 in [record.ts for record in junction.pending]
    # What was written and what is pending are the beginning of the stream, in order and without a gap.
    times = [record.ts for record in (*out, *junction.pending)]
    assert times == list(range(len(times)))
    assert len(times) < 40  # the rest was never read


def test_stop_flushes_what_is_buffered_and_closes_the_sources() -> None:
    async def scenario() -> None:
        out: list[OutputRecord] = []
        a, b = Tap("a"), Tap("b")
        junction = Junction([a, b], out.extend)
        running = asyncio.create_task(junction.run())
        a.put(*events("a", 3, 4))
        await until(lambda: junction.stats().metrics.buffered == 2)
        junction.stop()
        stats = await running
        assert points(out) == [(3, "a"), (4, "a")]
        assert a.closed
        assert b.closed
        assert {source.state for source in stats.sources.values()} == {"stopped"}
        with pytest.raises(ClosedError):
            await junction.run()

    run(scenario())


def test_stop_may_be_called_from_another_thread() -> None:
    started = threading.Event()
    junction = Junction([Endless("a", [])], lambda found: started.set())
    runner = threading.Thread(target=junction.run_blocking, daemon=True)
    runner.start()
    assert started.wait(10)
    junction.stop()
    runner.join(10)
    assert not runner.is_alive()


class Endless(Listed):
    async def batches(self) -> Any:
        while True:
            self.read += 1
            yield [{"ts": self.read}]


def test_a_run_that_is_stopped_before_it_starts_reads_nothing() -> None:
    a = Listed("a", events("a", 1))
    junction = Junction([a], list)
    junction.stop()
    stats = run(junction.run())
    assert (stats.sources["a"].state, stats.metrics.outputs, a.read) == ("stopped", 0, 0)


def test_a_sink_that_is_cancelled_from_within_is_an_error_of_the_sink() -> None:
    async def sink(found: list[OutputRecord]) -> None:
        task = asyncio.create_task(asyncio.sleep(LIMIT))
        task.cancel()
        await task

    junction = Junction([Listed("a", events("a", 1, 2), batch=2)], sink)
    with pytest.raises(SinkError, match="CancelledError") as caught:
        run(junction.run())
    assert [record.ts for record in junction.pending] == [1, 2]
    assert isinstance(caught.value.__cause__, asyncio.CancelledError)


def test_a_source_that_is_cancelled_from_within_has_failed() -> None:
    async def scenario() -> None:
        out: list[OutputRecord] = []
        bad, good = Tap("bad"), Tap("good")
        junction = Junction([bad, good], out.extend)
        running = asyncio.create_task(junction.run())
        bad.put(*events("bad", 1))
        bad.end(asyncio.CancelledError())
        good.put(*events("good", 2))
        await until(lambda: len(out) == 2)
        good.end()
        stats = await running
        assert stats.sources["bad"].state == "failed"
        assert "but was not cancelled" in (stats.sources["bad"].error or "")

    run(scenario())


def test_a_run_that_is_cancelled_leaves_what_it_processed_in_pending() -> None:
    async def scenario() -> None:
        stuck = asyncio.Event()

        async def sink(found: list[OutputRecord]) -> None:
            stuck.set()
            await asyncio.Event().wait()

        a, b = Tap("a"), Tap("b")
        a.put(*events("a", 1, 3))
        b.put(*events("b", 2))
        junction = Junction([a, b], sink)
        running = asyncio.create_task(junction.run())
        await stuck.wait()
        running.cancel()
        with pytest.raises(asyncio.CancelledError):
            await running
        times = [record.ts for record in junction.pending]
        assert times
        assert times == sorted(times)
        assert a.closed
        assert b.closed

    run(scenario())


# Checkpoints.


class Log(Sink):
    """A user's own sink that commits: a file of records, and a checkpoint with its length."""

    commits = True

    def __init__(self, folder: Path, fail_after: int | None = None) -> None:
        self.path = folder / "log"
        self._store = FolderCheckpointStore(folder, "run")
        self._fail_after = fail_after
        self._commits = 0

    def open(self) -> Checkpoint | None:
        saved = self._store.load()
        with self.path.open("ab") as file:
            file.truncate(0 if saved is None else saved.header["length"])
        return saved

    async def write(self, records: Sequence[OutputRecord]) -> None:
        await turns(2)
        if self._fail_after is not None and self._commits >= self._fail_after:
            raise OSError("no space left on device")
        with self.path.open("ab") as file:
            file.writelines(record.json() + b"\n" for record in records)

    def commit(self, checkpoint: Checkpoint) -> None:
        self._commits += 1
        self._store.save(checkpoint.with_header(length=self.path.stat().st_size))

    def records(self) -> list[dict[str, Any]]:
        return [msgspec.json.decode(line) for line in self.path.read_bytes().splitlines()]


def sources() -> list[Listed]:
    """Bounded streams of very different lengths and batches; one of them has a late event and bad records."""
    odd = [{"ts": 3 * i, "n": i} if i % 50 else {"n": i} for i in range(200)]
    odd.insert(120, {"ts": 7, "n": -1})
    return [
        Listed("a", [{"ts": i, "n": i} for i in range(600)], 7),
        Listed("odd", odd, 3),
        Listed("b", [{"ts": 2 * i, "source": "B"} for i in range(150)]),
    ]


def junction(sink: Sink | Callable[..., Any], **options: Any) -> Junction:
    return Junction(sources(), sink, max_delay=1000.0, ahead=20, checkpoint_every=0.0, **options)


@pytest.mark.parametrize("fail_after", [1, 2, 5, 20])
def test_a_junction_resumes_exactly_once_into_a_sink_that_commits(tmp_path: Path, fail_after: int) -> None:
    whole: list[OutputRecord] = []
    junction(whole.extend).run_blocking()
    crashes = 0
    while True:
        log = Log(tmp_path, fail_after)
        try:
            stats = junction(log).run_blocking()
            break
        except SinkError:
            crashes += 1
            with log.path.open("ab") as file:
                file.write(b"half a rec")  # what a crash may leave behind the checkpoint
            if crashes == 3:
                stats = junction(log := Log(tmp_path)).run_blocking()
                break
    assert crashes
    found = log.records()
    assert [record["change"] for record in found if record["kind"] == "event"] == list(range(951 - 4 - 1))
    expected = [msgspec.json.decode(record.json()) for record in whole]
    for record in (*found, *expected):
        record.pop("lateness", None)  # depends on how far the other streams were read
    assert sorted(found, key=repr) == sorted(expected, key=repr)
    assert (stats.metrics.outputs, stats.metrics.late) == (946, 1)
    assert stats.metrics.quarantined == {"not an event": 4}
    assert junction(log).run_blocking().metrics.events == 0  # an earlier run has processed all input


def test_streams_of_a_multiplexed_source_resume_too(tmp_path: Path) -> None:
    def many() -> Listed:
        return Listed("many", [{"ts": i // 3, "source": f"t{i % 3}"} for i in range(300)], multiplexed=True)

    options: dict[str, Any] = {"max_delay": 1000.0, "ahead": 5, "checkpoint_every": 0.0}
    with pytest.raises(SinkError):
        Junction([many()], Log(tmp_path, fail_after=4), **options).run_blocking()
    log = Log(tmp_path)
    assert len(log.records()) > 0
    Junction([many()], log, **options).run_blocking()
    found = [(record["ts"], record["source"], record["seq"], record["change"]) for record in log.records()]
    assert found == [(i // 3, f"t{i % 3}", i // 3, i) for i in range(300)]


def test_what_is_buffered_on_stop_is_kept_in_the_checkpoint_where_asked_for(tmp_path: Path) -> None:
    async def scenario() -> None:
        a, b = Listed("a", events("a", *range(100))), Tap("b")
        first = Junction([a, b], Log(tmp_path), ahead=10, at_stop="keep")
        running = asyncio.create_task(first.run())
        b.put(*events("b", 4))
        await until(lambda: first.stats().metrics.buffered == 10)
        first.stop()
        await running
        assert len(Log(tmp_path).records()) == 6
        log = Log(tmp_path)
        await Junction([Listed("a", events("a", *range(100))), Listed("b", [])], log).run()
        assert [(record["ts"], record["source"]) for record in log.records()] == sorted(
            [(ts, "a") for ts in range(100)] + [(4, "b")]
        )

    run(scenario())


def test_a_source_that_failed_is_read_again_by_the_next_run(tmp_path: Path) -> None:
    class Failing(Listed):
        async def batches(self) -> Any:
            async for batch in super().batches():
                yield batch
                if self.read == 5:
                    raise OSError("the disk is gone")

    stats = Junction([Failing("a", events("a", *range(9)))], Log(tmp_path)).run_blocking()
    assert stats.sources["a"].state == "failed"
    log = Log(tmp_path)
    stats = Junction([Listed("a", events("a", *range(9)))], log).run_blocking()
    assert [record["ts"] for record in log.records()] == list(range(9))
    assert stats.sources["a"].state == "ended"


def test_a_checkpoint_of_other_sources_or_another_schema_is_refused(tmp_path: Path) -> None:
    Junction([Listed("a", [{"ts": 1}])], Log(tmp_path)).run_blocking()
    with pytest.raises(StateError, match="another record schema"):
        Junction([Listed("a", [{"ts": 1}])], Log(tmp_path), schema=RecordSchema(ts="at")).run_blocking()


def test_a_checkpoint_of_keyed_engines_is_refused() -> None:
    class Echo(sl.Detector):
        listens = ("a",)

        def on_event(self, event: sl.Event) -> None: ...

    from slackline.runtime import KeyedEngines
    from slackline.runtime.merge import StreamMerger

    saved = KeyedEngines(sl.Hierarchy([Echo()], clock="a"), keyed=False).save()
    with pytest.raises(StateError, match="not written by a junction"):
        StreamMerger([], None, 3, 10, 1.0, lambda: 0.0).load(*saved)
