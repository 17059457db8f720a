"""What bulk readers that consume ask of a fragment, in the form of all requests."""

from __future__ import annotations

import msgspec


class Consume(msgspec.Struct, tag="cr", array_like=True):
    """A bulk reader is done with what it was given up to `done`, and wants up to `most` more.

    Without an epoch: it only asks how it stands. Done with -1: it begins with a new epoch.
    """

    store: int
    entity: int
    incarnation: int
    partition: int
    subqueue: int
    reader: str
    epoch: int
    done: int
    most: int


class GiveBack(msgspec.Struct, tag="cg", array_like=True):
    """A bulk reader that consumes is no more: what is reserved for it comes back."""

    store: int
    entity: int
    incarnation: int
    partition: int
    subqueue: int
    reader: str


class ListReaders(msgspec.Struct, tag="cl", array_like=True):
    """Who reads the fragments of a store in bulk? Of one entity, or (0) of all."""

    store: int
    entity: int
