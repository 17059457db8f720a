"""Atom entries and feeds around descriptions, and the answers that carry them.

Clients are particular: a feed has a second link only where there is another page, an id is an
absolute URL, and an update's answer has no `published` (SPEC 7.2, CLIENTS 0.16).
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import UTC, datetime
from urllib.parse import quote

from starlette.responses import Response

from partibus.management.atom.versions import read_version
from partibus.management.atom.xml_text import tag, text
from partibus.management.calls import Call

ATOM = "http://www.w3.org/2005/Atom"
NEVER = "0001-01-01T00:00:00Z"
_ENTRY_TYPE = "application/atom+xml;type=entry;charset=utf-8"
_FEED_TYPE = "application/atom+xml;type=feed;charset=utf-8"
# Ticks of 100 ns since the year 1 at the beginning of 1970.
_EPOCH_TICKS = 621_355_968_000_000_000
_HOST_LENGTH_MAX = 260
NOTHING_LISTED = "Publicly Listed Services"


@dataclass(frozen=True, slots=True)
class Entry:
    """What goes around a description."""

    # The path below the namespace.
    path: str
    title: str
    content: str
    updated_ms: int
    # None: not said (updates).
    published_ms: int | None = None
    has_author: bool = False


def when(ms: int) -> str:
    """A time as descriptions write it; 0 is never."""
    if not ms:
        return NEVER
    return f"{datetime.fromtimestamp(ms / 1000, UTC):%Y-%m-%dT%H:%M:%S}.{ms % 1000:03}Z"


def etag(updated_ms: int) -> str:
    """What changes with every update."""
    return str(_EPOCH_TICKS + updated_ms * 10_000)


def version_of(call: Call) -> str:
    """The api-version that a request is served as."""
    return read_version(call.request.query_params.get("api-version"))


def host_of(call: Call) -> str:
    """What the client calls us; used in URLs only."""
    host = call.request.headers.get("host", "")[:_HOST_LENGTH_MAX]
    return quote(host, safe=":[]") or call.service.settings.namespace


def url_of(call: Call, path: str, **query: object) -> str:
    """An absolute URL of this namespace, with the client's own api-version."""
    given = {**query, "api-version": version_of(call)}
    said = "&".join(f"{key}={value}" for key, value in given.items())
    return f"{call.request.url.scheme}://{host_of(call)}/{quote(path, safe='/$')}?{said}"


def entry_answer(call: Call, entry: Entry, status: int = 200) -> Response:
    """One entry. What exists already has an ETag."""
    headers = {} if status == 201 else {"etag": etag(entry.updated_ms)}
    return Response(_entry(call, entry, xmlns=ATOM), status, headers, _ENTRY_TYPE)


def feed_answer(
    call: Call, title: str, path: str, entries: Iterable[Entry], next_url: str | None = None
) -> Response:
    """A page of entries."""
    links = [tag("link", rel="self", href=url_of(call, path))]
    if next_url is not None:
        links.append(tag("link", rel="next", href=next_url))
    content = tag(
        "feed",
        text("title", title, type="text"),
        text("id", url_of(call, path)),
        text("updated", when(call.node.clock.now_ms())),
        *links,
        *(_entry(call, each) for each in entries),
        xmlns=ATOM,
    )
    return Response(content, 200, None, _FEED_TYPE)


def nothing_listed(call: Call, path: str) -> Response:
    """What a name without an entity is answered with: clients take it for "not found"."""
    return feed_answer(call, NOTHING_LISTED, path, ())


def _entry(call: Call, entry: Entry, **attributes: str) -> str:
    parts = [text("id", url_of(call, entry.path)), text("title", entry.title, type="text")]
    if entry.published_ms is not None:
        parts.append(text("published", when(entry.published_ms)))
    parts.append(text("updated", when(entry.updated_ms)))
    if entry.has_author:
        parts.append(tag("author", text("name", call.service.settings.namespace)))
    parts.append(tag("link", rel="self", href=url_of(call, entry.path)))
    parts.append(tag("content", entry.content, type="application/xml"))
    return tag("entry", *parts, **attributes)
