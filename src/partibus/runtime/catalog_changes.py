"""Changes of the catalog that a client has asked for: made beside the event loop, told to all.

Each is one transaction with a flush to disk, and may have to wait for another node's. So it runs
on a thread and a connection of its own; the loop goes on. When it is durable, this node knows it
before the client is answered, and the others hear that there is a new version.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

from partibus.broker.errors import FragmentUnavailable
from partibus.broker.transactions import RuleChange
from partibus.store.catalog import Catalog

# Who asks while so many wait is told to come again.
WAITING_MAX = 100

T = TypeVar("T")


class CatalogChanges:
    """The one queue of changes of a node."""

    def __init__(self, catalog: Catalog, changed: Callable[[], None]) -> None:
        self._catalog = catalog
        self._changed = changed
        self._own: Catalog | None = None
        self._thread: ThreadPoolExecutor | None = None
        self._waiting = 0

    async def make(self, change: Callable[[Catalog], T]) -> T:
        """Carry out a change; when this returns it is durable and known here."""
        if self._waiting >= WAITING_MAX:
            raise FragmentUnavailable("Too many changes of the namespace are waiting; try again.")
        if self._thread is None:
            self._thread = ThreadPoolExecutor(1, thread_name_prefix="catalog")
        loop = asyncio.get_running_loop()
        self._waiting += 1
        try:
            # Not cancelled with the client that asked: it happens, or it does not.
            return await asyncio.shield(loop.run_in_executor(self._thread, self._run, change))
        finally:
            self._waiting -= 1
            self._changed()

    def _run(self, change: Callable[[Catalog], T]) -> T:
        if self._own is None:
            self._own = self._catalog.another()
        with self._own.together():
            return change(self._own)

    def close(self) -> None:
        """Finish the change under way and give the file up."""
        if self._thread is not None:
            self._thread.shutdown()
            self._thread = None
        if self._own is not None:
            self._own.close()
            self._own = None


def change_rules(catalog: Catalog, changes: Iterable[RuleChange], now_ms: int) -> None:
    """Add and remove rules of subscriptions, in the transaction of whoever asks."""
    for change in changes:
        place = change.topic, change.subscription
        if change.rule is None:
            catalog.delete_rule(*place, change.name, now_ms)
        else:
            catalog.create_rule(*place, change.rule, now_ms)
