"""Who may speak: a shared secret, TLS, or only this machine.

Who connects says hello first: what it speaks, whether it has a secret, and 32 random bytes. With a secret each
side then proves that it has it, by an HMAC-SHA256 of both sides' random bytes and of who it is (so that no proof can be
played back, or turned against its sender); the one that was called answers only to a proof that is right. From then on
each frame carries an HMAC under a key of this connection alone, of its direction and its number: nothing can be slipped
in, left out or repeated. A secret does not hide what is said; TLS does.
"""

from __future__ import annotations

import asyncio
import hashlib
import hmac
import secrets
import ssl
from dataclasses import dataclass
from pathlib import Path

from slackline.core.errors import ConfigError, SlacklineError
from slackline.nodes.messages import ProtocolError
from slackline.runtime.address import Address
from slackline.runtime.frames import FrameError

#: Both sides have so many seconds to show who they are.
PATIENCE = 5.0
#: A secret of fewer bytes could be guessed.
LEAST_SECRET = 16
#: Bytes that a seal adds to a frame.
SEAL = 32

_MAGIC = b"slackline\x01"
_NONCE = 32
_PLAIN, _SECRET = b"-", b"s"
_GREETING = len(_MAGIC) + 1 + _NONCE


class AuthenticationError(SlacklineError):
    """The other side is not one of us, or does not believe that we are."""


@dataclass(frozen=True, slots=True)
class Credentials:
    """What a node shows to others and wants to see of them; nothing at all is enough on one machine.

    ``listening`` and ``dialling`` are for TLS: whoever has a certificate of the authority is one of us, wherever it is.
    """

    secret: bytes | None = None
    listening: ssl.SSLContext | None = None
    dialling: ssl.SSLContext | None = None

    @classmethod
    def of(
        cls,
        secret_file: Path | None = None,
        cert: Path | None = None,
        key: Path | None = None,
        authority: Path | None = None,
    ) -> Credentials:
        """From files: a secret, and a certificate, its key and who signs the certificates of all nodes (PEM)."""
        secret = None if secret_file is None else _secret(secret_file)
        if cert is None and key is None and authority is None:
            return cls(secret)
        if cert is None or key is None or authority is None:
            raise ConfigError(
                "TLS needs three files: --tls-cert and --tls-key of this node, and --tls-ca, the certificate of those "
                "who sign the certificates of all nodes. Give all three."
            )
        listening, dialling = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER), ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        # Nodes are told by the authority, not by where they are: it signs for nodes and nobody else.
        dialling.check_hostname = False
        try:
            for context in (listening, dialling):
                context.minimum_version = ssl.TLSVersion.TLSv1_3
                context.verify_mode = ssl.CERT_REQUIRED
                context.load_cert_chain(cert, key)
                context.load_verify_locations(authority)
        except OSError as error:  # also what is wrong with the content
            raise ConfigError(f"cannot use {cert}, {key} and {authority} for TLS: {error}.") from error
        return cls(secret, listening, dialling)

    @property
    def reach_beyond(self) -> bool:
        """Whether they are good enough for a network."""
        return self.secret is not None or self.listening is not None

    def check(self, address: Address) -> Address:
        """The address, if it may be used with these; a ConfigError otherwise."""
        if address.is_loopback or self.reach_beyond:
            return address
        raise ConfigError(
            f"{address} is not on this machine, and anybody there could speak to this node: give --secret-file, a file "
            f"with a secret that all nodes share (`openssl rand -hex 32`), or --tls-cert, --tls-key and --tls-ca."
        )


def _secret(path: Path) -> bytes:
    try:
        secret = path.read_bytes().strip()
    except OSError as error:
        raise ConfigError(f"cannot read the secret: {error}.") from error
    if len(secret) < LEAST_SECRET:
        raise ConfigError(
            f"the secret in {path} has {len(secret)} bytes; it needs at least {LEAST_SECRET}. Make one with "
            f"`openssl rand -hex 32`."
        )
    return secret


class Seal:
    """Signs the frames of one direction, or checks them: each has the number after the one before."""

    def __init__(self, key: bytes, direction: bytes) -> None:
        self._base = hmac.new(key, direction, hashlib.sha256)
        self._number = 0

    def _tag(self, data: bytes) -> bytes:
        tag = self._base.copy()
        tag.update(self._number.to_bytes(8, "big"))
        tag.update(data)
        self._number += 1
        return tag.digest()

    def put(self, data: bytes) -> bytes:
        """The frame with its seal."""
        return data + self._tag(data)

    def take(self, data: bytes) -> bytes:
        """The frame without its seal; a FrameError if it is not the one that follows."""
        body, tag = data[:-SEAL], data[-SEAL:]
        if not hmac.compare_digest(self._tag(body), tag):
            raise FrameError("a frame whose seal is wrong: altered on the way, repeated, or from somebody else.")
        return body


@dataclass(frozen=True, slots=True)
class Seals:
    """Those of both directions, as one side has them."""

    out: Seal
    back: Seal


async def greet(
    reader: asyncio.StreamReader, writer: asyncio.StreamWriter, secret: bytes | None, *, dialled: bool
) -> Seals | None:
    """Show each other who we are; the seals of the connection, None without a secret.

    An AuthenticationError or a ProtocolError says what is wrong with the other side, also if it takes too long.
    """
    try:
        async with asyncio.timeout(PATIENCE):
            return await (_dialled(reader, writer, secret) if dialled else _called(reader, writer, secret))
    except TimeoutError:
        raise AuthenticationError(f"it has not shown who it is within {PATIENCE:g} s.") from None
    except asyncio.IncompleteReadError as error:
        hint = " Is a node there, do both use TLS or neither, and have both the same secret?" if dialled else ""
        raise AuthenticationError(f"it hung up before it showed who it is.{hint}") from error


async def _dialled(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, secret: bytes | None) -> Seals | None:
    ours = _greeting(secret)
    writer.write(ours)
    theirs = await _heard(reader)
    _compare(theirs, secret)
    if secret is None:
        return None
    both = ours + theirs
    writer.write(_proof(secret, b"dialled", both))
    if not hmac.compare_digest(await reader.readexactly(32), _proof(secret, b"called", both)):
        raise AuthenticationError("it has another secret. Give all nodes the same --secret-file.")
    key = _proof(secret, b"key", both)
    return Seals(Seal(key, b"there"), Seal(key, b"back"))


async def _called(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, secret: bytes | None) -> Seals | None:
    theirs = await _heard(reader)
    ours = _greeting(secret)
    writer.write(ours)
    _compare(theirs, secret)
    if secret is None:
        return None
    both = theirs + ours
    if not hmac.compare_digest(await reader.readexactly(32), _proof(secret, b"dialled", both)):
        raise AuthenticationError("it has another secret. Give all nodes the same --secret-file.")
    writer.write(_proof(secret, b"called", both))
    key = _proof(secret, b"key", both)
    return Seals(Seal(key, b"back"), Seal(key, b"there"))


def _greeting(secret: bytes | None) -> bytes:
    return _MAGIC + (_PLAIN if secret is None else _SECRET) + secrets.token_bytes(_NONCE)


async def _heard(reader: asyncio.StreamReader) -> bytes:
    start = await reader.readexactly(len(_MAGIC))  # whoever speaks something else may have said all
    if start != _MAGIC:
        raise ProtocolError(f"it does not speak as a node does: it begins with {start!r}. Is it one, without TLS?")
    return start + await reader.readexactly(_GREETING - len(_MAGIC))


def _compare(theirs: bytes, secret: bytes | None) -> None:
    mode = theirs[len(_MAGIC) : len(_MAGIC) + 1]
    if mode == _SECRET and secret is None:
        raise AuthenticationError("it wants a secret, and we have none. Give --secret-file, the one it has.")
    if mode == _PLAIN and secret is not None:
        raise AuthenticationError("it has no secret, and we want one. Give it --secret-file, the one we have.")
    if mode not in (_SECRET, _PLAIN):
        raise ProtocolError(f"it greets in a way that is not known: {mode!r}. Run one release on all nodes.")


def _proof(secret: bytes, who: bytes, both: bytes) -> bytes:
    return hmac.digest(secret, b"slackline " + who + b"\0" + both, "sha256")
