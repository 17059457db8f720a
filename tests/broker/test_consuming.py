"""What is reserved for a bulk reader: the same messages under the same ordinals until done."""

from __future__ import annotations

import msgspec
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


@given(positions, st.sets(st.integers(1, 200)), st.data())
def test_S2_what_is_set_aside_leaves_the_ordinals_of_the_others_alone(
    every: set[int], chosen: set[int], data: st.DataObject
) -> None:
    gone = every & chosen
    batch = Batch(0, 0, [])
    batch.add(every, len(every))
    consumer = Consumer("r", 1, 0, [batch])
    for part in (sorted(gone)[::2], sorted(gone)[1::2]):
        batch.take_out(part, len(part))
    consumer = read_consumer(write_consumer(consumer))

    assert (consumer.last, consumer.reserved) == (len(every), len(every - gone))
    after = data.draw(st.integers(0, len(every)))
    upto = data.draw(st.integers(after, len(every)))
    expected = [each for each in sorted(every)[after:upto] if each not in gone]
    assert [each for part in consumer.parts(after, upto) for each in part] == expected
    (finished,) = consumer.finish(len(every))
    assert (finished.positions(), finished.size) == (sorted(every - gone), len(every - gone))


def test_S2_a_try_is_counted_once_for_each_start() -> None:
    consumer = Consumer("r", 1)
    assert not consumer.count_try()
    consumer.batches.append(Batch(2, 2, [(1, 2)], deliveries=1))
    assert not consumer.count_try()
    assert consumer.spent(1) is None, "it was not given in vain yet"
    consumer.check("r", 2, BEGIN)
    assert consumer.count_try()
    assert not consumer.count_try()
    assert consumer.spent(3) is None
    assert consumer.spent(2) is consumer.batches[0]


def test_S2_a_record_that_an_older_version_kept_is_read() -> None:
    old = msgspec.msgpack.encode(["r", 3, 2, [[2, 10, [[4, 5]]]]])
    consumer = read_consumer(old)
    assert (consumer.epoch, consumer.last, consumer.reserved) == (3, 4, 2)
    assert consumer.batches[0].positions() == [4, 5]


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
