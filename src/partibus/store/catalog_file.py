"""The catalog's file: its tables, how it is opened, and what a transaction on it is.

SQLite with a write-ahead log, so that every node can read while one writes, a checksum on every
page, and a flush to disk at every commit. What the rows mean is in catalog.
"""

from __future__ import annotations

import functools
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import apsw
import apsw.sqlite_extra

from partibus.store import StoreDamaged, StoreError

# "Pcat" in the file's header, so that `file` and we can tell it from other databases.
APPLICATION_ID = 0x50636174
FORMAT_VERSION = 2
# A change takes milliseconds; whoever waits longer is told that the catalog is busy.
BUSY_MS_MAX = 5_000
_CHECKSUM_BYTES = 8
_CHECKSUM_VFS = "cksmvfs"
# Keys lie in this file: nobody but the owner reads it.
_FILE_MODE = 0o600

TABLES = """
CREATE TABLE setting(name TEXT PRIMARY KEY, value) WITHOUT ROWID;

CREATE TABLE entity(
    id INTEGER PRIMARY KEY AUTOINCREMENT,
    incarnation INTEGER NOT NULL,
    name TEXT NOT NULL,
    key TEXT NOT NULL,
    kind TEXT NOT NULL,
    description TEXT NOT NULL,
    fragments INTEGER NOT NULL,
    home INTEGER NOT NULL,
    topic INTEGER NOT NULL DEFAULT 0,
    created_ms INTEGER NOT NULL,
    updated_ms INTEGER NOT NULL,
    deleted_ms INTEGER NOT NULL DEFAULT 0,
    changed INTEGER NOT NULL
);
CREATE UNIQUE INDEX entity_living ON entity(key) WHERE deleted_ms = 0;
CREATE INDEX entity_changed ON entity(changed);
CREATE INDEX entity_topic ON entity(topic);

CREATE TABLE rule(
    number INTEGER PRIMARY KEY AUTOINCREMENT,
    subscription INTEGER NOT NULL,
    key TEXT NOT NULL,
    name TEXT NOT NULL,
    filter TEXT NOT NULL,
    description TEXT NOT NULL,
    created_ms INTEGER NOT NULL,
    UNIQUE(subscription, key)
);

CREATE TABLE access_rule(
    scope INTEGER NOT NULL,
    name TEXT NOT NULL,
    rights TEXT NOT NULL,
    primary_key TEXT NOT NULL,
    secondary_key TEXT NOT NULL,
    PRIMARY KEY(scope, name)
) WITHOUT ROWID;
"""


class CatalogFile:
    """An open catalog file: rows in, rows out, and transactions that hold or leave no trace."""

    __slots__ = ("_connection", "path")

    def __init__(self, path: Path, *, create: bool) -> None:
        self.path = path
        with _failures(path):
            _load_checksums()
            flags = apsw.SQLITE_OPEN_READWRITE
            if create:
                flags |= apsw.SQLITE_OPEN_CREATE
                os.close(os.open(path, os.O_CREAT | os.O_RDWR, _FILE_MODE))
            connection = apsw.Connection(str(path), flags=flags, vfs=_CHECKSUM_VFS)
            connection.set_busy_timeout(BUSY_MS_MAX)
            self._connection = connection
            try:
                connection.pragma("synchronous", "FULL")
                if create and connection.pragma("application_id") == 0:
                    self._format()
                self._check(path)
            except BaseException:
                connection.close()
                raise

    def _format(self) -> None:
        if self.rows("SELECT 1 FROM sqlite_schema LIMIT 1"):
            return
        # The room for checksums can be made only while the file is empty.
        self._connection.reserve_bytes(None, _CHECKSUM_BYTES)
        self._connection.pragma("journal_mode", "WAL")
        with self.transaction():
            self.run(TABLES)
            self._connection.pragma("application_id", APPLICATION_ID)
            self._connection.pragma("user_version", FORMAT_VERSION)

    def _check(self, path: Path) -> None:
        if self._connection.pragma("application_id") != APPLICATION_ID:
            raise StoreDamaged(f"{path} is not a catalog of partibus")
        version = self._connection.pragma("user_version")
        if version != FORMAT_VERSION:
            raise StoreDamaged(
                f"{path} has format {version}; this release of partibus reads {FORMAT_VERSION}"
            )

    def close(self) -> None:
        """Give the file up."""
        self._connection.close()

    def rows(self, query: str, values: tuple[object, ...] = ()) -> list[tuple[Any, ...]]:
        """Run one statement; all its rows."""
        with _failures(self._connection.filename):
            return list(self._connection.execute(query, values))

    def run(self, statements: str) -> None:
        """Run statements without values or rows."""
        with _failures(self._connection.filename):
            self._connection.execute(statements).fetchall()

    def data_version(self) -> int:
        """A number that differs once another connection has changed the file."""
        with _failures(self._connection.filename):
            version = self._connection.pragma("data_version")
            assert isinstance(version, int)
            return version

    def own_changes(self) -> int:
        """A number that differs once we have changed the file ourselves."""
        return int(self._connection.total_changes())

    @property
    def in_transaction(self) -> bool:
        """Whether what is read now may still be undone."""
        return bool(self._connection.in_transaction)

    @contextmanager
    def transaction(self) -> Iterator[None]:
        """Everything inside happens together or not at all. Within another it is part of that."""
        if self.in_transaction:
            yield
            return
        # IMMEDIATE: what began by reading could not become a writer beside another writer.
        self.run("BEGIN IMMEDIATE")
        try:
            yield
            self.run("COMMIT")
        finally:
            if self.in_transaction:
                self.run("ROLLBACK")

    @contextmanager
    def reading(self) -> Iterator[None]:
        """Everything read inside is of one moment."""
        if self.in_transaction:
            yield
            return
        self.run("BEGIN")
        try:
            yield
        finally:
            # SQLite has ended it by itself after some failures.
            if self.in_transaction:
                self.run("ROLLBACK")


@functools.cache
def _load_checksums() -> None:
    """Register the checksum VFS in this process, for those who ask for it by name only."""
    default = apsw.vfs_names()[0]
    apsw.sqlite_extra.load(apsw.Connection(":memory:"), "cksumvfs")
    apsw.set_default_vfs(default)


@contextmanager
def _failures(path: object) -> Iterator[None]:
    """The one place where failures of the file get their names."""
    try:
        yield
    except apsw.Error as error:
        if (
            isinstance(error, apsw.CorruptError | apsw.NotADBError)
            or getattr(error, "extendedresult", 0) == apsw.SQLITE_IOERR_DATA
        ):
            raise StoreDamaged(f"{path} is damaged: {error}") from error
        raise StoreError(f"{path}: {error}") from error
    except OSError as error:
        raise StoreError(f"{path}: {error.strerror}") from error
