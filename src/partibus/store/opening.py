"""Opens a store's file for its owner: makes it, checks that it is the right one, and tunes it.

Whoever reads the file from another process needs the checksum VFS, too, and finds it here. What is
in the tables is not known here.
"""

from __future__ import annotations

import functools
import os
from pathlib import Path

import apsw
import apsw.sqlite_extra

from partibus.store import StoreDamaged, schema

CHECKSUM_VFS = "cksmvfs"


def open_file(path: Path, identity: str, make: bool) -> apsw.Connection:
    """A connection that may write, to a file that is what it should be; made where asked."""
    load_checksums()
    if make:
        # Made by us, so that nobody else may read it from its first moment.
        os.close(os.open(path, os.O_RDWR | os.O_CREAT, 0o600))
    elif not path.exists():
        raise StoreDamaged(f"{path} is missing")
    connection = apsw.Connection(
        str(path),
        vfs=CHECKSUM_VFS,
        flags=apsw.SQLITE_OPEN_READWRITE,
        statementcachesize=schema.STATEMENTS_CACHED_MAX,
    )
    try:
        connection.set_busy_timeout(schema.BUSY_MS_MAX)
        if make and _is_blank(connection):
            _make(connection, identity)
        _check(connection, path, identity)
        connection.execute(schema.PRODUCER_TABLE)
        connection.execute(schema.KEPT_TABLE)
        connection.execute(
            "PRAGMA synchronous = FULL;"
            f"PRAGMA wal_autocheckpoint = {schema.WAL_PAGES_MAX};"
            f"PRAGMA journal_size_limit = {schema.WAL_BYTES_KEPT};"
            f"PRAGMA cache_size = -{schema.CACHE_KIB};"
            "PRAGMA temp_store = MEMORY;"
        ).fetchall()
    except BaseException:
        connection.close()
        raise
    return connection


@functools.cache
def load_checksums() -> None:
    """Register the checksum VFS in this process, for those who ask for it by name only."""
    default = apsw.vfs_names()[0]
    apsw.sqlite_extra.load(apsw.Connection(":memory:"), "cksumvfs")
    apsw.set_default_vfs(default)


def _is_blank(connection: apsw.Connection) -> bool:
    # Also after a crash in the middle of _make().
    return (
        connection.pragma("user_version"),
        connection.pragma("application_id"),
        connection.execute("SELECT count(*) FROM sqlite_schema").get,
    ) == (0, 0, 0)


def _make(connection: apsw.Connection, identity: str) -> None:
    # These three shape the file itself and come before anything is in it.
    connection.reserve_bytes(None, schema.CHECKSUM_BYTES)
    connection.pragma("page_size", schema.PAGE_SIZE)
    connection.pragma("auto_vacuum", "INCREMENTAL")
    connection.pragma("journal_mode", "WAL")
    connection.pragma("synchronous", "FULL")
    with connection:
        connection.execute(schema.TABLES)
        connection.execute("INSERT INTO meta VALUES ('identity', ?)", (identity,))
        connection.pragma("application_id", schema.APPLICATION_ID)
        connection.pragma("user_version", schema.FORMAT_VERSION)


def _check(connection: apsw.Connection, path: Path, identity: str) -> None:
    if connection.pragma("application_id") != schema.APPLICATION_ID:
        raise StoreDamaged(f"{path} is not a store of partibus")
    version = connection.pragma("user_version")
    if version != schema.FORMAT_VERSION:
        raise StoreDamaged(
            f"{path} has format {version}; this partibus reads format {schema.FORMAT_VERSION}"
        )
    if connection.reserve_bytes(None, -1) != schema.CHECKSUM_BYTES:
        raise StoreDamaged(f"{path} was rewritten without its page checksums")
    found = connection.execute("SELECT value FROM meta WHERE key = 'identity'").get
    if found != identity:
        raise StoreDamaged(f"{path} belongs to another namespace or store ({found!r})")
