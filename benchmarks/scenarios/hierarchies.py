"""Hierarchies to place: the two phases of [Thesis, 5.2.6], rebuilt, and generated ones of any size.

Of the thesis' benchmark the text has this: thirty detectors, 0 to 29, where 0 is the root; six nodes, of which each may
run five; a synthetic stream is fed to the root and floods the hierarchy; every 60 s the subscriptions change from one
pattern to another; local subscriptions take no time, and the mean over all subscriptions is 6.1 ms at best in the one
pattern, 6.27 ms in the other, and 30.8 ms with the placement that was there before. Figures 5.8 (the network) and 5.9
(the patterns) are not in the text. What is invented here:

- The network: a ring of six nodes whose links take 17 to 24 ms. What is not linked goes the shorter way round. With
  these a random placement has a mean of 30.7 ms.
- That the root's input is a subscription, too, and enters at the first node. Then there are thirty subscriptions, and
  the two optima are the whole numbers 183 and 188 ms, over thirty.
- The patterns: trees drawn at random until two had almost these optima; then two of the links were made 1 ms longer or
  shorter so that they have exactly these. The exact solver proves them.
- That each detector passes on each event that it gets, 50 per second; and what weighs how much (the defaults).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from slackline.cluster.placement import Problem, Subscription
from slackline.core.errors import ConfigError

#: Seconds that an event takes over each link of the ring.
LINKS: Mapping[tuple[str, str], float] = {
    ("n1", "n2"): 0.018,
    ("n2", "n3"): 0.024,
    ("n3", "n4"): 0.017,
    ("n4", "n5"): 0.021,
    ("n5", "n6"): 0.021,
    ("n6", "n1"): 0.019,
}
#: The publisher of each detector from 1 on.
FIRST = (0, 0, 0, 0, 1, 1, 1, 2, 2, 2, 2, 3, 4, 4, 5, 6, 7, 7, 10, 10, 11, 11, 12, 14, 15, 25, 26, 27, 27)
SECOND = (0, 0, 0, 0, 1, 1, 2, 3, 4, 4, 4, 4, 5, 7, 7, 8, 8, 8, 8, 11, 12, 13, 14, 17, 17, 19, 19, 21, 23)
#: The sensor type that the root listens to, and its events per second.
FED, RATE = "fed", 50.0
#: Detectors that a node may run.
PER_NODE = 5


@dataclass(frozen=True, slots=True)
class Phases:
    """The two situations between which the benchmark of [Thesis, 5.2.6] changes; ``links`` make the network of both."""

    links: Mapping[tuple[str, str], float]
    first: Problem
    second: Problem


def thesis_phases() -> Phases:
    """The benchmark of [Thesis, 5.2.6], as well as the text allows.

    >>> phases = thesis_phases()
    >>> len(phases.first.detectors), len(phases.first.nodes), len(phases.first.subscriptions)
    (30, 6, 30)
    >>> phases.second.subscriptions[:2]
    (Subscription(publisher='fed', subscriber='d0', events=50.0),
     Subscription(publisher='d0', subscriber='d1', events=50.0))
    """
    return Phases(LINKS, _phase(FIRST), _phase(SECOND))


def _phase(publishers: tuple[int, ...]) -> Problem:
    names = [f"d{number}" for number in range(len(publishers) + 1)]
    tree = [Subscription(names[of], names[number], RATE) for number, of in enumerate(publishers, start=1)]
    return Problem(
        detectors=dict.fromkeys(names, 1 / PER_NODE),
        nodes=dict.fromkeys((one for one, _ in LINKS), 1.0),
        subscriptions=(Subscription(FED, names[0], RATE), *tree),
        latencies=around(LINKS),
        ingress={FED: "n1"},
    )


def around(links: Mapping[tuple[str, str], float]) -> dict[tuple[str, str], float]:
    """The seconds between any two nodes, over as many links as it takes.

    >>> around({("a", "b"): 1.0, ("b", "c"): 2.0})["c", "a"]
    3.0
    """
    names = list(dict.fromkeys(name for pair in links for name in pair))
    number = {name: nth for nth, name in enumerate(names)}
    least = np.full((len(names), len(names)), np.inf)
    np.fill_diagonal(least, 0.0)
    for (one, another), seconds in links.items():
        least[number[one], number[another]] = least[number[another], number[one]] = seconds
    for via in range(len(names)):
        least = np.minimum(least, least[:, via, None] + least[None, via, :])
    return {(a, b): round(float(least[number[a], number[b]]), 9) for a in names for b in names if a != b}


# --- generated ones ----------------------------------------------------------------------------------------------

#: Nodes of a site, more or less; detectors of an application; detectors for each sensor type.
SITE, APPLICATION, PER_SENSOR = 5, 10, 6
#: The share of an application's detectors on each level, from the sensors up.
LEVELS = (0.4, 0.7, 0.9, 1.0)
#: Seconds across the area; how long the way out of a node takes.
ACROSS, OUT = 0.040, 0.0002
#: The share of subscriptions that go to another application, of detectors that are pinned, of all limits that is used.
FOREIGN, PINNED, USED = 0.1, 0.03, 0.8


def generated_problem(detectors: int, nodes: int, seed: int) -> Problem:
    """A hierarchy of many applications over nodes at several sites; the same for the same seed.

    Sites are spread over an area of 40 ms, the nodes of one are within 2 ms of each other. Each application has about
    ten detectors on four levels, which listen to one to three below them, one in ten of them to another application's;
    its sensor types enter at one site. What a detector needs of the CPU grows with what it gets; what it publishes is a
    small share of that. All detectors together need 80 % of what the nodes have; 3 % are pinned.

    >>> problem = generated_problem(30, 6, seed=1)
    >>> len(problem.detectors), len(problem.nodes), problem == generated_problem(30, 6, seed=1)
    (30, 6, True)
    """
    if detectors < 2 or nodes < 2:
        raise ConfigError(f"{detectors} detectors and {nodes} nodes are too few to place; give two or more of each.")
    rng = np.random.default_rng([seed, detectors, nodes])
    sites = max(2, round(nodes / SITE))
    site = np.arange(nodes) % sites
    middle = rng.uniform(0, ACROSS, (sites, 2))
    where = middle[site] + rng.uniform(-0.0007, 0.0007, (nodes, 2))
    node_names = [f"n{number + 1}" for number in range(nodes)]
    seconds = OUT + np.hypot(*np.moveaxis(where[:, None] - where[None], -1, 0))
    latencies = {
        (one, another): round(float(seconds[a, b]), 7)
        for a, one in enumerate(node_names)
        for b, another in enumerate(node_names)
        if a < b
    }
    input_rates, subscriptions, ingress = _applications(
        rng, detectors, [np.flatnonzero(site == s) for s in range(sites)]
    )
    limits = rng.uniform(0.75, 1.25, nodes)
    work = 0.3 + np.minimum(input_rates / np.median(input_rates), 3.0)
    shares = work * USED * limits.sum() / work.sum()
    names = [f"d{number}" for number in range(detectors)]
    pinned: dict[str, str] = {}
    room = 0.5 * limits
    for number in rng.choice(detectors, max(1, round(PINNED * detectors)), replace=False).tolist():
        home = int(rng.integers(nodes))
        if shares[number] <= room[home]:
            room[home] -= shares[number]
            pinned[names[number]] = node_names[home]
    return Problem(
        detectors=dict(zip(names, shares.round(6).tolist(), strict=True)),
        nodes=dict(zip(node_names, limits.round(6).tolist(), strict=True)),
        subscriptions=tuple(subscriptions),
        latencies=latencies,
        ingress={name: node_names[home] for name, home in ingress.items()},
        pinned=pinned,
    )


def _applications(
    rng: np.random.Generator, detectors: int, sites: list[np.ndarray]
) -> tuple[np.ndarray, list[Subscription], dict[str, int]]:
    """Events per second of each detector, the subscriptions, and the ingress of sensor types."""
    input_rates, publishes = np.zeros(detectors), np.zeros(detectors)
    subscriptions: dict[tuple[str, str], float] = {}
    ingress: dict[str, int] = {}
    cuts = [*range(0, detectors, APPLICATION), detectors]
    for application, (first, end) in enumerate(pairwise(cuts)):
        home = sites[int(rng.integers(len(sites)))]
        sensors = {}
        for number in range(max(1, round((end - first) / PER_SENSOR))):
            name = f"s{application}_{number}"
            ingress[name] = int(rng.choice(home))
            sensors[name] = round(float(rng.lognormal(5.5, 1.0)), 3)
        level = [sum((each - first + 0.5) / (end - first) > share for share in LEVELS) for each in range(first, end)]
        for each in range(first, end):
            below = [other for other in range(first, each) if level[other - first] == level[each - first] - 1]
            for _ in range(int(rng.integers(1, 4))):
                if first and rng.random() < FOREIGN:
                    other = int(rng.integers(first))
                    publisher, events = f"d{other}", float(publishes[other])
                elif below:
                    other = int(rng.choice(below))
                    publisher, events = f"d{other}", float(publishes[other])
                else:
                    publisher = str(rng.choice(list(sensors)))
                    events = sensors[publisher]
                if (publisher, f"d{each}") not in subscriptions:
                    subscriptions[publisher, f"d{each}"] = events
                    input_rates[each] += events
            publishes[each] = round(float(input_rates[each] * rng.uniform(0.02, 0.4)), 3)
    return input_rates, [Subscription(*ends, events) for ends, events in subscriptions.items()], ingress
