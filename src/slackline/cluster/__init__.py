"""A hierarchy spread over several nodes, with detectors that migrate while they run.

>>> from slackline.cluster import NodeSettings
>>> NodeSettings(heartbeat_interval=0.5).session_timeout
5.0

``protocol/``    a node as a machine without I/O: messages, arrivals and the time in, :class:`Actions` out.
``controller/``  decides where detectors run; ``placement/`` solves the problem.
``simulation/``  nodes in virtual time, on links with faults.
``interface``    what a host and its node exchange: settings and actions.
``tcp``          runs a node in this process: connections (``links``), input from any source (``ingress``), output
                 records and checkpoints into a sink.
``process``      makes a node of options, and runs it; ``task`` does so on an executor of Spark, and reports to the
                 ``registry`` of the driver.
``client``       requests to a running node; ``certificates`` makes TLS certificates for nodes.
"""

from typing import TYPE_CHECKING

from slackline.core.extras import lazy

if TYPE_CHECKING:
    from slackline.cluster.certificates import make_certificates
    from slackline.cluster.ingress import Ingress
    from slackline.cluster.interface import Actions, NodeSettings, Notice
    from slackline.cluster.links import Credentials, Listener
    from slackline.cluster.protocol import Node, ProtocolError
    from slackline.cluster.tcp import TcpHost

__all__ = [
    "Actions",
    "Credentials",
    "Ingress",
    "Listener",
    "Node",
    "NodeSettings",
    "Notice",
    "ProtocolError",
    "TcpHost",
    "make_certificates",
]

_MODULES = {
    "certificates": ("make_certificates",),
    "ingress": ("Ingress",),
    "interface": ("Actions", "NodeSettings", "Notice"),
    "links": ("Credentials", "Listener"),
    "protocol": ("Node", "ProtocolError"),
    "tcp": ("TcpHost",),
}
__getattr__ = lazy(__name__, {name: f"{__name__}.{module}" for module, names in _MODULES.items() for name in names})
