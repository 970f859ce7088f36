"""Nodes: a hierarchy spread over machines, and detectors that move while they run.

A :class:`Node` is a machine without I/O: a host (``slackline.cluster``) or a simulated network (``slackline.cluster.simulation``)
gives it messages, arrivals and the time, and does what it wants done (:class:`Actions`).
"""

from slackline.cluster.actions import Actions, Notice
from slackline.cluster.protocol.messages import ProtocolError
from slackline.cluster.protocol.node import Node
from slackline.cluster.settings import NodeSettings

__all__ = ["Actions", "Node", "NodeSettings", "Notice", "ProtocolError"]
