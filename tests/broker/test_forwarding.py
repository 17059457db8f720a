"""What may be forwarded, and what is said of the rest."""

from __future__ import annotations

from dataclasses import replace

import pytest

from partibus.broker.descriptions import Entity, QueueDescription
from partibus.broker.errors import (
    EntityDisabled,
    FragmentUnavailable,
    InvalidOperation,
    OperationTimedOut,
    QuotaExceeded,
    Refusal,
)
from partibus.broker.forwarding import (
    HOPS_MAX,
    check_receivable,
    is_final,
    obstacle,
    reason_of,
    target_of,
)
from partibus.broker.message import HEADERS_BYTES_MAX, Incoming, Passage
from partibus.broker.passages import moving, via_key_of
from partibus.broker.records import Entry, SubQueue
from partibus.testing.messages import incoming, payload

QUEUE = QueueDescription("q", forward_to="f", forward_dead_letters_to="d")
PLAIN = Entity(1, 1, "f", QueueDescription("f"), 1, 0)


def travelling(body: bytes = b"", hops: int = 1, session: str | None = None) -> Incoming:
    message = incoming(body, session=session)
    message.passage = Passage(1, 0, hops, None)
    return message


def test_F1_messages_and_dead_letters_have_targets_of_their_own() -> None:
    assert target_of(QUEUE, SubQueue.ACTIVE) == "f"
    assert target_of(QUEUE, SubQueue.DEAD_LETTER) == "d"
    assert target_of(QUEUE, SubQueue.TRANSFER_DEAD_LETTER) == ""


def test_what_is_forwarded_cannot_be_received() -> None:
    entity = Entity(1, 1, "q", QUEUE, 1, 0)
    for subqueue in (SubQueue.ACTIVE, SubQueue.DEAD_LETTER):
        with pytest.raises(InvalidOperation, match="auto-forwarding"):
            check_receivable(entity, subqueue)
    check_receivable(entity, SubQueue.TRANSFER_DEAD_LETTER)
    check_receivable(PLAIN, SubQueue.ACTIVE)


def test_F1_reasons_have_their_documented_names() -> None:
    sessions = replace(PLAIN, description=QueueDescription("f", requires_session=True))
    large = bytes(PLAIN.description.max_message_bytes + HEADERS_BYTES_MAX)
    cases = [
        (travelling(), PLAIN, None),
        (travelling(hops=HOPS_MAX), PLAIN, None),
        (travelling(hops=HOPS_MAX + 1), PLAIN, "MaxTransferHopCountExceeded"),
        (travelling(), None, "MessagingEntityNotFound"),
        (travelling(), sessions, "Session id is null."),
        (travelling(session="s"), sessions, None),
        (travelling(large), PLAIN, "MessageSizeExceeded"),
    ]
    for message, destination, reason in cases:
        found = obstacle(message, destination, "f")
        assert (found[0] if found else None) == reason
    assert reason_of(EntityDisabled("why")) == ("MessagingEntityDisabled", "why")
    assert reason_of(QuotaExceeded("why")) == ("QuotaExceeded", "why")
    assert reason_of(InvalidOperation("why")) == ("amqp:not-allowed", "why")


def test_only_a_certain_no_is_final() -> None:
    assert is_final(EntityDisabled(""))
    assert is_final(QuotaExceeded(""))
    assert not is_final(FragmentUnavailable(""))
    assert not is_final(OperationTimedOut(""))
    assert not is_final(Refusal(""))


def test_F1_a_message_moves_with_its_keys_and_what_is_left_of_its_time() -> None:
    sent = incoming(b"body", message_id="m", session="s", key="s")
    entry = Entry(5, 9, sent.bare, sent.kept, sent.kept_count, 100, expires_ms=1_000, hops=2)
    found = moving(entry, 400)
    assert (found.session, found.partition_key, found.message_id) == ("s", "s", "m")
    assert (found.bare, found.kept, found.ttl_ms) == (sent.bare, sent.kept, 600)
    assert found.passage == Passage(9, 100, 3, None)
    entry.origin = 4
    assert moving(entry, 5_000).ttl_ms == 1
    assert moving(entry, 0).passage == Passage(4, 100, 3, None)


def test_a_message_that_cannot_be_read_any_more_moves_all_the_same() -> None:
    entry = Entry(5, 9, b"\x00\x00\x00", b"", 0, 100, session="s")
    found = moving(entry, 0)
    assert (found.bare, found.session, found.message_id) == (b"\x00\x00\x00", "s", "9")


def test_a_message_without_annotations_has_no_key_for_the_transfer_queue() -> None:
    assert via_key_of(incoming()) is None
    assert via_key_of(incoming(key="k")) is None
    assert payload()
