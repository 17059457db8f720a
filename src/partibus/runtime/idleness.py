"""Deletes entities that nobody has used for as long as they say (AutoDeleteOnIdle, SPEC 6.12).

What was done with an entity is known where its fragments lie, so one node, the owner of the
first, asks all of them; where one does not answer, nothing is deleted. Use is kept in memory: a
node that has just started counts as used by everybody. Which requests are uses is said here.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Protocol

from partibus.broker.descriptions import Entity
from partibus.broker.durations import FOREVER_MS
from partibus.broker.errors import Refusal
from partibus.runtime.clock import Clock
from partibus.runtime.peers import Peer
from partibus.runtime.requests import LastUse, Reply

CHECK_EVERY_MS = 30_000


class Uses:
    """When each entity was last used on this node."""

    __slots__ = ("_last_ms", "_since_ms")

    def __init__(self, now_ms: int) -> None:
        self._since_ms = now_ms
        self._last_ms: dict[int, int] = {}

    def used(self, entity: int, now_ms: int) -> None:
        """Something was sent to it, asked of it, or received from it."""
        self._last_ms[entity] = now_ms

    def last_ms(self, entity: int) -> int:
        """When it was last used, as far as this node can know."""
        return self._last_ms.get(entity, self._since_ms)

    def known_ms(self, entity: int) -> int:
        """When it was last used; 0 where this node has not seen it used."""
        return self._last_ms.get(entity, 0)

    def keep(self, entities: Iterable[int]) -> None:
        """Forget all entities but these."""
        kept = set(entities)
        self._last_ms = {each: ms for each, ms in self._last_ms.items() if each in kept}


class Namespace(Protocol):
    """What must be known of a node to delete what is idle."""

    clock: Clock
    index: int
    stores: int

    def entities(self) -> Iterable[Entity]:
        """All entities there are."""

    def nodes_of(self, entity: Entity) -> list[int]:
        """The nodes that hold fragments of an entity."""

    def peer(self, index: int) -> Peer:
        """A node by its number."""

    def is_owner(self, store: int) -> bool:
        """Whether this node owns a store."""

    def delete_idle(self, entity: Entity) -> None:
        """Delete the entity with its messages."""


class Idleness:
    """Looks now and then for entities of this node that are idle."""

    def __init__(self, node: Namespace) -> None:
        self._node = node
        self._stopped = False

    def start(self) -> None:
        """Begin to look."""
        clock = self._node.clock
        clock.call_at(clock.now_ms() + CHECK_EVERY_MS, self._check)

    def stop(self) -> None:
        """Look no more."""
        self._stopped = True

    def _check(self) -> None:
        if self._stopped:
            return
        node = self._node
        for entity in list(node.entities()):
            description = entity.description
            # Whatever is forwarded is in use.
            if description.auto_delete_on_idle_ms < FOREVER_MS and not description.forward_to:
                first = entity.store_of(entity.partitions[0], node.stores)
                if node.is_owner(first):
                    self._ask(entity)
        self.start()

    def _ask(self, entity: Entity) -> None:
        node = self._node
        answers: list[int | Refusal] = []
        nodes = node.nodes_of(entity)
        last_ms = max(entity.created_ms, entity.updated_ms)

        def answered(reply: Reply) -> None:
            answers.append(reply.refusal or reply.number)
            if len(answers) < len(nodes) or self._stopped:
                return
            uses = [each for each in answers if isinstance(each, int)]
            idle_ms = entity.description.auto_delete_on_idle_ms
            if len(uses) == len(nodes) and node.clock.now_ms() - max(*uses, last_ms) >= idle_ms:
                node.delete_idle(entity)

        for index in nodes:
            node.peer(index).call(LastUse(entity.id, entity.incarnation), answered)
