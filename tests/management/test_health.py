"""The health answer, in the emulator's words."""

from __future__ import annotations

import json
from pathlib import Path

from partibus.management.health import Health, body_of
from partibus.testing.http_world import World, in_world

ALL_UP = Health(stores=16, stores_down=(), nodes=2, nodes_down=())
SOME_DOWN = Health(stores=16, stores_down=(1, 3), nodes=2, nodes_down=(1,))
ALL_DOWN = Health(stores=2, stores_down=(0, 1), nodes=1, nodes_down=())


def test_a_healthy_namespace_says_so_in_the_emulators_words() -> None:
    body = body_of(ALL_UP)
    assert (body["status"], body["message"]) == ("healthy", "Service is healthy.")


def test_with_some_stores_down_it_still_serves_and_names_them() -> None:
    body = body_of(SOME_DOWN)
    assert SOME_DOWN.can_serve
    assert body["status"] == "limited"
    assert body["stores"] == {"total": 16, "down": [1, 3]}
    assert body["nodes"] == {"total": 2, "down": [1]}


def test_with_no_store_left_it_is_unavailable() -> None:
    body = body_of(ALL_DOWN)
    assert not ALL_DOWN.can_serve
    assert body["status"] == "unhealthy"
    assert body["message"] == "Service not available. Please try after some time."


def test_anyone_may_ask_and_a_query_does_not_matter(tmp_path: Path) -> None:
    async def use(world: World) -> None:
        for path in ("/health", "/health/", "/health?probe=1"):
            status, headers, body = await world.ask("GET", path)
            assert (status, json.loads(body)["status"]) == (200, "healthy")
            assert headers["content-type"] == "application/json"
        assert (await world.ask("HEAD", "/health"))[::2] == (200, "")
        status, headers, _ = await world.ask("POST", "/health")
        assert (status, headers["allow"]) == (405, "get")

    in_world(tmp_path, use)


def test_a_store_that_is_down_is_named(tmp_path: Path) -> None:
    async def use(world: World) -> None:
        world.node.avoid(1, 60_000)
        status, _, body = await world.ask("GET", "/health")
        assert (status, json.loads(body)["stores"]) == (200, {"total": 2, "down": [1]})
        world.node.avoid(0, 60_000)
        assert (await world.ask("GET", "/health"))[0] == 503

    in_world(tmp_path, use)
