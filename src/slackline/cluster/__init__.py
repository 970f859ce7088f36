"""Nodes in real processes: sockets, disks and clocks around :class:`slackline.nodes.Node`.

``tcp`` runs one node: it listens, connects (``links``), stores (``runtime.keeping``) and replays local arrivals
(``playback``). ``connection`` is frames over TCP with TLS (``tls``, ``certificates``); ``client`` asks a node from
outside.
"""
