"""Nodes in real processes: sockets, disks and clocks around :class:`slackline.cluster.protocol.Node`.

``tcp`` runs one node: it listens, connects (``links``), reads local arrivals from any source (``ingress``), and writes
output records and checkpoints to a sink. ``connection`` is frames over TCP with TLS (``tls``, ``certificates``);
``client`` asks a node from outside.
"""
