"""Rows that wait for a detector that is held up."""

import numpy as np
import pytest

import slackline as sl
from slackline.core.codec import encode
from slackline.core.errors import StateError
from slackline.core.time import NEVER
from slackline.running.backlog import UNLIMITED, Backlog, Due


def events(*stamps: int) -> list[sl.Event]:
    return [sl.Event("a", ts=ts, source=f"s{ts % 3}", x=ts) for ts in stamps]


def due(*stamps: int, batch: bool = False, least: int = NEVER) -> Due:
    rows = events(*stamps)
    if not batch:
        return Due(rows, None, least, 100)
    return Due(sl.Batch.of_events("a", rows), np.array(stamps), least, 100)


def stamps(taken: list[Due]) -> list[int]:
    return [event.ts for each in taken for event in each.rows]


def test_rows_come_out_as_they_went_in_whatever_is_in_memory() -> None:
    for memory in (0, 3, UNLIMITED):
        backlog = Backlog()
        backlog.memory = memory
        for start in range(0, 60, 6):
            backlog.put(due(*range(start, start + 6), batch=start % 4 == 0))
        assert len(backlog) == 60
        assert stamps(backlog.take(7)) == list(range(7))
        assert backlog.reached(99) == 6
        backlog.put(due(60, 61))
        assert [event for each in backlog.take(UNLIMITED) for event in each.rows] == events(*range(7, 62))
        assert not backlog and backlog.reached(99) == 99


def test_beyond_its_memory_rows_are_on_disk() -> None:
    backlog = Backlog()
    backlog.memory = 10
    for start in range(0, 1000, 10):
        backlog.put(due(*range(start, start + 10), batch=True))
    assert len(backlog) == 1000 and backlog._in_memory <= 20


def test_a_batch_keeps_no_longer_columns_alive_than_its_own() -> None:
    whole = sl.Batch.of_events("a", events(*range(1000)))
    backlog = Backlog()
    backlog.put(Due(whole.slice(3, 5), None, NEVER, 9))
    (taken,) = backlog.take(2)
    assert len(taken.rows._ts) == 2


def test_what_is_no_data_stays_in_memory() -> None:
    backlog = Backlog()
    backlog.memory = 0
    strange = [sl.Event("a", ts=1, handle=object())]
    backlog.put(due(0))
    backlog.put(Due(strange, None, NEVER, 9))
    backlog.put(due(2))
    assert stamps(backlog.take(9)) == [0, 1, 2]


def test_a_disk_that_takes_nothing_loses_nothing(tmp_path, caplog) -> None:
    backlog = Backlog()
    backlog.memory, backlog.folder = 3, str(tmp_path / "nowhere")
    for start in range(0, 30, 3):
        backlog.put(due(*range(start, start + 3)))
    assert [record.message for record in caplog.records if "stays in memory" in record.message]
    assert len(caplog.records) == 1
    assert stamps(backlog.take(UNLIMITED)) == list(range(30))


def test_a_disk_that_is_full_in_the_middle_loses_nothing(monkeypatch) -> None:
    backlog = Backlog()
    backlog.memory = 3
    backlog.put(due(0, 1, 2, 3))
    assert backlog._in_memory == 0
    file = backlog._file

    class Full:
        def __getattr__(self, name):
            return getattr(file, name)

        def write(self, data):
            return file.write(data[:5])

    backlog._file = Full()
    for start in range(4, 30, 2):
        backlog.put(due(start, start + 1))
    assert backlog.state() and stamps(backlog.take(UNLIMITED)) == list(range(30))


def test_progress_stops_at_the_watermark_of_rows_that_are_not_in_order() -> None:
    backlog = Backlog()
    backlog.put(due(3, least=51))
    backlog.put(due(60))
    assert backlog.reached(99) == 50
    backlog.take(1)
    assert backlog.reached(99) == 59


def test_a_state_holds_everything_and_reading_it_changes_nothing() -> None:
    backlog = Backlog()
    backlog.memory = 4
    for start in range(0, 30, 3):
        backlog.put(due(*range(start, start + 3), batch=start % 2 == 0))
    backlog.take(4)
    state = backlog.state()
    assert encode(state) == encode(backlog.state())
    other = Backlog()
    other.restore(state, frozenset({"a"}))
    assert stamps(other.take(UNLIMITED)) == list(range(4, 30)) == stamps(backlog.take(UNLIMITED))


@pytest.mark.parametrize("state", ["x", [1], [{"rows": [1], "keys": None, "least": 0, "clk": 0}]])
def test_a_state_that_is_none_is_refused(state: object) -> None:
    with pytest.raises(StateError):
        Backlog().restore(state, frozenset({"a"}))


def test_events_of_other_types_are_refused() -> None:
    backlog = Backlog()
    backlog.put(due(1))
    with pytest.raises(StateError, match="not listened to"):
        Backlog().restore(backlog.state(), frozenset({"b"}))
