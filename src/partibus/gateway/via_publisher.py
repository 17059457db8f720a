"""A link on which a client sends to one entity via another, as transactions over entities do.

The link's target is the entity whose transfer queue keeps the messages; where they go is said by a
property of the link. In everything else it is a publisher.
"""

from __future__ import annotations

from partibus.broker.access import Right
from partibus.broker.descriptions import Entity
from partibus.broker.message import Incoming
from partibus.engine.link import ReceiverLink
from partibus.gateway.bindings import Carrier
from partibus.gateway.publisher import Publisher
from partibus.runtime.sending_via import ViaSender


class ViaPublisher(Publisher):
    """The receiving end of a client's sender to another entity."""

    right = Right.SEND

    def __init__(
        self, carrier: Carrier, link: ReceiverLink, path: str, via: Entity, destination: Entity
    ) -> None:
        super().__init__(carrier, link, path, via, ViaSender(carrier.node, via, destination))
        self._destination = destination
        self.second_path = destination.key

    def _join(self, txn_id: bytes, entity: Entity, messages: list[Incoming]) -> None:
        self._carrier.transactions.transfer(txn_id, entity, self._destination, messages)
