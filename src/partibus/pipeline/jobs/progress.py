"""How a job says how far it is. What is made of it, a bar or nothing, is the caller's business."""

from __future__ import annotations

from typing import Protocol


class Progress(Protocol):
    """Told from time to time."""

    def __call__(self, what: str, done: int, total: int | None) -> None:
        """So much of a step is done; of how much is not always known."""


def silent(what: str, done: int, total: int | None) -> None:
    """For who does not want to know."""
