"""Certificates for the nodes of a cluster: a certificate authority, and one certificate per node, as PEM files."""

from __future__ import annotations

import os
from collections.abc import Iterable
from datetime import UTC, datetime, timedelta
from pathlib import Path

from slackline.core.errors import ConfigError
from slackline.core.extras import explain

try:
    from cryptography import x509
    from cryptography.hazmat.primitives import hashes, serialization
    from cryptography.hazmat.primitives.asymmetric import ec
    from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID
except ImportError as error:
    raise explain(error, "slackline.cluster.certificates") from error

AUTHORITY = "ca"
#: An authority is valid for so many times ``days``, so that nodes can be added later.
LONGER = 10
#: The longest common name that X.509 allows.
LONGEST_NAME = 64


def make_certificates(folder: Path, names: Iterable[str], days: int = 365, now: datetime | None = None) -> list[Path]:
    """Make a certificate ``NAME.pem`` and a private key ``NAME.key`` for each node, and the authority if needed.

    The authority is ``ca.pem`` and ``ca.key`` in the folder; it is reused if it exists. Keys are ECDSA P-256, readable
    by their owner only. No existing file is overwritten: one of these names is a ConfigError, before anything is
    written.

    ``days``  how long a node's certificate is valid, from ``now`` (the current time), within the authority's validity,
              which is ten times as long.

    Returns the files that were written.
    """
    now = now or datetime.now(UTC)
    names = list(dict.fromkeys(names))
    for name in names:
        printable = 0 < len(name) <= LONGEST_NAME and name.isprintable()
        if not printable or name == AUTHORITY or Path(name).name != name:
            raise ConfigError(
                f"a certificate cannot be made for a node called {name!r}; a name has 1 to {LONGEST_NAME} printable "
                f"characters without '/', and is not {AUTHORITY!r}."
            )
    if days < 1:
        raise ConfigError(f"days must be at least 1; got {days}.")
    for path in (folder / f"{name}{suffix}" for name in names for suffix in (".pem", ".key")):
        if path.exists():
            raise ConfigError(f"{path} exists and is not overwritten. Delete it first, or give other names.")
    folder.mkdir(parents=True, exist_ok=True)
    written = []
    ca_cert, ca_key = folder / f"{AUTHORITY}.pem", folder / f"{AUTHORITY}.key"
    if not ca_cert.exists() and not ca_key.exists():
        key = ec.generate_private_key(ec.SECP256R1())
        builder = _builder("slackline cluster", key, now, now + timedelta(days=LONGER * days))
        written += _write(ca_cert, builder.sign(key, hashes.SHA256()), key)
    authority, authority_key = _load(ca_cert, ca_key)
    until = min(now + timedelta(days=days), authority.not_valid_after_utc)
    if until <= now:
        raise ConfigError(f"the authority {ca_cert} expired on {until:%Y-%m-%d}. Give another folder for a new one.")
    for name in names:
        key = ec.generate_private_key(ec.SECP256R1())
        builder = _builder(name, key, now, until, authority)
        written += _write(folder / f"{name}.pem", builder.sign(authority_key, hashes.SHA256()), key)
    return written


def _name(text: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, text)])


def _builder(
    name: str,
    key: ec.EllipticCurvePrivateKey,
    now: datetime,
    until: datetime,
    authority: x509.Certificate | None = None,
) -> x509.CertificateBuilder:
    """The certificate of a node, or, without an authority, of one."""
    is_authority = authority is None
    usage = x509.KeyUsage(
        digital_signature=not is_authority, key_cert_sign=is_authority, crl_sign=is_authority, content_commitment=False,
        key_encipherment=False, data_encipherment=False, key_agreement=False, encipher_only=False, decipher_only=False,
    )  # fmt: skip
    builder = (
        x509.CertificateBuilder()
        .subject_name(_name(name))
        .issuer_name(_name(name) if authority is None else authority.subject)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - timedelta(minutes=5))  # clocks of machines differ
        .not_valid_after(until)
        .add_extension(x509.BasicConstraints(ca=is_authority, path_length=0 if is_authority else None), critical=True)
        .add_extension(usage, critical=True)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
    )
    if authority is None:
        return builder
    issuer = x509.AuthorityKeyIdentifier.from_issuer_subject_key_identifier(
        authority.extensions.get_extension_for_class(x509.SubjectKeyIdentifier).value
    )
    both = x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH, ExtendedKeyUsageOID.CLIENT_AUTH])
    return builder.add_extension(issuer, critical=False).add_extension(both, critical=False)


def _load(cert: Path, key: Path) -> tuple[x509.Certificate, ec.EllipticCurvePrivateKey]:
    try:
        authority = x509.load_pem_x509_certificate(cert.read_bytes())
        private = serialization.load_pem_private_key(key.read_bytes(), None)
        if not isinstance(private, ec.EllipticCurvePrivateKey) or private.public_key() != authority.public_key():
            raise ValueError("the key is not the one of the certificate")
        authority.extensions.get_extension_for_class(x509.SubjectKeyIdentifier)
    except (OSError, ValueError, TypeError, x509.ExtensionNotFound) as error:
        raise ConfigError(
            f"cannot use {cert} and {key} as the authority: {error}. Restore both files, or give another folder."
        ) from error
    return authority, private


def _write(path: Path, certificate: x509.Certificate, key: ec.EllipticCurvePrivateKey) -> list[Path]:
    pem, pkcs8, plain = serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    private = path.with_name(f"{path.name.removesuffix('.pem')}.key")
    for target, content, mode in (
        (private, key.private_bytes(pem, pkcs8, plain), 0o600),
        (path, certificate.public_bytes(pem), 0o644),
    ):
        with open(os.open(target, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode), "wb") as file:
            file.write(content)
    return [path, private]
