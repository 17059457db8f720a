"""What a client on this machine needs to reach and to trust the broker of a data directory.

Reads what `partibus serve` has left there; makes and changes nothing, and never shows a key of the
authority. For the commands `cert` and `env`.
"""

from __future__ import annotations

from pathlib import Path

from cryptography.hazmat.primitives import hashes

from partibus.runtime.authority import (
    AUTHORITY_NAME,
    DIRECTORY_NAME,
    SERVER_NAME,
    TRUSTED_NAME,
    names_in,
    read_certificate,
)
from partibus.runtime.endpoints import load_endpoints
from partibus.runtime.serving import CATALOG_NAME
from partibus.store import StoreError
from partibus.store.catalog import ROOT_RULE, Catalog


def certificates_of(data: Path) -> dict[str, object]:
    """The certificates made here, for a program."""
    directory = data.absolute() / DIRECTORY_NAME
    authority = read_certificate(directory / AUTHORITY_NAME)
    server = read_certificate(directory / SERVER_NAME)
    return {
        "authority": authority.subject.rfc4514_string(),
        "file": str(directory / AUTHORITY_NAME),
        "sha256": authority.fingerprint(hashes.SHA256()).hex(),
        "authorityValidUntil": authority.not_valid_after_utc.isoformat(),
        "names": list(names_in(server)),
        "validUntil": server.not_valid_after_utc.isoformat(),
    }


def describe_certificates(data: Path) -> list[str]:
    """The certificates made here, for a person."""
    directory = data.absolute() / DIRECTORY_NAME
    authority = read_certificate(directory / AUTHORITY_NAME)
    server = read_certificate(directory / SERVER_NAME)
    return [
        f"authority:   {authority.subject.rfc4514_string()}",
        f"file:        {directory / AUTHORITY_NAME}",
        f"SHA-256:     {authority.fingerprint(hashes.SHA256()).hex(':').upper()}",
        f"valid until: {authority.not_valid_after_utc:%Y-%m-%d}",
        f"broker:      {', '.join(names_in(server))}",
        f"valid until: {server.not_valid_after_utc:%Y-%m-%d}, renewed by the broker in time",
    ]


def authority_text(data: Path) -> bytes:
    """The authority's certificate, as PEM."""
    path = data / DIRECTORY_NAME / AUTHORITY_NAME
    read_certificate(path)
    return path.read_bytes()


def client_variables(data: Path) -> dict[str, str]:
    """The environment in which the official libraries and common tools find the broker."""
    endpoints = load_endpoints(data)
    key = _root_key(data)
    variables = {
        "SERVICEBUS_CONNECTION_STRING": endpoints.connection_string(key),
        "SERVICEBUS_TLS_CONNECTION_STRING": endpoints.tls_connection_string(key),
    }
    directory = data.absolute() / DIRECTORY_NAME
    if (directory / TRUSTED_NAME).exists():
        # The first two take the place of the list that the system trusts, the last adds to it.
        variables["SSL_CERT_FILE"] = str(directory / TRUSTED_NAME)
        variables["REQUESTS_CA_BUNDLE"] = str(directory / TRUSTED_NAME)
        variables["NODE_EXTRA_CA_CERTS"] = str(directory / AUTHORITY_NAME)
    return variables


def _root_key(data: Path) -> str:
    catalog = Catalog.open(data / CATALOG_NAME)
    try:
        rules = catalog.load().rules_of()
    finally:
        catalog.close()
    for rule in rules:
        if rule.name == ROOT_RULE:
            return rule.primary_key
    raise StoreError(f"{data} has no rule {ROOT_RULE}; make a connection string of another rule")
