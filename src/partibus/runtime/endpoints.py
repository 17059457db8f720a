"""Where a namespace is served, and what clients are given to find it.

Written down in the data directory while the broker runs, so that other commands on this machine
find it too. No key is in it: keys lie in the catalog.
"""

from __future__ import annotations

import os
from pathlib import Path

import msgspec

from partibus.store import StoreError
from partibus.store.catalog import ROOT_RULE

FILE_NAME = "endpoints.json"
FILE_BYTES_MAX = 65_536


class Endpoints(msgspec.Struct, frozen=True, kw_only=True):
    """The host as clients on this machine call it, and the ports that are open."""

    host: str
    # Everything: AMQP, HTTP, WebSockets, plain and in TLS.
    port: int
    http_port: int
    # TLS only; whether they are there is the operator's choice.
    tls_port: int | None = None
    https_port: int | None = None

    def connection_string(self, key: str, rule: str = ROOT_RULE) -> str:
        """For the official libraries, in the clear; their administration clients use TLS."""
        return f"{_string(self.host, self.port, key, rule)};UseDevelopmentEmulator=true;"

    def tls_connection_string(self, key: str) -> str:
        """For the official libraries, in TLS."""
        return f"{_string(self.host, self.tls_port or self.port, key)};"


def save_endpoints(data: Path, endpoints: Endpoints) -> None:
    """Write them down."""
    new = data / f"{FILE_NAME}.new"
    try:
        file = os.open(new, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
        with os.fdopen(file, "wb") as stream:
            stream.write(msgspec.json.encode(endpoints))
        new.replace(data / FILE_NAME)
    except OSError as error:
        raise StoreError(f"{new}: {error.strerror}") from error


def forget_endpoints(data: Path) -> None:
    """They are served no more."""
    (data / FILE_NAME).unlink(missing_ok=True)


def load_endpoints(data: Path) -> Endpoints:
    """Those of the broker that serves this data directory. Raises StoreError where none does."""
    path = data / FILE_NAME
    try:
        with path.open("rb") as file:
            return msgspec.json.decode(file.read(FILE_BYTES_MAX), type=Endpoints)
    except OSError as error:
        raise StoreError(f"no broker serves {data}: start one with partibus serve") from error
    except msgspec.MsgspecError as error:
        raise StoreError(f"{path} is damaged: {error}") from error


def _string(host: str, port: int, key: str, rule: str = ROOT_RULE) -> str:
    return f"Endpoint=sb://{host}:{port};SharedAccessKeyName={rule};SharedAccessKey={key}"
