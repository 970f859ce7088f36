"""[Sync]: Figures 2 and 3, Table I and Algorithms 1 to 4, step by step."""

import pytest
from benchmarks.sync import ARRIVALS, STREAM_OF, TABLE_1, figure2

from slackline.core.event import Event
from slackline.sync import METHODS, Synchroniser
from slackline.sync.methods.readiness import TreeNode

STREAMS = ["DS1", "DS2", "DS3", "DS4"]
#: Figure 3: who is below whom when event 9 arrives, as (node, left, right).
FIGURE_3 = [
    (6, 0, 10), (0, None, 3), (10, 7, None), (3, 1, 5), (7, None, 8), (1, None, 2), (5, 4, None), (8, None, 9),
    (2, None, None), (4, None, None), (9, None, None),
]  # fmt: skip


def event(ts: int) -> Event:
    return Event("e", ts=ts, source=f"DS{STREAM_OF[ts]}")


def steps(method: str) -> dict[int, list[int]]:
    """What goes out when an event arrives."""
    sync = Synchroniser(STREAMS, method=method)
    found = {}
    for ts in ARRIVALS:
        found[ts] = [e.ts for e in sync.push(event(ts))]
        sync.check_invariants()
    found[-1] = [e.ts for e in sync.close()]
    return found


def shape(node: TreeNode) -> list[tuple[int, int | None, int | None]]:
    """The tree level by level; a missing node has no events."""
    level, found = [node] if node.events else [], []
    while level:
        below = [[each if each.events else None for each in (n.left, n.right)] for n in level]
        found += [
            (n.point[0], *(each and each.point[0] for each in pair)) for n, pair in zip(level, below, strict=True)
        ]
        level = [each for pair in below for each in pair if each]
    return found


def before_event_9(method: str) -> Synchroniser:
    sync = Synchroniser(STREAMS, method=method)
    for ts in ARRIVALS[: ARRIVALS.index(9)]:
        sync.push(event(ts))
    return sync


def test_figure_2_every_stream_delivers_in_order_and_the_4th_event_arrives_the_9th() -> None:
    assert sorted(ARRIVALS) == list(range(13))
    for stream in (1, 2, 3, 4):
        arrived = [ts for ts in ARRIVALS if STREAM_OF[ts] == stream]
        assert arrived == sorted(arrived)
    assert ARRIVALS.index(4) == 9


def test_figure_3_the_tree_when_event_9_arrives() -> None:
    sync = before_event_9("method1")
    sync._method._process = list  # type: ignore[attr-defined]  # add the node, but do not process the tree yet
    sync.push(event(9))
    assert shape(sync._method.root) == FIGURE_3  # type: ignore[attr-defined]


def test_figure_3_readiness_tables_and_what_is_inherited() -> None:
    sync = before_event_9("method1")
    root: TreeNode = sync._method.root  # type: ignore[attr-defined]
    owed = {f"DS{i + 1}" for i in range(4) if root.owed >> i & 1}
    assert (root.point[0], owed) == (6, {"DS2"})  # event 9 of DS2 is all that event 6 waits for
    left = root.left
    assert left.events and left.point[0] == 0
    assert not left.owed & root.owed  # no stream owes event 0 anything, once it inherits the root's table


def test_method_1_begins_with_event_9() -> None:
    found = steps("method1")
    assert all(found[ts] == [] for ts in ARRIVALS[: ARRIVALS.index(9)])
    assert found[9] == [0, 1, 2, 3, 4, 5, 6]


@pytest.mark.parametrize("method", METHODS)
def test_all_methods_put_figure_2_in_order(method: str) -> None:
    assert [ts for out in steps(method).values() for ts in out] == list(range(13))


def test_method_1_holds_7_although_no_stream_owes_it_anything() -> None:
    sync = before_event_9("method1")
    sync.push(event(9))
    assert sync.owing() == ()
    assert shape(sync._method.root)[:2] == [(10, 7, None), (7, None, 8)]  # type: ignore[attr-defined]


def test_watermark_and_the_balanced_tree_release_events_as_soon_as_no_stream_owes_them_anything() -> None:
    # The least of the streams' last events, after each arrival: 10 -> 0, 1 -> 1, 2 -> 2, 4 -> 4, 9 -> 7, 11 -> 8.
    expected = {10: [0], 1: [1], 2: [2], 4: [3, 4], 9: [5, 6, 7], 11: [8], -1: [9, 10, 11, 12]}
    for method in ("watermark", "balanced"):
        assert {ts: out for ts, out in steps(method).items() if out} == expected


def test_method_2_sees_that_0_may_go_only_when_an_event_passes_it() -> None:
    found = steps("method2")
    assert (found[10], found[5]) == ([], [0])  # event 10 goes right at the root, event 5 passes event 0
    assert (found[4], found[9]) == ([3, 4], [5, 6, 7])
    assert found[11] == []  # event 8 is left of event 10, which may not go


def test_table_1_comparisons_and_updates() -> None:
    counted = figure2()
    assert {name: counted[name] for name in TABLE_1} == {
        "indexed_list": {"comparisons": 25, "updates": 39},
        "linked_list": {"comparisons": 37, "updates": 37},
        "binary_tree": {"comparisons": 30, "updates": 17},
    }
