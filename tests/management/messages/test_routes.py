"""Message operations over HTTP, as curl would do them, good and bad (A2, R3)."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest

from partibus.broker.access import AccessRule, Right
from partibus.testing.declarations import queue_of, subscription_of, topic_of
from partibus.testing.http_world import KEY, World, in_world

Use = Callable[[World], Awaitable[None]]
BATCH = "application/vnd.microsoft.servicebus.json"
HEAD = "/q/messages/head?timeout=0"


@pytest.fixture(params=[False, True], ids=["conventional", "partitioned"])
def run(request: pytest.FixtureRequest, tmp_path: Path) -> Callable[[Use], None]:
    """Use a door to a namespace with a queue q and a queue s with sessions."""

    def run(use: Use) -> None:
        async def with_queues(world: World) -> None:
            profile = world.catalog.load().settings.profile
            for name, sessions in (("q", False), ("s", True)):
                named = {"enable_partitioning": request.param, "requires_session": sessions}
                world.catalog.create_queue(queue_of(name, named, profile), 1)
            await use(world)

        in_world(tmp_path, with_queues)

    return run


async def ask(world: World, method: str, path: str, body: bytes = b"", **headers: str) -> Any:
    headers.setdefault("Authorization", world.token())
    return await world.ask(method, path, body, **headers)


def properties_of(headers: dict[str, str]) -> dict[str, Any]:
    """They were lower-cased on the way, names and all; values keep what matters here."""
    return dict(json.loads(headers["brokerproperties"]))


def test_A2_a_message_is_sent_received_under_lock_and_completed(run: Any) -> None:
    async def use(world: World) -> None:
        broker = json.dumps({"MessageId": "m1", "Label": "order", "TimeToLive": 30})
        status, _, _ = await ask(
            world,
            "POST",
            "/q/messages",
            b"hello",
            BrokerProperties=broker,
            Content_Type="text/plain",
            Priority2='"high"',
            Amount="12.5",
            Count="7",
            Paid="true",
        )
        assert status == 201
        status, headers, body = await ask(world, "POST", HEAD)
        assert (status, body) == (201, "hello")
        properties = properties_of(headers)
        assert properties["messageid"] == "m1"
        assert properties["label"] == "order"
        assert properties["deliverycount"] == 1
        assert properties["timetolive"] == 30.0
        assert properties["state"] == "active"
        assert headers["content-type"] == "text/plain"
        assert headers["priority2"] == '"high"'
        assert (headers["amount"], headers["count"], headers["paid"]) == ("12.5", "7", "true")
        assert headers["location"].endswith(
            f"/q/messages/{properties['sequencenumber']}/{properties['locktoken']}"
        )
        assert (await ask(world, "POST", HEAD))[0] == 204
        path = headers["location"].removeprefix("http://test")
        assert (await ask(world, "DELETE", path))[0] == 200
        assert (await ask(world, "DELETE", path))[0] == 404

    run(use)


def test_A2_receive_and_delete(run: Any) -> None:
    async def use(world: World) -> None:
        await ask(world, "POST", "/q/messages", b"once")
        status, headers, body = await ask(world, "DELETE", HEAD)
        assert (status, body) == (200, "once")
        assert "location" not in headers
        assert (await ask(world, "DELETE", HEAD))[0] == 204

    run(use)


def test_A2_unlock_counts_a_delivery_and_renew_prolongs(run: Any) -> None:
    async def use(world: World) -> None:
        await ask(world, "POST", "/q/messages", b"again")
        _, headers, _ = await ask(world, "POST", HEAD)
        path = headers["location"].removeprefix("http://test")
        status, renewed, _ = await ask(world, "POST", path)
        assert status == 200
        assert properties_of(renewed)["lockeduntilutc"]
        assert (await ask(world, "PUT", path))[0] == 200
        _, headers, _ = await ask(world, "POST", HEAD)
        assert properties_of(headers)["deliverycount"] == 2

    run(use)


def test_A2_a_batch_is_taken_as_a_whole(run: Any) -> None:
    async def use(world: World) -> None:
        items = [
            {
                "Body": f"m{number}",
                "BrokerProperties": {"PartitionKey": "k", "TimeToLiveTimeSpan": "0.00:05:00"},
                "UserProperties": {"number": number},
            }
            for number in range(3)
        ]
        body = json.dumps(items).encode()
        assert (await ask(world, "POST", "/q/messages", body, Content_Type=BATCH))[0] == 201
        for number in range(3):
            _, headers, text = await ask(world, "DELETE", HEAD)
            assert (text, headers["number"]) == (f"m{number}", str(number))
            assert properties_of(headers)["timetolive"] == 300
        # One bad message, and none is taken.
        items[1]["BrokerProperties"] = {"SessionId": "a", "PartitionKey": "b"}
        body = json.dumps(items).encode()
        assert (await ask(world, "POST", "/q/messages", body, Content_Type=BATCH))[0] == 400
        assert (await ask(world, "DELETE", HEAD))[0] == 204

    run(use)


def test_A2_dead_letters_are_received_under_their_own_path(run: Any) -> None:
    async def use(world: World) -> None:
        broker = json.dumps({"TimeToLive": 0.001})
        profile = world.catalog.load().settings.profile
        named = {"dead_lettering_on_message_expiration": True}
        world.catalog.create_queue(queue_of("d", named, profile), 1)
        await ask(world, "POST", "/d/messages", b"late", BrokerProperties=broker)
        path = "/d/$DeadLetterQueue/messages/head?timeout=15"
        status, headers, body = await ask(world, "DELETE", path)
        assert (status, body) == (200, "late")
        assert headers["deadletterreason"] == '"ttlexpiredexception"'

    run(use)


def test_R3_a_waiting_request_gets_what_comes(run: Any) -> None:
    async def use(world: World) -> None:
        waiting = asyncio.create_task(ask(world, "DELETE", "/q/messages/head?timeout=15"))
        while not world.node._receivers:  # noqa: ASYNC110 - until the request has arrived
            await asyncio.sleep(0.001)
        assert (await ask(world, "POST", "/q/messages", b"awaited"))[0] == 201
        status, _, body = await waiting
        assert (status, body) == (200, "awaited")

    run(use)


def test_R3_what_a_connection_held_comes_back_when_it_ends(run: Any) -> None:
    async def use(world: World) -> None:
        async with world.connected() as (reader, writer):
            head = f"POST /q/messages/head HTTP/1.1\r\nHost: x\r\nAuthorization: {world.token()}"
            writer.write(head.encode() + b"\r\n\r\n")
            while not world.node._receivers:  # noqa: ASYNC110
                await asyncio.sleep(0.001)
        while world.node._receivers:  # noqa: ASYNC110 - until the door has seen it go
            await asyncio.sleep(0.001)
        del reader
        assert (await ask(world, "POST", "/q/messages", b"for another"))[0] == 201
        assert (await ask(world, "DELETE", HEAD))[2] == "for another"

    run(use)


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({"BrokerProperties": "{nothing"}, 400),
        ({"BrokerProperties": "[1]"}, 400),
        ({"BrokerProperties": '{"TimeToLive": -1}'}, 400),
        ({"BrokerProperties": '{"TimeToLive": "soon"}'}, 400),
        ({"BrokerProperties": '{"ScheduledEnqueueTimeUtc": "tomorrow"}'}, 400),
        ({"BrokerProperties": '{"MessageId": {}}'}, 400),
        ({"BrokerProperties": json.dumps({"MessageId": "x" * 129})}, 400),
        ({"BrokerProperties": '{"SessionId": "a", "PartitionKey": "b"}'}, 400),
        ({"Colour": "red"}, 400),
        ({"Content_Type": BATCH}, 400),
    ],
)
def test_a_bad_message_is_refused_and_says_why(
    run: Any, headers: dict[str, str], status: int
) -> None:
    async def use(world: World) -> None:
        got, _, body = await ask(world, "POST", "/q/messages", b"body", **headers)
        assert got == status
        assert f"SubCode={status}00." in body
        assert (await ask(world, "DELETE", HEAD))[0] == 204

    run(use)


def test_too_large_is_forbidden_and_nothing_is_kept(run: Any) -> None:
    async def use(world: World) -> None:
        most = world.node.resolve("q")[0].description.max_message_bytes
        assert (await ask(world, "POST", "/q/messages", b"x" * most))[0] == 403
        assert (await ask(world, "POST", "/q/messages", b"x" * (most + 1)))[0] == 403
        assert (await ask(world, "DELETE", HEAD))[0] == 204

    run(use)


def test_entities_that_cannot_take_part_are_refused(run: Any) -> None:
    async def use(world: World) -> None:
        assert (await ask(world, "POST", "/none/messages", b"x"))[0] == 410
        assert (await ask(world, "POST", "/none/messages/head?timeout=0"))[0] == 410
        assert (await ask(world, "POST", "/q/$DeadLetterQueue/messages", b"x"))[0] == 400
        assert (await ask(world, "POST", "/s/messages", b"x"))[0] == 405
        session = json.dumps({"SessionId": "one"})
        assert (await ask(world, "POST", "/s/messages", b"x", BrokerProperties=session))[0] == 201
        assert (await ask(world, "POST", "/s/messages/head?timeout=0"))[0] == 400
        assert (await ask(world, "POST", "/q/messages/head?timeout=never"))[0] == 400
        unknown = UUID(int=7)
        assert (await ask(world, "DELETE", f"/q/messages/1/{unknown}"))[0] == 404
        assert (await ask(world, "DELETE", "/q/messages/1/not-a-token"))[0] == 404
        world.catalog.update_queue("q", {"Status": "ReceiveDisabled"}, 2)
        world.node.refresh()
        assert (await ask(world, "POST", HEAD))[0] == 403
        world.catalog.update_queue("q", {"Status": "Active", "ForwardTo": "q"}, 3)
        world.node.refresh()
        status, text = (await ask(world, "POST", HEAD))[0::2]
        assert (status, "auto-forwarding" in text) == (400, True)

    run(use)


@pytest.mark.parametrize(
    ("right", "method", "path"),
    [
        (Right.SEND, "POST", "/q/messages"),
        (Right.LISTEN, "POST", HEAD),
        (Right.LISTEN, "DELETE", HEAD),
        (Right.LISTEN, "PUT", f"/q/messages/1/{UUID(int=1)}"),
        (Right.LISTEN, "DELETE", f"/q/messages/1/{UUID(int=1)}"),
        (Right.LISTEN, "POST", f"/q/messages/1/{UUID(int=1)}"),
    ],
)
def test_A4_each_operation_needs_its_right(run: Any, right: Right, method: str, path: str) -> None:
    async def use(world: World) -> None:
        for each in (Right.SEND, Right.LISTEN):
            world.catalog.put_access_rule(AccessRule(str(each.name), KEY, "", each), "q")
        world.node.refresh()
        other = Right.SEND if right is Right.LISTEN else Right.LISTEN
        token = world.token("q", str(other.name))
        assert (await ask(world, method, path, Authorization=token))[0] == 401
        token = world.token("q", str(right.name))
        assert (await ask(world, method, path, Authorization=token))[0] in (201, 204, 404)
        assert (await world.ask(method, path))[0] == 401

    run(use)


def test_A2_messages_go_through_a_topic_to_its_subscriptions(run: Any) -> None:
    async def use(world: World) -> None:
        is_partitioned = world.catalog.load().entities["q"].partitioned
        profile = world.catalog.load().settings.profile
        described = topic_of("t", {"enable_partitioning": is_partitioned}, profile)
        world.catalog.create_topic(described, 1)
        world.catalog.create_subscription("t", subscription_of("t", "s", {}, profile), 1)
        status, _, _ = await ask(world, "POST", "/t/messages", b"hello")
        assert status == 201
        head = "messages/head?timeout=0"
        status, _, body = await ask(world, "DELETE", f"/t/subscriptions/s/{head}")
        assert (status, body) == (200, "hello")
        status, _, _ = await ask(world, "POST", "/t/subscriptions/s/messages", b"no")
        assert status == 400
        status, _, _ = await ask(world, "DELETE", f"/t/{head}")
        assert status == 400

    run(use)
