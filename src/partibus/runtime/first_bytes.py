"""What a client speaks, told from its first bytes: AMQP, HTTP, or a WebSocket inside HTTP.

Pure: bytes in, an answer out, or none while more bytes are needed. TLS is told one step earlier,
by the first byte of the socket (see port.py); what is inside it comes here again.
"""

from __future__ import annotations

from enum import Enum
from urllib.parse import unquote_to_bytes

# The first byte of a TLS handshake record. No other protocol here begins with it.
TLS_HANDSHAKE = b"\x16"
WEBSOCKET_PATH = b"/$servicebus/websocket"
# A request line is read until its target is known to be a WebSocket's or not; a longer one cannot
# be, and is the HTTP door's to refuse.
REQUEST_LINE_BYTES_MAX = 8_192
METHOD_BYTES_MAX = 16

_AMQP = b"AMQP"


class Speech(Enum):
    """What the first bytes are the beginning of."""

    AMQP = "amqp"
    HTTP = "http"
    WEBSOCKET = "websocket"
    RUBBISH = "rubbish"


def tell(first: bytes) -> Speech | None:
    """What these bytes begin; None while that cannot be said yet."""
    if _AMQP.startswith(first[: len(_AMQP)]):
        return Speech.AMQP if len(first) >= len(_AMQP) else None
    method, space, rest = first.partition(b" ")
    if not (method.isalpha() and method.isupper()) or len(method) > METHOD_BYTES_MAX:
        return Speech.RUBBISH
    if not space:
        return None
    if method != b"GET":
        return Speech.HTTP
    target, space, _ = rest.partition(b" ")
    if not space and b"\n" not in target and len(first) < REQUEST_LINE_BYTES_MAX:
        return None
    return Speech.WEBSOCKET if _is_websocket(target) else Speech.HTTP


def _is_websocket(target: bytes) -> bool:
    path = target.partition(b"?")[0].rstrip(b"/")
    return unquote_to_bytes(path).lower() == WEBSOCKET_PATH
