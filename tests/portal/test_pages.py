"""The portal's files over HTTP: what is served, how, and nothing else."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

from starlette.applications import Starlette
from starlette.responses import PlainTextResponse
from starlette.routing import Route
from starlette.types import Message

from partibus.portal.pages import PREFIX, routes

Answer = tuple[int, dict[str, str], bytes]


async def _elsewhere(_: object) -> PlainTextResponse:
    return PlainTextResponse("the door's own")


APPLICATION = Starlette(routes=[*routes(), Route("/{path:path}", _elsewhere)])


def ask(path: str, method: str = "GET", **headers: str) -> Answer:
    sent: list[Message] = []

    async def send(message: Message) -> None:
        sent.append(message)

    receive: Callable[[], Awaitable[Message]] = asyncio.Queue[Message]().get
    sent_headers = [
        (name.replace("_", "-").encode(), text.encode()) for name, text in headers.items()
    ]
    scope = {"type": "http", "method": method, "path": path, "query_string": b""}
    scope["headers"] = sent_headers
    asyncio.run(APPLICATION(scope, receive, send))
    found = {name.decode(): value.decode() for name, value in sent[0]["headers"]}
    return sent[0]["status"], found, b"".join(each.get("body", b"") for each in sent[1:])


def test_M4_a_browser_that_asks_for_the_address_is_led_to_the_portal() -> None:
    status, headers, _ = ask("/", accept="text/html,application/xhtml+xml")
    assert (status, headers["location"]) == (307, f"{PREFIX}/")
    status, headers, page = ask(f"{PREFIX}/")
    assert status == 200
    assert headers["content-type"] == "text/html; charset=utf-8"
    assert b"<title>partibus</title>" in page


def test_programs_that_ask_for_the_address_get_what_the_door_says() -> None:
    assert ask("/", accept="*/*")[2] == b"the door's own"


def test_the_page_may_load_its_own_files_only_and_stand_in_no_frame() -> None:
    _, headers, _ = ask(f"{PREFIX}/portal.js")
    policy = headers["content-security-policy"]
    assert "default-src 'none'" in policy
    assert "script-src 'self';" in policy
    assert "frame-ancestors 'none'" in policy
    assert headers["x-content-type-options"] == "nosniff"


def test_a_file_that_the_browser_has_is_not_sent_again() -> None:
    _, headers, content = ask(f"{PREFIX}/portal.css")
    status, _, again = ask(f"{PREFIX}/portal.css", if_none_match=headers["etag"])
    assert (status, again) == (304, b"")
    assert content


def test_only_the_files_of_the_portal_are_there() -> None:
    for path in ("/__init__.py", "/../pages.py", "/static/portal.js", "/%2e%2e/pages.py", "/x.js"):
        assert ask(PREFIX + path)[2] == b"the door's own", path


def test_files_are_read_not_written() -> None:
    assert ask(f"{PREFIX}/portal.js", "HEAD")[0] == 200
    assert ask(f"{PREFIX}/portal.js", "PUT")[0] == 405
