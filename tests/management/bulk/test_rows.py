"""Rows become the same messages, whether they are encoded one by one or by columns."""

from __future__ import annotations

from typing import Any

import hypothesis.strategies as st
import pytest
from hypothesis import given, settings

from partibus.broker.blocks import Block
from partibus.broker.partitioning import index_of
from partibus.wire.codec import decode
from partibus.wire.values import Described

pa = pytest.importorskip("pyarrow", reason="pyarrow is not installed: pip install 'partibus[bulk]'")

from partibus.management.bulk.rows import Rows, Target  # noqa: E402 - needs pyarrow

TARGET = Target(16, False, False, 256 * 1024, True)
text = st.none() | st.text(max_size=5) | st.just("long " * 60)
key = st.none() | st.text(max_size=3) | st.just("ü" * 128)
TYPES = {
    "messageId": pa.string(),
    "partitionKey": pa.string(),
    "subject": pa.string(),
    "correlationId": pa.string(),
    "applicationProperties": pa.map_(pa.string(), pa.string()),
    "body": pa.binary(),
}
rows = st.lists(
    st.fixed_dictionaries(
        {
            "messageId": st.text(max_size=4),
            "partitionKey": key,
            "subject": text,
            "correlationId": text,
            "applicationProperties": st.none()
            | st.dictionaries(st.text(max_size=3), text, max_size=3).map(lambda d: list(d.items())),
            "body": st.none() | st.binary(max_size=300),
        }
    ),
    min_size=1,
    max_size=30,
)


def batch(found: list[dict[str, Any]], names: set[str]) -> Any:
    return pa.RecordBatch.from_pydict(
        {
            name: pa.array([row[name] for row in found], TYPES[name])
            for name in TYPES
            if name in names
        }
    )


def sections(bare: bytes) -> list[tuple[object, object]]:
    """What a message says, whichever way it is encoded."""
    found, at = [], 0
    while at < len(bare):
        section, at = decode(bare, at)
        assert isinstance(section, Described)
        value = section.value
        while isinstance(value, list) and value and value[-1] is None:
            value.pop()
        found.append((section.descriptor, value))
    return found


def by_fragment(blocks: list[tuple[int, Block]]) -> dict[int, list[Any]]:
    found: dict[int, list[Any]] = {}
    for fragment, block in blocks:
        found.setdefault(fragment, []).extend(
            (sections(each.bare), each.kept, each.kept_count) for each in block.messages()
        )
    return found


@settings(max_examples=60)
@given(rows, st.sets(st.sampled_from(sorted(TYPES)), min_size=1), st.integers(0, 3))
def test_S1_columns_make_the_messages_that_rows_make(
    found: list[dict[str, Any]], names: set[str], skip: int
) -> None:
    given_batch = batch(found, names | {"messageId"}).slice(skip)
    expected: dict[int, list[Any]] = {}
    for fragment, message in Rows(TARGET, 3).messages(given_batch):
        expected.setdefault(fragment, []).append(
            (sections(message.bare), message.kept, message.kept_count)
        )
    blocks = Rows(TARGET, 3).blocks(given_batch)
    assert by_fragment(blocks or []) == expected


def test_S1_rows_without_an_id_get_one_each() -> None:
    blocks = Rows(TARGET, 0).blocks(pa.RecordBatch.from_pydict({"body": ["x"] * 1000}))
    assert blocks
    ids = {
        properties[0]
        for messages in by_fragment(blocks).values()
        for ((_, properties), _), *_ in messages
    }
    assert len(ids) == 1000
    assert all(len(each) == 32 and each[12] == "4" and each[16] in "89ab" for each in ids)


def test_S1_rows_without_a_key_are_spread_and_the_others_go_where_their_key_says() -> None:
    keys = [f"key {n % 50}" if n % 3 else None for n in range(3000)]
    rows = Rows(TARGET, 5)
    blocks = rows.blocks(pa.RecordBatch.from_pydict({"partitionKey": keys, "body": ["x"] * 3000}))
    assert blocks
    counts: dict[int, int] = {}
    for number in [index_of(key, 16) + 1 for key in keys if key]:
        counts[number] = counts.get(number, 0) + 1
    for number, more in ((6, 256), (7, 256), (8, 256), (9, 232)):
        counts[number] = counts.get(number, 0) + more
    assert {
        fragment: sum(len(b) for f, b in blocks if f == fragment) for fragment, _ in blocks
    } == counts


@pytest.mark.parametrize(
    "columns",
    [
        {"body": ["x"], "sessionId": ["a"]},
        {"body": ["x"], "timeToLive": [5]},
        {"body": ["x"], "scheduledEnqueueTime": [5]},
        {"body": ["x"], "messageId": ["long" * 100]},
        {"body": ["x" * 300_000]},
        {"body": ["x"], "subject": ["x" * 70_000]},
    ],
)
def test_S1_what_needs_a_closer_look_gets_one(columns: dict[str, list[Any]]) -> None:
    assert Rows(TARGET, 0).blocks(pa.RecordBatch.from_pydict(columns)) is None
