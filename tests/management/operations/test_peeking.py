"""Looking at messages over HTTP, as the portal does."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from partibus.broker.access import AccessRule, Right
from partibus.testing.declarations import queue_of
from partibus.testing.http_world import KEY, World, in_world

PATH = "/$partibus/entities/q/messages"


async def peek(world: World, query: str = "", path: str = PATH) -> tuple[int, Any]:
    status, _, text = await world.ask("GET", path + query, Authorization=world.token())
    return status, json.loads(text)["messages"] if status == 200 else text


def create(world: World, **properties: object) -> None:
    profile = world.catalog.load().settings.profile
    world.catalog.create_queue(queue_of("q", properties, profile), 1)


async def send(world: World, body: bytes, **headers: str) -> None:
    status, _, text = await world.ask(
        "POST", "/q/messages", body, Authorization=world.token(), **headers
    )
    assert status == 201, text


def test_a_message_is_shown_whole_and_stays(tmp_path: Path) -> None:
    async def use(world: World) -> None:
        create(world)
        properties = '{"MessageId": "7", "Label": "new", "TimeToLive": 60}'
        await send(
            world,
            b"hello",
            BrokerProperties=properties,
            Region='"north"',
            Amount="1.5",
            Paid="true",
        )
        for _ in range(2):
            status, (shown,) = await peek(world)
            assert status == 200
            assert shown["Body"] == "hello"
            assert shown["BodyBytes"] == 5
            assert shown["UserProperties"] == {"Region": "north", "Amount": 1.5, "Paid": True}
            broker = shown["BrokerProperties"]
            assert (broker["MessageId"], broker["Label"], broker["TimeToLive"]) == ("7", "new", 60)
            assert (broker["SequenceNumber"], broker["DeliveryCount"]) == (1, 0)

    in_world(tmp_path, use)


def test_messages_of_all_fragments_are_seen_one_page_after_the_other(tmp_path: Path) -> None:
    async def use(world: World) -> None:
        create(world, enable_partitioning=True)
        for number in range(40):
            await send(world, b"%d" % number)
        bodies: list[str] = []
        start = 0
        while True:
            _, page = await peek(world, f"?from={start}&count=3")
            assert len(page) <= 3
            if not page:
                break
            bodies += [each["Body"] for each in page]
            start = page[-1]["BrokerProperties"]["SequenceNumber"] + 1
        assert sorted(map(int, bodies)) == list(range(40))

    in_world(tmp_path, use)


def test_octets_come_in_base64_and_long_bodies_only_as_far_as_asked(tmp_path: Path) -> None:
    async def use(world: World) -> None:
        create(world)
        await send(world, b"\xff\xfe" + b"x" * 100)
        await send(world, b"y" * 100)
        _, (octets, text) = await peek(world, "?body=4")
        assert (octets["BodyBase64"], octets["BodyBytes"]) == ("//54eA==", 102)
        assert (text["Body"], text["BodyBytes"]) == ("yyyy", 100)

    in_world(tmp_path, use)


def test_who_may_not_listen_is_refused_and_so_is_what_cannot_be_meant(tmp_path: Path) -> None:
    async def use(world: World) -> None:
        create(world)
        world.catalog.put_access_rule(AccessRule("sender", KEY, KEY, Right.SEND))
        world.node.refresh()
        token = world.token(rule="sender")
        assert (await world.ask("GET", PATH, Authorization=token))[0] == 401
        assert (await world.ask("GET", PATH))[0] == 401
        for query in (
            "?from=-1",
            "?from=x",
            "?count=251",
            "?count=1e3",
            "?body=99999999",
            "?from=²",
        ):
            assert (await peek(world, query.replace("²", "%C2%B2")))[0] == 400, query
        assert (await peek(world, path="/$partibus/entities/none/messages"))[0] == 410

    in_world(tmp_path, use)
