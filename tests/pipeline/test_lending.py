"""Connections to the broker are kept between tasks, and one that is gone costs no pause."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from partibus.pipeline import door as door_module
from partibus.pipeline.lending import IDLE_MAX, lent
from partibus.pipeline.options import Place

KEY = "SharedAccessKeyName=n;SharedAccessKey=a2V5"


class Server(ThreadingHTTPServer):
    """Answers everything, and counts connections; hangs up after each answer if it is told to."""

    connections = 0
    hangs_up = False


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: Server

    def setup(self) -> None:
        super().setup()
        self.server.connections += 1

    def do_GET(self) -> None:
        self.send_response(200)
        self.send_header("Content-Length", "2")
        self.end_headers()
        self.wfile.write(b"{}")
        # Not announced, as when an idle connection is closed.
        self.close_connection = self.server.hangs_up

    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture
def server() -> Iterator[Server]:
    with Server(("127.0.0.1", 0), Handler) as running:
        thread = threading.Thread(target=running.serve_forever)
        thread.start()
        yield running
        running.shutdown()
        thread.join()


def place(server: Server, entity: str = "orders") -> Place:
    address = f"http://127.0.0.1:{server.server_address[1]}"
    return Place(f"Endpoint=sb://localhost;{KEY}", entity, address)


def ask(where: Place) -> None:
    with lent(where) as door:
        door.ask("GET", "/fragments")


def test_S1_tasks_share_a_connection_one_after_the_other(server: Server) -> None:
    for _ in range(5):
        ask(place(server))
    assert server.connections == 1


def test_S1_who_fails_or_stops_early_leaves_no_connection_behind(server: Server) -> None:
    with suppress(ZeroDivisionError), lent(place(server)) as door:
        door.ask("GET", "/fragments")
        raise ZeroDivisionError
    ask(place(server))
    assert server.connections == 2


def test_S1_only_so_many_connections_are_kept(server: Server) -> None:
    for entity in range(IDLE_MAX + 1):
        ask(place(server, f"queue {entity}"))
    ask(place(server, "queue 0"))
    assert server.connections == IDLE_MAX + 2


def test_S1_a_connection_that_the_broker_has_closed_costs_no_pause(
    server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(door_module, "PAUSE_S", 60.0)
    server.hangs_up = True
    begin_s = time.monotonic()
    for _ in range(3):
        ask(place(server))
    assert server.connections == 3
    assert time.monotonic() - begin_s < 30
