"""`POST /{entity}/messages`: one message, or a batch that is accepted as a whole (SPEC 7.5).

Answered when it is durable. Where it goes, and whether it may, is the node's business.
"""

from __future__ import annotations

import json
from collections.abc import Mapping

from starlette.responses import Response

from partibus.broker.access import Right
from partibus.broker.descriptions import Entity
from partibus.broker.errors import InvalidArgument, InvalidOperation, MessageTooLarge, Refusal
from partibus.broker.message import Incoming, read_message
from partibus.broker.records import SubQueue
from partibus.management.answers import Answer
from partibus.management.calls import Call
from partibus.management.messages.broker_properties import Outline, read_header, read_properties
from partibus.management.messages.headers import read_user_headers
from partibus.management.messages.places import place
from partibus.wire.errors import EncodeError

BATCH_TYPES = (
    "application/vnd.microsoft.servicebus.json",
    # Some copies of the documents print it so.
    "application/vnd.microsoft.servicebus.yml",
)
# What is somewhat too large is read to its end, so that the sender gets to read why.
READ_ON = 2
# JSON may write a byte in six characters.
JSON_GROWTH = 6
BATCH_MESSAGES_MAX = 5_000
_CREATED = 201


class SessionIdMissing(Refusal):
    """An entity with sessions takes no message without one; HTTP says so in its own way."""

    condition = "amqp:not-allowed"
    status = 405


async def send(call: Call) -> Response:
    """Take a message or a batch in."""
    entity, subqueue = place(call, Right.SEND)
    if subqueue is not SubQueue.ACTIVE:
        raise InvalidOperation("Messages cannot be sent to a sub-queue.")
    content_type = call.request.headers.get("content-type")
    kind = (content_type or "").partition(";")[0].strip().lower()
    most = entity.description.max_message_bytes
    if kind in BATCH_TYPES:
        outlines = _read_batch(await call.body(most * JSON_GROWTH))
    else:
        outline = read_header(call.request.headers.get("brokerproperties"))
        outline.properties.content_type = content_type
        outline.application = read_user_headers(call.connection.headers_as_sent)
        outlines = [(outline, await call.body(most * READ_ON))]
    messages = _read(call, entity, outlines, most)
    if entity.description.requires_session and any(each.session is None for each in messages):
        raise SessionIdMissing(f"'{entity.name}' requires sessions: a message needs a SessionId.")
    await _stored(call, entity, messages)
    return Response(status_code=_CREATED)


def _read_batch(body: bytes) -> list[tuple[Outline, bytes]]:
    try:
        found = json.loads(body)
    except (ValueError, RecursionError) as error:
        raise InvalidArgument(f"The batch is not JSON: {error}") from error
    if not isinstance(found, list) or not 0 < len(found) <= BATCH_MESSAGES_MAX:
        raise InvalidArgument(f"The batch is no list of 1 to {BATCH_MESSAGES_MAX} messages.")
    return [_read_item(each) for each in found]


def _read_item(item: object) -> tuple[Outline, bytes]:
    if not isinstance(item, Mapping) or not isinstance(item.get("Body", ""), str):
        raise InvalidArgument('A message of a batch is an object: {"Body": "text", ...}.')
    outline = read_properties(item.get("BrokerProperties", {}))
    content_type = item.get("ContentType")
    if isinstance(content_type, str):
        outline.properties.content_type = content_type
    properties = item.get("UserProperties", {})
    plain = (str, bool, int, float, type(None))
    if not isinstance(properties, Mapping) or not all(
        isinstance(value, plain) for value in properties.values()
    ):
        raise InvalidArgument("UserProperties are an object of texts, numbers and truth values.")
    outline.application = dict(properties)
    return outline, item.get("Body", "").encode()


def _read(
    call: Call, entity: Entity, outlines: list[tuple[Outline, bytes]], most: int
) -> list[Incoming]:
    now_ms = call.node.clock.now_ms()
    new_id = call.node.entropy.message_id
    try:
        payloads = [outline.with_body(body, now_ms) for outline, body in outlines]
    except (EncodeError, UnicodeEncodeError) as error:
        raise InvalidArgument(f"A property cannot be kept: {error}") from error
    if sum(map(len, payloads)) > most:
        raise MessageTooLarge(f"'{entity.name}' takes at most {most} bytes at a time.")
    return [read_message(payload, most, new_id) for payload in payloads]


async def _stored(call: Call, entity: Entity, messages: list[Incoming]) -> None:
    """Returns when all of them are durable."""
    answer: Answer[list[int]] = Answer()
    call.node.sender(entity).send([(0, messages)], answer.give)
    await answer
