"""Who may do what: every right against every operation, and names made to deceive."""

from __future__ import annotations

from typing import Any

import pytest

from partibus.broker.access import ALL_RIGHTS, AccessRule, Right
from partibus.engine.events import LinkDetached
from partibus.gateway.requests import OPERATIONS
from partibus.store.catalog import ROOT_RULE
from partibus.wire.performatives import Source
from partibus.wire.values import Symbol

KEY = "cnVsZSBrZXk="
UNAUTHORIZED = "amqp:unauthorized-access"
HELD = [Right.SEND, Right.LISTEN, Right.SEND | Right.LISTEN, ALL_RIGHTS]
SESSION_FILTER = {Symbol("com.microsoft:session-filter"): "s"}

# What each link needs: one of these rights. Manage includes the others.
LINKS = {
    "send": Right.SEND,
    "receive": Right.LISTEN,
    "receive dead letters": Right.LISTEN,
    "accept a session": Right.LISTEN,
    "ask": Right.SEND | Right.LISTEN,
    "hear answers": Right.SEND | Right.LISTEN,
}
# What each request needs. One that is not here is held to what it says of itself.
REQUESTS = {
    "renew-lock": Right.LISTEN,
    "update-disposition": Right.LISTEN,
    "peek-message": Right.LISTEN,
    "receive-by-sequence-number": Right.LISTEN,
    "schedule-message": Right.SEND,
    "cancel-scheduled-message": Right.SEND,
    "batch-delete-messages": Right.LISTEN,
    "renew-session-lock": Right.LISTEN,
    "get-session-state": Right.LISTEN,
    "set-session-state": Right.LISTEN,
    "get-message-sessions": Right.LISTEN,
    "add-rule": Right.MANAGE,
    "remove-rule": Right.MANAGE,
    "enumerate-rules": Right.MANAGE,
}


def names(rights: Right) -> str:
    return "+".join(str(each.name).lower() for each in rights) or "none"


@pytest.fixture(params=HELD, ids=names)
def held(request: pytest.FixtureRequest) -> Right:
    rights: Right = request.param
    return rights


@pytest.fixture(params=[None, "q"], ids=["of the namespace", "of the entity"])
def client(request: pytest.FixtureRequest, world: Any, held: Right) -> Any:
    """Who has shown a token of a rule with these rights, wherever the rule stands."""
    world.create_queue("q")
    world.create_queue("sessions", requires_session=True)
    world.put_rule("rule", KEY, held, request.param)
    if request.param:
        world.put_rule("rule", KEY, held, "sessions")
    client = world.connect()
    for queue in ("q", "sessions"):
        uri = f"sb://host/{queue}"
        assert client.put_token(uri, client.token(uri, "rule", KEY)) == 202
    return client


def attach(client: Any, link: str) -> Any:
    if link == "send":
        return client.sender("q")
    if link == "ask":
        return client.sender("q/$management")
    if link == "accept a session":
        return client.receiver("sessions", source=Source("sessions", filter=SESSION_FILTER))
    addresses = {
        "receive": "q",
        "receive dead letters": "q/$DeadLetterQueue",
        "hear answers": "q/$management",
    }
    return client.receiver(addresses[link])


def test_A4_a_link_needs_its_right(client: Any, held: Right) -> None:
    for link, needed in LINKS.items():
        attached = attach(client, link)
        if held & (needed | Right.MANAGE):
            assert not client.all(LinkDetached, attached), link
        else:
            condition, text = client.error_of(attached)
            assert condition == UNAUTHORIZED
            assert "claim(s) are required" in text


def test_A4_a_request_needs_its_right(client: Any, held: Right) -> None:
    for name, operation in OPERATIONS.items():
        needed = REQUESTS.get(name.removeprefix("com.microsoft:"), operation.right)
        answer = client.ask("q/$management", {"operation": name}, {})
        is_refused = answer.properties.get("errorCondition") == UNAUTHORIZED
        assert is_refused == (not held & (needed | Right.MANAGE)), name
        assert is_refused == (answer.properties["statusCode"] == 401)


# Names made to deceive --------------------------------------------------------------------------

OTHERS = [
    "queue10",
    "QUEUE10",
    "queue1/queue10",
    "queue1/../queue10",
    "queue1%2F..%2Fqueue10",
    "queue1/%2e%2e/queue10",
    "queue1//queue10",
    "queue1/./queue10",
    "./queue10",
    "sb://queue1/queue10",
    "queue1?/queue10",
    "queue1#/queue10",
    "queue1;queue10",
    "queue1\0queue10",
    "queue1/$management/../../queue10",
    "queue10/$deadletterqueue",
    "queue10/$management",
    "",
    "*",
]
SAME = ["queue1", "QUEUE1", "/queue1/", "%71ueue1", "amqps://elsewhere:1/Queue1"]


@pytest.fixture
def holder(world: Any) -> Any:
    """Who may do everything with queue1, by a rule that stands on it, and nothing else."""
    world.create_queue("queue1")
    world.create_queue("queue10")
    world.put_rule("rule", KEY, ALL_RIGHTS, "queue1")
    client = world.connect()
    uri = "sb://host/queue1"
    assert client.put_token(uri, client.token(uri, "rule", KEY)) == 202
    return client


@pytest.mark.parametrize("address", OTHERS)
def test_A4_a_claim_to_one_queue_reaches_no_other(holder: Any, address: str) -> None:
    for link in (holder.sender(address), holder.receiver(address)):
        condition, _ = holder.error_of(link)
        # Below queue1 its holder may know that there is nothing; an empty address is none at all.
        is_below = address.startswith("queue1/$")
        allowed = "amqp:not-found" if is_below else UNAUTHORIZED
        assert condition == (allowed if address else "com.microsoft:argument-error")


@pytest.mark.parametrize("address", SAME)
def test_A4_a_claim_holds_for_its_queue_in_every_spelling(holder: Any, address: str) -> None:
    assert not holder.all(LinkDetached, holder.sender(address))
    assert not holder.all(LinkDetached, holder.receiver(address))


@pytest.mark.parametrize("audience", OTHERS)
@pytest.mark.parametrize("signed", ["itself", "the audience"])
def test_A4_the_key_of_one_queue_signs_for_no_other(
    world: Any, holder: Any, audience: str, signed: str
) -> None:
    uri = f"sb://host/{audience}"
    token = holder.token("sb://host/queue1" if signed == "itself" else uri, "rule", KEY)
    assert holder.put_token(uri, token) in (401, 404)
    assert holder.error_of(holder.sender("queue10"))[0] == UNAUTHORIZED


# Rotation and revocation ------------------------------------------------------------------------


def rotate(world: Any, primary: str, secondary: str, rights: Right = ALL_RIGHTS) -> None:
    world.catalog.put_access_rule(AccessRule("rule", primary, secondary, rights))
    world.node.refresh()


def test_A4_keys_are_rotated_one_after_the_other_without_an_interruption(world: Any) -> None:
    world.create_queue("q")
    uri = "sb://host/q"
    rotate(world, "old", "spare")
    client = world.connect()
    assert client.put_token(uri, client.token(uri, "rule", "old")) == 202
    sender = client.sender("q")
    assert client.put_token(uri, client.token(uri, "rule", "spare")) == 202
    rotate(world, "new", "spare")
    world.advance(2_000)
    assert not client.all(LinkDetached, sender)
    assert client.put_token(uri, client.token(uri, "rule", "old")) == 401
    assert client.put_token(uri, client.token(uri, "rule", "new")) == 202
    rotate(world, "new", "newer")
    world.advance(2_000)
    assert not client.all(LinkDetached, sender)


@pytest.mark.parametrize("change", ["key", "rights", "rule", "unrelated"])
def test_A4_what_a_key_opened_is_closed_when_the_key_is_taken_away(world: Any, change: str) -> None:
    world.create_queue("q")
    rotate(world, "old", "spare")
    client = world.connect()
    uri = "sb://host/q"
    assert client.put_token(uri, client.token(uri, "rule", "old")) == 202
    sender = client.sender("q")
    plain = world.connect("PLAIN", b"\0rule\0old")
    receiver = plain.receiver("q")
    if change == "key":
        rotate(world, "new", "spare")
    elif change == "rights":
        rotate(world, "old", "spare", Right.LISTEN | Right.SEND)
    elif change == "rule":
        world.catalog.delete_access_rule("rule")
    else:
        world.put_rule("another", KEY, ALL_RIGHTS)
    world.node.refresh()
    world.advance(2_000)
    if change == "unrelated":
        assert not client.all(LinkDetached, sender)
        assert not plain.all(LinkDetached, receiver)
        return
    for end, link in ((client, sender), (plain, receiver)):
        condition, text = end.error_of(link)
        assert condition == UNAUTHORIZED
        assert "taken away" in text
        assert end.error_of(end.sender("q"))[0] == UNAUTHORIZED


def test_A4_a_queue_that_was_made_anew_is_not_open_to_who_knew_the_old_one(world: Any) -> None:
    world.create_queue("q")
    world.put_rule("rule", KEY, ALL_RIGHTS, "q")
    client = world.connect()
    uri = "sb://host/q"
    assert client.put_token(uri, client.token(uri, "rule", KEY)) == 202
    world.catalog.delete_queue("q", 1)
    world.create_queue("q")
    world.advance(2_000)
    assert client.error_of(client.sender("q"))[0] == UNAUTHORIZED


def test_A4_the_root_rules_token_still_opens_everything(world: Any) -> None:
    world.create_queue("q")
    client = world.authorised()
    assert client.put_token("sb://host/q", client.token("sb://host/", ROOT_RULE)) == 202
    for link in LINKS:
        if link != "accept a session":
            assert not client.all(LinkDetached, attach(client, link))
