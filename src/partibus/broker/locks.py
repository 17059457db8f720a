"""Message locks of one fragment: who holds what, and until when.

Locks live in memory only; a crash makes locked messages available again. What happens to a message
whose lock ends is the fragment's business.
"""

from __future__ import annotations

from collections.abc import Callable
from heapq import heapify, heappop, heappush

from partibus.broker.records import Entry

TOKEN_PREFIX_BYTES = 6
TOKEN_RANDOM_BYTES = 10
# Locked messages stay in memory; over this, the fragment hands out no more until some come back.
LOCKED_BYTES_MAX = 64 * 1024 * 1024
LOCKED_MESSAGES_MAX = 50_000
# Settled entries leave the runs that wait for the end of locks once they are more than this.
SETTLED_ENTRIES_MAX = 4096


def token_prefix(store: int, number: int) -> bytes:
    """How the lock tokens of a fragment begin: a settlement may arrive at any node."""
    return store.to_bytes(2, "big") + number.to_bytes(4, "big")


class Locks:
    """Entries by lock token, and the order in which their locks end."""

    __slots__ = ("_bytes", "_expiries", "_held", "_prefix", "_runs", "awaited")

    def __init__(self, prefix: bytes) -> None:
        self._prefix = prefix
        self._held: dict[bytes, Entry] = {}
        self._bytes = 0
        # A heap of when locks end, with the runs of entries that were locked together.
        self._expiries: list[tuple[int, int, list[Entry]]] = []
        self._runs = 0
        # Entries in those runs, settled ones and those renewed later included.
        self.awaited = 0

    @property
    def full(self) -> bool:
        """Whether no more should be handed out for now."""
        return len(self._held) >= LOCKED_MESSAGES_MAX or self._bytes >= LOCKED_BYTES_MAX

    def lock(self, entries: list[Entry], until_ms: int, entropy: Callable[[int], bytes]) -> None:
        """Give each entry a token of its own."""
        prefix, held = self._prefix, self._held
        pool = entropy(TOKEN_RANDOM_BYTES * len(entries))
        start = size = 0
        for entry in entries:
            end = start + TOKEN_RANDOM_BYTES
            entry.token = token = prefix + pool[start:end]
            start = end
            entry.locked_until_ms = until_ms
            held[token] = entry
            size += len(entry.bare)
        self._bytes += size
        self._await(until_ms, entries)

    def find(self, token: bytes, now_ms: int) -> Entry | None:
        """The entry that this token locks; None where the lock was lost."""
        entry = self._held.get(token)
        return None if entry is None or entry.locked_until_ms <= now_ms else entry

    def unlock(self, entry: Entry) -> None:
        """The lock is over."""
        del self._held[entry.token]
        self._bytes -= len(entry.bare)
        entry.token = b""
        entry.locked_until_ms = 0

    def renew(self, tokens: list[bytes], now_ms: int, until_ms: int) -> list[bytes]:
        """Extend locks; returns the tokens whose lock was lost."""
        renewed: list[Entry] = []
        lost: list[bytes] = []
        for token in tokens:
            entry = self.find(token, now_ms)
            if entry is None:
                lost.append(token)
            else:
                entry.locked_until_ms = until_ms
                renewed.append(entry)
        if renewed:
            self._await(until_ms, renewed)
        return lost

    def next_end_ms(self) -> int | None:
        """When the oldest lock ends, or may end."""
        return self._expiries[0][0] if self._expiries else None

    def ended(self, now_ms: int) -> list[Entry]:
        """Entries whose locks are over by now; they are still to be unlocked."""
        # By token: a lock that was renewed to the same moment stands in two runs.
        found: dict[bytes, Entry] = {}
        while self._expiries and self._expiries[0][0] <= now_ms:
            _, _, entries = heappop(self._expiries)
            self.awaited -= len(entries)
            for entry in entries:
                # A renewed lock stands in a later run, a settled one has no token.
                if entry.token and entry.locked_until_ms <= now_ms:
                    found[entry.token] = entry
        return list(found.values())

    def _await(self, until_ms: int, entries: list[Entry]) -> None:
        self._runs += 1
        heappush(self._expiries, (until_ms, self._runs, entries))
        self.awaited += len(entries)
        if self.awaited > 2 * len(self._held) + SETTLED_ENTRIES_MAX:
            self._forget_settled()

    def _forget_settled(self) -> None:
        """Let go of the content of messages that are gone: their locks may have been long."""
        held = [
            (until_ms, number, [e for e in run if e.token and e.locked_until_ms == until_ms])
            for until_ms, number, run in self._expiries
        ]
        self._expiries = [run for run in held if run[2]]
        heapify(self._expiries)
        self.awaited = sum(len(run) for _, _, run in self._expiries)
