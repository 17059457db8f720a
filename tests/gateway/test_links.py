"""What an attach gets: the entity, or a refusal that clients understand."""

from __future__ import annotations

from typing import Any

import pytest

from partibus.gateway.links import CBS_LINKS_MAX, CBS_MESSAGE_BYTES_MAX
from partibus.wire.performatives import Attach, Source, Target
from partibus.wire.values import Int, Symbol, ULong

PEEK_LOCK = {"snd_settle_mode": 0, "rcv_settle_mode": 1}


def test_source_and_target_come_back_as_they_were_sent(world: Any) -> None:
    world.create_queue("Orders")
    client = world.authorised()
    address = "amqps://host:5671/ORDERS"
    answer = client.answer_of(client.sender(address))
    assert (answer.source.address, answer.target.address) == ("client", address)
    answer = client.answer_of(client.receiver(address, **PEEK_LOCK))
    assert (answer.source.address, answer.target.address) == (address, "client")


def test_a_senders_answer_says_how_large_messages_and_batches_may_be(world: Any) -> None:
    world.create_queue("q")
    answer = (client := world.authorised()).answer_of(client.sender("q"))
    assert answer.max_message_size == 262_144
    size = answer.properties["com.microsoft:max-message-batch-size"]
    assert (size, type(size)) == (262_144, ULong)


def test_a_receivers_answer_has_an_initial_delivery_count_and_its_settle_modes(world: Any) -> None:
    world.create_queue("q")
    client = world.authorised()
    answer = client.answer_of(client.receiver("q", **PEEK_LOCK))
    assert answer.initial_delivery_count == 0
    assert (answer.snd_settle_mode, answer.rcv_settle_mode) == (0, 1)


@pytest.mark.parametrize(
    "address", ["q", "/q", "Q", "amqps://h/q", "amqp://h:1/q", "sb://h/q", "q/$DeadLetterQueue"]
)
def test_every_spelling_of_an_address_is_understood(world: Any, address: str) -> None:
    world.create_queue("q")
    client = world.authorised()
    assert client.answer_of(client.receiver(address)).source is not None


@pytest.mark.parametrize(
    ("address", "condition"),
    [
        ("nobody", "amqp:not-found"),
        ("q/$DeadLetterQueue", "amqp:not-allowed"),
        ("nobody/$management", "amqp:not-found"),
        ("", "com.microsoft:argument-error"),
        ("amqps://host/", "com.microsoft:argument-error"),
        ("a" * 2000, "com.microsoft:argument-error"),
        ("closed", "com.microsoft:entity-disabled"),
    ],
)
def test_a_sender_to_the_wrong_place_is_refused(world: Any, address: str, condition: str) -> None:
    world.create_queue("q")
    world.create_queue("closed", status="SendDisabled")
    client = world.authorised()
    link = client.sender(address)
    answer = client.answer_of(link)
    assert answer.source is None
    assert answer.target is None
    assert client.error_of(link)[0] == condition


def test_a_session_filter_on_a_queue_without_sessions_is_not_allowed(world: Any) -> None:
    world.create_queue("q")
    client = world.authorised()
    for session in ("s", None):
        filters = {Symbol("com.microsoft:session-filter"): session}
        link = client.receiver("q", source=Source(address="q", filter=filters))
        condition, text = client.error_of(link)
        assert condition == "amqp:not-allowed"
        assert "sessionful message receiver cannot be created" in text


def test_a_queue_with_sessions_has_no_plain_receivers_but_its_dead_letters_do(world: Any) -> None:
    world.create_queue("q", requires_session=True)
    client = world.authorised()
    condition, text = client.error_of(client.receiver("q"))
    assert condition == "amqp:not-allowed"
    assert "non-sessionful message receiver" in text
    assert client.answer_of(client.receiver("q/$deadletterqueue")).source is not None


def test_a_link_that_means_a_topic_is_not_given_a_queue(world: Any) -> None:
    world.create_queue("q")
    client = world.authorised()
    properties = {Symbol("com.microsoft:entity-type"): Int(1)}
    assert client.error_of(client.sender("q", properties=properties))[0] == "amqp:not-allowed"
    properties = {Symbol("com.microsoft:entity-type"): Int(0)}
    assert client.answer_of(client.sender("q", properties=properties)).target is not None


def test_a_link_without_address_or_with_a_dynamic_one_is_refused(world: Any) -> None:
    client = world.authorised()
    for target in (None, Target(), Target(dynamic=True), Target(address=7)):
        attach = Attach(name=f"l{target}", source=Source(), target=target)
        link = client.engine.attach_sender(client.session, attach)
        world.settle()
        assert client.error_of(link)[0] in ("com.microsoft:argument-error", "amqp:not-implemented")


def test_a_link_attached_again_takes_the_place_of_the_old(world: Any) -> None:
    world.create_queue("q")
    client = world.authorised()
    first = client.sender("q", name="same")
    other = client.engine.begin()
    second = client.engine.attach_sender(
        other, Attach(name="same", source=Source(), target=Target(address="q"))
    )
    world.settle()
    assert client.error_of(first)[0] == "amqp:link:stolen"
    assert second.credit == 1000


def test_strangers_get_few_links_to_cbs_and_short_messages(world: Any) -> None:
    client = world.connect()
    links = [client.sender("$cbs", name=f"cbs-{number}") for number in range(CBS_LINKS_MAX + 1)]
    assert [link.reported for link in links] == [False] * CBS_LINKS_MAX + [True]
    assert client.error_of(links[-1])[0] == "amqp:resource-limit-exceeded"
    links[0].send(b"t", b"x" * (CBS_MESSAGE_BYTES_MAX + 1))
    world.settle()
    assert client.error_of(links[0])[0] == "amqp:link:message-size-exceeded"
