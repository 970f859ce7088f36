"""Simulated streams with realistic delays; every function repeats to the bit for the same seed.

``positions``  what a real-time locating system delivers: 36,000 positions a second, most out of order.
``kicks``      near, not_near and kick events whose hits are known.
``ball_jitter``, ``other_jitter``  how long positions travel, for simulations of one's own.
``building``   a day of devices that depend on each other, with what is planted.
``vans``       a fleet over a mobile network: many keys of few events, dead zones, duplicates, wrong clocks.
``thesis_phases``, ``generated_problem``  hierarchies to place on nodes.
``Network``    nodes in virtual time, with ``Link``, ``Partition`` and ``Arrivals``: what befalls packets and nodes.
"""

from slackline.sim.building import Building, building
from slackline.sim.delays import ball_jitter, other_jitter
from slackline.sim.hierarchies import Phases, generated_problem, thesis_phases
from slackline.sim.kicks import HIT, kick_sites, kicks
from slackline.sim.links import Link, Partition
from slackline.sim.network import Network
from slackline.sim.positions import position_chunks, positions
from slackline.sim.station import Arrivals
from slackline.sim.vans import vans

__all__ = [
    "HIT",
    "Arrivals",
    "Building",
    "Link",
    "Network",
    "Partition",
    "Phases",
    "ball_jitter",
    "building",
    "generated_problem",
    "kick_sites",
    "kicks",
    "other_jitter",
    "position_chunks",
    "positions",
    "thesis_phases",
    "vans",
]
