"""What a node will say by a callback, for a handler that waits for it.

A request whose client has left waits no more; what is said to it then is dropped.
"""

from __future__ import annotations

import asyncio
from collections.abc import Generator
from typing import Any, Generic, TypeVar

from partibus.broker.errors import Refusal

T = TypeVar("T")


class Answer(Generic[T]):
    """To be awaited: a value, or the refusal in its place."""

    __slots__ = ("_future",)

    def __init__(self) -> None:
        self._future: asyncio.Future[T] = asyncio.get_running_loop().create_future()

    def give(self, value: T, refusal: Refusal | None = None) -> None:
        """Say it, once."""
        if self._future.done():
            return
        if refusal is None:
            self._future.set_result(value)
        else:
            self._future.set_exception(refusal)

    def __await__(self) -> Generator[Any, None, T]:
        return self._future.__await__()
