"""Which detectors go, and where: enough, and no more than that, at little cost."""

from __future__ import annotations

from itertools import product

from hypothesis import given
from hypothesis import strategies as st

from slackline.cluster.controller.load_shedding import choose_offload
from slackline.cluster.placement import Problem, Subscription


def problem_of(needs: dict[str, float], input_rates: dict[str, float], nodes: int) -> Problem:
    """All detectors on n0 hear of one sensor type there, so many events; the further a node, the dearer it is."""
    names = [f"n{number}" for number in range(nodes)]
    latencies = {(a, b): 0.01 * (j - i) for i, a in enumerate(names) for j, b in enumerate(names) if i < j}
    return Problem(
        needs, dict.fromkeys(names, 1.0), tuple(Subscription("s", name, rate) for name, rate in input_rates.items()),
        latencies, ingress={"s": "n0"}, now=dict.fromkeys(needs, "n0"),
    )  # fmt: skip


def test_the_cheapest_that_is_enough_goes_to_the_nearest() -> None:
    needs = {"A": 0.3, "B": 0.3, "C": 0.1}
    problem = problem_of(needs, {"A": 50_000.0, "B": 10.0, "C": 10.0}, 3)
    assert [(each.detector, each.to) for each in choose_offload(problem, 0.25, needs, {"n1": 0.5, "n2": 0.5})] == [
        ("B", "n1")
    ]


def test_a_detector_that_need_not_migrate_stays() -> None:
    needs = {"A": 0.05, "B": 0.5}
    problem = problem_of(needs, {"A": 1.0, "B": 20_000.0}, 2)  # A first, for it is cheap; but B is needed, and enough
    assert [each.detector for each in choose_offload(problem, 0.4, needs, {"n1": 0.6})] == ["B"]


def test_no_node_gets_what_it_is_barred_from_or_has_no_room_for() -> None:
    needs = {"A": 0.3, "B": 0.3}
    problem = problem_of(needs, {"A": 1.0, "B": 1.0}, 3)
    room = {"n1": 0.5, "n2": 0.2}
    assert [each.detector for each in choose_offload(problem, 0.6, needs, room)] == ["A"]
    assert choose_offload(problem, 0.6, needs, room, {"A": frozenset({"n1"}), "B": frozenset({"n1"})}) == []


shares = st.integers(1, 40).map(lambda n: n / 100)


@given(
    st.lists(st.tuples(shares, st.integers(0, 1000)), min_size=1, max_size=5),
    st.lists(shares, min_size=1, max_size=2),
    shares,
)
def test_if_it_is_enough_nothing_of_it_can_stay_and_rooms_are_kept(detectors, rooms, excess) -> None:
    needs = {f"D{number}": cpu for number, (cpu, _) in enumerate(detectors)}
    input_rates = {f"D{number}": float(rate) for number, (_, rate) in enumerate(detectors)}
    problem = problem_of(needs, input_rates, 1 + len(rooms))
    room = {f"n{number + 1}": free for number, free in enumerate(rooms)}
    partings = choose_offload(problem, excess, needs, room)
    for node, free in room.items():
        assert sum(each.cpu for each in partings if each.to == node) <= free + 1e-9
    relieved = sum(each.cpu for each in partings)
    if relieved >= excess:
        assert all(relieved - each.cpu < excess for each in partings)
    elif len(partings) < len(needs):  # nothing that is left fits anywhere
        left = {node: free - sum(each.cpu for each in partings if each.to == node) for node, free in room.items()}
        rest = needs.keys() - {each.detector for each in partings}
        assert not any(needs[name] <= left[node] for name, node in product(rest, left))
