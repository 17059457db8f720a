"""Random bytes in bulk."""

from __future__ import annotations

import uuid
from random import Random

from partibus.runtime.entropy import POOL_BYTES, Entropy


def test_no_byte_is_handed_out_twice() -> None:
    entropy = Entropy(Random(1).randbytes)
    taken = [entropy.take(10) for _ in range(3 * POOL_BYTES // 10)]
    assert len(set(taken)) == len(taken)
    assert {len(each) for each in taken} == {10}


def test_one_call_to_the_system_serves_hundreds_of_tokens() -> None:
    calls: list[int] = []

    def source(count: int) -> bytes:
        calls.append(count)
        return bytes(count)

    entropy = Entropy(source)
    for _ in range(400):
        entropy.take(10)
    assert calls == [POOL_BYTES]
    assert len(entropy.take(5 * POOL_BYTES)) == 5 * POOL_BYTES


def test_assigned_message_ids_are_random_uuids() -> None:
    ids = {Entropy().message_id() for _ in range(100)}
    assert len(ids) == 100
    assert {uuid.UUID(each).version for each in ids} == {4}
