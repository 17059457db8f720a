"""Actions change the copies they are for: SET and REMOVE, with the types that properties have."""

from __future__ import annotations

import uuid
from decimal import Decimal

import pytest
from rule_messages import BODY, annotated, apply, bare, changed, view

from partibus.broker.rules.message_view import MessageView
from partibus.wire.decimals import decimal128_of
from partibus.wire.message_properties import read_annotations
from partibus.wire.values import Described, Float, Int, Symbol, Timestamp, UByte


def test_properties_are_made_changed_and_removed() -> None:
    message = view({"Color": "red", "n": Int(5), "old": 1, "untouched": Float(0.5)})
    _, named = changed(
        "SET color = 'blue'; SET n = n + 1, SET new = n * 2; REMOVE OLD; REMOVE gone", message
    )
    assert named == {
        "Color": "blue", "n": 6, "untouched": 0.5, "new": 12, "RuleName": "rule"
    }  # fmt: skip
    assert type(named["n"]) is Int
    assert type(named["untouched"]) is Float


def test_later_statements_see_what_earlier_ones_did() -> None:
    _, named = changed("SET a = 1; SET b = a + 1; REMOVE a; SET c = 'x'; SET c = NULL", view())
    assert named == {"b": 2, "c": None, "RuleName": "rule"}


def test_a_message_without_properties_gets_them_and_keeps_its_body() -> None:
    message = view()
    outcome = apply("SET sys.Label = 'x'", message)
    assert outcome.copies[0].revision is not None
    whole = outcome.copies[0].revision.head + message.head.bare[message.head.body_offset :]
    assert whole.endswith(BODY)
    fields, named = changed("SET sys.Label = 'x'", MessageView(whole))
    assert fields[3] == "x"
    assert named == {"RuleName": "rule"}


@pytest.mark.parametrize(
    ("existing", "expression", "expected"),
    [
        (Int(1), "2.5", Int(2)),
        (Int(1), "'17'", Int(17)),
        (UByte(1), "255", UByte(255)),
        (1.5, "3", 3.0),
        (Float(1), "'0.5'", Float(0.5)),
        ("text", "17", "17"),
        ("text", "TRUE", "True"),
        (True, "'false'", False),
        (True, "0", False),
        (uuid.UUID(int=1), "'00000000-0000-0000-0000-000000000002'", uuid.UUID(int=2)),
        (decimal128_of(Decimal(1)), "1.5", decimal128_of(Decimal("1.5"))),
        (None, "1", 1),
        (Symbol("s"), "'t'", Symbol("t")),
        (Timestamp(1), "other", Timestamp(1_000)),
    ],
)
def test_a_value_takes_the_type_that_the_property_has(
    existing: object, expression: str, expected: object
) -> None:
    time = Described(Symbol("com.microsoft:datetime-offset"), 621_355_968_010_000_000)
    _, named = changed(f"SET x = {expression}", view({"x": existing, "other": time}))
    assert named["x"] == expected


@pytest.mark.parametrize(
    ("action", "problem"),
    [
        ("SET byte = 256", "cannot become a value of type ubyte"),
        ("SET byte = 'many'", "cannot become"),
        ("SET byte = 1E300", "cannot become"),
        ("SET time = 5", "a number cannot become a value of type timestamp"),
        ("SET a = 1 / 0", "division by zero"),
        ("SET sys.Colour = 1", "no system property"),
        ("SET sys.SequenceNumber = 1", "'SequenceNumber' is read only"),
        ("REMOVE sys.EnqueuedTimeUtc", "read only"),
        ("REMOVE sys.Colour", "no system property"),
        ("REMOVE sys.MessageId", "cannot be removed"),
        ("SET sys.SessionId = '" + "x" * 129 + "'", "128 are allowed"),
        ("SET sys.TimeToLive = 5", "cannot become a value of type timespan"),
    ],
)
def test_an_action_that_cannot_be_done_makes_no_copy(action: str, problem: str) -> None:
    outcome = apply(action, view({"byte": UByte(1), "time": Timestamp(0)}))
    assert outcome.copies == ()
    assert outcome.failure is not None
    assert outcome.failure.reason == "RuleActionException"
    assert problem in outcome.failure.description


def test_system_properties_are_set_where_they_stand() -> None:
    fields, _ = changed(
        "SET sys.MessageId = 'm'; SET sys.To = sys.Label + '!'; SET sys.Subject = 'l'; "
        "SET sys.ReplyTo = 'r'; SET sys.CorrelationId = 5; SET sys.ContentType = 'c'; "
        "SET sys.SessionId = 's'; REMOVE sys.ReplyToSessionId; SET sys.ForcePersistence = TRUE",
        view(message_id="id", subject="hello", reply_to_group_id="x"),
    )
    expected = ["m", None, "hello!", "l", "r", "5", "c", None, None, None, "s", None, None]
    assert fields == expected
    assert type(fields[6]) is Symbol


def test_annotations_and_the_time_to_live_are_set() -> None:
    message = annotated({"x-opt-partition-key": "p", "mine": 1}, ttl_ms=60_000, enqueued_ms=5)
    minute = Described(Symbol("com.microsoft:timespan"), 100_000_000)
    outcome = apply(
        "SET sys.PartitionKey = 'q'; SET sys.ViaPartitionKey = 'v';"
        "SET sys.ScheduledEnqueueTimeUtc = @due; SET sys.TimeToLive = @ttl;"
        "SET ends = sys.ExpiresAtUtc",
        message,
        (("due", Timestamp(9)), ("ttl", minute)),
    )
    revision = outcome.copies[0].revision
    assert revision is not None
    assert read_annotations(revision.annotations, revision.annotation_count) == {
        "mine": 1,
        "x-opt-partition-key": "q",
        "x-opt-via-partition-key": "v",
        "x-opt-scheduled-enqueue-time": 9,
    }
    assert revision.ttl_ms == 10_000
    assert message.ttl_ms == 60_000
    assert b"\x83" + (10_005).to_bytes(8, "big") in revision.head


def test_an_action_does_not_change_the_message_of_others() -> None:
    message = view({"a": 1}, subject="s")
    apply("SET a = 2; SET sys.Label = 't'", message)
    assert message.user == {"a": 1}
    assert message.head.bare == bare({"a": 1}, subject="s")


def test_properties_that_outgrow_a_message_are_refused() -> None:
    message = view({"s": "x" * 30_000})
    outcome = apply("SET a = s; SET b = s", message)
    assert outcome.failure is not None
    assert outcome.failure.reason == "HeaderSizeExceeded"
    assert "65536 are allowed" in outcome.failure.description
