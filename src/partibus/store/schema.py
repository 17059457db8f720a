"""The tables of a store's file, its format number and its measured settings.

What every column means to a person is printed in docs/DATA.md; change both together, and raise
FORMAT_VERSION when an older program could misread the result. No rows are read or written here.
"""

from __future__ import annotations

from partibus.broker.records import COUNTER_FIELDS

# "Pbus" in the file's header, so that `file` and we can tell our files from other databases.
APPLICATION_ID = 0x50627573
FORMAT_VERSION = 2

# A commit of one message writes three pages. With 8 KiB, inserts of 64 and more are about a tenth
# cheaper, deletes out of order about a quarter dearer, and one message writes twice as much.
PAGE_SIZE = 4096
# The checksum VFS keeps its eight bytes at the end of every page.
CHECKSUM_BYTES = 8
# The log is folded into the file once it is this long, and is then written over from its start:
# a file that need not grow makes each fdatasync about twice as cheap.
WAL_PAGES_MAX = 2_000
WAL_BYTES_KEPT = 2 * WAL_PAGES_MAX * PAGE_SIZE
# Per store; a node holds several stores.
CACHE_KIB = 4096
# Another process may read the file; it holds the locks that we need for moments only.
BUSY_MS_MAX = 5_000

# Prepared statements, of which there are about thirty per connection.
STATEMENTS_CACHED_MAX = 128

# Free pages up to this number stay in the file for the next messages; trim() gives back the rest.
FREE_PAGES_KEPT = 4_096
TRIM_PAGES_MAX = 1_024

# A bundle of contents. Whoever reads one message of it reads it as a whole.
BUNDLE_MESSAGES_MAX = 64
BUNDLE_BYTES_MAX = 128 * 1024

# One table for each bucket of the duplicate history, made when it is first written to. The upper
# half of a digest is the key, because SQLite finds whole numbers fastest.
HISTORY_TABLE = """
CREATE TABLE IF NOT EXISTS {name}(
    high INTEGER PRIMARY KEY,
    low INTEGER NOT NULL,
    at_ms INTEGER NOT NULL
)"""
HISTORY_PREFIX = "history_"

# How far bulk writers have come. Files made before this table was thought of get it when opened.
PRODUCER_TABLE = """
CREATE TABLE IF NOT EXISTS producer(
    number INTEGER NOT NULL,
    writer TEXT NOT NULL,
    batch INTEGER NOT NULL,
    published INTEGER NOT NULL,
    PRIMARY KEY(number, writer)
) WITHOUT ROWID"""

# What left a fragment before its named readers had passed: rows of `message` with their contents.
KEPT_TABLE = """
CREATE TABLE IF NOT EXISTS kept(
    position INTEGER PRIMARY KEY,
    kept_length INTEGER NOT NULL,
    enqueued_ms INTEGER NOT NULL,
    deliveries INTEGER NOT NULL,
    state INTEGER NOT NULL,
    expires_ms INTEGER,
    sequence INTEGER,
    session TEXT,
    origin INTEGER,
    source TEXT,
    content BLOB NOT NULL
)"""
# Of one fragment, for all of its readers.
KEPT_BYTES_MAX = 256 * 1024 * 1024

_COUNTERS = ", ".join(f"{name} INTEGER NOT NULL" for name in COUNTER_FIELDS)

TABLES = f"""
CREATE TABLE meta(key TEXT PRIMARY KEY, value) WITHOUT ROWID;

CREATE TABLE fragment(
    number INTEGER PRIMARY KEY,
    entity INTEGER NOT NULL,
    incarnation INTEGER NOT NULL,
    partition INTEGER NOT NULL,
    subqueue INTEGER NOT NULL,
    {_COUNTERS},
    UNIQUE(entity, incarnation, partition, subqueue)
);

CREATE TABLE body(
    id INTEGER PRIMARY KEY,
    count INTEGER NOT NULL,
    content BLOB NOT NULL
);

CREATE TABLE share(
    body INTEGER PRIMARY KEY,
    copies INTEGER NOT NULL
);
CREATE INDEX share_empty ON share(copies) WHERE copies = 0;

CREATE TABLE message(
    position INTEGER PRIMARY KEY,
    body INTEGER NOT NULL,
    offset INTEGER NOT NULL,
    length INTEGER NOT NULL,
    kept_length INTEGER NOT NULL,
    kept_count INTEGER NOT NULL,
    enqueued_ms INTEGER NOT NULL,
    deliveries INTEGER NOT NULL DEFAULT 0,
    state INTEGER NOT NULL DEFAULT 0,
    expires_ms INTEGER,
    sequence INTEGER,
    session TEXT,
    due_ms INTEGER,
    origin INTEGER,
    hops INTEGER,
    source TEXT,
    content BLOB
);
CREATE INDEX message_session ON message(position >> 44, session) WHERE session IS NOT NULL;
CREATE INDEX message_due ON message(due_ms) WHERE state = 2;
CREATE INDEX message_deferred ON message(state) WHERE state = 1;
CREATE INDEX message_expires ON message(expires_ms) WHERE expires_ms IS NOT NULL;
CREATE INDEX message_sequence ON message(position >> 44, sequence) WHERE sequence IS NOT NULL;

CREATE TABLE session_state(
    number INTEGER NOT NULL,
    session TEXT NOT NULL,
    state BLOB NOT NULL,
    updated_ms INTEGER NOT NULL,
    PRIMARY KEY(number, session)
);

CREATE TABLE outbox(
    position INTEGER PRIMARY KEY,
    entity INTEGER NOT NULL,
    incarnation INTEGER NOT NULL,
    partition INTEGER NOT NULL,
    subqueue INTEGER NOT NULL
);

CREATE TABLE mark(
    number INTEGER NOT NULL,
    entity INTEGER NOT NULL,
    incarnation INTEGER NOT NULL,
    partition INTEGER NOT NULL,
    subqueue INTEGER NOT NULL,
    high INTEGER NOT NULL,
    PRIMARY KEY(number, entity, incarnation, partition, subqueue)
) WITHOUT ROWID;

CREATE TABLE cursor(
    number INTEGER NOT NULL,
    reader TEXT NOT NULL,
    position INTEGER NOT NULL,
    PRIMARY KEY(number, reader)
) WITHOUT ROWID;
"""
