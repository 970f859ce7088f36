"""Network addresses: ``HOST:PORT``."""

from __future__ import annotations

import ipaddress
from typing import NamedTuple

from slackline.core.errors import ConfigError


class Address(NamedTuple):
    """A host and a port.

    >>> Address.of("127.0.0.1:7001"), str(Address.of("[::1]:7001"))
    (Address(host='127.0.0.1', port=7001), '[::1]:7001')
    """

    host: str
    port: int

    @classmethod
    def of(cls, text: str) -> Address:
        """Parse an address; ConfigError if it is not valid."""
        host, _, port = text.rpartition(":")
        bare = host[1:-1] if host.startswith("[") and host.endswith("]") else host
        if not bare or (":" in host and bare == host) or not (port.isascii() and port.isdecimal()):
            raise ConfigError(f"{text!r} is not an address; give HOST:PORT, e.g. 127.0.0.1:7001 or [::1]:7001.")
        if int(port) > 65_535:
            raise ConfigError(f"{text!r}: there is no port {port}; ports are 0 (any that is free) to 65535.")
        return cls(bare, int(port))

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"

    @property
    def is_loopback(self) -> bool:
        """Whether only this machine can connect. A host name other than ``localhost`` may be of any machine."""
        if self.host == "localhost":
            return True
        try:
            return ipaddress.ip_address(self.host).is_loopback
        except ValueError:
            return False

    @property
    def is_everywhere(self) -> bool:
        """Whether it is the unspecified address (all interfaces), to which others cannot connect."""
        try:
            return ipaddress.ip_address(self.host).is_unspecified
        except ValueError:
            return False
