"""Serves the portal's files below `/$portal/`, and sends browsers there that ask for `/`.

Anyone may have them: they hold no secret. What the page then asks of the broker needs a token.
"""

from __future__ import annotations

import hashlib
from importlib.resources import files

from starlette.datastructures import Headers
from starlette.requests import Request
from starlette.responses import RedirectResponse, Response
from starlette.routing import BaseRoute, Match, Route
from starlette.types import Scope

PREFIX = "/$portal"
INDEX = "index.html"
TYPES = {
    "html": "text/html; charset=utf-8",
    "css": "text/css; charset=utf-8",
    "js": "text/javascript; charset=utf-8",
}
METHODS = ("GET", "HEAD")
# Only our own files, only to us, and in nobody's frame: what a message holds cannot become code.
_HEADERS = {
    "cache-control": "no-cache",
    "content-security-policy": (
        "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; "
        "img-src data:; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
    ),
    "referrer-policy": "no-referrer",
    "x-content-type-options": "nosniff",
}


def routes() -> list[BaseRoute]:
    """A path for each file; there are no others."""
    found: list[BaseRoute] = [_ForBrowsers("/", _go_there), Route(PREFIX, _go_there)]
    for file in files(__package__).joinpath("static").iterdir():
        kind = TYPES.get(file.name.rpartition(".")[2])
        if kind is not None:
            answer = _File(file.read_bytes(), kind)
            found.append(Route(f"{PREFIX}/{file.name}", answer.answer, methods=METHODS))
            if file.name == INDEX:
                found.append(Route(f"{PREFIX}/", answer.answer, methods=METHODS))
    return found


class _File:
    """One file, as it was when the node started."""

    def __init__(self, content: bytes, kind: str) -> None:
        self._content = content
        tag = hashlib.sha256(content).hexdigest()[:16]
        self._headers = {**_HEADERS, "content-type": kind, "etag": f'"{tag}"'}

    async def answer(self, request: Request) -> Response:
        """The file, or that it is the one that the browser has."""
        if request.headers.get("if-none-match") == self._headers["etag"]:
            return Response(status_code=304, headers=self._headers)
        return Response(self._content, headers=self._headers)


class _ForBrowsers(Route):
    """A path that programs may mean otherwise."""

    def matches(self, scope: Scope) -> tuple[Match, Scope]:
        """Whether this is a browser's request for the path."""
        if "text/html" not in Headers(scope=scope).get("accept", ""):
            return Match.NONE, {}
        return super().matches(scope)


async def _go_there(_: Request) -> Response:
    return RedirectResponse(f"{PREFIX}/", headers={"cache-control": "no-store"})
