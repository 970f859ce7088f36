"""Nodes: a hierarchy spread over machines, and detectors that move while they run.

A :class:`Node` is a machine without I/O: a host (``slackline.cluster``) or a simulated network (``slackline.sim``)
gives it messages, arrivals and the time, and does what it wants done (:class:`Actions`).
"""

from slackline.nodes.actions import Actions, Notice
from slackline.nodes.messages import ProtocolError
from slackline.nodes.node import Node
from slackline.nodes.settings import NodeSettings

__all__ = ["Actions", "Node", "NodeSettings", "Notice", "ProtocolError"]
