"""The checker finds every kind of wrong history, and nothing wrong in a right one."""

from __future__ import annotations

from partibus.testing.checker import Delivery, Record, Wrong


def sent(record: Record, *message_ids: str, key: str | None = None) -> None:
    for message_id in message_ids:
        record.sending(message_id, key)
        record.accepted(message_id)


def wrongs(record: Record, *, drained: bool = True) -> list[tuple[Wrong, str]]:
    return [(fault.wrong, fault.message_id) for fault in record.faults(drained=drained)]


def in_hand(record: Record, receiver: str, message_id: str) -> Delivery:
    """The last delivery of a message to a receiver."""
    return [d for d in record.lives[message_id].deliveries if d.receiver == receiver][-1]


def test_a_history_as_it_should_be_has_no_faults() -> None:
    record = Record()
    sent(record, "a", "b", "c", key="k")
    for number, message_id in enumerate("abc", start=1):
        record.received("r", message_id, number)
        record.completed(in_hand(record, "r", message_id))
    assert wrongs(record) == []


def test_an_accepted_message_that_nobody_receives_is_lost() -> None:
    record = Record()
    sent(record, "a", "b")
    record.received("r", "a", 1)
    assert record.missing() == {"b"}
    assert wrongs(record, drained=False) == []
    assert wrongs(record) == [(Wrong.LOST, "b")]


def test_a_message_whose_send_failed_may_come_or_not() -> None:
    record = Record()
    record.sending("a")
    record.sending("b")
    record.received("r", "a", 1)
    assert wrongs(record) == []


def test_a_message_that_nobody_sent_is_a_fault() -> None:
    record = Record()
    record.received("r", "a", 1)
    assert wrongs(record) == [(Wrong.UNKNOWN, "a")]


def test_a_completed_message_must_not_come_back_whatever_happened() -> None:
    record = Record()
    sent(record, "a")
    record.received("r", "a", 1)
    record.completed(in_hand(record, "r", "a"))
    with record.disturbance():
        pass
    record.received("s", "a", 1)
    record.completed(in_hand(record, "s", "a"))
    assert wrongs(record) == [(Wrong.CAME_BACK, "a")]


def test_without_a_disturbance_a_completed_message_is_not_even_seen_again() -> None:
    record = Record()
    sent(record, "a")
    record.received("r", "a", 1)
    record.completed(in_hand(record, "r", "a"))
    record.received("s", "a", 1)
    record.lock_lost(in_hand(record, "s", "a"))
    assert wrongs(record) == [(Wrong.CAME_BACK, "a")]


def test_a_message_that_waited_in_a_client_until_its_lock_ended_has_not_come_back() -> None:
    record = Record()
    sent(record, "a")
    record.received("quick", "a", 1, delivery_count=1)
    record.completed(in_hand(record, "quick", "a"))
    record.received("slow", "a", 1)
    assert wrongs(record, drained=False) == []
    record.lock_lost(in_hand(record, "slow", "a"))
    assert wrongs(record) == []


def test_a_message_that_waited_in_a_client_while_its_broker_died_has_not_come_back() -> None:
    record = Record()
    sent(record, "a")
    with record.disturbance():
        pass
    record.received("quick", "a", 1)
    record.received("slow", "a", 1)
    record.let_go(in_hand(record, "slow", "a"))
    record.completed(in_hand(record, "quick", "a"))
    assert wrongs(record) == []


def test_a_message_completed_twice_has_come_back() -> None:
    record = Record()
    sent(record, "a")
    record.received("quick", "a", 1)
    record.received("slow", "a", 1)
    record.completed(in_hand(record, "quick", "a"))
    record.completed(in_hand(record, "slow", "a"))
    assert wrongs(record) == [(Wrong.CAME_BACK, "a")]


def test_a_message_comes_again_only_when_somebody_let_go_of_it() -> None:
    record = Record()
    sent(record, "a", "b", "c")
    for number, message_id in enumerate("abc", start=1):
        record.received("r", message_id, number)
    record.let_go(in_hand(record, "r", "a"))
    record.received("r", "a", 1, delivery_count=1)
    record.received("s", "b", 2)
    with record.disturbance():
        record.received("s", "c", 3)
    assert wrongs(record) == [(Wrong.REPEATED, "b")]


def test_a_copy_is_excused_only_by_a_disturbance_during_its_send() -> None:
    record = Record()
    sent(record, "early")
    record.sending("under way")
    with record.disturbance():
        pass
    record.accepted("under way")
    sent(record, "late")
    for number, message_id in enumerate(("early", "under way", "late")):
        for copy in (0, 10):
            record.received("r", message_id, number + copy)
    assert wrongs(record) == [(Wrong.COPIED, "early"), (Wrong.COPIED, "late")]


def test_a_send_that_was_never_answered_may_be_stored_twice_if_it_was_disturbed() -> None:
    record = Record()
    record.sending("a")
    with record.disturbance():
        pass
    record.received("r", "a", 1)
    record.received("r", "a", 2)
    assert wrongs(record) == []


def test_messages_of_a_key_are_received_in_the_order_of_acceptance() -> None:
    record = Record()
    sent(record, "a", "b", key="k")
    record.received("r", "b", 2)
    record.received("r", "a", 1)
    assert wrongs(record) == [(Wrong.OUT_OF_ORDER, "b")]


def test_other_keys_and_other_receivers_have_no_common_order() -> None:
    record = Record()
    sent(record, "a", key="j")
    sent(record, "b", "c", key="k")
    record.received("r", "c", 3)
    record.received("s", "b", 2)
    record.received("r", "a", 1)
    assert wrongs(record) == []


def test_sends_that_overlap_have_no_order() -> None:
    record = Record()
    record.sending("a", "k")
    record.sending("b", "k")
    record.accepted("a")
    record.accepted("b")
    record.received("r", "b", 1)
    record.received("r", "a", 2)
    assert wrongs(record) == []


def test_a_message_handed_out_before_may_come_late() -> None:
    record = Record()
    sent(record, "a", "b", "c", key="k")
    record.received("r", "c", 3)
    record.received("r", "b", 2, delivery_count=1)
    with record.disturbance():
        record.received("r", "a", 1)
    assert wrongs(record) == []


def test_numbers_of_a_key_follow_the_order_of_acceptance_even_when_it_was_disturbed() -> None:
    record = Record()
    with record.disturbance():
        sent(record, "a", "b", key="k")
        record.received("r", "a", 2)
        record.received("s", "b", 1)
    assert wrongs(record) == [(Wrong.MISNUMBERED, "b")]


def test_messages_of_a_key_lie_in_one_fragment() -> None:
    record = Record()
    sent(record, "a", "b", key="k")
    record.received("r", "a", 1 << 48 | 7)
    record.received("r", "b", 2 << 48 | 1)
    assert wrongs(record) == [(Wrong.ASTRAY, "b")]


def test_a_fault_says_what_happened_to_which_message() -> None:
    record = Record()
    sent(record, "order-17")
    assert str(record.faults()[0]) == "order-17: accepted and never received"
