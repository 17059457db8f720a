"""Access over HTTP: which tokens open what, and what the others are told (A4)."""

from __future__ import annotations

import re
from pathlib import Path

from starlette.responses import PlainTextResponse, Response

from partibus.broker.access import AccessRule, Right
from partibus.broker.descriptions import QueueDescription
from partibus.management.calls import Call, route
from partibus.management.settings import HttpSettings
from partibus.runtime.wrong_tokens import STRIKES
from partibus.testing.http_world import KEY, World, in_world


def with_gates(world: World) -> None:
    """Paths that need one right each: /gate/send/q needs Send on q."""

    async def enter(call: Call) -> Response:
        call.require(Right[call.part("right").upper()], call.part("entity"))
        return PlainTextResponse("in")

    gate = route(world.door.service, "/gate/{right}/{entity:path}", {"GET": enter})
    world.door.application.routes.insert(0, gate)
    world.catalog.create_queue(QueueDescription("q"), 0)
    world.catalog.create_queue(QueueDescription("q/inner"), 0)
    world.catalog.create_queue(QueueDescription("other"), 0)


async def enter(world: World, path: str, token: str | None) -> tuple[int, int]:
    """The status, and the SubCode of a refusal."""
    shown = {} if token is None else {"Authorization": token}
    status, _, body = await world.ask("GET", f"/gate/{path}", **shown)
    found = re.search(r"SubCode=(\d+)", body)
    return status, int(found[1]) if found else 0


def test_A4_the_namespaces_rule_opens_everything(tmp_path: Path) -> None:
    async def use(world: World) -> None:
        with_gates(world)
        for path in ("manage/q", "send/q", "listen/q/inner", "manage/", "manage/new"):
            assert await enter(world, path, world.token()) == (200, 0)
        assert await enter(world, "send/q", world.token("q")) == (200, 0)

    in_world(tmp_path, use)


def test_A4_every_right_is_checked_against_every_operation(tmp_path: Path) -> None:
    async def use(world: World) -> None:
        with_gates(world)
        rights = {
            "listener": (Right.LISTEN, {"listen"}),
            "sender": (Right.SEND, {"send"}),
            "both": (Right.LISTEN | Right.SEND, {"listen", "send"}),
            "owner": (~Right(0), {"listen", "send", "manage"}),
        }
        for name, (held, opened) in rights.items():
            world.catalog.put_access_rule(AccessRule(name, KEY, "", held), "q")
            for wanted in ("listen", "send", "manage"):
                expected = (200, 0) if wanted in opened else (401, 40100)
                token = world.token("q", name)
                assert await enter(world, f"{wanted}/q", token) == expected, (name, wanted)

    in_world(tmp_path, use)


def test_A4_a_bad_token_is_refused_by_its_fault(tmp_path: Path) -> None:
    async def use(world: World) -> None:
        with_gates(world)
        world.catalog.put_access_rule(AccessRule("own", KEY, "", ~Right(0)), "q")
        faults = {
            40102: None,
            40103: world.token(key="bm90IHRoZSBrZXk="),
            40104: world.token("other"),
            40105: "Bearer eyJhbGciOiJub25lIn0.e30.",
            40106: world.token(end_s=-60),
        }
        for subcode, token in faults.items():
            assert await enter(world, "send/q", token) == (401, subcode)
        # Not by the name's beginning, and not with a rule that stands on another entity.
        assert await enter(world, "send/q", world.token("q2")) == (401, 40104)
        assert await enter(world, "send/other", world.token("other", "own")) == (401, 40103)
        assert await enter(world, "send/q/inner", world.token("q", "own")) != (200, 0)

    in_world(tmp_path, use)


def test_A4_after_some_bad_tokens_the_connection_is_closed(tmp_path: Path) -> None:
    async def use(world: World) -> None:
        with_gates(world)
        bad = world.token(key="bm90IHRoZSBrZXk=")
        request = f"GET /gate/send/q HTTP/1.1\r\nHost: x\r\nAuthorization: {bad}\r\n\r\n"
        answers = await world.talk(request.encode() * (STRIKES + 3))
        assert answers.count(b"HTTP/1.1 401") == STRIKES

    in_world(tmp_path, use)


def test_with_dev_no_token_is_needed_but_who_shows_one_is_held_to_it(tmp_path: Path) -> None:
    async def use(world: World) -> None:
        with_gates(world)
        assert await enter(world, "manage/q", None) == (200, 0)
        emulator = world.token(key="SAS_KEY_VALUE")
        assert await enter(world, "manage/q", emulator) == (200, 0)
        assert await enter(world, "manage/q", world.token(key="wrong")) == (401, 40103)

    in_world(tmp_path, use, HttpSettings("test", dev=True))


def test_A3_a_token_may_be_signed_for_the_very_address_that_is_asked(tmp_path: Path) -> None:
    """As the Go client does; for an address beside it, it is good for nothing."""

    async def use(world: World) -> None:
        path = "/$namespaceinfo?api-version=2024-05"
        good = world.token(path.removeprefix("/"))
        assert (await world.ask("GET", path, Authorization=good))[0] == 200
        for other in ("$namespace", "$namespaceinfo2", "q"):
            token = world.token(other)
            assert (await world.ask("GET", path, Authorization=token))[0] == 401

    in_world(tmp_path, use)
