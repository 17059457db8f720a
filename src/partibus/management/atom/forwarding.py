"""Who may forward where: a source needs Send on its target, shown by a token of its own.

The token comes in a header beside the request's; where it is missing, the request's own token
counts (with `--dev` none is needed). The target must exist.
"""

from __future__ import annotations

from collections.abc import Mapping

from partibus.broker.access import Right
from partibus.broker.names import entity_of_address, name_key
from partibus.broker.properties import InvalidDescription, Plain
from partibus.management.calls import Call

_HEADERS = {
    "ForwardTo": "servicebussupplementaryauthorization",
    "ForwardDeadLetteredMessagesTo": "servicebusdlqsupplementaryauthorization",
}


def check_targets(call: Call, source: str, properties: Mapping[str, Plain]) -> None:
    """Refuse targets that do not exist, or that the client may not send to."""
    for name, header in _HEADERS.items():
        target = entity_of_address(str(properties.get(name, "")))
        if not target:
            continue
        if name_key(target) == name_key(source):
            raise InvalidDescription(name, target, "the name of another entity")
        call.node.refresh()
        found = call.node.snapshot.find(target)
        if found is None or found.topic:
            raise InvalidDescription(name, target, "the name of a queue or topic that exists")
        call.require(Right.SEND, target, call.request.headers.get(header))
