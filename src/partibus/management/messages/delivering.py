"""`/{entity}/messages/head`: peek-lock (POST), receive-and-delete (DELETE); what a receiver gets.

A message becomes an answer: its body, its BrokerProperties, its user properties as headers, and
where it can be settled.
"""

from __future__ import annotations

import json
import math

from starlette.responses import Response

from partibus.broker.access import Right
from partibus.broker.errors import InvalidArgument
from partibus.management.calls import Call
from partibus.management.messages.broker_properties import write_properties
from partibus.management.messages.headers import write_user_headers
from partibus.management.messages.places import place
from partibus.management.messages.receiving import receptions_of
from partibus.runtime.receiving import ReceiveMode
from partibus.runtime.requests import Delivered
from partibus.wire.message_parts import Parts, split

TIMEOUT_S_MAX = 60.0
_OK, _CREATED, _NONE = 200, 201, 204


async def peek_lock(call: Call) -> Response:
    """The next message, locked for the caller."""
    message = await _next(call, ReceiveMode.PEEK_LOCK)
    if message is None:
        return Response(status_code=_NONE)
    response, parts = _answer(message, _CREATED)
    number = parts.annotations.get("x-opt-sequence-number")
    token = parts.delivery_annotations.get("x-opt-lock-token")
    base = str(call.request.url.replace(query="")).removesuffix("/head")
    response.headers["location"] = f"{base}/{number}/{token}"
    return response


async def receive_and_delete(call: Call) -> Response:
    """The next message, which is gone from the entity when it is handed over."""
    message = await _next(call, ReceiveMode.RECEIVE_AND_DELETE)
    return Response(status_code=_NONE) if message is None else _answer(message, _OK)[0]


async def _next(call: Call, mode: ReceiveMode) -> Delivered | None:
    entity, subqueue = place(call, Right.LISTEN)
    span_s = _timeout_s(call.request.query_params.get("timeout"))
    reception = receptions_of(call.connection, call.node).reception(entity, subqueue, mode)
    return await reception.next(span_s)


def _timeout_s(text: str | None) -> float:
    if text is None:
        return TIMEOUT_S_MAX
    try:
        span_s = float(text)
    except ValueError:
        span_s = math.nan
    if not span_s >= 0:
        raise InvalidArgument(f"timeout={text} is no number of seconds.")
    return min(span_s, TIMEOUT_S_MAX)


def _answer(message: Delivered, status: int) -> tuple[Response, Parts]:
    parts = split(message.payload)
    content_type = parts.property(6)
    response = Response(body_of(parts), status)
    headers = response.raw_headers
    headers.append((b"BrokerProperties", json.dumps(write_properties(parts)).encode()))
    if content_type is not None:
        headers.append((b"Content-Type", str(content_type).encode("ascii", "replace")))
    headers += write_user_headers(parts.application)
    return response, parts


def body_of(parts: Parts) -> bytes:
    """The body as bytes: data as it is, text in UTF-8, any other value as JSON."""
    if parts.data:
        return b"".join(parts.data)
    value = parts.value
    if value is None or isinstance(value, bytes):
        return value or b""
    return (value if isinstance(value, str) else json.dumps(value, default=str)).encode()
