"""The broker's bulk doors as a client sees them: HTTP, with a token, and again when it fails.

A range of a fragment comes as Arrow record batches; when the connection breaks in the middle, the
rest is asked for anew. Errors tell what the broker said and never a key.
"""

from __future__ import annotations

import json
import re
import ssl
import time
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from html import unescape
from http import HTTPStatus
from http.client import HTTPConnection, HTTPException, HTTPResponse, HTTPSConnection
from typing import TYPE_CHECKING, Any
from urllib.parse import quote, urlencode, urlsplit

from partibus.broker.consuming import MESSAGES
from partibus.pipeline.options import Place

if TYPE_CHECKING:
    import pyarrow as pa

PREFIX = "/$partibus/bulk"
# How often a request is tried that the broker or the way to it failed, and the pause between.
TRIES_MAX = 6
# How often a commit is tried: some minutes long.
INSIST_TRIES_MAX = 60
PAUSE_S = 0.5
PAUSE_S_MAX = 5.0
# A token is made anew when it has less to live than this.
TOKEN_MARGIN_MS = 5 * 60 * 1000
MS_PER_S = 1000


# What a server says that does not know the doors.
_NO_DOOR = (HTTPStatus.NOT_FOUND, HTTPStatus.METHOD_NOT_ALLOWED, HTTPStatus.NOT_IMPLEMENTED)


class DoorRefused(Exception):
    """The broker says no; asking again does not help."""


class DoorUnavailable(Exception):
    """The broker could not be reached, or is busy, however often it was asked."""


@dataclass(frozen=True, slots=True)
class Range:
    """Messages of one fragment with after < position <= upto."""

    fragment: int
    after: int
    upto: int


class Door:
    """One client of the bulk doors, for one entity. Not for several threads."""

    def __init__(self, place: Place, tries_max: int = TRIES_MAX) -> None:
        self._place = place
        self._tries_max = tries_max
        self._destination = place.destination()
        self._path = f"{PREFIX}/{quote(place.entity, safe='/')}"
        self._connection: HTTPConnection | None = None
        self._token = ""
        self._token_ends_ms = 0

    def __enter__(self) -> Door:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Hang up."""
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    # What can be asked ------------------------------------------------------------------------

    def positions(self, at_ms: int | None = None, reader: str = "") -> dict[str, Any]:
        """First and last position of every fragment, and what the entity is."""
        query = {} if at_ms is None else {"at": str(at_ms)}
        if reader:
            query["reader"] = reader
        found: dict[str, Any] = self.ask("GET", "/fragments", query)
        return found

    def move(self, reader: str, positions: dict[int, int]) -> None:
        """Tell up to where a named reader has read."""
        self.ask("PUT", f"/readers/{quote(reader, safe='')}", None, json.dumps(positions).encode())

    def messages(
        self, asked: Range, columns: list[str], reader: str = ""
    ) -> Iterator[pa.RecordBatch]:
        """The messages of a range, in order, each once."""
        import pyarrow as pa

        wanted = columns if "position" in columns else [*columns, "position"]
        after, tries = asked.after, 0
        while after < asked.upto:
            path = f"/fragments/{asked.fragment}/messages"
            query = {"after": str(after), "upto": str(asked.upto), "columns": ",".join(wanted)}
            if reader:
                query["reader"] = reader
            response = self._request("GET", path, query)
            try:
                with pa.ipc.open_stream(_Body(response)) as stream:
                    for batch in stream:
                        after = batch.column("position")[-1].as_py()
                        tries = 0
                        yield batch if wanted is columns else batch.select(columns)
                # Arrow takes a broken stream for a whole one; HTTP does not.
                response.read()
            except (OSError, HTTPException, pa.ArrowException) as error:
                self.close()
                tries += 1
                if tries >= TRIES_MAX:
                    raise self._unavailable(error) from error
                time.sleep(PAUSE_S)
            else:
                return

    def reserved(self, asked: Range, columns: list[str], reader: str) -> Iterator[pa.RecordBatch]:
        """What is reserved for a reader in a range of ordinals: each message once, none missing."""
        import pyarrow as pa

        path = f"/consumers/{quote(reader, safe='')}/reserved/{asked.fragment}"
        query = {
            "after": str(asked.after),
            "upto": str(asked.upto),
            "columns": ",".join(columns),
        }
        given, tries = 0, 0
        last: object
        while True:
            # What is reserved does not change: after a failure, what was had before is passed over.
            passed = 0
            try:
                response = self._request("GET", path, query)
                with pa.ipc.open_stream(_Body(response)) as stream:
                    expected = _messages(stream.schema, asked.upto - asked.after)
                    for batch in stream:
                        rest = batch.slice(max(given - passed, 0))
                        passed += batch.num_rows
                        if rest.num_rows:
                            given += rest.num_rows
                            tries = 0
                            yield rest.replace_schema_metadata(None)
                response.read()
                if given >= expected:
                    return
                last = f"{given} of {expected} messages came"
            except (OSError, HTTPException, pa.ArrowException) as error:
                last = error
            self.close()
            tries += 1
            if tries >= TRIES_MAX:
                raise self._unavailable(last)
            time.sleep(PAUSE_S)

    def ask(
        self, method: str, path: str, query: dict[str, str] | None = None, body: bytes | None = None
    ) -> Any:
        """A request below the entity with a JSON answer."""
        return json.loads(self._request(method, path, query, body).read() or b"null")

    def insist(self, method: str, path: str, body: bytes) -> Any:
        """As ask, for what may take long and must be done: the broker goes on where it was."""
        return json.loads(self._request(method, path, None, body, INSIST_TRIES_MAX).read())

    # How it is asked --------------------------------------------------------------------------

    def _request(
        self,
        method: str,
        path: str,
        query: dict[str, str] | None = None,
        body: bytes | None = None,
        tries_max: int | None = None,
    ) -> HTTPResponse:
        """Ask until there is an answer: all requests may be repeated."""
        tries_max = tries_max or self._tries_max
        target = self._path + path + (f"?{urlencode(query)}" if query else "")
        pause_s = PAUSE_S
        for attempt in range(tries_max):
            last: object
            try:
                response = self._send(method, target, body)
                if response.status == HTTPStatus.OK:
                    return response
                last = _said(response)
                if response.status not in (
                    HTTPStatus.SERVICE_UNAVAILABLE,
                    HTTPStatus.REQUEST_TIMEOUT,
                ):
                    raise self._refused(response.status, str(last))
            except (OSError, HTTPException) as error:
                last = error
            self.close()
            if attempt + 1 < tries_max:
                time.sleep(pause_s)
                pause_s = min(pause_s * 2, PAUSE_S_MAX)
        raise self._unavailable(last)

    def _send(self, method: str, target: str, body: bytes | None) -> HTTPResponse:
        if self._connection is not None:
            try:
                return self._exchange(self._connection, method, target, body)
            except (ConnectionError, HTTPException):
                # It lay idle, and the broker has hung up meanwhile.
                self.close()
        self._connection = self._connect()
        return self._exchange(self._connection, method, target, body)

    def _exchange(
        self, connection: HTTPConnection, method: str, target: str, body: bytes | None
    ) -> HTTPResponse:
        headers = {"Accept-Encoding": "identity"}
        token = self._current_token()
        if token:
            headers["Authorization"] = token
        if body is not None:
            headers["Content-Type"] = "application/octet-stream"
        connection.request(method, target, body, headers)
        return connection.getresponse()

    def _connect(self) -> HTTPConnection:
        address = urlsplit(self._address())
        assert address.hostname is not None
        timeout_s = self._place.timeout_s
        if address.scheme == "http":
            return HTTPConnection(address.hostname, address.port or 80, timeout=timeout_s)
        trusted = ssl.create_default_context(cafile=self._place.ca_certificate or None)
        return HTTPSConnection(
            address.hostname, address.port or 443, timeout=timeout_s, context=trusted
        )

    def _address(self) -> str:
        if self._place.http_endpoint:
            return self._place.http_endpoint
        to = self._destination
        host = f"[{to.host}]" if ":" in to.host else to.host
        return f"{'http' if to.is_plain else 'https'}://{host}:{to.port}"

    def _current_token(self) -> str:
        """A token that lives long enough; long queries need several."""
        credentials = self._destination.credentials
        if credentials is None:
            return ""
        now_ms = time.time_ns() // 1_000_000
        if not self._token or now_ms > self._token_ends_ms - TOKEN_MARGIN_MS:
            token = credentials.token(f"sb://{self._destination.host}/{self._entity()}", now_ms)
            self._token, self._token_ends_ms = token.text, token.expires_ms
        return self._token

    def _entity(self) -> str:
        """What the token is for: the entity without its sub-queue."""
        return self._place.entity.partition("/$")[0]

    # What went wrong --------------------------------------------------------------------------

    def _refused(self, status: int, said: str) -> DoorRefused:
        is_none_of_ours = "TrackingId" not in said or "No service is hosted" in said
        if status in _NO_DOOR and is_none_of_ours:
            return DoorRefused(
                f"{self._address()} has no bulk doors, which the servicebus format needs; "
                "is it a partibus broker (see option 'httpEndpoint')?"
            )
        return DoorRefused(f"{self._place.entity}: {said} (HTTP {status})")

    def _unavailable(self, last: object) -> DoorUnavailable:
        return DoorUnavailable(
            f"{self._address()} does not serve '{self._place.entity}' now: {last}. "
            "Is the broker running, and is this its address (see option 'httpEndpoint')?"
        )


class _Body:
    """A response's body as Arrow reads it: straight into the memory where it will be."""

    closed = False

    def __init__(self, response: HTTPResponse) -> None:
        self._response = response

    def read(self, size: int) -> bytes:
        return self._response.read(size)

    def read_buffer(self, size: int) -> memoryview:
        """The next octets, fewer at the end."""
        octets = memoryview(bytearray(size))
        return octets[: self._response.readinto(octets)]

    def close(self) -> None:
        """The response is its door's."""


def _said(response: HTTPResponse) -> str:
    """What the broker says in an error."""
    text = ""
    with suppress(OSError, HTTPException):
        text = response.read().decode(errors="replace")
    found = re.search(r"<Detail>(.*?)</Detail>", text, re.DOTALL)
    detail = unescape(found.group(1)) if found else text or response.reason
    return re.sub(r"^SubCode=\d+\. ", "", detail).strip()


def _messages(schema: pa.Schema, otherwise: int) -> int:
    """How many messages a stream of reserved ones has; an older broker does not tell."""
    found = (schema.metadata or {}).get(MESSAGES.encode())
    return int(found) if found is not None else otherwise
