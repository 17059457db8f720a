"""What a connection string says: where the service is, how to reach it, and who we are (SPEC 3.8).

Not for addresses of entities; a string may name the one entity it was made for.
"""

from __future__ import annotations

from dataclasses import dataclass
from urllib.parse import urlsplit

from partibus.client.tokens import Credentials, SharedKey, SharedSignature

PORT_TLS = 5671
PORT_PLAIN = 5672


@dataclass(frozen=True, slots=True)
class Destination:
    """A service and the way to it; `credentials` None for a service that asks for none."""

    host: str
    port: int
    is_plain: bool
    credentials: Credentials | None
    entity: str | None
    # Whether the port was said, or is AMQP's usual one.
    has_port: bool = False


def read_connection_string(text: str) -> Destination:
    """Read a connection string. Raises ValueError, which never repeats a key."""
    fields = _fields(text)
    endpoint = fields.pop("endpoint", None) or fields.pop("hostname", None)
    if not endpoint:
        raise ValueError("the connection string has no Endpoint")
    # Only the literal `true` counts, as in the official libraries.
    is_plain = fields.pop("usedevelopmentemulator", "") == "true"
    host, port = _host_and_port(endpoint)
    return Destination(
        host=host,
        port=port or (PORT_PLAIN if is_plain else PORT_TLS),
        is_plain=is_plain,
        credentials=_credentials(fields),
        entity=fields.get("entitypath") or None,
        has_port=port is not None,
    )


def _fields(text: str) -> dict[str, str]:
    fields: dict[str, str] = {}
    for part in text.split(";"):
        if not part.strip():
            continue
        key, separator, value = part.partition("=")
        if not separator:
            raise ValueError("the connection string has a part that is not Key=Value")
        name = key.strip().lower()
        if name in fields:
            raise ValueError(f"the connection string has {key.strip()} twice")
        fields[name] = value.strip()
    return fields


def _host_and_port(endpoint: str) -> tuple[str, int | None]:
    parts = urlsplit(endpoint if "://" in endpoint else f"sb://{endpoint}")
    if not parts.hostname:
        raise ValueError("the Endpoint of the connection string has no host")
    return parts.hostname, parts.port


def _credentials(fields: dict[str, str]) -> Credentials | None:
    name, key = fields.get("sharedaccesskeyname"), fields.get("sharedaccesskey")
    signature = fields.get("sharedaccesssignature")
    if signature:
        if name or key:
            raise ValueError("a connection string has a SharedAccessKey or a signature, not both")
        return SharedSignature(signature)
    if bool(name) != bool(key):
        raise ValueError("SharedAccessKeyName and SharedAccessKey belong together")
    return SharedKey(name, key) if name and key else None
