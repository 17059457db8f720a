"""The health answer, in the emulator's words, bounded in size and time."""

from __future__ import annotations

import asyncio
import json
import socket

import pytest

from partibus.management import health
from partibus.management.health import Health, HealthDoor, answer

ALL_UP = Health(stores=16, stores_down=(), nodes=2, nodes_down=())
SOME_DOWN = Health(stores=16, stores_down=(1, 3), nodes=2, nodes_down=(1,))
ALL_DOWN = Health(stores=2, stores_down=(0, 1), nodes=1, nodes_down=())


def ask(
    now: Health, request: bytes = b"GET /health HTTP/1.1\r\n\r\n"
) -> tuple[int, dict[str, object]]:
    head, _, body = answer(request, lambda: now).partition(b"\r\n\r\n")
    return int(head.split()[1]), json.loads(body) if body else {}


def test_a_healthy_namespace_says_so_in_the_emulators_words() -> None:
    status, body = ask(ALL_UP)
    assert status == 200
    assert (body["status"], body["message"]) == ("healthy", "Service is healthy.")


def test_with_some_stores_down_it_still_serves_and_names_them() -> None:
    status, body = ask(SOME_DOWN)
    assert (status, body["status"]) == (200, "limited")
    assert body["stores"] == {"total": 16, "down": [1, 3]}
    assert body["nodes"] == {"total": 2, "down": [1]}


def test_with_no_store_left_it_is_unavailable() -> None:
    status, body = ask(ALL_DOWN)
    assert (status, body["status"]) == (503, "unhealthy")
    assert body["message"] == "Service not available. Please try after some time."


@pytest.mark.parametrize(
    "request_line",
    [b"GET / HTTP/1.1", b"POST /health HTTP/1.1", b"GET /healthy HTTP/1.1", b"", b"x"],
)
def test_anything_else_is_not_found(request_line: bytes) -> None:
    assert ask(ALL_UP, request_line + b"\r\n\r\n")[0] == 404


def test_a_query_does_not_matter_and_head_has_no_body() -> None:
    assert ask(ALL_UP, b"GET /health?probe=1 HTTP/1.1\r\n\r\n")[0] == 200
    assert ask(ALL_UP, b"HEAD /health HTTP/1.1\r\n\r\n") == (200, {})


def talk(request: bytes) -> bytes:
    """What the door answers to these bytes over a real connection."""

    async def run() -> bytes:
        listening = socket.create_server(("127.0.0.1", 0))
        door = HealthDoor(lambda: ALL_UP)
        await door.listen(listening)
        reader, writer = await asyncio.open_connection(*listening.getsockname())
        writer.write(request)
        try:
            return await reader.read()
        except ConnectionResetError:
            return b""
        finally:
            writer.close()
            door.close()

    return asyncio.run(run())


def test_a_connection_gets_one_answer_and_is_closed() -> None:
    assert talk(b"GET /health HTTP/1.1\r\nHost: x\r\n\r\n").startswith(b"HTTP/1.1 200 OK\r\n")


def test_an_endless_request_gets_no_answer() -> None:
    assert talk(b"GET /health HTTP/1.1\r\nX: " + b"y" * 70_000) == b""


def test_a_request_that_does_not_end_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(health, "REQUEST_S_MAX", 0.05)
    assert talk(b"GET /health HTTP/1.1\r\n") == b""
