"""Lists of an entity's sessions, page by page, over all fragments.

Pages are asked for by number of sessions to skip. Where a page ended is remembered for the next
one, so that going through a million sessions does not begin anew with every page; whoever starts
in the middle is taken there in bounded steps.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from typing import Protocol

from partibus.broker.descriptions import Entity
from partibus.broker.errors import Refusal
from partibus.runtime.peers import Peer
from partibus.runtime.requests import ListSessions, Reply

# Ends of pages that are remembered, per node.
PLACES_MAX = 256
# Names asked for at a time.
STEP_MAX = 1000

# The index of a partition, and the last name of it that was given.
Place = tuple[int, str | None]
Done = Callable[[list[str], Refusal | None], None]


class Routes(Protocol):
    """What must be known of a node: where fragments are."""

    def place_of(self, entity: Entity, partition: int) -> tuple[int, int]:
        """The store of a fragment, and the node that owns it."""

    def peer(self, index: int) -> Peer:
        """A node by its number."""


class SessionLists:
    """Answers pages, and remembers where they ended."""

    def __init__(self, node: Routes) -> None:
        self._node = node
        self._places: OrderedDict[tuple[int, int, int], Place] = OrderedDict()

    def page(self, entity: Entity, since_ms: int, skip: int, top: int, done: Done) -> None:
        """Names of `top` sessions after `skip` of them; of those changed since, where not -1."""
        place = self._places.get((entity.id, since_ms, skip))
        walk = _Walk(self, entity, since_ms, skip, top, done)
        if place is not None:
            walk.skip = 0
            walk.place = place
        walk.step()

    def ended(self, entity: Entity, since_ms: int, at: int, place: Place) -> None:
        """A page ended here."""
        self._places[entity.id, since_ms, at] = place
        while len(self._places) > PLACES_MAX:
            self._places.popitem(last=False)

    def ask(
        self,
        entity: Entity,
        place: Place,
        count: int,
        since_ms: int,
        answer: Callable[[Reply], None],
    ) -> None:
        """The next names of one fragment."""
        index, after = place
        partition = entity.partitions[index]
        store, owner = self._node.place_of(entity, partition)
        request = ListSessions(
            store, entity.id, entity.incarnation, partition, after, count, since_ms
        )
        self._node.peer(owner).call(request, answer)


class _Walk:
    """One page being gathered."""

    def __init__(
        self,
        lists: SessionLists,
        entity: Entity,
        since_ms: int,
        skip: int,
        top: int,
        done: Done,
    ) -> None:
        self._lists = lists
        self._entity = entity
        self._since_ms = since_ms
        self._end = skip + top
        self._top = top
        self._done = done
        self.skip = skip
        self.place: Place = 0, None
        self._found: list[str] = []

    def step(self) -> None:
        """Ask for the next names, or be done."""
        wanted = self.skip + self._top - len(self._found)
        if self.place[0] >= self._entity.fragments or wanted <= 0:
            if self._found and wanted <= 0:
                self._lists.ended(self._entity, self._since_ms, self._end, self.place)
            self._done(self._found, None)
            return
        count = min(wanted, STEP_MAX)

        def answered(reply: Reply) -> None:
            if reply.refusal is not None:
                self._done([], reply.refusal)
                return
            names = reply.names
            passed = min(self.skip, len(names))
            self.skip -= passed
            self._found += names[passed:]
            index, _ = self.place
            self.place = (index, names[-1]) if len(names) == count else (index + 1, None)
            self.step()

        self._lists.ask(self._entity, self.place, count, self._since_ms, answered)
