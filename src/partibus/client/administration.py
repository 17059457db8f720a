"""Entities over HTTP: create, show, list, change, delete (Atom; SPEC 7).

Blocking and small: properties go and come as the texts of the documents, so every property that
the service knows can be used without being known here. Works with partibus and Azure alike; what
only partibus has (`extension`) says so. Messages are not sent here.
"""

from __future__ import annotations

import http.client
import json
import ssl
import time
from collections.abc import Iterator, Mapping
from types import TracebackType
from urllib.parse import quote, urlencode
from xml.etree import ElementTree

from partibus.client.connection_string import Destination, read_connection_string
from partibus.client.errors import (
    ConnectionLost,
    EntityAlreadyExists,
    EntityNotFound,
    InvalidArgument,
    MessagingError,
    QuotaExceeded,
    ServerBusy,
    ServiceFailed,
    Unauthorized,
)

API_VERSION = "2024-05"
PORT_HTTPS = 443
PAGE = 100
TIMEOUT_S = 60.0
# Services close connections that were idle for a minute or two; we do so first.
IDLE_S_MAX = 30.0
ANSWER_BYTES_MAX = 64 * 1024 * 1024

ATOM = "http://www.w3.org/2005/Atom"
SERVICE = "http://schemas.microsoft.com/netservices/2010/10/servicebus/connect"
INSTANCE = "http://www.w3.org/2001/XMLSchema-instance"

# What an inner object is of (i:type), and its value where that is a plain one of XML.
TYPE, TEXT = "type", "text"
# A description: texts by property; inner objects are descriptions themselves.
Description = dict[str, object]

_ERRORS: dict[int, type[MessagingError]] = {
    400: InvalidArgument,
    401: Unauthorized,
    403: QuotaExceeded,
    404: EntityNotFound,
    409: EntityAlreadyExists,
    429: ServerBusy,
    503: ServerBusy,
}


class Administration:
    """A client that manages the entities of one namespace."""

    def __init__(self, destination: Destination, ssl_context: ssl.SSLContext | None = None) -> None:
        self._destination = destination
        self._tls = ssl_context
        self._connection: http.client.HTTPConnection | None = None
        self._used_s = 0.0

    @classmethod
    def from_connection_string(
        cls, text: str, *, ssl_context: ssl.SSLContext | None = None
    ) -> Administration:
        """For the namespace that the string names; over TLS unless it says otherwise."""
        return cls(read_connection_string(text), ssl_context)

    def __enter__(self) -> Administration:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def close(self) -> None:
        """Close the connection."""
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    # Entities ---------------------------------------------------------------------------------

    def create(self, kind: str, path: str, properties: Mapping[str, object]) -> Description:
        """Make a Queue, Topic, Subscription or Rule of this path; refused where it exists."""
        return self._put(kind, path, properties, {})

    def update(self, kind: str, path: str, properties: Mapping[str, object]) -> Description:
        """Change these properties; all others stay as they are."""
        body = self._ask("GET", path)[1]
        found = _entry(body)
        if found is None:
            raise EntityNotFound(f"There is no entity '{path}'.")
        for name, value in properties.items():
            _set(found[1], name, value)
        document = ElementTree.tostring(found[1], encoding="unicode")
        return _read(self._ask("PUT", path, _wrap(document), {"If-Match": "*"})[1])

    def get(self, path: str) -> Description:
        """What an entity is, with its counts."""
        description = _read(self._ask("GET", path)[1])
        if not description:
            raise EntityNotFound(f"There is no entity '{path}'.")
        return description

    def list(self, path: str) -> Iterator[Description]:
        """All of a feed: `$Resources/queues`, `topic/subscriptions`, …; read page by page."""
        skip = 0
        while True:
            query = {"$skip": str(skip), "$top": str(PAGE)}
            feed = ElementTree.fromstring(self._ask("GET", path, query=query)[1])  # noqa: S314
            entries = feed.findall(f"{{{ATOM}}}entry")
            for entry in entries:
                yield _read_entry(entry)
            if len(entries) < PAGE:
                return
            skip += PAGE

    def delete(self, path: str) -> None:
        """Delete an entity with all that belongs to it."""
        self._ask("DELETE", path)

    def extension(self, method: str, path: str, body: object = None) -> dict[str, object]:
        """An operation that only partibus has, under `/$partibus/`; JSON both ways."""
        sent = None if body is None else json.dumps(body)
        _, answer = self._ask(method, f"$partibus/{path}", sent, content_type="application/json")
        found: dict[str, object] = json.loads(answer or b"{}")
        return found

    def metrics(self) -> str:
        """The numbers of the whole namespace in Prometheus' text format; only partibus has them."""
        return self._ask("GET", "metrics")[1].decode()

    # Steps of the above -----------------------------------------------------------------------

    def _put(
        self, kind: str, path: str, properties: Mapping[str, object], headers: dict[str, str]
    ) -> Description:
        root = ElementTree.Element(f"{{{SERVICE}}}{kind}Description")
        for name, value in properties.items():
            _set(root, name, value)
        document = ElementTree.tostring(root, encoding="unicode")
        return _read(self._ask("PUT", path, _wrap(document), headers)[1])

    def _ask(
        self,
        method: str,
        path: str,
        body: str | None = None,
        headers: Mapping[str, str] | None = None,
        query: Mapping[str, str] | None = None,
        content_type: str = "application/atom+xml;type=entry;charset=utf-8",
    ) -> tuple[int, bytes]:
        address, _, extra = path.partition("?")
        target = f"/{quote(address)}?" + urlencode({"api-version": API_VERSION, **(query or {})})
        target += f"&{extra}" if extra else ""
        all_headers = {"Content-Type": content_type, **(headers or {})}
        credentials = self._destination.credentials
        if credentials is not None:
            # For the namespace, unless the string is for one entity only.
            resource = f"http://{self._destination.host}/{self._destination.entity or ''}"
            token = credentials.token(resource, int(time.time() * 1000))
            all_headers["Authorization"] = token.text
        try:
            connection = self._connected()
            data = None if body is None else body.encode()
            connection.request(method, target, data, all_headers)
            response = connection.getresponse()
            answer = response.read(ANSWER_BYTES_MAX)
        except (OSError, http.client.HTTPException) as error:
            self.close()
            raise ConnectionLost(f"The service did not answer: {error}") from error
        if response.status >= http.client.BAD_REQUEST:
            kind = _ERRORS.get(response.status, ServiceFailed)
            raise kind(_detail(answer) or f"HTTP {response.status} {response.reason}")
        return response.status, answer

    def _connected(self) -> http.client.HTTPConnection:
        now_s = time.monotonic()
        if now_s - self._used_s > IDLE_S_MAX:
            self.close()
        self._used_s = now_s
        if self._connection is None:
            where = self._destination
            if where.is_plain:
                plain = http.client.HTTPConnection(where.host, where.port, timeout=TIMEOUT_S)
                self._connection = plain
            else:
                # AMQP's own port is not Azure's HTTPS port; ours speaks both.
                tls = self._tls or ssl.create_default_context()
                port = where.port if where.has_port else PORT_HTTPS
                self._connection = http.client.HTTPSConnection(
                    where.host, port, timeout=TIMEOUT_S, context=tls
                )
        return self._connection


def _wrap(document: str) -> str:
    return f'<entry xmlns="{ATOM}"><content type="application/xml">{document}</content></entry>'


def _set(root: ElementTree.Element, name: str, value: object) -> None:
    """Put a property into a description, or take it out where it is None."""
    tag = f"{{{SERVICE}}}{name}"
    before = root.findall(tag)
    if isinstance(value, (Mapping, list)) or value is None:
        for element in before:
            root.remove(element)
        values = value if isinstance(value, list) else [value] if value is not None else []
        for each in values:
            _fill(ElementTree.SubElement(root, tag), each)
    else:
        _fill(before[0] if before else ElementTree.SubElement(root, tag), value)


def _fill(element: ElementTree.Element, value: object) -> None:
    if not isinstance(value, Mapping):
        element.text = str(value).lower() if isinstance(value, bool) else str(value)
        return
    for name, each in value.items():
        if name == TYPE:
            element.set(f"{{{INSTANCE}}}type", str(each))
        elif name == TEXT:
            # A value whose type is one of XML's own: clients expect this very prefix.
            element.set("xmlns:d6p1", "http://www.w3.org/2001/XMLSchema")
            element.set(f"{{{INSTANCE}}}type", f"d6p1:{value[TYPE]}")
            element.text = str(each)
        else:
            _set(element, name, each)


def _entry(body: bytes) -> tuple[ElementTree.Element, ElementTree.Element] | None:
    """An entry and the description in it; None for an empty feed, which is how Azure says no."""
    root = ElementTree.fromstring(body)  # noqa: S314 - the service's answer, over our connection
    content = root.find(f"{{{ATOM}}}content")
    return (root, content[0]) if content is not None and len(content) else None


def _read(body: bytes) -> Description:
    found = _entry(body) if body else None
    return _read_entry(found[0]) if found else {}


def _read_entry(entry: ElementTree.Element) -> Description:
    content = entry.find(f"{{{ATOM}}}content")
    title = entry.findtext(f"{{{ATOM}}}title")
    inner = _read_element(content[0]) if content is not None and len(content) else {}
    return {"Name": title, **(inner if isinstance(inner, dict) else {})}


def _read_element(element: ElementTree.Element) -> object:
    if not len(element):
        return element.text or ""
    found: Description = {}
    kind = element.get(f"{{{INSTANCE}}}type")
    if kind is not None:
        found[TYPE] = kind
    for each in element:
        name = each.tag.rpartition("}")[2]
        value = _read_element(each)
        if name in found:
            before = found[name]
            found[name] = [*before, value] if isinstance(before, list) else [before, value]
        else:
            found[name] = value
    return found


def _detail(answer: bytes) -> str | None:
    try:
        return ElementTree.fromstring(answer).findtext("Detail")  # noqa: S314
    except ElementTree.ParseError:
        return None
