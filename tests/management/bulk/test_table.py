from __future__ import annotations

import pytest

from partibus.broker.records import FragmentKey
from partibus.store.browsing import Rows
from partibus.wire.columns import READ_COLUMNS

pytest.importorskip("pyarrow", reason="pyarrow is not installed: pip install 'partibus[bulk]'")


def rows(content: bytes) -> Rows:
    return Rows(
        [1],
        [0],
        [5],
        [0],
        [0],
        [None],
        [None],
        [None],
        [None],
        [None],
        content,
        [0],
        [len(content)],
    )


def test_S1_a_message_that_cannot_be_read_is_shown_as_its_octets() -> None:
    from partibus.management.bulk.table import Table

    table = Table("q", FragmentKey(1, 1, 2, 0), READ_COLUMNS)
    (found,) = table.batch(rows(b"\x00\x53\x73 is no message")).to_pylist()
    assert found["body"] == b"\x00\x53\x73 is no message"
    assert found["messageId"] is None
    assert found["sequenceNumber"] == (2 << 48) + 1


def test_S1_a_column_that_there_is_not_is_refused() -> None:
    from partibus.management.bulk.table import Table, UnknownColumn

    with pytest.raises(UnknownColumn, match="colour"):
        Table("q", FragmentKey(1, 1, 0, 0), ["colour"])
