"""`GET /$partibus/entities/{entity}/messages`: shows messages, and leaves them as they are.

The vendor's HTTP interface has no peek; people at a browser want one. Messages come in the names
of the vendor's batches, from a sequence number on. As with any peek, fewer than asked for says
nothing; none says that there are no more.
"""

from __future__ import annotations

import base64
import math

from starlette.responses import JSONResponse, Response

from partibus.broker.access import Right
from partibus.broker.errors import InvalidArgument
from partibus.management.answers import Answer
from partibus.management.calls import Call
from partibus.management.messages.broker_properties import write_properties
from partibus.management.messages.delivering import body_of
from partibus.management.messages.headers import write_time
from partibus.management.messages.places import place
from partibus.runtime import numbered
from partibus.runtime.requests import Delivered
from partibus.wire.message_contents import as_text
from partibus.wire.message_parts import split
from partibus.wire.values import Timestamp

COUNT_MAX = 250
# Of each body so much is shown, where the caller does not want less.
BODY_BYTES_MAX = 64 * 1024
_CONTENT_TYPE, _DELIVERIES = 6, 4


async def peek(call: Call) -> Response:
    """Messages of the first fragment that has some, from a sequence number on."""
    entity, subqueue = place(call, Right.LISTEN)
    view = numbered.View(
        sequence=_number(call, "from", 0, 2**63 - 1),
        count=_number(call, "count", 32, COUNT_MAX),
        session=call.request.query_params.get("session"),
    )
    most = _number(call, "body", BODY_BYTES_MAX, BODY_BYTES_MAX)
    found: Answer[list[Delivered]] = Answer()
    numbered.peek(call.node, entity, subqueue, view, found.give)
    return JSONResponse({"messages": [_shown(each.payload, most) for each in await found]})


def _number(call: Call, name: str, default: int, most: int) -> int:
    text = call.request.query_params.get(name)
    if text is None:
        return default
    if not (text.isascii() and text.isdecimal()) or int(text) > most:
        raise InvalidArgument(f"{name}={text} is no whole number from 0 to {most}.")
    return int(text)


def _shown(payload: bytes, most: int) -> dict[str, object]:
    """A message: its body as text, or in base64 where it is none."""
    parts = split(payload)
    body = body_of(parts)
    # Nobody receives it now, so this is no delivery.
    deliveries = {"DeliveryCount": parts.header_field(_DELIVERIES) or 0}
    shown: dict[str, object] = {
        "BrokerProperties": write_properties(parts) | deliveries,
        "UserProperties": {name: _plain(value) for name, value in parts.application.items()},
        "ContentType": parts.property(_CONTENT_TYPE),
        "BodyBytes": len(body),
    }
    try:
        text = body.decode()
    except UnicodeDecodeError:
        shown["BodyBase64"] = base64.b64encode(body[:most]).decode()
    else:
        shown["Body"] = text[:most]
    return shown


def _plain(value: object) -> object:
    """A value that JSON has; all others as text."""
    if isinstance(value, Timestamp):
        return write_time(value)
    if isinstance(value, bool) or value is None:
        return value
    if isinstance(value, int):
        return int(value)
    if isinstance(value, float) and math.isfinite(value):
        return float(value)
    return as_text(value)
