"""Requests and responses over a pair of links, as `$cbs` and `$management` both use them.

Reads a request's properties and body, routes the response to the right link, and writes it with
the correlation-id in the AMQP type the request's message-id had. What is asked is not known here.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from uuid import UUID

from partibus.broker.access import Right
from partibus.engine.delivery import Delivery
from partibus.engine.link import ReceiverLink, SenderLink
from partibus.gateway.bindings import Binding, Carrier
from partibus.gateway.outcomes import as_optional_text, as_text
from partibus.wire.codec import decode, encode, encode_list
from partibus.wire.errors import DecodeError
from partibus.wire.performatives import ACCEPTED, Rejected, TransactionalState
from partibus.wire.values import Described, ULong

# Requests on one link whose responses have not left yet: a client that takes no responses can
# ask no more.
REQUEST_CREDIT = 100
# Some clients do not wait for credit. Beyond this their link ends.
REQUESTS_OPEN_MAX = 2 * REQUEST_CREDIT
TRANSFER_LIMIT_EXCEEDED = "amqp:link:transfer-limit-exceeded"

_PROPERTIES, _APPLICATION_PROPERTIES, _DATA, _VALUE = 0x73, 0x74, 0x75, 0x77
_MESSAGE_ID, _REPLY_TO = 0, 4
_MESSAGE_ID_TYPES = (str, UUID, ULong, bytes, type(None))
_NULL = b"\x40"


@dataclass(slots=True)
class Request:
    """A request message: who asks, what for, and the body."""

    message_id: object = None
    reply_to: str | None = None
    properties: Mapping[str, object] = None  # type: ignore[assignment]
    body: object = None
    # The transaction that it is part of.
    txn_id: bytes | None = None

    def text(self, name: str) -> str | None:
        """An application property as text; None where it is missing."""
        return as_optional_text(self.properties.get(name))


def read_request(payload: bytes) -> Request:
    """Read a request message. Raises DecodeError where it is none."""
    request = Request(properties={})
    position = 0
    while position < len(payload):
        section, position = decode(payload, position)
        if not isinstance(section, Described):
            raise DecodeError("a message consists of sections")
        value = section.value
        if section.descriptor == _PROPERTIES and isinstance(value, list):
            request.message_id = value[_MESSAGE_ID] if value else None
            if not isinstance(request.message_id, _MESSAGE_ID_TYPES):
                raise DecodeError("a message-id of an unknown type")
            if len(value) > _REPLY_TO:
                request.reply_to = as_optional_text(value[_REPLY_TO])
        elif section.descriptor == _APPLICATION_PROPERTIES and isinstance(value, dict):
            request.properties = {as_text(key): item for key, item in value.items()}
        elif section.descriptor in (_DATA, _VALUE):
            request.body = value
    return request


def write_response(correlation_id: object, properties: Mapping[str, object], body: object) -> bytes:
    """A response message: correlation-id, application properties, and the body as a value."""
    fields = [_NULL] * 5 + [encode(correlation_id)]
    return b"".join(
        (
            b"\x00\x53\x73",
            encode_list(fields),
            b"\x00\x53\x74",
            encode(dict(properties)),
            b"\x00\x53\x77",
            encode(body),
        )
    )


class ResponseLink(Binding):
    """The link on which a client gets its responses."""

    def __init__(
        self, carrier: Carrier, link: SenderLink, path: str, right: Right, *, may_idle_out: bool
    ) -> None:
        self.path = path
        self.right = right
        self.may_idle_out = may_idle_out
        self.active_ms = carrier.now_ms()
        self._carrier = carrier
        self._link = link
        # Each with the link of its request, which bounds how many there are.
        self._waiting: deque[tuple[bytes, RequestLink]] = deque()
        self._sent = 0

    @property
    def link(self) -> SenderLink:
        """The engine's link."""
        return self._link

    @property
    def target(self) -> str | None:
        """What the client calls its end; requests may name it as reply-to."""
        attach = self._link.peer_attach
        target = attach.target if attach is not None else None
        return as_optional_text(getattr(target, "address", None))

    def send(self, response: bytes, origin: RequestLink) -> None:
        """Send a response, or keep it until there is credit; its request is open until then."""
        self._waiting.append((response, origin))
        self._carrier.wake(self)

    def flowed(self) -> None:
        """There may be credit for what waits, or room in the session."""
        if self._waiting and self._link.credit and not self._link.sendable:
            self._carrier.wait_for_room(self)
        else:
            self._carrier.wake(self)

    def flush(self) -> None:
        """Send what waits, as far as the credit goes; then a drain is answered."""
        link, waiting = self._link, self._waiting
        while waiting and link.sendable > 0:
            self._sent += 1
            response, origin = waiting.popleft()
            link.send(self._sent.to_bytes(4, "big"), response, settled=True)
            origin.answered()
            self.active_ms = self._carrier.now_ms()
        if waiting and link.credit:
            self._carrier.wait_for_room(self)
        elif link.drain and link.credit:
            link.drained()

    def close(self) -> None:
        """Responses have nowhere to go any more."""
        waiting, self._waiting = self._waiting, deque()
        for _, origin in waiting:
            origin.answered()


class RequestLink(Binding):
    """The link on which a client asks. `answer` is called for each request."""

    def __init__(
        self,
        carrier: Carrier,
        link: ReceiverLink,
        path: str,
        right: Right,
        answer: Callable[[Request, RequestLink], None],
        *,
        may_idle_out: bool,
    ) -> None:
        self.path = path
        self.right = right
        self.may_idle_out = may_idle_out
        self.active_ms = carrier.now_ms()
        self._carrier = carrier
        self._link = link
        self._answer = answer
        # Requests whose responses have not left.
        self._open = 0
        self._is_over = False
        link.grant(REQUEST_CREDIT)

    @property
    def link(self) -> ReceiverLink:
        """The engine's link."""
        return self._link

    def deliveries(self, deliveries: list[Delivery]) -> None:
        """Accept what can be read, and have it answered."""
        self.active_ms = self._carrier.now_ms()
        for delivery in deliveries:
            if self._carrier.claims.struck_out:
                # Too many wrong tokens: the connection ends with this turn, and nothing is read.
                return
            if self._open >= REQUESTS_OPEN_MAX:
                self._end()
                return
            outcome: object = ACCEPTED
            try:
                request = read_request(delivery.payload)
                if isinstance(delivery.state, TransactionalState):
                    request.txn_id = delivery.state.txn_id
                    outcome = TransactionalState(request.txn_id, ACCEPTED)
            except DecodeError as error:
                text = f"The request cannot be read: {error}."
                outcome = Rejected(
                    self._carrier.tracking.error("amqp:decode-error", text, self.path)
                )
            if not delivery.settled:
                self._link.settle([delivery.delivery_id], outcome)
            if not isinstance(outcome, Rejected):
                self._open += 1
                self._answer(request, self)
        self._carrier.wake(self)

    def _end(self) -> None:
        if not self._is_over:
            self._is_over = True
            text = f"More than {REQUESTS_OPEN_MAX} requests wait for their responses to be taken."
            error = self._carrier.tracking.error(TRANSFER_LIMIT_EXCEEDED, text, self.path)
            self._carrier.detach(self, error)

    def flush(self) -> None:
        """Keep requests coming, as far as responses are taken."""
        credit, granted = REQUEST_CREDIT - self._open, self._link.credit
        if not self._is_over and credit > granted and granted <= REQUEST_CREDIT // 2:
            self._link.grant(credit)

    def respond(self, request: Request, properties: Mapping[str, object], body: object) -> None:
        """Write the response to the link that waits for it; without one it is dropped."""
        link = self._response_link(request.reply_to)
        if link is not None:
            link.send(write_response(request.message_id, properties, body), self)
        else:
            self.answered()

    def answered(self) -> None:
        """A response has left, or has nowhere to go."""
        self._open -= 1
        self._carrier.wake(self)

    def close(self) -> None:
        """Nobody asks here any more; what was asked is answered."""
        self._is_over = True

    def _response_link(self, reply_to: str | None) -> ResponseLink | None:
        """The response link of the same session and node; reply-to decides among several.

        Python clients all use the same text as reply-to, so it alone does not tell them apart.
        """
        found = [
            binding
            for binding in self._carrier.bindings_of(self._link.session)
            if isinstance(binding, ResponseLink) and binding.path == self.path
        ]
        named = [link for link in found if reply_to is not None and link.target == reply_to]
        candidates = named or found
        return candidates[0] if candidates else None
