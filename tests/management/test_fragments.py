"""Where fragments lie, over HTTP."""

from __future__ import annotations

import json
from pathlib import Path

from partibus.testing.declarations import queue_of
from partibus.testing.http_world import World, in_world


def test_M2_fragments_that_do_not_answer_are_told(tmp_path: Path) -> None:
    async def use(world: World) -> None:
        profile = world.catalog.load().settings.profile
        world.catalog.create_queue(queue_of("q", {"enable_partitioning": True}, profile), 1)
        world.node.refresh()
        entity, _ = world.node.resolve("q")
        world.node.host.down.add((entity.id, 3))
        path = "/$partibus/fragments/q?key=north"
        status, _, body = await world.ask("GET", path, Authorization=world.token())
        found = json.loads(body)
        assert status == 200
        assert [each["partition"] for each in found["fragments"] if not each["available"]] == [3]
        assert found["partition"] in range(1, 17)
        assert (await world.ask("GET", path))[0] == 401
        missing = "/$partibus/fragments/none"
        assert (await world.ask("GET", missing, Authorization=world.token()))[0] == 404

    in_world(tmp_path, use)
