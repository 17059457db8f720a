"""The SQL of a store's file, each text made once so that it is prepared once.

Statements carry many rows, because every step of a statement gives the interpreter lock away
and must win it back from a busy event loop. Nothing is executed here.
"""

# The texts are put together from names in this program, never from data.
# ruff: noqa: S608

from __future__ import annotations

from partibus.broker.blocks import (
    BUNDLE_BYTES,
    BUNDLE_MESSAGES,
    COUNT_SHIFT,
    KEPT_MAX,
    KEPT_SHIFT,
    LENGTH_MAX,
    LENGTH_SHIFT,
    OFFSET_SHIFT,
)
from partibus.broker.records import COUNTER_FIELDS, POSITION_MAX
from partibus.store.schema import BUNDLE_MESSAGES_MAX

# Rows a single INSERT or UPDATE carries, largest first: any number of rows is a few of these.
ROWS_PER_STATEMENT = (64, 32, 16, 8, 4, 2, 1)

BEGIN = "BEGIN IMMEDIATE"
COMMIT = "COMMIT"
ROLLBACK = "ROLLBACK"

PLAIN_COLUMNS = (
    "position",
    "body",
    "offset",
    "length",
    "kept_length",
    "kept_count",
    "enqueued_ms",
)
RARE_COLUMNS = (
    "deliveries",
    "state",
    "expires_ms",
    "sequence",
    "session",
    "due_ms",
    "origin",
    "hops",
    "source",
)
FULL_COLUMNS = PLAIN_COLUMNS + RARE_COLUMNS
# Of a copy that a subscription gets; those of the rare columns that it may have at first.
COPY_COLUMNS = (*PLAIN_COLUMNS, "expires_ms", "session", "origin", "hops", "source", "content")
BODY_COLUMNS = ("id", "count", "content")
# What may change of an entry while it stays where it is, after its position.
UPDATED_COLUMNS = ("position", "enqueued_ms", "deliveries", "state", "expires_ms", "due_ms")


class Rows:
    """One statement in all its sizes: `width` values a row, `texts` by the number of rows."""

    __slots__ = ("texts", "width")

    def __init__(self, head: str, width: int, tail: str = "") -> None:
        row = f"({','.join('?' * width)})"
        self.width = width
        self.texts = {n: f"{head} {','.join([row] * n)}{tail}" for n in ROWS_PER_STATEMENT}


def _insert(table: str, columns: tuple[str, ...]) -> Rows:
    return Rows(f"INSERT INTO {table}({','.join(columns)}) VALUES", len(columns))


INSERT_BODIES = _insert("body", BODY_COLUMNS)
INSERT_PLAIN = _insert("message", PLAIN_COLUMNS)
INSERT_FULL = _insert("message", FULL_COLUMNS)
INSERT_COPIES = _insert("message", COPY_COLUMNS)
INSERT_SHARES = _insert("share", ("body", "copies"))
# A block of messages that were written in bulk, whose rows are numbers that say where each lies.
INSERT_BLOCK = f"""
    INSERT INTO message({",".join(PLAIN_COLUMNS)}, expires_ms)
    SELECT ?1 + rowid - 1, ?1 + rowid - 1 - (value & {BUNDLE_MESSAGES - 1}),
           value >> {OFFSET_SHIFT} & {BUNDLE_BYTES - 1}, value >> {LENGTH_SHIFT} & {LENGTH_MAX},
           value >> {KEPT_SHIFT} & {KEPT_MAX}, value >> {COUNT_SHIFT}, ?2, ?3
    FROM carray(?4)"""
INSERT_FRAGMENTS = _insert(
    "fragment", ("number", "entity", "incarnation", "partition", "subqueue", *COUNTER_FIELDS)
)
UPDATE_MESSAGES = Rows(
    "UPDATE message SET "
    + ", ".join(f"{name} = new.column{i}" for i, name in enumerate(UPDATED_COLUMNS, 1) if i > 1)
    + " FROM (VALUES",
    len(UPDATED_COLUMNS),
    ") AS new WHERE message.position = new.column1",
)
# A message whose content changed keeps the new one in its own row; what its bundle holds of it is
# dead until the bundle goes. Rare, so one row a statement.
REWRITE_MESSAGE = (
    "UPDATE message SET kept_length = ?, kept_count = ?, length = ?, content = ? WHERE position = ?"
)
INSERT_OUTBOX = _insert("outbox", ("position", "entity", "incarnation", "partition", "subqueue"))
DELETE_OUTBOX = "DELETE FROM outbox WHERE position IN (SELECT value FROM carray(?))"
SELECT_OUTBOX = (
    "SELECT position, entity, incarnation, partition, subqueue FROM outbox"
    " WHERE position IN (SELECT value FROM carray(?))"
)
SET_MARK = (
    "INSERT OR REPLACE INTO mark(number, entity, incarnation, partition, subqueue, high)"
    " VALUES (?, ?, ?, ?, ?, ?)"
)
SELECT_MARKS = "SELECT entity, incarnation, partition, subqueue, high FROM mark WHERE number = ?"
UPDATE_FRAGMENT = (
    f"UPDATE fragment SET {', '.join(f'{name} = ?' for name in COUNTER_FIELDS)} WHERE number = ?"
)

# A bundle goes with the last of its messages. It covers the positions id .. id + count - 1.
_EMPTY = (
    "NOT EXISTS (SELECT 1 FROM message"
    " WHERE position >= body.id AND position < body.id + body.count)"
)
# The bundle that covers a position has the largest id up to it, and begins at most so far below.
# (No position is so small and no fragment so full that this reaches another fragment's bundles.)
_REACH = BUNDLE_MESSAGES_MAX - 1

DELETE_RUN = "DELETE FROM message WHERE position BETWEEN ? AND ?"
DELETE_RUN_BODIES = f"""
    DELETE FROM body
    WHERE id BETWEEN ifnull((SELECT max(id) FROM body WHERE id BETWEEN ?1 - {_REACH} AND ?1), ?1)
      AND ?2 AND {_EMPTY}"""
DELETE_SCATTERED = "DELETE FROM message WHERE position IN (SELECT value FROM carray(?))"
# Most bundles still have messages, and the message after one that went tells it without a look at
# the bundle: if its own begins no later than the place of the other, both were in the same.
DELETE_SCATTERED_BODIES = f"""
    DELETE FROM body
    WHERE id IN (SELECT (SELECT max(id) FROM body WHERE id BETWEEN value - {_REACH} AND value)
                 FROM carray(?)
                 WHERE ifnull((SELECT body NOT BETWEEN value - {_REACH} AND value FROM message
                               WHERE position BETWEEN value AND value + {_REACH}
                               ORDER BY position LIMIT 1), 1))
      AND {_EMPTY}"""

# Contents that several fragments share have ids below zero and a count of the copies that are
# left: one statement counts down for all that one commit removes, then those at zero go.
_COUNT_DOWN = """
    UPDATE share SET copies = copies - gone.count
    FROM (SELECT body, count(*) AS count FROM message WHERE position {chosen} AND body < 0
          GROUP BY body) AS gone
    WHERE share.body = gone.body"""
COUNT_DOWN_RUN = _COUNT_DOWN.format(chosen="BETWEEN ? AND ?")
COUNT_DOWN_SCATTERED = _COUNT_DOWN.format(chosen="IN (SELECT value FROM carray(?))")
DELETE_UNSHARED = (
    "DELETE FROM body WHERE id IN (SELECT body FROM share WHERE copies = 0)",
    "DELETE FROM share WHERE copies = 0",
)

SELECT_FRAGMENTS = (
    f"SELECT number, entity, incarnation, partition, subqueue, {', '.join(COUNTER_FIELDS)}"
    " FROM fragment ORDER BY number"
)

# The rows come as two JSON arrays in one row of result: one step however many messages.
_PLAIN = (
    "deliveries = 0 AND state = 0"
    " AND coalesce(expires_ms, sequence, session, due_ms, origin, hops, source, content) IS NULL"
)
_SHOWN = ", ".join(PLAIN_COLUMNS[2:])
# The bundle of a plain message is near, and its distance a short text.
_NEAR = f"position & {POSITION_MAX}, position - body, {_SHOWN}"
_FAR = f"position & {POSITION_MAX}, body, {_SHOWN}"


def _as_json(chosen: str) -> str:
    return f"""
    SELECT json_group_array(json_array({_NEAR})) FILTER (WHERE {_PLAIN}),
           json_group_array(json_array({_FAR}, {", ".join(RARE_COLUMNS)}, content IS NOT NULL))
               FILTER (WHERE NOT ({_PLAIN}))
    FROM ({chosen})"""


SCAN = _as_json(
    "SELECT * FROM message WHERE position > ? AND position <= ? AND state = 0"
    " ORDER BY position LIMIT ?"
)
FIND = _as_json("SELECT * FROM message WHERE position IN (SELECT value FROM carray(?))")
SCAN_SESSION = _as_json(
    "SELECT * FROM message WHERE position >> 44 = ? AND state = 0 AND session = ?"
    " AND position > ? ORDER BY position LIMIT ?"
)
SELECT_CONTENT = "SELECT content FROM message WHERE position = ?"
SELECT_BODY = "SELECT id, content FROM body WHERE id = ?"
SELECT_BODIES = "SELECT id, content FROM body WHERE id IN (SELECT value FROM carray(?))"

# All of these find their rows by an index, whatever else lies in the file.
BROWSE = _as_json(
    "SELECT * FROM message WHERE position >= ? AND position <= ? AND state <> 3"
    " ORDER BY position LIMIT ?"
)
BROWSE_SESSION = _as_json(
    "SELECT * FROM message WHERE position >> 44 = ? AND session = ? AND position >= ?"
    " AND state <> 3 ORDER BY position LIMIT ?"
)
# Dead letters stand in order of arrival and are browsed in order of their numbers.
BROWSE_DEAD = _as_json(
    "SELECT * FROM message WHERE position >> 44 = ? AND sequence >= ? AND state <> 3"
    " ORDER BY sequence LIMIT ?"
)
BROWSE_DEAD_SESSION = _as_json(
    "SELECT * FROM message WHERE position >> 44 = ? AND session = ? AND sequence >= ?"
    " AND state <> 3 ORDER BY sequence LIMIT ?"
)
FIND_DEAD = _as_json(
    "SELECT * FROM message WHERE position >> 44 = ? AND sequence IN (SELECT value FROM carray(?))"
)


def _moments(chosen: str) -> str:
    return f"SELECT json_group_array(json_array(at_ms, position)) FROM ({chosen})"


DUE = _moments(
    "SELECT due_ms AS at_ms, position FROM message"
    " WHERE state = 2 AND due_ms BETWEEN ?1 AND ?3 AND (due_ms > ?1 OR position > ?2)"
    " ORDER BY due_ms, position LIMIT ?4"
)
EXPIRING = _moments(
    "SELECT expires_ms AS at_ms, position FROM message"
    " WHERE expires_ms BETWEEN ?1 AND ?3 AND (expires_ms > ?1 OR position > ?2)"
    " ORDER BY expires_ms, position LIMIT ?4"
)

# The sessions of the next messages, each where it comes first, and the last place looked at.
SELECT_HEADS = f"""
    SELECT json_group_array(json_array(position, session, enqueued_ms)), max(last), sum(count)
    FROM (SELECT min(position) & {POSITION_MAX} AS position, session,
                 min(enqueued_ms) AS enqueued_ms,
                 max(position) & {POSITION_MAX} AS last, count(*) AS count
          FROM (SELECT position, session, enqueued_ms FROM message
                WHERE position > ? AND position <= ? AND state = 0 ORDER BY position LIMIT ?)
          GROUP BY session)"""
SELECT_STATE = "SELECT state FROM session_state WHERE number = ? AND session = ?"
SET_STATE = (
    "INSERT OR REPLACE INTO session_state(number, session, state, updated_ms) VALUES (?, ?, ?, ?)"
)
CLEAR_STATE = "DELETE FROM session_state WHERE number = ? AND session = ?"
# From each session straight to the next, however many messages it has; and whether any is active.
SELECT_SESSIONS = """
    WITH RECURSIVE
    found(session, count) AS (
        SELECT (SELECT session FROM message
                WHERE position >> 44 = ?1 AND session >= ?2 AND (?4 OR session > ?2)
                ORDER BY session LIMIT 1), 1
        UNION ALL
        SELECT (SELECT session FROM message
                WHERE position >> 44 = ?1 AND session > found.session
                ORDER BY session LIMIT 1), count + 1
        FROM found WHERE found.session IS NOT NULL AND count < ?3
    )
    SELECT json_group_array(json_array(session, EXISTS (
        SELECT 1 FROM message
        WHERE position >> 44 = ?1 AND message.session = found.session AND state = 0)))
    FROM found WHERE session IS NOT NULL"""
SELECT_STATES = """
    SELECT json_group_array(session) FROM (
        SELECT session FROM session_state
        WHERE number = ?1 AND session >= ?2 AND (?4 OR session > ?2) AND updated_ms > ?5
        ORDER BY session LIMIT ?3)"""

SET_PRODUCED = (
    "INSERT OR REPLACE INTO producer(number, writer, batch, published) VALUES (?, ?, ?, ?)"
)
SELECT_PRODUCED = "SELECT batch, published FROM producer WHERE number = ? AND writer = ?"

# The position up to which a fragment holds that many entries, from its first.
DROP_END = """
    SELECT max(position) FROM
    (SELECT position FROM message WHERE position BETWEEN ? AND ? ORDER BY position LIMIT ?)"""
IS_ANY_LEFT = "SELECT EXISTS (SELECT 1 FROM message WHERE position BETWEEN ? AND ?)"
DROP_REST = (
    "DELETE FROM body WHERE id BETWEEN ?1 << 44 AND (?1 << 44) + (1 << 44) - 1",
    "DELETE FROM outbox WHERE position BETWEEN ?1 << 44 AND (?1 << 44) + (1 << 44) - 1",
    "DELETE FROM session_state WHERE number = ?1",
    "DELETE FROM mark WHERE number = ?1",
    "DELETE FROM cursor WHERE number = ?1",
    "DELETE FROM kept WHERE position BETWEEN ?1 << 44 AND (?1 << 44) + (1 << 44) - 1",
    "DELETE FROM producer WHERE number = ?1",
    "DELETE FROM fragment WHERE number = ?1",
)
