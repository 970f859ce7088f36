"""A simulated cluster: real nodes in virtual time, links with faults, partitions, crashes; deterministic for a seed.

``Network`` has the nodes, ``Link`` and ``Partition`` define what happens to packets, ``Arrivals`` the input of a node,
``Cpu`` the processor of a host. For tests of an application that runs on several nodes, and for studies; see
docs/guides/simulate-a-cluster.md.
"""

from slackline.cluster.simulation.host import Arrivals, Cpu
from slackline.cluster.simulation.network import Link, Network, Partition, UnsettledError

__all__ = ["Arrivals", "Cpu", "Link", "Network", "Partition", "UnsettledError"]
