"""Which entity a message operation is about, and whether the caller may touch it.

Over HTTP an entity that is not there is gone (410) to who sends or receives, whatever the reason.
"""

from __future__ import annotations

from partibus.broker.access import Right
from partibus.broker.descriptions import Entity
from partibus.broker.errors import EntityNotFound, Refusal
from partibus.broker.records import SubQueue
from partibus.management.calls import Call


class EntityGone(Refusal):
    """There is no such entity to send to or receive from."""

    condition = "amqp:not-found"
    status = 410


def place(call: Call, right: Right) -> tuple[Entity, SubQueue]:
    """The entity and sub-queue of a request's path, for a caller with this right."""
    path = call.part("entity")
    call.require(right, path)
    try:
        return call.node.resolve(path)
    except EntityNotFound as error:
        raise EntityGone(str(error)) from error
