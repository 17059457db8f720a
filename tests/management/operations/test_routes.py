"""What operators do over HTTP, as curl would do it, good and bad."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from partibus.broker.access import AccessRule, Right
from partibus.management.operations.routes import routes
from partibus.store.catalog import ROOT_RULE
from partibus.testing.declarations import queue_of
from partibus.testing.http_world import KEY, World, in_world

RULES = "/$partibus/access-rules"


async def ask(
    world: World, method: str, path: str, body: object = None, **headers: str
) -> tuple[int, Any]:
    """Status, and the JSON of the answer or the text of an error."""
    headers.setdefault("Authorization", world.token())
    sent = b"" if body is None else json.dumps(body).encode()
    status, _, text = await world.ask(method, path, sent, **headers)
    return status, json.loads(text) if text.startswith(("{", "[")) else text


def create(world: World, *names: str, **properties: object) -> None:
    profile = world.catalog.load().settings.profile
    for name in names:
        world.catalog.create_queue(queue_of(name, properties, profile), 1)


def test_a_queue_is_emptied_and_its_dead_letters_stay(tmp_path: Path) -> None:
    async def use(world: World) -> None:
        create(world, "q", enable_partitioning=True)
        for _ in range(5):
            await world.ask("POST", "/q/messages", b"x", Authorization=world.token())
        path = "/$partibus/entities/q/purge"
        expected = {"deleted": 5, "complete": True, "unfinished": []}
        assert await ask(world, "POST", path) == (200, expected)
        assert await ask(world, "POST", path) == (200, expected | {"deleted": 0})
        status, _ = await ask(world, "POST", "/$partibus/entities/q/$DeadLetterQueue/purge")
        assert status == 200
        assert (await ask(world, "GET", path))[0] == 405
        assert (await ask(world, "POST", "/$partibus/entities/none/purge"))[0] == 404

    in_world(tmp_path, use)


def test_M5_names_are_exchanged_and_messages_stay_with_their_entity(tmp_path: Path) -> None:
    async def use(world: World) -> None:
        create(world, "old")
        create(world, "new", enable_partitioning=True)
        await world.ask("POST", "/old/messages", b"in old", Authorization=world.token())
        swapped = await ask(world, "POST", "/$partibus/entities/old/swap", {"with": "new"})
        assert swapped == (200, {"swapped": ["old", "new"]})
        assert world.node.resolve("old")[0].partitioned
        assert not world.node.resolve("new")[0].partitioned
        head = await world.ask(
            "DELETE", "/new/messages/head?timeout=5", Authorization=world.token()
        )
        assert (head[0], head[2]) == (200, "in old")
        moved = await ask(world, "POST", "/$partibus/entities/new/rename", {"name": "done"})
        assert moved == (200, {"name": "done", "formerly": "new"})
        assert (await ask(world, "POST", "/$partibus/entities/done/rename", {"name": "old"}))[
            0
        ] == 409
        for body in ({"with": "none"}, {"other": "x"}, [], {"with": 5}):
            status, _ = await ask(world, "POST", "/$partibus/entities/old/swap", body)
            assert status in (400, 404)

    in_world(tmp_path, use)


def test_access_rules_are_made_rotated_and_removed(tmp_path: Path) -> None:
    async def use(world: World) -> None:
        create(world, "q")
        for path, entity in ((RULES, None), ("/$partibus/entities/q/access-rules", "q")):
            made = await ask(world, "PUT", f"{path}/user", {"rights": ["Send", "Listen"]})
            assert (made[0], made[1]["rights"]) == (200, ["Listen", "Send"])
            assert len(made[1]["primaryKey"]) == 44
            # Other rights, the same keys.
            changed = await ask(world, "PUT", f"{path}/user", {"rights": ["Send"]})
            assert changed[1]["primaryKey"] == made[1]["primaryKey"]
            rotated = await ask(world, "POST", f"{path}/user/rotate")
            assert rotated[1]["secondaryKey"] == made[1]["primaryKey"]
            assert rotated[1]["primaryKey"] != made[1]["primaryKey"]
            for key in ("primaryKey", "secondaryKey"):
                body = {"key": key.removesuffix("Key")}
                again = await ask(world, "POST", f"{path}/user/regenerate", body)
                assert again[1][key] != rotated[1][key]
            _, listed = await ask(world, "GET", path)
            assert "user" in [each["name"] for each in listed["rules"]]
            snapshot = world.node.snapshot
            found = snapshot.find(entity) if entity else None
            assert any(each.rights == Right.SEND for each in snapshot.rules_of(found))
            assert (await ask(world, "DELETE", f"{path}/user"))[0] == 200
            for method in ("DELETE", "GET"):
                assert (await ask(world, method, f"{path}/user"))[0] == 404
            assert (await ask(world, "POST", f"{path}/user/rotate"))[0] == 404
            for body in ({}, {"rights": []}, {"rights": ["Manage"]}, {"rights": "Send"}, "x"):
                assert (await ask(world, "PUT", f"{path}/bad", body))[0] == 400
        assert (await ask(world, "DELETE", f"{RULES}/{ROOT_RULE}"))[0] == 400
        assert (await ask(world, "GET", "/$partibus/entities/none/access-rules"))[0] == 404

    in_world(tmp_path, use)


def test_A4_who_may_not_manage_may_do_none_of_it(tmp_path: Path) -> None:
    async def use(world: World) -> None:
        create(world, "q", "other")
        world.catalog.put_access_rule(AccessRule("user", KEY, "", Right.SEND | Right.LISTEN))
        world.catalog.put_access_rule(AccessRule("own", KEY, "", ~Right(0)), "q")
        user, own = world.token(rule="user"), world.token("q", "own")
        bodies = {"rename": {"name": "x"}, "swap": {"with": "other"}}
        # Who may listen may look, too.
        every = [each.path for each in routes(world.door.service)]
        paths = [path for path in every if not path.endswith("/messages")]
        assert (len(every), len(paths)) == (13, 12)
        for path in paths:
            filled = path.replace("{entity:path}", "q").replace("{rule}", "own")
            for method in ("GET", "POST", "PUT", "DELETE"):
                body = bodies.get(filled.rpartition("/")[2])
                status, _ = await ask(world, method, filled, body, Authorization=user)
                assert status in (401, 405), filled
        # The manager of one queue has no say over another, or the namespace.
        shown = {"Authorization": own}
        assert (await ask(world, "GET", RULES, **shown))[0] == 401
        assert (await ask(world, "GET", "/$partibus/entities/other/access-rules", **shown))[
            0
        ] == 401
        for path, body in bodies.items():
            status, _ = await ask(world, "POST", f"/$partibus/entities/q/{path}", body, **shown)
            assert status == 401
        assert (await ask(world, "GET", "/$partibus/entities/q/access-rules", **shown))[0] == 200

    in_world(tmp_path, use)
