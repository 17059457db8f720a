"""What a PUT brings: an Atom entry with one description, and the conditions in its headers."""

from __future__ import annotations

from partibus.broker.errors import InvalidArgument, Refusal
from partibus.management.atom.documents import etag
from partibus.management.atom.xml_text import Element, parse
from partibus.management.calls import Call

# The largest description has twelve access rules or sixty-four filter properties.
BODY_BYTES_MAX = 256 * 1024


class PreconditionFailed(Refusal):
    """The entity is another than the client has in mind."""

    condition = "com.microsoft:precondition-failed"
    status = 412


async def read_description(call: Call, names: tuple[str, ...]) -> Element:
    """The description in the body, which must be one of these."""
    root = parse(await call.body(BODY_BYTES_MAX))
    content = root.child("content") if root.name == "entry" else root
    found = [each for each in content.children if each.name in names] if content else []
    if root.name in names:
        found = [root]
    if len(found) != 1:
        raise InvalidArgument(
            f"The body must be an Atom entry whose content is one {' or '.join(names)}."
        )
    return found[0]


def is_update(call: Call) -> bool:
    """Whether the entity must exist already."""
    return "if-match" in call.request.headers


def check_match(call: Call, updated_ms: int) -> None:
    """Refuse to change what was changed since the client saw it."""
    given = call.request.headers.get("if-match", "*").strip().strip('"')
    if given not in ("*", etag(updated_ms)):
        raise PreconditionFailed("The entity has changed since; If-Match names another ETag.")
