"""What makes two messages the same one (F2, K1)."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from partibus.broker.descriptions import DUPLICATE_WINDOW_MS_MAX
from partibus.broker.duplicates import bucket_of, digest_of
from partibus.broker.message import read_message
from partibus.broker.records import FragmentKey
from partibus.testing.messages import incoming, payload

CONVENTIONAL = FragmentKey(7, 1, 0, 0)
PARTITIONED = FragmentKey(7, 1, 3, 0)


def test_F2_on_a_conventional_queue_a_message_is_known_by_its_id_alone() -> None:
    one = digest_of(CONVENTIONAL, incoming(b"a", message_id="x", key="k"))
    assert one == digest_of(CONVENTIONAL, incoming(b"b", message_id="x", session="s"))
    assert one != digest_of(CONVENTIONAL, incoming(b"a", message_id="y", key="k"))


def test_F2_on_a_partitioned_queue_a_message_is_known_by_its_id_and_its_key() -> None:
    one = digest_of(PARTITIONED, incoming(message_id="x", key="k"))
    assert one == digest_of(PARTITIONED, incoming(b"b", message_id="x", session="k"))
    assert one != digest_of(PARTITIONED, incoming(message_id="x", key="l"))
    assert one != digest_of(PARTITIONED, incoming(message_id="x"))


def test_ids_and_keys_cannot_be_shifted_into_each_other() -> None:
    one = digest_of(PARTITIONED, incoming(message_id="c", key="a/b"))
    assert one != digest_of(PARTITIONED, incoming(message_id="b/c", key="a"))
    assert one != digest_of(PARTITIONED, incoming(message_id="5/x/c", key="a"))


def test_another_life_of_an_entity_knows_nothing_of_the_former() -> None:
    message = incoming(message_id="x")
    others = [
        CONVENTIONAL._replace(entity=8),
        CONVENTIONAL._replace(incarnation=2),
        PARTITIONED._replace(partition=4),
    ]
    assert len({digest_of(key, message) for key in (CONVENTIONAL, PARTITIONED, *others)}) == 5


def test_ids_of_different_types_are_compared_as_text() -> None:
    text = read_message(payload(message_id="17"), 10_000, lambda: "")
    number = read_message(payload(message_id=17), 10_000, lambda: "")  # type: ignore[arg-type]
    assert digest_of(CONVENTIONAL, text) == digest_of(CONVENTIONAL, number)


@given(window_ms=st.integers(1, DUPLICATE_WINDOW_MS_MAX), at_ms=st.integers(0, 1 << 42))
def test_a_window_reaches_over_few_buckets_and_none_goes_too_early(
    window_ms: int, at_ms: int
) -> None:
    bucket = bucket_of(at_ms, window_ms)
    span_ms = 1 << bucket.exponent
    assert bucket.end_ms - span_ms <= at_ms < bucket.end_ms
    assert span_ms * 4 >= window_ms
    assert span_ms <= max(window_ms / 2, 1)
    # What was sighted last in it is inside a window until then.
    assert bucket.forgotten_ms >= bucket.end_ms - 1 + window_ms
