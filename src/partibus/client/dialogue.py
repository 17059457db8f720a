"""Requests and responses over a pair of links: the way to `$cbs` and to `$management` (SPEC 4.1).

A response finds its request by the correlation-id. What is asked, and what an answer means, is
not known here.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from partibus.client.errors import LinkLost
from partibus.client.link_end import LinkEnd
from partibus.client.outbox import Outbox
from partibus.client.pending import Pending
from partibus.engine.delivery import Delivery
from partibus.engine.link import ReceiverLink, SenderLink
from partibus.wire.codec import decode, encode, encode_list
from partibus.wire.errors import DecodeError
from partibus.wire.message_scan import APPLICATION_PROPERTIES, PROPERTIES, VALUE
from partibus.wire.performatives import ACCEPTED
from partibus.wire.values import Described

RESPONSE_CREDIT = 100
_CORRELATION_ID: Final = 5
# `$cbs` and `$management` spell the same things differently.
_STATUS = ("statusCode", "status-code")
_DESCRIPTION = ("statusDescription", "status-description")
_CONDITION = ("errorCondition", "error-condition")


@dataclass(frozen=True, slots=True)
class Response:
    """The answer to a request."""

    status: int
    text: str
    condition: str | None
    body: object


class Dialogue:
    """A pair of links to one node of the service."""

    def __init__(self, requests: SenderLink, responses: ReceiverLink, reply_to: str) -> None:
        self._outbox = Outbox(requests)
        self._replies = _Replies(responses, self)
        self._reply_to = reply_to
        self._asked: dict[str, Pending[Response]] = {}
        self._count = 0
        for end in self.ends:
            end.detached.then(self._end)

    @property
    def ends(self) -> tuple[LinkEnd, LinkEnd]:
        """Both links."""
        return self._outbox, self._replies

    @property
    def is_over(self) -> bool:
        """Whether one of the links has ended."""
        return self._outbox.error is not None or self._replies.error is not None

    def ask(
        self, properties: Mapping[str, object], body: object, *, state: object = None
    ) -> Pending[Response]:
        """Send a request as soon as there is credit; its response is the answer."""
        answer: Pending[Response] = Pending()
        self._count += 1
        message_id = f"{self._reply_to}:{self._count}"
        payload = _request(message_id, self._reply_to, properties, body)
        self._asked[message_id] = answer

        def sent() -> None:
            error = outcome.error
            if error is not None and self._asked.pop(message_id, None) is not None:
                answer.fail(error)

        outcome = self._outbox.send(payload, state=state)
        outcome.then(sent)
        # Whoever does not wait any more is not remembered for ever.
        self._asked = {name: each for name, each in self._asked.items() if each.is_wanted}
        return answer

    def on_response(self, payload: bytes) -> None:
        """Give a response to who asked; one that nobody waits for is dropped."""
        try:
            correlation_id, response = _read_response(payload)
        except DecodeError:
            return
        answer = self._asked.pop(correlation_id, None)
        if answer is not None:
            answer.resolve(response)

    def _end(self) -> None:
        """One link is over: with it the dialogue, and what was asked stays without answer."""
        error = self._outbox.error or self._replies.error or LinkLost("the link has ended")
        asked, self._asked = self._asked, {}
        for answer in asked.values():
            answer.fail(error)
        for end in self.ends:
            end.close()


class _Replies(LinkEnd):
    """The link on which responses come."""

    def __init__(self, link: ReceiverLink, dialogue: Dialogue) -> None:
        super().__init__(link)
        self._link = link
        self._dialogue = dialogue
        link.grant(RESPONSE_CREDIT)

    def on_deliveries(self, deliveries: list[Delivery]) -> None:
        unsettled = [each.delivery_id for each in deliveries if not each.settled]
        if unsettled:
            self._link.settle(unsettled, ACCEPTED)
        if self._link.credit <= RESPONSE_CREDIT // 2:
            self._link.grant(RESPONSE_CREDIT)
        for delivery in deliveries:
            self._dialogue.on_response(delivery.payload)


def _request(
    message_id: str, reply_to: str, properties: Mapping[str, object], body: object
) -> bytes:
    null = encode(None)
    fields = [encode(message_id), null, null, null, encode(reply_to)]
    return b"".join(
        (
            bytes((0x00, 0x53, PROPERTIES)),
            encode_list(fields),
            bytes((0x00, 0x53, APPLICATION_PROPERTIES)),
            encode(dict(properties)),
            bytes((0x00, 0x53, VALUE)),
            encode(body),
        )
    )


def _read_response(payload: bytes) -> tuple[str, Response]:
    sections: dict[object, object] = {}
    position = 0
    while position < len(payload):
        section, position = decode(payload, position)
        if not isinstance(section, Described):
            raise DecodeError("a message consists of sections")
        sections[section.descriptor] = section.value
    fields, found = sections.get(PROPERTIES), sections.get(APPLICATION_PROPERTIES)
    if not isinstance(fields, list) or not isinstance(found, dict):
        raise DecodeError("a response without properties")
    status = _first(found, _STATUS)
    condition = _first(found, _CONDITION)
    response = Response(
        status=status if isinstance(status, int) else 500,
        text=str(_first(found, _DESCRIPTION) or "the service gave no text"),
        condition=None if condition is None else str(condition),
        body=sections.get(VALUE),
    )
    return str(fields[_CORRELATION_ID] if len(fields) > _CORRELATION_ID else None), response


def _first(found: dict[object, object], names: tuple[str, ...]) -> object:
    return next((found[name] for name in names if found.get(name) is not None), None)
