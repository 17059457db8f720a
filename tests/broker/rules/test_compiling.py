"""Conditions mean what the language says, and end within a bounded number of steps."""

from __future__ import annotations

import sys
import uuid
from decimal import Decimal
from types import FrameType

import pytest
from hypothesis import assume, given, settings
from rule_messages import annotated, holds, view
from slow_interpreter import CONDITIONS, PROPERTIES, Tree, Wrong, truth, written

from partibus.broker.rules.compiling import NESTING_MAX
from partibus.broker.rules.errors import EvaluationError, InvalidRule
from partibus.broker.rules.grammar import TEXT_MAX
from partibus.broker.rules.message_view import STEPS_MAX
from partibus.wire.decimals import decimal128_of
from partibus.wire.values import Decimal128, Described, Float, Int, Symbol, Timestamp, UByte, ULong


@settings(max_examples=300)
@given(CONDITIONS, PROPERTIES)
def test_a_condition_says_what_a_slow_interpreter_says(
    tree: Tree, properties: dict[str, object]
) -> None:
    text = written(tree)
    assume(len(text) <= TEXT_MAX)
    typed = {
        name: decimal128_of(value) if isinstance(value, Decimal) else value
        for name, value in properties.items()
    }
    try:
        expected: object = truth(tree, properties)
    except Wrong:
        expected = Wrong
    try:
        found: object = holds(text, view(typed))
    except EvaluationError:
        found = Wrong
    except InvalidRule as refused:
        # What is constant, and wrong, is refused when the rule is made.
        assert "nothing follows" in str(refused)  # noqa: PT017 - one of three ways to end
        return
    assert found == expected, text


U = None


@pytest.mark.parametrize(
    ("condition", "expected"),
    [
        ("gone = 1 AND 1 = 1", U),
        ("gone = 1 AND 1 = 0", False),
        ("gone = 1 OR 1 = 1", True),
        ("gone = 1 OR 1 = 0", U),
        ("gone = 1 OR gone = 2", U),
        ("NOT gone = 1", U),
        ("gone <> 1", U),
        ("none = NULL", U),
        ("none IS NULL", True),
        ("gone IS NULL", True),
        ("color IS NOT NULL", True),
        ("EXISTS(none)", True),
        ("EXISTS(gone)", False),
        ("gone IN (1, 2)", U),
        ("color IN (1, gone, 'red')", True),
        ("color NOT IN (1, gone)", True),
        ("gone LIKE 'x'", U),
        ("color LIKE gone", U),
        ("n LIKE '5'", U),
        ("COLOR = 'red'", True),
        ("color = 'RED'", False),
        ("color LIKE 'R%'", False),
        ("color LIKE '_e%'", True),
        ("percent LIKE '100!%' ESCAPE '!'", True),
        ("n = '5'", U),
        ("NOT n = '5'", U),
        ("n = 5.0", True),
        ("n + 1 > 5 AND n - 1 < 5 AND n * 2 = 10", True),
        ("-7 / 2 = -3 AND -7 % 2 = -1", True),
        ("7 / 2.0 = 3.5", True),
        ("color + 's' = 'reds'", True),
        ("P('n') = 5 AND PROPERTY('Co' + 'lor') = 'red'", True),
        ("P('sys.Label') = 'subject' AND P(gone) IS NOT NULL", "InvalidRule"),
        ("P('sys.Label') = 'subject'", True),
        ("P(gone) = 1", U),
        ("newid() <> newid()", False),
        ("flag = TRUE AND flag <> FALSE", True),
        ("flag > FALSE", U),
    ],
)
def test_what_the_language_says(condition: str, expected: object) -> None:
    message = view(
        {"color": "red", "n": Int(5), "flag": True, "none": None, "percent": "100%"},
        message_id="id",
        subject="subject",
    )
    if expected == "InvalidRule":
        with pytest.raises(InvalidRule):
            holds(condition, message)
        return
    assert holds(condition, message) is expected


def test_each_type_is_compared_with_its_own_kind() -> None:
    day = 86_400_000
    message = view({
        "byte": UByte(200),
        "large": ULong(2**64 - 1),
        "single": Float(0.5),
        "decimal": decimal128_of(Decimal("0.1")),
        "symbol": Symbol("text"),
        "guid": uuid.UUID(int=7),
        "bytes": b"\x01",
        "time": Timestamp(day),
        "offset": Described(Symbol("com.microsoft:datetime-offset"), 621_355_968_000_000_000),
        "span": Described(Symbol("com.microsoft:timespan"), 600_000_000),
        "uri": Described(Symbol("com.microsoft:uri"), "http://a"),
        "list": [1],
    })  # fmt: skip
    parameters = (
        ("guid", uuid.UUID(int=7)),
        ("@Minute", Described(Symbol("com.microsoft:timespan"), 600_000_000)),
        ("start", Timestamp(0)),
        ("bytes", b"\x01"),
    )
    for condition, expected in {
        "byte = 200 AND large > 9223372036854775807": True,
        "single = 0.5 AND decimal = 0.1 AND decimal * 10 = 1": True,
        "symbol = 'text' AND uri LIKE 'http%'": True,
        "guid = @guid AND bytes = @bytes AND span = @minute": True,
        "time > @start AND offset = @start AND span >= @MINUTE": True,
        "guid > @guid": None,
        "guid = '00000000-0000-0000-0000-000000000007'": None,
        "time = 86400000": None,
        "list = 1": None,
        "EXISTS(list)": True,
    }.items():
        assert holds(condition, message, parameters) is expected, condition


def test_what_is_no_number_equals_nothing() -> None:
    message = view({
        "nan": float("nan"), "inf": float("inf"), "d": decimal128_of(Decimal(1)),
        "bad": Decimal128.fromhex("7c000000000000000000000000000000"),
    })  # fmt: skip
    for condition, expected in {
        "nan = nan": False,
        "nan <> 1": True,
        "nan < d": False,
        "d >= nan": False,
        "d <> nan": True,
        "d < inf": True,
        "bad = bad": None,
    }.items():
        assert holds(condition, message) is expected, condition
    for condition in ("inf - d * inf = 1", "inf % 2 = 1"):
        with pytest.raises(EvaluationError):
            holds(condition, message)


def test_system_properties_come_from_everywhere() -> None:
    message = view(
        message_id=uuid.UUID(int=5), to="t", subject="s", reply_to="r", correlation_id=ULong(9),
        content_type=Symbol("c"), group_id="g", reply_to_group_id="rg",
    )  # fmt: skip
    for condition in (
        "sys.MessageId = '00000000-0000-0000-0000-000000000005'",
        "sys.To = 't' AND sys.Label = 's' AND sys.Subject = 's' AND SYS.replyto = 'r'",
        "sys.CorrelationId = '9' AND sys.ContentType = 'c'",
        "sys.SessionId = 'g' AND sys.ReplyToSessionId = 'rg'",
        "sys.PartitionKey IS NULL AND NOT EXISTS(sys.ViaPartitionKey)",
        "sys.DeliveryCount = 0 AND sys.State = 0 AND sys.DeadLetterSource IS NULL",
        "sys.ForcePersistence = FALSE AND sys.ScheduledEnqueueTimeUtc IS NULL",
    ):
        assert holds(condition, message) is True, condition
    keyed = annotated(
        {
            "x-opt-partition-key": "p",
            "x-opt-via-partition-key": "v",
            "x-opt-scheduled-enqueue-time": Timestamp(5_000),
        },
        ttl_ms=60_000,
        enqueued_ms=1_000,
        sequence_number=7,
    )
    parameters = (
        ("due", Timestamp(5_000)),
        ("came", Timestamp(1_000)),
        ("ends", Timestamp(61_000)),
        ("minute", Described(Symbol("com.microsoft:timespan"), 600_000_000)),
    )
    for condition in (
        "sys.PartitionKey = 'p' AND sys.ViaPartitionKey = 'v'",
        "sys.ScheduledEnqueueTimeUtc = @due AND sys.EnqueuedTimeUtc = @came",
        "sys.TimeToLive = @minute AND sys.ExpiresAtUtc = @ends",
        "sys.SequenceNumber = 7 AND sys.EnqueuedSequenceNumber = 7",
    ):
        assert holds(condition, keyed, parameters) is True, condition


@pytest.mark.parametrize(
    ("condition", "problem"),
    [
        ("sys.Colour = 1", "there is no system property 'Colour'; there are ContentType"),
        ("EXISTS(sys.Colour)", "no system property"),
        ("n / 0 = 1", "division by zero"),
        ("n % 0.0 = 1", "division by zero"),
        ("n + 'x' = 1", "not a number and text"),
        ("-s = 1", "takes a number, not text"),
        ("9223372036854775807 + n = 1", "64 bits"),
        ("s LIKE s ESCAPE s", "one character"),
        ("P(n) = 1", "as text"),
        ("s + s + s = 'x'", "more than 32768 characters"),
        ("s LIKE s", "1024 are allowed"),
    ],
)
def test_what_has_no_answer_is_an_error_of_the_evaluation(condition: str, problem: str) -> None:
    with pytest.raises(EvaluationError, match=problem):
        holds(condition, view({"n": 5, "s": "x" * 20_000}))


@pytest.mark.parametrize(
    ("condition", "problem"),
    [
        ("a = 9223372036854775808", "position 5: 9223372036854775808 does not fit"),
        ("a = 1E999", "position 5: the number does not fit a double"),
        ("a < @later", "position 5: there is no parameter @later; given are: none"),
        ("a LIKE 'x!' ESCAPE '!'", "position 8: nothing follows"),
        ("a LIKE 'x' ESCAPE ''", "position 8: ESCAPE takes"),
        ("NOT " * (NESTING_MAX + 1) + "a = 1", f"{NESTING_MAX} levels are allowed"),
        ("- " * (NESTING_MAX + 1) + "a = 1", f"{NESTING_MAX} levels are allowed"),
    ],
)
def test_what_never_has_an_answer_is_refused(condition: str, problem: str) -> None:
    with pytest.raises(InvalidRule, match=problem):
        holds(condition, view({"a": 1}))


HOSTILE = {
    "parentheses": "(" * 500 + "a = 1" + ")" * 500,
    "negations": "NOT " * 250 + "a = 1",
    "signs": "-" * 1000 + "1 = a",
    "a long sum": "+".join(["a"] * 500) + " = 1",
    "a long conjunction": " AND ".join(["a=1"] * 120),
    "many options": "a IN (" + ",".join(["2"] * 500) + ")",
    "a pattern of runs": "s LIKE '" + "%a" * 500 + "b'",
    "a pattern of runs and ones": "s LIKE '" + "%_a" * 330 + "b'",
    "many patterns": " OR ".join(["s LIKE '%_%_%_%_b'"] * 40),
    "a pattern from the message": "s LIKE '%' + p + '_b'",
    "a huge number": "a = " + "9" * 1000,
    "a huge exponent": "a = 1E" + "9" * 1000,
    "a tiny exponent": "a = 1E-" + "9" * 1000,
    "growing text": "+".join(["s"] * 500) + " = 'x'",
    "growing numbers": "*".join(["a"] * 500) + " = 1",
    "growing decimals": "*".join(["d"] * 500) + " = 1",
    "unknown properties": " OR ".join(f"[x{n}] = 1" for n in range(80)),
    "unknown system properties": "sys.x = 1",
    "computed names": " OR ".join(["P('x' + s) = 1"] * 50),
}


@pytest.mark.parametrize("name", HOSTILE)
def test_a_hostile_filter_ends_within_bounds(name: str) -> None:
    message = view({
        "a": 7, "s": "a" * 30_000, "p": "%_a" * 300, "d": decimal128_of(Decimal("1.234567")),
    })  # fmt: skip
    calls = 0

    def count(frame: FrameType, event: str, argument: object) -> None:
        nonlocal calls
        calls += event in ("call", "c_call")

    sys.setprofile(count)
    try:
        assert holds(HOSTILE[name], message) in (True, False, None)
    except (EvaluationError, InvalidRule) as error:
        assert str(error)  # noqa: PT017 - either is fine, an endless evaluation is not
    finally:
        sys.setprofile(None)
    # Reading and compiling a text costs calls in proportion to its length; evaluating it, steps.
    assert message.steps <= STEPS_MAX + 30_001
    assert calls <= 500 * TEXT_MAX + 4 * STEPS_MAX
