"""What is reserved for a bulk reader: the same messages under the same ordinals until done."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from partibus.broker.consuming import BEGIN, Batch, Consumer, read_consumer, write_consumer
from partibus.broker.errors import InvalidArgument, InvalidOperation

positions = st.sets(st.integers(1, 200), min_size=1, max_size=60)


@given(st.lists(positions, max_size=5), st.data())
def test_S2_ordinals_name_the_same_messages_until_they_are_done(
    batches: list[set[int]], data: st.DataObject
) -> None:
    consumer = Consumer("r", 1)
    model: list[int] = []
    ends = [0]
    for each in batches:
        batch = Batch(0, 0, [])
        consumer.batches.append(batch)
        for part in (sorted(each)[::2], sorted(each)[1::2]):
            batch.add(part, len(part))
        model += sorted(each)
        ends.append(len(model))
    done = data.draw(st.sampled_from(ends))

    finished = consumer.finish(done)
    consumer = read_consumer(write_consumer(consumer))

    assert [each for batch in finished for each in batch.positions()] == model[:done]
    assert sum(batch.size for batch in finished) == done
    assert (consumer.done, consumer.last) == (done, len(model))
    after = data.draw(st.integers(done, len(model)))
    upto = data.draw(st.integers(after, len(model)))
    assert [each for part in consumer.parts(after, upto) for each in part] == model[after:upto]
    # Once more changes nothing.
    assert consumer.finish(done) == []


def test_S2_who_was_succeeded_or_is_another_is_refused() -> None:
    consumer = Consumer("r", 5, 0, [Batch(2, 2, [(1, 2)])])
    consumer.check("r", 6, BEGIN)
    for reader, epoch, done in (("r", 5, 0), ("r", 6, BEGIN), ("other", 7, BEGIN)):
        with pytest.raises(InvalidOperation):
            consumer.check(reader, epoch, done)
    for done in (1, 3):
        with pytest.raises(InvalidArgument):
            consumer.finish(done)
    with pytest.raises(InvalidArgument):
        list(consumer.parts(0, 3))
    assert consumer.last == 2
