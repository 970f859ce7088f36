"""A simulated network of nodes: virtual time, links with faults, crashes; it repeats to the bit for the same seed.

``Network`` has the nodes; ``Link`` and ``Partition`` say what happens to packets, ``Arrivals`` what enters at a node.
For tests of an application that runs on several nodes, and for studies.
"""

from slackline.cluster.simulation.links import Link, Partition
from slackline.cluster.simulation.network import Network
from slackline.cluster.simulation.station import Arrivals

__all__ = ["Arrivals", "Link", "Network", "Partition"]
