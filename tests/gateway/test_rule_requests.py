"""Rules over AMQP: added, removed and listed, in transactions too where the topic allows it."""

from __future__ import annotations

from typing import Any

import pytest

from partibus.broker.access import Right
from partibus.gateway.dialogue import read_request
from partibus.testing.messages import payload, read
from partibus.wire.codec import encode
from partibus.wire.composites import compose
from partibus.wire.performatives import (
    Accepted,
    Attach,
    Coordinator,
    Declare,
    Discharge,
    Rejected,
    Source,
    TransactionalState,
)
from partibus.wire.values import Int, Timestamp

SUBSCRIPTION = "t/Subscriptions/s"
BLUE = {"sql-filter": {"expression": "color = 'blue'"}, "sql-rule-action": None}


@pytest.fixture(params=[False, True], ids=["conventional", "partitioned"])
def client(request: pytest.FixtureRequest, world: Any) -> Any:
    world.create_topic("t", "s", enable_partitioning=request.param)
    return world.authorised()


def ask(client: Any, name: str, body: object, path: str = SUBSCRIPTION) -> Any:
    return client.ask(f"{path}/$management", {"operation": f"com.microsoft:{name}"}, body)


def add(client: Any, name: str, rule: dict[str, object]) -> tuple[int, object]:
    return status(ask(client, "add-rule", {"rule-name": name, "rule-description": rule}))


def remove(client: Any, name: str) -> tuple[int, object]:
    return status(ask(client, "remove-rule", {"rule-name": name}))


def status(answer: Any) -> tuple[int, object]:
    return answer.properties["statusCode"], answer.properties.get("errorCondition")


def rules(client: Any, top: int = 100, skip: int = 0) -> dict[str, list[Any]]:
    """The rules that are listed, by name: filter, action, time."""
    answer = ask(client, "enumerate-rules", {"top": Int(top), "skip": Int(skip)})
    found: dict[str, list[Any]] = {}
    for each in answer.body.get("rules", []):
        described = each["rule-description"]
        assert described.descriptor == 0x13700000004
        rule, action, name, created = described.value
        assert isinstance(created, Timestamp)
        found[name] = [(rule.descriptor, rule.value), (action.descriptor, action.value)]
    return found


def received(client: Any, *colors: str) -> list[bytes]:
    """Send a message of each color to the topic; what the subscription gets of them."""
    link = client.sender("t")
    for color in colors:
        link.send(b"t", payload(color.encode(), properties={"color": color}))
    client.world.settle()
    receiver = client.receiver(SUBSCRIPTION, credit=100, snd_settle_mode=1)
    bodies = [read(each.payload).body for each in client.deliveries(receiver)]
    receiver.detach()
    client.world.settle()
    return sorted(bodies)


def test_T7_rules_are_added_and_removed_on_both_kinds_of_topics(client: Any) -> None:
    assert received(client, "red") == [b"red"]
    assert add(client, "blue", BLUE) == (200, None)
    assert remove(client, "$Default") == (200, None)
    assert received(client, "red", "blue") == [b"blue"]
    assert add(client, "BLUE", BLUE) == (409, "com.microsoft:entity-already-exists")
    assert remove(client, "blue") == (200, None)
    assert remove(client, "blue") == (404, "amqp:not-found")
    assert received(client, "red", "blue") == []


def test_A1_rules_are_listed_as_clients_read_them(client: Any) -> None:
    no_action = (0x13700000005, [])
    assert rules(client) == {"$Default": [(0x1370000007, []), no_action]}
    acting = {
        "correlation-filter": {
            "correlation-id": "c", "label": "l", "properties": {"n": Int(5), "t": Timestamp(7)},
        },
        "sql-rule-action": {"expression": "SET a = 1"},
    }  # fmt: skip
    assert add(client, "acting", acting) == (200, None)
    assert add(client, "none", {"sql-filter": {"expression": "1=0"}}) == (200, None)
    assert add(client, "blue", BLUE) == (200, None)
    found = rules(client)
    assert list(found) == ["$Default", "acting", "none", "blue"]
    correlation, action = found["acting"]
    properties = {"n": 5, "t": 7}
    fields = ["c", None, None, None, "l", None, None, None, properties]
    assert correlation == (0x1370000009, fields)
    assert [type(value) for value in correlation[1][8].values()] == [Int, Timestamp]
    assert action == (0x13700000006, ["SET a = 1", 20])
    assert found["none"] == [(0x1370000008, []), no_action]
    assert found["blue"] == [(0x1370000006, ["color = 'blue'", 20]), no_action]
    assert list(rules(client, top=2, skip=1)) == ["acting", "none"]
    past_the_end = ask(client, "enumerate-rules", {"top": Int(10), "skip": Int(4)})
    assert status(past_the_end) == (204, None)


@pytest.mark.parametrize(
    "rule",
    [
        {},
        {"sql-filter": {"expression": "1=1"}, "correlation-filter": {"to": "x"}},
        {"sql-filter": {"expression": "color ="}},
        {"sql-filter": {"expression": ""}},
        {"sql-filter": "1=1"},
        {"correlation-filter": {}},
        {"sql-filter": {"expression": "1=1"}, "sql-rule-action": {"expression": "DROP x"}},
    ],
)
def test_what_is_no_rule_is_refused(client: Any, rule: dict[str, object]) -> None:
    assert add(client, "r", rule) == (400, "com.microsoft:argument-error")
    assert list(rules(client)) == ["$Default"]


def test_rules_need_the_right_to_manage(client: Any) -> None:
    client.world.put_rule("reader", "cmVhZGVy", Right.LISTEN)
    reader = client.world.connect()
    token = reader.token("sb://host/", "reader", "cmVhZGVy")
    assert reader.put_token("sb://host/", token) == 202
    assert add(reader, "r", BLUE)[0] == 401


def test_operations_are_refused_where_they_make_no_sense(client: Any) -> None:
    client.world.create_queue("q")
    peek = {"from-sequence-number": 0, "message-count": Int(1)}
    assert status(ask(client, "peek-message", peek, "t")) == (400, "amqp:not-allowed")
    assert status(ask(client, "enumerate-rules", {}, "t")) == (400, "amqp:not-allowed")
    assert status(ask(client, "enumerate-rules", {"top": Int(1), "skip": Int(0)}, "q"))[0] == 400
    adding = {"rule-name": "r", "rule-description": BLUE}
    assert status(ask(client, "add-rule", adding, "q")) == (400, "amqp:not-allowed")
    message: list[object] = [{"message-id": "x", "message": payload(b"m")}]
    scheduling = ask(client, "schedule-message", {"messages": message})
    assert status(scheduling) == (400, "amqp:not-allowed")


class Worker:
    """A client that changes rules in transactions."""

    def __init__(self, client: Any) -> None:
        self.client = client
        attach = Attach(name="txn", source=Source(address="client"), target=Coordinator())
        self.coordinator = client.engine.attach_sender(client.session, attach)
        client.world.settle()
        self.tags = 0
        # Opens the links for requests.
        rules(client)

    def tell(self, command: object) -> Any:
        self.tags += 1
        data = b"\x00\x53\x77" + compose(command)
        number = self.coordinator.send(self.tags.to_bytes(4, "big"), data)
        self.client.world.settle()
        return self.client.outcomes(self.coordinator).get(number)

    def request(self, txn_id: bytes, name: str, body: dict[str, object]) -> int:
        """Ask for something as part of a transaction; the status code of the answer."""
        address = f"{SUBSCRIPTION}/$management"
        sent = b"".join((
            b"\x00\x53\x73", encode(["txn-request"]),
            b"\x00\x53\x74", encode({"operation": f"com.microsoft:{name}"}),
            b"\x00\x53\x77", encode(body),
        ))  # fmt: skip
        before = len(self.client.deliveries(self.client.responses[address]))
        self.tags += 1
        tag = self.tags.to_bytes(4, "big")
        self.client.requests[address].send(tag, sent, state=TransactionalState(txn_id, None))
        self.client.world.settle()
        (answer,) = self.client.deliveries(self.client.responses[address])[before:]
        code = read_request(answer.payload).properties["statusCode"]
        assert isinstance(code, int)
        return code


def test_T7_rules_change_in_a_transaction_of_a_conventional_topic_only(client: Any) -> None:
    is_partitioned = client.world.node.resolve("t")[0].partitioned
    worker = Worker(client)
    txn_id = worker.tell(Declare()).txn_id
    added = worker.request(txn_id, "add-rule", {"rule-name": "b", "rule-description": BLUE})
    if is_partitioned:
        assert added == 400
        return
    assert added == 200
    assert worker.request(txn_id, "remove-rule", {"rule-name": "$Default"}) == 200
    assert list(rules(client)) == ["$Default"]
    assert isinstance(worker.tell(Discharge(txn_id, False)), Accepted)
    assert list(rules(client)) == ["b"]
    # All or nothing.
    txn_id = worker.tell(Declare()).txn_id
    assert worker.request(txn_id, "remove-rule", {"rule-name": "b"}) == 200
    assert worker.request(txn_id, "remove-rule", {"rule-name": "gone"}) == 200
    assert isinstance(worker.tell(Discharge(txn_id, False)), Rejected)
    txn_id = worker.tell(Declare()).txn_id
    assert worker.request(txn_id, "remove-rule", {"rule-name": "b"}) == 200
    assert isinstance(worker.tell(Discharge(txn_id, True)), Accepted)
    assert list(rules(client)) == ["b"]
    # Rules and messages are kept in different files.
    txn_id = worker.tell(Declare()).txn_id
    assert worker.request(txn_id, "remove-rule", {"rule-name": "b"}) == 200
    link = client.sender("t")
    number = link.send(b"x", payload(b"m"), state=TransactionalState(txn_id, None))
    client.world.settle()
    assert isinstance(client.outcomes(link)[number], Rejected)


def test_A3_a_token_for_the_management_of_a_subscription_is_enough(world: Any) -> None:
    # The JavaScript client shows no other for its rule manager.
    world.create_topic("t", "s")
    client = world.connect()
    audience = f"sb://host/{SUBSCRIPTION}/$management"
    assert client.put_token(audience, client.token(audience)) == 202
    assert add(client, "blue", BLUE) == (200, None)
    link = client.receiver(SUBSCRIPTION)
    assert client.error_of(link)[0] == "amqp:unauthorized-access"


def test_the_dead_letters_of_a_subscription_have_no_rules(client: Any) -> None:
    path = f"{SUBSCRIPTION}/$DeadLetterQueue"
    answer = ask(client, "enumerate-rules", {"top": Int(1), "skip": Int(0)}, path)
    assert status(answer) == (400, "amqp:not-allowed")
