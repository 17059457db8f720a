"""A node that can be asked: this one or another. Who asks does not know which."""

from __future__ import annotations

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
