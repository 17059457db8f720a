"""Blocks: messages written in bulk keep their order, content and numbers, seen by nobody before."""

from __future__ import annotations

from random import Random

import hypothesis.strategies as st
import pytest
from hypothesis import given

from partibus.broker.blocks import BUNDLE_BYTES, BUNDLE_MESSAGES, Block, arrange, kept_part
from partibus.broker.descriptions import QueueDescription
from partibus.broker.errors import QuotaExceeded
from partibus.broker.fragment import MEGABYTE, Fragment
from partibus.broker.records import FragmentKey, SubQueue
from partibus.store.memory import MemoryStore
from partibus.store.schema import BUNDLE_BYTES_MAX, BUNDLE_MESSAGES_MAX
from partibus.testing.messages import incoming

NOW_MS = 1_700_000_000_000
KEY = FragmentKey(1, 1, 4, SubQueue.ACTIVE)
QUEUE = QueueDescription("q")

messages = st.lists(
    st.tuples(st.binary(min_size=1, max_size=9), st.sampled_from([0, 1, 3]), st.integers(0, 2000)),
    max_size=200,
)


def made(*bodies: bytes) -> Block:
    return Block(arrange(map(len, bodies), [0] * len(bodies)), b"".join(bodies))


@given(messages, st.integers(0, 200))
def test_a_block_is_its_messages_however_they_are_bundled(
    found: list[tuple[bytes, int, int]], skip: int
) -> None:
    contents = [kept[:1] * count + bare * (1 + size) for bare, count, size in found
                for kept in (b"k",)]  # fmt: skip
    parts = [kept_part(count, count) for _, count, _ in found]
    block = Block(arrange(map(len, contents), parts), b"".join(contents))
    for each, at in ((block, 0), (block.behind(min(skip, len(found))), min(skip, len(found)))):
        whole = [message.kept + message.bare for message in each.messages()]
        assert whole == contents[at:]
        assert [message.kept_count for message in each.messages()] == [f[1] for f in found[at:]]
        bundles = list(each.bundles())
        assert b"".join(content for _, _, content in bundles) == b"".join(contents[at:])
        assert sum(count for _, count, _ in bundles) == len(each) == len(found) - at
        assert all(count <= BUNDLE_MESSAGES for _, count, _ in bundles)
        assert all(count == 1 or len(c) <= BUNDLE_BYTES for _, count, c in bundles)


def test_bundles_are_no_larger_than_those_of_the_store() -> None:
    assert BUNDLE_MESSAGES <= BUNDLE_MESSAGES_MAX
    assert BUNDLE_BYTES <= BUNDLE_BYTES_MAX


def test_R6_blocks_and_messages_are_handed_out_in_the_order_of_their_numbers() -> None:
    """Sent before, between and after, in one commit: each is there once it is durable, once."""
    store, fragment = MemoryStore(), Fragment(KEY, 1, 0, QUEUE, None, lambda: fragment)
    fragment.send([incoming(b"first")], NOW_MS)
    fragment.append(made(b"one", b"two"), NOW_MS)
    fragment.send([incoming(b"between")], NOW_MS)
    fragment.append(made(b"three"), NOW_MS)
    fragment.send([incoming(b"last")], NOW_MS)
    assert fragment.counters.accepted == fragment.counters.active == 6
    changes = fragment.take_changes()
    assert not fragment.take(10, NOW_MS, Random(1).randbytes)
    store.commit([changes])
    assert fragment.committed(changes)
    taken = fragment.take(10, NOW_MS, Random(1).randbytes)
    assert [entry.position for entry in taken] == [1]
    assert fragment.window.wants_more
    found = store.scan(1, fragment.window.gap_from, 10, MEGABYTE)
    fragment.loaded(found, complete=True)
    taken = fragment.take(10, NOW_MS, Random(1).randbytes)
    assert [entry.position for entry in taken] == [2, 3, 4, 5, 6]
    assert [entry.sequence & 0xFF for entry in taken] == [2, 3, 4, 5, 6]
    assert taken[1].bare == b"two"


def test_a_block_lives_as_long_as_the_queue_says_and_within_its_quota() -> None:
    queue = QueueDescription("q", default_ttl_ms=1000, max_size_mb=1)
    fragment = Fragment(KEY, 1, 0, queue, None, lambda: fragment)
    fragment.append(made(b"a" * 1000), NOW_MS)
    changes = fragment.take_changes()
    assert changes.expires_ms == changes.blocks[0].expires_ms == NOW_MS + 1000
    with pytest.raises(QuotaExceeded):
        fragment.append(made(*[b"b" * 1000] * 1048), NOW_MS)
