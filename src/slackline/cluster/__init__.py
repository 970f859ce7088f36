"""Nodes in real processes: sockets, disks and clocks around :class:`slackline.nodes.Node`.

``tcp`` runs one node: it listens, dials, keeps (``keeping``) and plays local arrivals (``playback``). ``connection`` is
frames over TCP between two that know each other (``frames``, ``secret``); ``client`` asks a node from outside.
"""
