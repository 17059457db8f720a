"""A node that can be asked: this one or another. Who asks does not know which."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Protocol

from partibus.runtime.requests import Reply, Request


class Peer(Protocol):
    """A node that can be asked."""

    @property
    def up(self) -> bool:
        """Whether it can be asked now."""

    def call(self, request: Request, answer: Callable[[Reply], None]) -> None:
        """Ask; answered in any case."""

    def tell(self, request: Request) -> None:
        """Say something that has no answer."""


async def ask(peer: Peer, request: Request) -> Reply:
    """The answer, for who can wait for it; who gives up earlier is not told any more."""
    answered: asyncio.Future[Reply] = asyncio.get_running_loop().create_future()
    peer.call(request, lambda reply: None if answered.done() else answered.set_result(reply))
    return await answered
