"""Small problems at random, and the best of all their placements."""

from itertools import product

from hypothesis import strategies as st

from slackline.cluster.placement import Problem

#: Zero, equal, and numbers that add up to whole ones and to others.
SHARES = (0.0, 0.2, 0.25, 0.3, 0.5, 0.75)
RATES = (0.0, 1.0, 50.0, 4000.0)
LATENCIES = (0.0, 0.002, 0.01, 0.05)


@st.composite
def problems(draw, detectors=5, nodes=3):
    """Any problem of that size at most; it need not have a solution."""
    names = [f"d{number}" for number in range(draw(st.integers(1, detectors)))]
    homes = [f"n{number}" for number in range(draw(st.integers(1, nodes)))]
    home, share = st.sampled_from(homes), st.sampled_from(SHARES)
    ingress = draw(st.dictionaries(st.sampled_from(("s", "t")), home))
    ends = st.tuples(st.sampled_from([*names, *ingress]), st.sampled_from(names), st.sampled_from(RATES))
    return Problem(
        detectors={name: draw(share) for name in names},
        nodes={name: draw(st.sampled_from((0.3, 0.75, 1.0, 2.0))) for name in homes},
        subscriptions=tuple(draw(st.lists(ends, max_size=2 * detectors))),
        latencies={(a, b): draw(st.sampled_from(LATENCIES)) for a in homes for b in homes if a != b},
        ingress=ingress,
        pinned=draw(st.dictionaries(st.sampled_from(names), home, max_size=1)),
        traffic_weight=draw(st.sampled_from((0.0, 1e-6, 1e-4))),
        now=draw(st.one_of(st.just({}), st.fixed_dictionaries({name: home for name in names}))),
        migration_costs=dict.fromkeys(names, draw(st.sampled_from((0.0, 0.003, 0.1)))),
    )


def allowed(problem):
    """All placements that keep the limits."""
    every = product(problem.nodes, repeat=len(problem.detectors))
    placements = (dict(zip(problem.detectors, homes, strict=True)) for homes in every)
    return [placement for placement in placements if not problem.objections(placement)]


class Ticks:
    """A clock that advances by a step with every reading."""

    def __init__(self, step=0.01):
        self.step = step
        self.read = 0

    def __call__(self):
        self.read += 1
        return self.read * self.step
