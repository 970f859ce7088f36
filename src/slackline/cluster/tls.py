"""Mutual TLS between nodes; without it, nodes are reachable on loopback addresses only."""

from __future__ import annotations

import ssl
from dataclasses import dataclass
from pathlib import Path

from slackline.core.errors import ConfigError
from slackline.runtime.address import Address


@dataclass(frozen=True, slots=True)
class Credentials:
    """The TLS contexts of a node: ``server`` for connections that it accepts, ``client`` for those that it makes.

    Both present the node's certificate and require one that the same authority has signed. Host names are not checked:
    the authority signs for the nodes of one cluster only, wherever they run. Both are None on a single machine.
    """

    server: ssl.SSLContext | None = None
    client: ssl.SSLContext | None = None

    @classmethod
    def of(cls, cert: Path | None = None, key: Path | None = None, authority: Path | None = None) -> Credentials:
        """From PEM files: the node's certificate and private key, and the authority's certificate. All, or none."""
        if cert is None and key is None and authority is None:
            return cls()
        if cert is None or key is None or authority is None:
            raise ConfigError(
                "TLS needs three files: --tls-cert and --tls-key of this node, and --tls-ca, the certificate of the "
                "authority that signs the certificates of all nodes. Give all three; `slackline certificates` makes "
                "them."
            )
        contexts = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER), ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        try:
            for context in contexts:
                context.minimum_version = ssl.TLSVersion.TLSv1_3
                context.check_hostname = False
                context.verify_mode = ssl.CERT_REQUIRED
                context.load_cert_chain(cert, key)
                context.load_verify_locations(authority)
        except OSError as error:  # ssl.SSLError, too
            raise ConfigError(f"cannot use {cert}, {key} and {authority} for TLS: {error}.") from error
        return cls(*contexts)

    def check(self, address: Address) -> Address:
        """The address, if it may be used with these credentials; a ConfigError otherwise."""
        if address.is_loopback or self.server is not None:
            return address
        raise ConfigError(
            f"{address} is not a loopback address, so TLS is required: give --tls-cert, --tls-key and --tls-ca "
            f"(`slackline certificates` makes them)."
        )
