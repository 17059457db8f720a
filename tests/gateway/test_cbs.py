"""Tokens over the wire, and what they open."""

from __future__ import annotations

from typing import Any
from uuid import UUID

import pytest

from partibus.broker.access import Right
from partibus.runtime.wrong_tokens import MANY_PER_S, STRIKES
from partibus.wire.values import Int, ULong


def test_a_good_token_is_accepted_and_opens_its_entity(world: Any) -> None:
    world.create_queue("q")
    client = world.connect()
    assert client.put_token("sb://host/q", client.token("sb://host/q")) == 202
    sender = client.sender("q")
    assert client.answer_of(sender).target is not None
    assert sender.credit == 1000


@pytest.mark.parametrize(
    "audience",
    ["sb://host/q", "amqp://host/q", "amqps://host:5671/q/", "sb://HOST/Q", "/q", "q"],
)
def test_the_audience_may_be_spelled_as_any_client_does(world: Any, audience: str) -> None:
    world.create_queue("q")
    client = world.connect()
    assert client.put_token(audience, client.token(audience), type="jwt") == 202
    assert client.answer_of(client.sender("amqps://host/q")).target is not None


@pytest.mark.parametrize(
    "message_id", ["text", UUID(int=7), ULong(7), b"bytes"], ids=["string", "uuid", "ulong", "bin"]
)
def test_the_correlation_id_has_the_type_of_the_message_id(world: Any, message_id: object) -> None:
    client = world.connect()
    answer = client.ask(
        "$cbs",
        {"operation": "put-token", "name": "sb://host/", "type": "jwt"},
        client.token("sb://host/"),
        message_id,
    )
    assert answer.message_id == message_id
    assert type(answer.message_id) is type(message_id)
    assert type(answer.properties["status-code"]) is Int


def test_without_a_token_nothing_but_cbs_can_be_used(world: Any) -> None:
    world.create_queue("q")
    client = world.connect()
    for link in (client.sender("q"), client.receiver("q"), client.receiver("q/$management")):
        answer = client.answer_of(link)
        assert answer.source is None
        assert answer.target is None
        condition, text = client.error_of(link)
        assert condition == "amqp:unauthorized-access"
        assert "claim(s) are required" in text
        assert "TrackingId:" in text
        assert "SystemTracker:" in text
        assert "Timestamp:" in text


def test_what_is_no_token_is_400_and_what_is_no_good_one_401(world: Any) -> None:
    client = world.connect()
    assert client.put_token("sb://host/", "eyJhbGciOiJub25lIn0.e30.") == 400
    assert client.put_token("sb://host/", None) == 400
    assert client.put_token("sb://host/", client.token("sb://host/", key="wrong")) == 401
    assert client.put_token("sb://host/", client.token("sb://host/", seconds=-1)) == 401


def test_an_unknown_entity_is_404_with_the_sentence_clients_look_for(world: Any) -> None:
    client = world.connect()
    answer = client.ask(
        "$cbs",
        {"operation": "put-token", "name": "sb://host:5672/nobody"},
        client.token("sb://host:5672/nobody"),
    )
    assert answer.properties["status-code"] == 404
    text = str(answer.properties["status-description"])
    assert "The messaging entity 'sb://host/nobody' could not be found." in text


def test_names_are_not_told_to_who_has_no_good_token(world: Any) -> None:
    world.create_queue("q")
    client = world.connect()
    for name in ("q", "nobody"):
        uri = f"sb://host/{name}"
        assert client.put_token(uri, client.token(uri, key="wrong")) == 401


def test_five_bad_tokens_close_the_connection(world: Any) -> None:
    client = world.connect()
    for _ in range(STRIKES - 1):
        assert client.put_token("sb://host/", "nonsense") == 400
    assert not client.closed
    # Answered like the others, and then it is over at once, whatever the client does.
    assert client.put_token("sb://host/", "nonsense") == 400
    assert client.closed[0].error.condition == "amqp:unauthorized-access"
    assert client.pipe.closed


def test_A4_where_many_try_keys_each_has_one_token_and_who_has_a_good_one_notices_nothing(
    world: Any,
) -> None:
    world.create_queue("q")
    honest = world.connect()
    assert honest.put_token("sb://host/q", honest.token("sb://host/q")) == 202
    for _ in range(MANY_PER_S // STRIKES):
        stranger = world.connect()
        for _ in range(STRIKES):
            assert stranger.put_token("sb://host/", "nonsense") == 400
    stranger = world.connect()
    assert stranger.put_token("sb://host/", "nonsense") == 400
    assert stranger.pipe.closed
    assert honest.put_token("sb://host/q", honest.token("sb://host/q")) == 202
    newcomer = world.connect()
    assert newcomer.put_token("sb://host/q", newcomer.token("sb://host/q")) == 202
    assert newcomer.sender("q").is_attached


def test_a_connection_without_a_token_is_dropped_after_twenty_seconds(world: Any) -> None:
    client = world.connect()
    client.receiver("$cbs")
    world.advance(19_999)
    assert not client.closed
    world.advance(1)
    assert client.closed[0].error.condition == "amqp:unauthorized-access"
    assert client.pipe.closed


def test_the_end_of_a_token_ends_the_links_it_opened(world: Any) -> None:
    world.create_queue("q")
    world.create_queue("p")
    client = world.connect()
    client.put_token("sb://host/q", client.token("sb://host/q", seconds=100))
    client.put_token("sb://host/p", client.token("sb://host/p", seconds=300))
    short, long = client.sender("q"), client.sender("p")
    world.advance(99_999)
    assert not client.all(type(client.events[0])) or not short.reported
    world.advance(1)
    assert client.error_of(short)[0] == "amqp:unauthorized-access"
    assert not long.reported


def test_a_later_token_renews_what_the_earlier_opened(world: Any) -> None:
    world.create_queue("q")
    client = world.connect()
    client.put_token("sb://host/q", client.token("sb://host/q", seconds=100))
    sender = client.sender("q")
    world.advance(90_000)
    assert client.put_token("sb://host/q", client.token("sb://host/q", seconds=200)) == 202
    world.advance(100_000)
    assert not sender.reported


def test_rights_are_those_of_the_rule(world: Any) -> None:
    world.create_queue("q")
    world.put_rule("send", "c2VuZA==", Right.SEND)
    client = world.connect()
    token = client.token("sb://host/q", "send", "c2VuZA==")
    assert client.put_token("sb://host/q", token) == 202
    assert not client.sender("q").reported
    receiver = client.receiver("q")
    assert "'Listen' claim(s) are required" in client.error_of(receiver)[1]
    assert not client.receiver("q/$management").reported


def test_plain_authorises_the_connection_by_name_and_key(world: Any) -> None:
    world.create_queue("q")
    world.put_rule("send", "c2VuZA==", Right.SEND)
    good = world.connect("PLAIN", b"\0send\0c2VuZA==")
    assert good.sasl_ok
    assert good.sender("q").credit == 1000
    assert good.error_of(good.receiver("q"))[0] == "amqp:unauthorized-access"
    for response in (b"\0send\0wrong", b"\0nobody\0c2VuZA==", b"", b"\0\0\0\0"):
        bad = world.connect("PLAIN", response)
        assert not bad.sasl_ok
        assert bad.pipe.closed


def test_in_development_no_key_is_needed_but_a_shown_one_must_be_good(dev_world: Any) -> None:
    dev_world.create_queue("q")
    silent = dev_world.connect()
    assert silent.sender("q").credit == 1000
    assert dev_world.connect(None).sender("q").credit == 1000
    client = dev_world.connect()
    uri = "sb://host/q"
    assert client.put_token(uri, client.token(uri, key="wrong")) == 401
    assert client.put_token(uri, client.token(uri, key="SAS_KEY_VALUE")) == 202


def test_the_emulators_key_is_worth_nothing_outside_development(world: Any) -> None:
    client = world.connect()
    uri = "sb://host/"
    assert client.put_token(uri, client.token(uri, key="SAS_KEY_VALUE")) == 401


def test_without_sasl_only_a_development_broker_answers(world: Any) -> None:
    client = world.connect(None)
    assert client.pipe.closed
