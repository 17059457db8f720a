"""Messages that were written in bulk and are not published yet: files beside the stores.

A writer stages a batch in attempts; each attempt leaves one file. Which attempts count is decided
once, by whoever first links the manifest of the batch; from then on every replay of the decision
finds the same. What is published of a fragment is recorded in its store, in the same commits as the
messages; here are only the files.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import shutil
import struct
import zlib
from array import array
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec

from partibus.broker.blocks import Block
from partibus.broker.message import Incoming
from partibus.store import StoreDamaged, StoreError

STAGING_NAME = "staging"
# What one commit publishes: large enough to cost little, small enough to let others through.
CHUNK_MESSAGES = 2048
CHUNK_BYTES = 1024 * 1024
NAME_MAX = 128

_MANIFEST = "manifest.json"
_DONE = "done.json"
# What a file begins with. Before, an attempt had a file for each fragment.
_MAGIC = b"PBSTAGE2"
# Of a chunk: size, count, checksum, fragment, and whether it is one of messages or a block.
_HEAD = struct.Struct(">IIIHH")
_MESSAGES = 0
_BLOCK = 1
_ROW_BYTES = 8

Staged = list[Incoming] | Block

_encode = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.Decoder(list[Incoming]).decode


class NotStaged(Exception):
    """A batch names an attempt that there is not."""


class StagedWriter:
    """One file: the messages of one attempt, in chunks with checksums, each for one fragment."""

    def __init__(self, path: Path) -> None:
        self._path = path
        # A piece may be sent again while its first sending is still worked on.
        self._new = path.with_name(f"{path.name}.{os.urandom(8).hex()}.new")
        self._file = self._new.open("wb")
        self._file.write(_MAGIC)
        self._chunks: dict[int, list[Incoming]] = {}
        self._sizes: dict[int, int] = {}
        # How many messages each fragment gets.
        self.counts: dict[int, int] = {}

    def add(self, fragment: int, message: Incoming) -> None:
        """Stage one more."""
        chunk = self._chunks.setdefault(fragment, [])
        chunk.append(message)
        size = self._sizes.get(fragment, 0) + len(message.bare) + len(message.kept)
        self._sizes[fragment] = size
        if len(chunk) >= CHUNK_MESSAGES or size >= CHUNK_BYTES:
            self._flush(fragment)

    def append(self, fragment: int, block: Block) -> None:
        """Stage a block behind what there is for its fragment."""
        if self._chunks.get(fragment):
            self._flush(fragment)
        self._write(fragment, _BLOCK, len(block), block.rows.tobytes() + block.content)

    def _flush(self, fragment: int) -> None:
        chunk = self._chunks.pop(fragment)
        self._sizes[fragment] = 0
        self._write(fragment, _MESSAGES, len(chunk), _encode(chunk))

    def _write(self, fragment: int, kind: int, count: int, content: bytes) -> None:
        head = _HEAD.pack(len(content), count, zlib.crc32(content), fragment, kind)
        self._file.write(head)
        self._file.write(content)
        self.counts[fragment] = self.counts.get(fragment, 0) + count

    def finish(self) -> None:
        """Make the file durable under its name."""
        for fragment in list(self._chunks):
            self._flush(fragment)
        self._file.flush()
        os.fsync(self._file.fileno())
        self._file.close()
        self._new.replace(self._path)

    def discard(self) -> None:
        """Leave nothing behind that is not finished."""
        self._file.close()
        self._new.unlink(missing_ok=True)


class StagedReader:
    """The chunks of one file that are for one fragment, from a message on."""

    def __init__(self, path: Path, fragment: int, skip: int = 0) -> None:
        self._path = path
        self._fragment = fragment
        self._skip = skip
        self._offset = len(_MAGIC)

    def next(self) -> Staged:
        """The next messages; none: that was all. Chunks that are skipped are not read."""
        try:
            with self._path.open("rb") as file:
                if file.read(len(_MAGIC)) != _MAGIC:
                    raise StoreDamaged(f"{self._path.name} is not a file of staged messages")
                while True:
                    file.seek(self._offset)
                    head = file.read(_HEAD.size)
                    if not head:
                        return []
                    if len(head) < _HEAD.size:
                        raise StoreDamaged(f"{self._path.name} is damaged: it ends too early")
                    size, count, checksum, fragment, kind = _HEAD.unpack(head)
                    self._offset += _HEAD.size + size
                    if fragment != self._fragment:
                        continue
                    if self._skip >= count:
                        self._skip -= count
                        continue
                    content = file.read(size)
                    break
        except OSError as error:
            raise StoreError(f"{self._path.name}: {error.strerror}") from error
        if len(content) != size or zlib.crc32(content) != checksum:
            raise StoreDamaged(f"{self._path.name} is damaged: a checksum is wrong")
        skip, self._skip = self._skip, 0
        if kind == _MESSAGES:
            return _decode(content)[skip:]
        rows = array("q", content[: count * _ROW_BYTES])
        block = Block(rows, content[count * _ROW_BYTES :])
        return block.behind(skip) if skip else block


class Staging:
    """The staged batches of a namespace."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory

    def place(self, entity: tuple[int, int], writer: str, batch: int) -> Path:
        """Where a writer's batch for one life of an entity is staged."""
        name = f"{entity[0]}/{entity[1]}/{writer}".encode()
        return self._directory / hashlib.sha256(name).hexdigest()[:32] / str(batch)

    def prepare(self, place: Path, attempt: str) -> None:
        """Make room for an attempt."""
        check_name("attempt", attempt)
        place.mkdir(mode=0o700, parents=True, exist_ok=True)

    def is_done(self, place: Path) -> bool:
        """Whether this batch, or a later one of the writer, was published."""
        try:
            done = json.loads((place.parent / _DONE).read_bytes())
        except FileNotFoundError:
            return False
        return int(place.name) <= int(done["batch"])

    def decide(self, place: Path, attempts: dict[str, dict[str, int]]) -> dict[str, dict[str, int]]:
        """Which attempts of a batch are published: these, unless others were decided on before.

        By attempt: how many messages each fragment gets.
        """
        place.mkdir(mode=0o700, parents=True, exist_ok=True)
        manifest = place / _MANIFEST
        if not manifest.exists():
            for file in {file for _, file, _ in files_of(place, attempts)}:
                if not file.exists():
                    raise NotStaged(f"{file.name} was not staged, or is gone")
            # The files are there for good before anything depends on them.
            _sync(place)
        proposal = place / f"{os.getpid()}-{os.urandom(8).hex()}.proposal"
        _write(proposal, attempts)
        try:
            os.link(proposal, manifest)
        except FileExistsError:
            # A replay: what was decided first holds.
            pass
        finally:
            proposal.unlink()
        _sync(place)
        decided: dict[str, dict[str, int]] = json.loads(manifest.read_bytes())
        return decided

    def finish(self, place: Path) -> None:
        """All of the batch is published: remember that, and take the space back."""
        if not self.is_done(place):
            done = place.parent / _DONE
            new = place.parent / f"{os.urandom(8).hex()}.new"
            _write(new, {"batch": int(place.name)})
            new.replace(done)
            _sync(place.parent)
        shutil.rmtree(place, ignore_errors=True)

    def discard(self, place: Path, attempt: str) -> None:
        """An attempt failed or lost; where nothing was decided on, its file goes."""
        check_name("attempt", attempt)
        if not (place / _MANIFEST).exists():
            (place / staged_name(attempt)).unlink(missing_ok=True)

    def sweep(self, before_s: float) -> int:
        """Remove what was staged before a time and never decided on; returns how many batches."""
        removed = 0
        for place in self._directory.glob("*/*"):
            if not place.is_dir() or (place / _MANIFEST).exists():
                continue
            if place.stat().st_mtime < before_s:
                shutil.rmtree(place, ignore_errors=True)
                removed += 1
        return removed


def staged_name(attempt: str) -> str:
    """The name of an attempt's file."""
    return f"{attempt}.staged"


def check_name(what: str, name: str) -> None:
    """Names become parts of paths: letters, digits and dashes only."""
    if not re.fullmatch(rf"[A-Za-z0-9_-]{{1,{NAME_MAX}}}", name):
        raise ValueError(f"an {what} is named by up to {NAME_MAX} letters, digits and dashes")


def files_of(place: Path, decided: dict[str, dict[str, int]]) -> Iterator[tuple[int, Path, int]]:
    """Fragment, file and count of everything decided on, in the order of the attempts."""
    for attempt, counts in decided.items():
        for fragment, count in counts.items():
            yield int(fragment), place / staged_name(attempt), count


def _write(path: Path, content: Any) -> None:
    with path.open("w") as file:
        json.dump(content, file)
        file.flush()
        os.fsync(file.fileno())


def _sync(directory: Path) -> None:
    fd = os.open(directory, os.O_RDONLY)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)
