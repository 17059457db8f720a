"""`GET /$namespaceinfo`: what kind of namespace this is."""

from __future__ import annotations

from starlette.responses import Response

from partibus.broker.access import Right
from partibus.management.atom.description_xml import SERVICE
from partibus.management.atom.documents import Entry, entry_answer, when
from partibus.management.atom.paths import Target
from partibus.management.atom.xml_text import INSTANCE, tag, text
from partibus.management.calls import Call

# The vendor's tiers; profiles that are none of them have the features of standard.
_SKUS = {"basic": "Basic", "premium": "Premium"}


async def get(call: Call, _: Target) -> Response:
    """Name, tier and age of the namespace."""
    call.require(Right.MANAGE, "$namespaceinfo")
    call.node.refresh()
    settings = call.node.snapshot.settings
    is_premium = settings.profile_name == "premium"
    content = tag(
        "NamespaceInfo",
        text("CreatedTime", when(settings.created_ms)),
        text("MessagingSKU", _SKUS.get(settings.profile_name, "Standard")),
        text("MessagingUnits", settings.profile.fragments) if is_premium else "",
        text("ModifiedTime", when(settings.created_ms)),
        text("Name", settings.name),
        text("NamespaceType", "Messaging"),
        xmlns=SERVICE,
        xmlns_i=INSTANCE,
    )
    entry = Entry("$namespaceinfo", settings.name, content, settings.created_ms, None, True)
    return entry_answer(call, entry)
