"""Operations by lock token: a token names its store and fragment, so any node can find them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from partibus.broker.errors import MessageLockLost, Refusal, SessionLockLost
from partibus.broker.locks import TOKEN_PREFIX_BYTES
from partibus.runtime.peers import Peer
from partibus.runtime.requests import Reply, Request

# The tokens of one fragment, with the prefix that names it.
Group = tuple[bytes, list[bytes]]
Ask = Callable[[int, list[Group]], Request]
Done = Callable[[dict[bytes, Refusal], int], None]

LOCK_LOST = MessageLockLost(
    "The lock supplied is invalid. Either the lock expired, or the message has already been "
    "removed from the queue."
)
SESSION_LOCK_LOST = SessionLockLost(
    "The session lock has expired on the session, or was released; its messages are available "
    "to the next receiver that accepts it."
)


class Stores(Protocol):
    """What must be known of a node to find the stores that tokens name."""

    stores: int

    def owner(self, store: int) -> Peer:
        """The node that owns a store."""


def ask_stores(
    node: Stores, tokens: list[bytes], ask: Ask, done: Done, lost: Refusal = LOCK_LOST
) -> None:
    """Ask every store that the tokens name; done once all have answered.

    `lost` is what is said of tokens that lock nothing.
    """
    by_prefix: dict[bytes, list[bytes]] = {}
    for token in tokens:
        by_prefix.setdefault(token[:TOKEN_PREFIX_BYTES], []).append(token)
    by_store: dict[int, list[Group]] = {}
    gathering = _Gathering(done, lost)
    for prefix, group in by_prefix.items():
        store = int.from_bytes(prefix[:2], "big")
        if store < node.stores:
            by_store.setdefault(store, []).append((prefix, group))
        else:
            gathering.refused.update(dict.fromkeys(group, lost))
    for store, groups in by_store.items():
        node.owner(store).call(ask(store, groups), gathering.expect(groups))
    gathering.complete()


class _Gathering:
    """Answers of several stores to one question."""

    def __init__(self, done: Done, lost: Refusal) -> None:
        self._lost = lost
        self.refused: dict[bytes, Refusal] = {}
        self._done = done
        self._number = 0
        # One for whoever is still asking.
        self._open = 1

    def expect(self, groups: list[Group]) -> Callable[[Reply], None]:
        self._open += 1

        def answered(reply: Reply) -> None:
            refusal = reply.refusal
            if refusal is not None:
                for _, group in groups:
                    self.refused.update(dict.fromkeys(group, refusal))
            elif reply.tokens:
                self.refused.update(dict.fromkeys(reply.tokens, self._lost))
            self._number = max(self._number, reply.number)
            self.complete()

        return answered

    def complete(self) -> None:
        self._open -= 1
        if not self._open:
            self._done(self.refused, self._number)
