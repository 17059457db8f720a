"""Messages from the shell: nothing is lost between a command and the broker."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest

from partibus.testing.serve import LiveBroker

Run = Callable[..., Any]


@pytest.fixture(params=[False, True], ids=["conventional", "partitioned"])
def queue(request: pytest.FixtureRequest, broker: LiveBroker) -> str:
    name = f"q-{abs(hash(request.node.name))}"
    return broker.create_queue(name, enable_partitioning=request.param)


def lines(out: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in out.splitlines()]


def test_what_is_sent_is_received_with_all_that_was_said(partibus: Run, queue: str) -> None:
    sent = partibus(
        "send", queue, "hello", "--id", "m1", "--subject", "greeting", "--ttl", "5m",
        "--property", "n=1", "--property", "f=1.5", "--property", "b=true", "--property", 's="1"',
    )  # fmt: skip
    assert (sent.code, sent.err) == (0, "1 accepted\n")
    (message,) = lines(partibus("receive", queue, "--wait", "2", "--output", "json").out)
    assert message["body"] == "hello"
    assert message["messageId"] == "m1"
    assert message["subject"] == "greeting"
    assert message["properties"] == {"n": 1, "f": 1.5, "b": True, "s": "1"}
    assert "expiresAt" in message
    assert partibus("receive", queue, "--wait", "0.2").out == ""


def test_lines_are_messages_and_peek_leaves_them(partibus: Run, queue: str) -> None:
    text = "".join(f"line {number}\n" for number in range(250))
    assert partibus("send", queue, "--lines", "--key", "k", stdin=text).err == "250 accepted\n"
    peeked = json.loads(partibus("peek", queue, "--output", "json").out)
    assert [each["body"] for each in peeked] == text.splitlines()
    table = partibus("peek", queue, "--count", "2").out
    assert "line 1" in table
    assert "line 2" not in table
    received = lines(partibus("receive", queue, "--count", "250", "--output", "json").out)
    assert [each["body"] for each in received] == text.splitlines()


def test_keep_gives_back_and_delete_does_not(partibus: Run, queue: str) -> None:
    partibus("send", queue, stdin="from the input")
    for deliveries in (0, 1):
        kept = lines(partibus("receive", queue, "--keep", "--count", "1", "--output", "json").out)
        assert kept[0]["deliveries"] == deliveries
    assert "from the input" in partibus("receive", queue, "--delete", "--count", "1").out
    assert partibus("peek", queue, "--output", "json").out == "[]\n"


def test_bytes_that_are_no_text_are_shown_in_base64(
    partibus: Run, queue: str, tmp_path: Any
) -> None:
    file = tmp_path / "body"
    file.write_bytes(b"\xff\xfe\x00")
    partibus("send", queue, "--file", str(file))
    (message,) = lines(partibus("receive", queue, "--wait", "2", "--output", "json").out)
    assert message["bodyBase64"] == "//4A"


def test_sessions_are_received_by_name_and_by_turn(partibus: Run, broker: LiveBroker) -> None:
    queue = broker.create_queue("cli-sessions", requires_session=True)
    for session in ("a", "b"):
        partibus("send", queue, session, "--session", session)
    received = partibus("receive", queue, "--session", "b", "--wait", "1", "--output", "json")
    assert [each["body"] for each in lines(received.out)] == ["b"]
    received = partibus("receive", queue, "--next-session", "--wait", "1", "--output", "json")
    assert [each["sessionId"] for each in lines(received.out)] == ["a"]


def test_dead_letters_are_listed_resubmitted_and_purged(partibus: Run, broker: LiveBroker) -> None:
    queue = broker.create_queue("cli-dead", max_delivery_count=1)
    partibus("send", queue, "--lines", stdin="one\ntwo\nthree\n")
    partibus("receive", queue, "--keep", "--wait", "1")
    dead = json.loads(partibus("dlq", "list", queue, "--output", "json").out)
    assert {each["body"] for each in dead} == {"one", "two", "three"}
    assert {each["deadLetterReason"] for each in dead} == {"MaxDeliveryCountExceeded"}
    other = partibus("dlq", "resubmit", queue, "--reason", "Another")
    assert other.err == f"0 resubmitted to {queue}, 3 of other reasons left\n"
    assert partibus("dlq", "resubmit", queue, "--count", "2").err.startswith("2 resubmitted")
    again = json.loads(partibus("peek", queue, "--output", "json").out)
    assert len(again) == 2
    assert all("deadLetterReason" not in each for each in again)
    assert partibus("dlq", "purge", queue, "--yes").err == "1 deleted\n"
    assert partibus("dlq", "list", queue, "--output", "json").out == "[]\n"


def test_failures_have_a_line_and_a_code(partibus: Run, broker: LiveBroker) -> None:
    missing = partibus("send", "there-is-none", "x")
    assert missing.code == 8
    assert "there-is-none" in missing.err
    wrong = partibus("peek", "q", connection="Endpoint=;nonsense")
    assert wrong.code == 2
    assert "connection string" in wrong.err
    assert partibus("send", "q", "x", "--ttl", "soon").code == 2
    assert partibus("send", "q", "x", "--property", "nothing").code == 2
    nobody = partibus(
        "peek", "q", connection="Endpoint=sb://127.0.0.1:9;UseDevelopmentEmulator=true"
    )
    assert nobody.code == 8
    assert partibus("dlq", "resubmit", "t/Subscriptions/s").code == 2
