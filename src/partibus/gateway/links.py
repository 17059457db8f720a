"""What a client's attach asks for, and whether it gets it: addresses become bindings.

A link is authorised first and resolved then, so that names are not told to who may not know them.
Every refusal is an attach without source and target followed by a detach with the error (SPEC
3.9). What happens on a bound link is in publisher, consumer, cbs and requests.
"""

from __future__ import annotations

from functools import partial

from partibus.broker.access import Right
from partibus.broker.descriptions import Entity
from partibus.broker.errors import (
    EntityDisabled,
    InvalidOperation,
    NotImplementedHere,
    QuotaExceeded,
    Refusal,
    Unauthorized,
)
from partibus.broker.forwarding import check_receivable
from partibus.broker.records import SubQueue
from partibus.engine.link import ReceiverLink, SenderLink
from partibus.gateway.addresses import MANAGEMENT, Address, NodeKind, read_address
from partibus.gateway.bindings import Binding, Carrier
from partibus.gateway.cbs import answer_cbs
from partibus.gateway.consumer import Consumer
from partibus.gateway.coordinator import bind_coordinator
from partibus.gateway.dialogue import RequestLink, ResponseLink
from partibus.gateway.publisher import Publisher
from partibus.gateway.requests import answer_management
from partibus.gateway.session_consumer import SessionConsumer, read_session_filter
from partibus.gateway.via_publisher import ViaPublisher
from partibus.wire.performatives import Attach, Coordinator
from partibus.wire.values import ULong

ENTITY_TYPE = "com.microsoft:entity-type"
ENTITY_TYPE_QUEUE = 0
TRANSFER_DESTINATION = "com.microsoft:transfer-destination-address"
BATCH_SIZE_PROPERTY = "com.microsoft:max-message-batch-size"
TRACKING_PROPERTY = "com.microsoft:tracking-id"
# Premium namespaces take large messages, but no batch over a megabyte.
BATCH_BYTES_MAX = 1_048_576
UNLIMITED_SIZE = 2**64 - 1
# Clients use one pair of links a connection, or one a token, one after the other.
CBS_LINKS_MAX = 16
CBS_MESSAGE_BYTES_MAX = 65_536
# A message this much over its entity's limit is rejected; a larger one ends its link, because
# it is not even read.
OVERSIZE_BYTES = 65_536

_NO_RIGHTS_NEEDED = Right(0)
_EITHER = Right.LISTEN | Right.SEND


def bind(carrier: Carrier, link: SenderLink | ReceiverLink, attach: Attach) -> Binding | None:
    """Answer an attach; the binding of the link, or None where it was refused."""
    entity_name = ""
    try:
        if isinstance(link, ReceiverLink) and isinstance(attach.target, Coordinator):
            return bind_coordinator(carrier, link)
        address = _address(link, attach)
        entity_name = address.path
        if address.kind is NodeKind.CBS:
            return _bind_cbs(carrier, link)
        if address.kind is NodeKind.MANAGEMENT:
            return _bind_management(carrier, link, address.path)
        if isinstance(link, SenderLink):
            return _bind_consumer(carrier, link, attach, address.path)
        return _bind_publisher(carrier, link, attach, address.path)
    except Refusal as refusal:
        link.refuse(carrier.tracking.error_of(refusal, entity_name))
        return None


def _address(link: SenderLink | ReceiverLink, attach: Attach) -> Address:
    terminus = attach.source if isinstance(link, SenderLink) else attach.target
    if getattr(terminus, "dynamic", False):
        raise NotImplementedHere("Dynamic nodes are not available.")
    return read_address(getattr(terminus, "address", None))


def _authorise(carrier: Carrier, path: str, right: Right) -> None:
    if not carrier.claims.allows(path, right, carrier.now_ms()):
        names = " or ".join(f"'{one.name.capitalize()}'" for one in right if one.name)
        raise Unauthorized(
            f"Unauthorized access. {names} claim(s) are required to perform this operation. "
            f"Resource: 'sb://{carrier.settings.namespace}/{path}'."
        )


def _bind_cbs(carrier: Carrier, link: SenderLink | ReceiverLink) -> Binding:
    # These links are open to strangers: what they can make us keep is bounded tightly.
    if carrier.count_at("") >= CBS_LINKS_MAX:
        raise QuotaExceeded(f"A connection has at most {CBS_LINKS_MAX} links to $cbs.")
    if isinstance(link, ReceiverLink):
        link.message_size_max = CBS_MESSAGE_BYTES_MAX
    link.accept(max_message_size=UNLIMITED_SIZE)
    if isinstance(link, SenderLink):
        return ResponseLink(carrier, link, "", _NO_RIGHTS_NEEDED, may_idle_out=False)
    answer = partial(answer_cbs, carrier)
    return RequestLink(carrier, link, "", _NO_RIGHTS_NEEDED, answer, may_idle_out=False)


def _bind_management(carrier: Carrier, link: SenderLink | ReceiverLink, path: str) -> Binding:
    # Some clients show a token for this node and none for its entity.
    node_path = f"{path}/{MANAGEMENT}"
    _authorise(carrier, node_path, _EITHER)
    entity, subqueue = carrier.node.resolve(path)
    link.accept(max_message_size=UNLIMITED_SIZE)
    if isinstance(link, SenderLink):
        return ResponseLink(carrier, link, node_path, _EITHER, may_idle_out=True)
    answer = partial(answer_management, carrier, entity, subqueue)
    return RequestLink(carrier, link, node_path, _EITHER, answer, may_idle_out=True)


def _bind_publisher(carrier: Carrier, link: ReceiverLink, attach: Attach, path: str) -> Publisher:
    _authorise(carrier, path, Right.SEND)
    entity, subqueue = carrier.node.resolve(path)
    _check_type(attach, entity)
    destination = _transfer_destination(carrier, attach)
    if subqueue is not SubQueue.ACTIVE:
        raise InvalidOperation(f"'{path}' is a sub-queue: messages cannot be sent to it.")
    if entity.topic and destination is None:
        raise InvalidOperation(f"'{entity.name}' is a subscription: send to its topic.")
    if not entity.description.allows_send:
        raise EntityDisabled(f"The messaging entity '{entity.name}' is disabled for sending.")
    size = entity.description.max_message_bytes
    link.message_size_max = max(link.message_size_max, size + OVERSIZE_BYTES)
    properties: dict[object, object] = {
        BATCH_SIZE_PROPERTY: ULong(min(size, BATCH_BYTES_MAX)),
        TRACKING_PROPERTY: carrier.tracking.new_id(),
    }
    if destination is None:
        link.accept(max_message_size=size, properties=properties)
        return Publisher(carrier, link, path, entity)
    properties[TRANSFER_DESTINATION] = (attach.properties or {})[TRANSFER_DESTINATION]
    link.accept(max_message_size=size, properties=properties)
    return ViaPublisher(carrier, link, path, entity, destination)


def _transfer_destination(carrier: Carrier, attach: Attach) -> Entity | None:
    """Where messages go that are sent via the link's entity; None where they stay."""
    named = (attach.properties or {}).get(TRANSFER_DESTINATION)
    if named is None:
        return None
    path = read_address(named).path
    _authorise(carrier, path, Right.SEND)
    destination, subqueue = carrier.node.resolve(path)
    if subqueue is not SubQueue.ACTIVE or destination.topic:
        raise InvalidOperation(f"'{path}' is not a queue or topic: messages cannot be sent to it.")
    return destination


def _bind_consumer(carrier: Carrier, link: SenderLink, attach: Attach, path: str) -> Consumer:
    _authorise(carrier, path, Right.LISTEN)
    entity, subqueue = carrier.node.resolve(path)
    _check_type(attach, entity)
    if entity.kind == "topic":
        raise InvalidOperation(
            f"'{entity.name}' is a topic: messages are received from its subscriptions."
        )
    session = read_session_filter(attach.source, entity, subqueue)
    if not entity.description.allows_receive:
        raise EntityDisabled(f"The messaging entity '{entity.name}' is disabled for receiving.")
    check_receivable(entity, subqueue)
    if session is not None:
        return SessionConsumer(carrier, link, path, entity, session)
    link.accept(
        max_message_size=entity.description.max_message_bytes,
        properties={TRACKING_PROPERTY: carrier.tracking.new_id()},
    )
    return Consumer(carrier, link, path, entity, subqueue)


def _check_type(attach: Attach, entity: Entity) -> None:
    """Some clients say what kind of entity they mean."""
    kind = (attach.properties or {}).get(ENTITY_TYPE)
    # The clients agree on the number for a queue only.
    if isinstance(kind, int) and (kind == ENTITY_TYPE_QUEUE) != (entity.kind == "queue"):
        raise InvalidOperation(f"'{entity.name}' is a {entity.kind}, not what the link asks for.")
