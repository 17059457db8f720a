"""Another AMQP implementation, Apache Qpid Proton, with a rule's name and key in SASL PLAIN."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any
from urllib.parse import quote

import pytest

proton = pytest.importorskip("proton")
utils = pytest.importorskip("proton.utils")

TIMEOUT_S = 5


@pytest.fixture
def connection(live_namespace: Any) -> Iterator[Any]:
    text = live_namespace.connection_string
    (name,) = re.findall("SharedAccessKeyName=([^;]*)", text)
    (key,) = re.findall("SharedAccessKey=([^;]*)", text)
    url = f"amqp://{name}:{quote(key, safe='')}@127.0.0.1:{live_namespace.port}"
    connection = utils.BlockingConnection(url, allowed_mechs="PLAIN")
    yield connection
    connection.close()


def test_messages_go_round(connection: Any, queue: str) -> None:
    sender = connection.create_sender(queue)
    for number in range(20):
        sender.send(proton.Message(body=f"{number:02}", id=number))
    receiver = connection.create_receiver(queue, credit=10)
    seen = []
    for _ in range(20):
        message = receiver.receive(timeout=TIMEOUT_S)
        seen.append((message.id, message.body))
        receiver.accept()
    assert sorted(seen) == [(number, f"{number:02}") for number in range(20)]


def test_a_message_without_an_id_gets_one(connection: Any, queue: str) -> None:
    connection.create_sender(queue).send(proton.Message(body="x"))
    message = connection.create_receiver(queue).receive(timeout=TIMEOUT_S)
    assert message.id


def test_a_rejected_message_lies_in_the_dead_letter_queue(connection: Any, queue: str) -> None:
    connection.create_sender(queue).send(proton.Message(body="bad"))
    receiver = connection.create_receiver(queue)
    receiver.receive(timeout=TIMEOUT_S)
    receiver.reject()
    dead = connection.create_receiver(f"{queue}/$DeadLetterQueue").receive(timeout=TIMEOUT_S)
    assert dead.body == "bad"


def test_an_unknown_queue_is_refused(connection: Any) -> None:
    with pytest.raises(utils.LinkDetached, match="amqp:not-found"):
        connection.create_sender("no-such-queue")


def test_a_wrong_key_is_refused(live_namespace: Any) -> None:
    url = f"amqp://RootManageSharedAccessKey:wrong@127.0.0.1:{live_namespace.port}"
    with pytest.raises(proton.ConnectionException):
        utils.BlockingConnection(url, allowed_mechs="PLAIN")
