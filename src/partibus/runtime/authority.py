"""A certificate authority for development, made at the first start, and the broker's certificate.

It lies in the data directory and signs nothing but the certificate of this broker, for the names
by which clients reach it. What the certificate is used for is in tls.py. Whoever has a certificate
of their own needs none of this.
"""

from __future__ import annotations

import os
import re
import ssl
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from ipaddress import ip_address
from pathlib import Path

from cryptography import x509
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from partibus.config import ConfigurationError
from partibus.store import StoreError

DIRECTORY_NAME = "tls"
AUTHORITY_NAME = "authority.pem"
AUTHORITY_KEY_NAME = "authority-key.pem"
# Key and certificates in one file, so that a crash never leaves one without the other.
SERVER_NAME = "server.pem"
# What the system trusts and our authority: for variables that take the place of the system's list.
TRUSTED_NAME = "trusted.pem"

ALWAYS_NAMED = ("localhost", "127.0.0.1", "::1")
AUTHORITY_LIFE = timedelta(days=3650)
# The longest that all clients accept.
SERVER_LIFE = timedelta(days=825)
# A certificate that ends so soon is made anew.
RENEW_BEFORE = timedelta(days=60)
# The clocks of clients may be behind.
BACKDATED = timedelta(days=1)
NAMES_MAX = 100
TRUSTED_BYTES_MAX = 4 * 1024 * 1024

_LABEL = r"[a-z0-9_](?:[a-z0-9_-]*[a-z0-9])?"
_DNS_NAME = re.compile(rf"(?:\*\.)?{_LABEL}(?:\.{_LABEL})*")
_DNS_NAME_MAX = 253


@dataclass(frozen=True, slots=True)
class Authority:
    """The certificate that clients are to trust, and the key that signs with it."""

    certificate: x509.Certificate
    key: ec.EllipticCurvePrivateKey


def make_certificates(data: Path, names: Iterable[str], now_ms: int) -> Path:
    """The broker's certificate for these names, made or renewed where needed; its file."""
    directory = data / DIRECTORY_NAME
    server = directory / SERVER_NAME
    wanted = check_names([*ALWAYS_NAMED, *names])
    now = datetime.fromtimestamp(now_ms / 1000, tz=UTC)
    try:
        directory.mkdir(mode=0o700, exist_ok=True)
        if not _is_good(directory, wanted, now):
            authority = _read_authority(directory, now) or _new_authority(directory, now)
            _write(server, _new_server(authority, wanted, now), mode=0o600)
        _write_trusted(directory)
    except OSError as error:
        raise StoreError(f"{error.filename or directory}: {error.strerror}") from error
    return server


def read_certificate(path: Path) -> x509.Certificate:
    """The first certificate in a file. Raises StoreError where there is none."""
    try:
        return x509.load_pem_x509_certificate(path.read_bytes())
    except OSError as error:
        raise StoreError(f"{path}: {error.strerror}") from error
    except ValueError as error:
        raise StoreError(f"{path} holds no certificate: {error}") from error


def names_in(certificate: x509.Certificate) -> tuple[str, ...]:
    """The names and addresses that a certificate is for."""
    try:
        found = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    except x509.ExtensionNotFound:
        return ()
    addresses = found.get_values_for_type(x509.IPAddress)
    return (*found.get_values_for_type(x509.DNSName), *map(str, addresses))


def check_names(names: Iterable[str]) -> tuple[str, ...]:
    """The names as certificates spell them, each once."""
    checked: dict[str, None] = {}
    for name in names:
        checked[_checked_name(name)] = None
    if len(checked) > NAMES_MAX:
        raise ConfigurationError("--tls-name", f"at most {NAMES_MAX} names are allowed")
    return tuple(checked)


def _checked_name(name: str) -> str:
    try:
        return str(ip_address(name))
    except ValueError:
        lowered = name.lower()
        if len(name) > _DNS_NAME_MAX or not _DNS_NAME.fullmatch(lowered):
            raise ConfigurationError(
                "--tls-name", f"{name!r} is neither a host name nor an address"
            ) from None
        return lowered


def _is_good(directory: Path, wanted: tuple[str, ...], now: datetime) -> bool:
    """Whether there is a certificate of our authority for all these names, for long enough."""
    try:
        server = read_certificate(directory / SERVER_NAME)
        server.verify_directly_issued_by(read_certificate(directory / AUTHORITY_NAME))
    except (StoreError, ValueError, TypeError, InvalidSignature):
        return False
    return server.not_valid_after_utc - now > RENEW_BEFORE and set(wanted) <= set(names_in(server))


def _read_authority(directory: Path, now: datetime) -> Authority | None:
    """The authority that is there; None where it is to be made."""
    path, key_path = directory / AUTHORITY_NAME, directory / AUTHORITY_KEY_NAME
    if not path.exists():
        return None
    certificate = read_certificate(path)
    if certificate.not_valid_after_utc - now <= RENEW_BEFORE:
        return None
    try:
        key = serialization.load_pem_private_key(key_path.read_bytes(), None)
    except (OSError, ValueError, TypeError) as error:
        # Never replaced silently: clients trust this one.
        raise StoreError(
            f"{key_path} cannot be read, and a new certificate is needed; put the key back, or "
            f"remove {directory} so that another authority is made"
        ) from error
    if not isinstance(key, ec.EllipticCurvePrivateKey):
        raise StoreError(f"{key_path} does not hold the key that was made here")
    return Authority(certificate, key)


def _new_authority(directory: Path, now: datetime) -> Authority:
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name(
        [
            x509.NameAttribute(NameOID.ORGANIZATION_NAME, "partibus"),
            x509.NameAttribute(NameOID.COMMON_NAME, "partibus development authority"),
        ]
    )
    certificate = (
        _builder(name, name, key.public_key(), key.public_key(), now, AUTHORITY_LIFE)
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .add_extension(_usage(signs_certificates=True), critical=True)
        .sign(key, hashes.SHA256())
    )
    # The key first: a certificate without its key could sign nothing.
    _write(directory / AUTHORITY_KEY_NAME, _key_text(key), mode=0o600)
    _write(directory / AUTHORITY_NAME, _text(certificate), mode=0o644)
    return Authority(certificate, key)


def _new_server(authority: Authority, names: tuple[str, ...], now: datetime) -> bytes:
    """A new key and a certificate for these names, as the text of one file."""
    key = ec.generate_private_key(ec.SECP256R1())
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "partibus")])
    issuer = authority.certificate
    certificate = (
        _builder(
            subject, issuer.subject, key.public_key(), authority.key.public_key(), now, SERVER_LIFE
        )
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(_usage(signs_certificates=False), critical=True)
        .add_extension(x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH]), critical=False)
        .add_extension(x509.SubjectAlternativeName(map(_general_name, names)), critical=False)
        .sign(authority.key, hashes.SHA256())
    )
    return _key_text(key) + _text(certificate) + _text(issuer)


def _builder(
    subject: x509.Name,
    issuer: x509.Name,
    key: ec.EllipticCurvePublicKey,
    issuer_key: ec.EllipticCurvePublicKey,
    now: datetime,
    life: timedelta,
) -> x509.CertificateBuilder:
    """What both certificates have; strict clients ask for the identifiers of the keys."""
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key)
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - BACKDATED)
        .not_valid_after(now - BACKDATED + life)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key), critical=False)
        .add_extension(
            x509.AuthorityKeyIdentifier.from_issuer_public_key(issuer_key), critical=False
        )
    )


def _usage(*, signs_certificates: bool) -> x509.KeyUsage:
    return x509.KeyUsage(
        digital_signature=True,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        key_cert_sign=signs_certificates,
        crl_sign=signs_certificates,
        encipher_only=False,
        decipher_only=False,
    )


def _general_name(name: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ip_address(name))
    except ValueError:
        return x509.DNSName(name)


def _text(certificate: x509.Certificate) -> bytes:
    return certificate.public_bytes(serialization.Encoding.PEM)


def _key_text(key: ec.EllipticCurvePrivateKey) -> bytes:
    return key.private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.PKCS8,
        serialization.NoEncryption(),
    )


def _write_trusted(directory: Path) -> None:
    """The authorities that the system trusts, and ours."""
    system = ssl.get_default_verify_paths().cafile
    content = (directory / AUTHORITY_NAME).read_bytes()
    if system is not None:
        with Path(system).open("rb") as file:
            content += file.read(TRUSTED_BYTES_MAX)
    trusted = directory / TRUSTED_NAME
    if not trusted.exists() or trusted.read_bytes() != content:
        _write(trusted, content, mode=0o644)


def _write(path: Path, content: bytes, *, mode: int) -> None:
    """Replace a file as a whole; it never has more readers than its mode says."""
    new = path.with_name(f"{path.name}.new")
    new.unlink(missing_ok=True)
    file = os.open(new, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode)
    with os.fdopen(file, "wb") as stream:
        stream.write(content)
        stream.flush()
        os.fsync(stream.fileno())
    new.replace(path)
