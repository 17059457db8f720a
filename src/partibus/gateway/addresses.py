"""What the address of a link means: an entity, its `$management`, or `$cbs`.

All spellings of the clients come down to one path here (SPEC 3.5); sub-queues stay in the path,
because they are the node's to resolve. Attach replies never use these paths: they echo the
client's own text.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

from partibus.broker.access import resource_path
from partibus.broker.errors import InvalidArgument

CBS = "$cbs"
MANAGEMENT = "$management"
# The longest entity name, subscription and sub-queue together stay far below.
ADDRESS_LENGTH_MAX = 1024


class NodeKind(Enum):
    """What lies at the other end of a link."""

    ENTITY = "entity"
    MANAGEMENT = "management"
    CBS = "cbs"


@dataclass(frozen=True, slots=True)
class Address:
    """A kind of node and the path of the entity it belongs to ("": the namespace)."""

    kind: NodeKind
    path: str


def read_address(address: object) -> Address:
    """What the address in a source or target names. Raises a Refusal for what names nothing."""
    if not isinstance(address, str) or len(address) > ADDRESS_LENGTH_MAX:
        raise InvalidArgument("The link has no address that could be used.")
    return address_of_path(resource_path(address))


def address_of_path(path: str) -> Address:
    """What a path names, normalised already."""
    if path == CBS:
        return Address(NodeKind.CBS, "")
    head, _, last = path.rpartition("/")
    if last == MANAGEMENT:
        return Address(NodeKind.MANAGEMENT, head)
    if not path:
        raise InvalidArgument("The address names no entity.")
    return Address(NodeKind.ENTITY, path)
