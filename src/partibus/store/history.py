"""The duplicate history in a store's file: one table for each span of time, dropped whole.

A table's name says its span. The rows are digests of messages that were accepted, and when;
whether such a message is a duplicate is decided in runtime.duplicates.
"""

# Tables are named by numbers of this program, never by data.
# ruff: noqa: S608

from __future__ import annotations

from array import array
from collections.abc import Iterable
from typing import Any, cast

import apsw

from partibus.broker.records import Bucket, Changes, Digest
from partibus.store.schema import HISTORY_PREFIX, HISTORY_TABLE
from partibus.store.statements import ROWS_PER_STATEMENT

_TABLES = f"SELECT name FROM sqlite_schema WHERE type = 'table' AND name GLOB '{HISTORY_PREFIX}*'"


def buckets(cursor: apsw.Cursor) -> set[Bucket]:
    """The buckets that the file has."""
    found = cursor.execute(_TABLES).fetchall()
    names: list[tuple[str]] = cast(Any, found)
    parts = [name.removeprefix(HISTORY_PREFIX).split("_") for (name,) in names]
    return {Bucket(int(exponent), int(number)) for exponent, number in parts}


def write(cursor: apsw.Cursor, batch: list[Changes]) -> None:
    """Keep what was sighted, inside the transaction of the messages themselves."""
    rows: dict[Bucket, list[int]] = {}
    for changes in batch:
        for digest, at_ms, bucket in changes.sighted:
            rows.setdefault(bucket, []).extend((*digest, at_ms))
    for bucket, values in rows.items():
        cursor.execute(HISTORY_TABLE.format(name=_name(bucket)))
        _insert(cursor, bucket, values)


def _insert(cursor: apsw.Cursor, bucket: Bucket, values: list[int]) -> None:
    # An id is there already where its window was made shorter meanwhile.
    head = f"INSERT OR REPLACE INTO {_name(bucket)} VALUES "
    start = 0
    for size in ROWS_PER_STATEMENT:
        step = size * 3
        while len(values) - start >= step:
            text = head + ",".join(["(?,?,?)"] * size)
            cursor.execute(text, values[start : start + step])
            start += step


def find(
    cursor: apsw.Cursor, digests: list[Digest], since_ms: int, known: Iterable[Bucket]
) -> dict[Digest, int]:
    """Which digests were sighted after a time: one statement a bucket, however many digests."""
    found: dict[Digest, int] = {}
    # In order of the keys the pages of a table are visited in order, too.
    highs = array("q", sorted(digest.high for digest in digests))
    wanted = set(digests)
    for bucket in known:
        if bucket.end_ms <= since_ms:
            continue
        select = (
            f"SELECT high, low, at_ms FROM carray(?) CROSS JOIN {_name(bucket)} ON high = value"
        )
        rows: list[tuple[int, int, int]] = cast(
            Any, cursor.execute(select, (apsw.carray(highs),)).fetchall()
        )
        for high, low, at_ms in rows:
            digest = Digest(high, low)
            if at_ms > since_ms and digest in wanted:
                found[digest] = max(at_ms, found.get(digest, at_ms))
    return found


def drop(cursor: apsw.Cursor, bucket: Bucket) -> None:
    """Forget a whole bucket."""
    cursor.execute(f"DROP TABLE IF EXISTS {_name(bucket)}")


def _name(bucket: Bucket) -> str:
    return f"{HISTORY_PREFIX}{bucket.exponent}_{bucket.number}"
