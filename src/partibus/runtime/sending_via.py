"""Sends to one entity through the transfer queue of another (send-via, SPEC 5.3).

The messages are durable in a fragment of the entity they are sent via, which forwards them. Its
fragment is chosen by the via partition key, or is any that is available; that of the destination
is chosen by the messages' own keys, when they are forwarded.
"""

from __future__ import annotations

from partibus.broker.descriptions import Entity
from partibus.broker.errors import (
    EntityDisabled,
    EntityNotFound,
    FragmentUnavailable,
    InvalidOperation,
    Refusal,
)
from partibus.broker.partitioning import Spread, index_of
from partibus.broker.passages import via_key_of
from partibus.broker.transactions import check_sessions
from partibus.runtime.outgoing import Routes
from partibus.runtime.requests import Reply, SendVia
from partibus.runtime.sending import Item, Sent


class ViaSender:
    """Sends to one destination via one entity, for one link."""

    def __init__(self, node: Routes, via: Entity, destination: Entity) -> None:
        self._node = node
        self._via = via
        self.destination = destination
        self._spread = Spread(via.fragments)

    @property
    def entity(self) -> Entity | None:
        """The entity it sends via, as it is now; None where it is gone."""
        return self._node.known(self._via.id)

    def send(self, items: list[Item], sent: Sent) -> None:
        """Send messages and batches; sent(ids, refusal) for each group, when it is durable."""
        via = self.entity
        groups: dict[int, list[Item]] = {}
        for item in items:
            try:
                groups.setdefault(self._index(via, item), []).append(item)
            except Refusal as refusal:
                sent([item[0]], refusal)
        for index, group in groups.items():
            assert via is not None
            self._post(via, index, group, sent)

    def _index(self, via: Entity | None, item: Item) -> int:
        if via is None:
            raise EntityNotFound("The messaging entity is deleted.")
        if not via.description.allows_send:
            raise EntityDisabled(f"'{via.name}' is {via.description.status}: it takes none.")
        check_sessions(self.destination, item[1])
        if not via.partitioned:
            return 0
        keys = {via_key_of(message) for message in item[1]}
        if len(keys) > 1:
            raise InvalidOperation(
                "Batching brokered messages with distinct ViaPartitionKey is not supported for a "
                "partitioned entity; send them in batches of one key."
            )
        key = keys.pop()
        if key is not None:
            return index_of(key, via.fragments)
        index = self._spread.choose(len(item[1]), lambda each: self._is_available(via, each))
        if index is None:
            raise FragmentUnavailable(f"No fragment of '{via.name}' is available; try again.")
        return index

    def _is_available(self, via: Entity, index: int) -> bool:
        return self._node.takes_work(via.store_of(via.partitions[index], self._node.stores))

    def _post(self, via: Entity, index: int, items: list[Item], sent: Sent) -> None:
        partition = via.partitions[index]
        store = via.store_of(partition, self._node.stores)
        destination = self.destination.id, self.destination.incarnation
        messages = [message for item in items for message in item[1]]
        request = SendVia(store, via.id, via.incarnation, partition, destination, messages)
        ids = [item[0] for item in items]

        def answered(reply: Reply) -> None:
            sent(ids, reply.refusal)

        self._node.owner(store).call(request, answered)
