"""The protocol of nodes, as a machine without I/O: a hierarchy spread over machines, with detectors that migrate.

A :class:`Node` gets messages, arrivals and the time from a host (``slackline.cluster.tcp``) or a simulated network
(``slackline.cluster.simulation``), and returns what the host has to do (:class:`Actions`).

``node``           the node: drives the engine, makes checkpoints.
``peer_protocol``  what a node does on each message of a peer, and when the cluster is complete.
``messages``       all messages. ``wire``: the events in them.
``membership``     sessions with peers: delivery in order and once, heartbeats, timeouts.
``directory``      which node runs what, of which version of the application; the overview of the cluster.
``pubsub``         publications and subscriptions of types: offsets, retention, gaps, back pressure.
``migration``      the whole protocol by which a detector moves to another node.
"""

from slackline.cluster.interface import Actions, NodeSettings, Notice
from slackline.cluster.protocol.messages import ProtocolError
from slackline.cluster.protocol.node import Node

__all__ = ["Actions", "Node", "NodeSettings", "Notice", "ProtocolError"]
