"""Every path of the HTTP door asks for its right before it does anything else (A4)."""

from __future__ import annotations

from pathlib import Path
from uuid import UUID

import pytest

from partibus.broker.access import AccessRule, Right
from partibus.broker.descriptions import QueueDescription
from partibus.broker.topics import SubscriptionDescription, TopicDescription
from partibus.testing.http_world import KEY, World, in_world

LOCK = str(UUID(int=1))
EVERYTHING = {"PUT", "GET", "DELETE"}
# Nobody is asked for anything here.
PUBLIC = {"/health", "/health/"}

# By route: the methods with the right that each needs, and an address that it serves.
OPERATIONS: dict[str, list[tuple[str, Right, str]]] = {
    "/metrics": [("GET", Right.MANAGE, "/metrics")],
    "/$partibus/fragments/{entity:path}": [("GET", Right.MANAGE, "/$partibus/fragments/q")],
    "/$partibus/pipelines": [("GET", Right.MANAGE, "/$partibus/pipelines")],
    "/$partibus/pipelines/{name}": [
        ("GET", Right.MANAGE, "/$partibus/pipelines/p"),
        ("DELETE", Right.MANAGE, "/$partibus/pipelines/p"),
    ],
    "/$partibus/pipelines/{name}/pause": [("POST", Right.MANAGE, "/$partibus/pipelines/p/pause")],
    "/$partibus/pipelines/{name}/resume": [("POST", Right.MANAGE, "/$partibus/pipelines/p/resume")],
    "/$partibus/bulk/{entity:path}/readers": [("GET", Right.LISTEN, "/$partibus/bulk/q/readers")],
    "/$partibus/readers": [("GET", Right.MANAGE, "/$partibus/readers")],
    "/$partibus/staged": [("GET", Right.MANAGE, "/$partibus/staged")],
    "/$partibus/bulk/{entity:path}/fragments": [
        ("GET", Right.LISTEN, "/$partibus/bulk/q/fragments")
    ],
    "/$partibus/bulk/{entity:path}/fragments/{fragment:int}/messages": [
        ("GET", Right.LISTEN, "/$partibus/bulk/q/fragments/1/messages?after=0&upto=1")
    ],
    "/$partibus/bulk/{entity:path}/readers/{reader}": [
        ("PUT", Right.LISTEN, "/$partibus/bulk/q/readers/r"),
        ("DELETE", Right.LISTEN, "/$partibus/bulk/q/readers/r"),
    ],
    "/$partibus/bulk/{entity:path}/consumers/{reader}": [
        ("POST", Right.LISTEN, "/$partibus/bulk/q/consumers/r"),
        ("PUT", Right.LISTEN, "/$partibus/bulk/q/consumers/r"),
        ("DELETE", Right.LISTEN, "/$partibus/bulk/q/consumers/r"),
    ],
    "/$partibus/bulk/{entity:path}/consumers/{reader}/reserved/{fragment:int}": [
        ("GET", Right.LISTEN, "/$partibus/bulk/q/consumers/r/reserved/1?epoch=1&after=0&upto=1")
    ],
    "/$partibus/bulk/{entity:path}/writers/{writer}/{batch:int}": [
        ("POST", Right.SEND, "/$partibus/bulk/q/writers/w/1")
    ],
    "/$partibus/bulk/{entity:path}/writers/{writer}/{batch:int}/{attempt}": [
        ("PUT", Right.SEND, "/$partibus/bulk/q/writers/w/1/a"),
        ("DELETE", Right.SEND, "/$partibus/bulk/q/writers/w/1/a"),
    ],
    "/$partibus/configuration": [("GET", Right.MANAGE, "/$partibus/configuration")],
    "/$partibus/entities/{entity:path}/messages": [
        ("GET", Right.LISTEN, "/$partibus/entities/q/messages")
    ],
    "/$partibus/entities/{entity:path}/purge": [
        ("POST", Right.MANAGE, "/$partibus/entities/q/purge")
    ],
    "/$partibus/entities/{entity:path}/rename": [
        ("POST", Right.MANAGE, "/$partibus/entities/q/rename")
    ],
    "/$partibus/entities/{entity:path}/swap": [
        ("POST", Right.MANAGE, "/$partibus/entities/q/swap")
    ],
    "/{entity:path}/messages/head": [
        ("POST", Right.LISTEN, "/q/messages/head?timeout=0"),
        ("DELETE", Right.LISTEN, "/q/messages/head?timeout=0"),
        ("POST", Right.LISTEN, "/t/subscriptions/s/messages/head?timeout=0"),
        ("DELETE", Right.LISTEN, "/q/$deadletterqueue/messages/head?timeout=0"),
    ],
    "/{entity:path}/messages/{message}/{token}": [
        ("PUT", Right.LISTEN, f"/q/messages/1/{LOCK}"),
        ("POST", Right.LISTEN, f"/q/messages/1/{LOCK}"),
        ("DELETE", Right.LISTEN, f"/q/messages/1/{LOCK}"),
    ],
    "/{entity:path}/messages": [
        ("POST", Right.SEND, "/q/messages"),
        ("POST", Right.SEND, "/t/messages"),
    ],
    "/{path:path}": [
        (method, Right.MANAGE, path)
        for path, methods in {
            "/q": EVERYTHING,
            "/new": EVERYTHING,
            "/t": EVERYTHING,
            "/t/subscriptions/s": EVERYTHING,
            "/t/subscriptions/s/rules/$Default": EVERYTHING,
            "/t/subscriptions": {"GET"},
            "/t/subscriptions/s/rules": {"GET"},
            "/$Resources/queues": {"GET"},
            "/$Resources/topics": {"GET"},
            "/$namespaceinfo": {"GET"},
        }.items()
        for method in sorted(methods)
    ],
}
for _scope in ("/$partibus", "/$partibus/entities/{entity:path}"):
    _at = f"{_scope}/access-rules".replace("{entity:path}", "q")
    _route = f"{_scope}/access-rules"
    OPERATIONS[_route] = [("GET", Right.MANAGE, _at)]
    OPERATIONS[_route + "/{rule}"] = [
        (method, Right.MANAGE, f"{_at}/x") for method in sorted(EVERYTHING)
    ]
    for _verb in ("rotate", "regenerate"):
        OPERATIONS[f"{_route}/{{rule}}/{_verb}"] = [("POST", Right.MANAGE, f"{_at}/x/{_verb}")]


def populate(world: World) -> None:
    """What the operations are about; some of them delete it."""
    world.node.refresh()
    snapshot = world.node.snapshot
    if snapshot.find("q") is None:
        world.catalog.create_queue(QueueDescription("q"), 0)
    if snapshot.find("t") is None:
        world.catalog.create_topic(TopicDescription("t"), 0)
        world.node.refresh()
    if world.node.snapshot.find_subscription("t", "s") is None:
        world.catalog.create_subscription("t", SubscriptionDescription("s"), 0)
    world.node.refresh()


def test_A4_no_path_is_left_out(tmp_path: Path) -> None:
    async def use(world: World) -> None:
        served = {each.path for each in world.door.application.routes}  # type: ignore[attr-defined]
        assert served == OPERATIONS.keys() | PUBLIC

    in_world(tmp_path, use)


@pytest.mark.parametrize("held", list(Right), ids=lambda right: str(right.name).lower())
def test_A4_every_right_against_every_operation(tmp_path: Path, held: Right) -> None:
    async def use(world: World) -> None:
        populate(world)
        world.catalog.put_access_rule(AccessRule("holder", KEY, "", held))
        token = world.token(rule="holder")
        for operations in OPERATIONS.values():
            for method, right, path in operations:
                populate(world)
                status, _, _ = await world.ask(method, path, b"", Authorization=token)
                is_let_in = bool(held & (right | Right.MANAGE))
                assert (status != 401) is is_let_in, (method, path, status)
                # Bulk reading needs files, which this world has not.
                assert status < 500 or status == 501, (method, path, status)

    in_world(tmp_path, use)


@pytest.mark.parametrize("shown", ["nothing", "foreign", "expired", "malformed", "another queue"])
def test_A4_no_operation_is_open_to_who_shows_nothing_good(tmp_path: Path, shown: str) -> None:
    async def use(world: World) -> None:
        populate(world)
        world.catalog.create_queue(QueueDescription("other"), 0)
        world.catalog.put_access_rule(AccessRule("own", KEY, "", ~Right(0)), "other")
        headers = {
            "nothing": {},
            "foreign": {"Authorization": world.token(key="Zm9yZWlnbg==")},
            "expired": {"Authorization": world.token(end_s=-10)},
            "malformed": {"Authorization": "SharedAccessSignature sr=&sig"},
            "another queue": {"Authorization": world.token("other", "own")},
        }[shown]
        world.node.refresh()
        before = world.node.snapshot.version
        for operations in OPERATIONS.values():
            for method, _, path in operations:
                status, _, body = await world.ask(method, path, b"", **headers)
                assert status == 401, (method, path)
                assert "SubCode=401" in body
        world.node.refresh()
        assert world.node.snapshot.version == before

    in_world(tmp_path, use)
