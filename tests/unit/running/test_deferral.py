"""Rows that wait for a detector that is held up."""

import numpy as np
import pytest

import slackline as sl
from slackline.core.codec import encode
from slackline.core.errors import StateError
from slackline.core.time import NEVER
from slackline.running.deferral import UNLIMITED, DeferredQueue, DeferredRows


def events(*stamps: int) -> list[sl.Event]:
    return [sl.Event("a", ts=ts, source=f"s{ts % 3}", x=ts) for ts in stamps]


def due(*stamps: int, batch: bool = False, least: int = NEVER) -> DeferredRows:
    rows = events(*stamps)
    if not batch:
        return DeferredRows(rows, None, least, 100)
    return DeferredRows(sl.Batch.of_events("a", rows), np.array(stamps), least, 100)


def stamps(taken: list[DeferredRows]) -> list[int]:
    return [event.ts for each in taken for event in each.rows]


def test_rows_come_out_as_they_went_in_whatever_is_in_memory() -> None:
    for memory in (0, 3, UNLIMITED):
        deferred = DeferredQueue()
        deferred.memory = memory
        for start in range(0, 60, 6):
            deferred.put(due(*range(start, start + 6), batch=start % 4 == 0))
        assert len(deferred) == 60
        assert stamps(deferred.pop(7)) == list(range(7))
        assert deferred.reached(99) == 6
        deferred.put(due(60, 61))
        assert [event for each in deferred.pop(UNLIMITED) for event in each.rows] == events(*range(7, 62))
        assert not deferred and deferred.reached(99) == 99


def test_beyond_its_memory_rows_are_on_disk() -> None:
    deferred = DeferredQueue()
    deferred.memory = 10
    for start in range(0, 1000, 10):
        deferred.put(due(*range(start, start + 10), batch=True))
    assert len(deferred) == 1000 and deferred._in_memory <= 20


def test_a_batch_keeps_no_longer_columns_alive_than_its_own() -> None:
    whole = sl.Batch.of_events("a", events(*range(1000)))
    deferred = DeferredQueue()
    deferred.put(DeferredRows(whole.slice(3, 5), None, NEVER, 9))
    (taken,) = deferred.pop(2)
    assert len(taken.rows._ts) == 2


def test_what_is_no_data_stays_in_memory() -> None:
    deferred = DeferredQueue()
    deferred.memory = 0
    strange = [sl.Event("a", ts=1, handle=object())]
    deferred.put(due(0))
    deferred.put(DeferredRows(strange, None, NEVER, 9))
    deferred.put(due(2))
    assert stamps(deferred.pop(9)) == [0, 1, 2]


def test_a_disk_that_takes_nothing_loses_nothing(tmp_path, caplog) -> None:
    deferred = DeferredQueue()
    deferred.memory, deferred.folder = 3, str(tmp_path / "nowhere")
    for start in range(0, 30, 3):
        deferred.put(due(*range(start, start + 3)))
    assert [record.message for record in caplog.records if "stay in memory" in record.message]
    assert len(caplog.records) == 1
    assert stamps(deferred.pop(UNLIMITED)) == list(range(30))


def test_a_disk_that_is_full_in_the_middle_loses_nothing(monkeypatch) -> None:
    deferred = DeferredQueue()
    deferred.memory = 3
    deferred.put(due(0, 1, 2, 3))
    assert deferred._in_memory == 0
    file = deferred._file

    class Full:
        def __getattr__(self, name):
            return getattr(file, name)

        def write(self, data):
            return file.write(data[:5])

    deferred._file = Full()
    for start in range(4, 30, 2):
        deferred.put(due(start, start + 1))
    assert deferred.state() and stamps(deferred.pop(UNLIMITED)) == list(range(30))


def test_progress_stops_at_the_watermark_of_rows_that_are_not_in_order() -> None:
    deferred = DeferredQueue()
    deferred.put(due(3, least=51))
    deferred.put(due(60))
    assert deferred.reached(99) == 50
    deferred.pop(1)
    assert deferred.reached(99) == 59


def test_a_state_holds_everything_and_reading_it_changes_nothing() -> None:
    deferred = DeferredQueue()
    deferred.memory = 4
    for start in range(0, 30, 3):
        deferred.put(due(*range(start, start + 3), batch=start % 2 == 0))
    deferred.pop(4)
    state = deferred.state()
    assert encode(state) == encode(deferred.state())
    other = DeferredQueue()
    other.restore(state, frozenset({"a"}))
    assert stamps(other.pop(UNLIMITED)) == list(range(4, 30)) == stamps(deferred.pop(UNLIMITED))


@pytest.mark.parametrize("state", ["x", [1], [{"rows": [1], "keys": None, "least": 0, "clk": 0}]])
def test_a_state_that_is_none_is_refused(state: object) -> None:
    with pytest.raises(StateError):
        DeferredQueue().restore(state, frozenset({"a"}))


def test_events_of_other_types_are_refused() -> None:
    deferred = DeferredQueue()
    deferred.put(due(1))
    with pytest.raises(StateError, match="does not listen to"):
        DeferredQueue().restore(deferred.state(), frozenset({"b"}))
