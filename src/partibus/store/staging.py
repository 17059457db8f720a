"""Messages that were written in bulk and are not published yet: files beside the stores.

A writer stages a batch in attempts; each attempt leaves one file for each fragment it has messages
for. Which attempts count is decided once, by whoever first links the manifest of the batch; from
then on every replay of the decision finds the same. What is published of a fragment is recorded in
its store, in the same commits as the messages; here are only the files.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import shutil
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec

from partibus.broker.message import Incoming
from partibus.store import StoreDamaged, StoreError

STAGING_NAME = "staging"
# What one commit publishes: large enough to cost little, small enough to let others through.
CHUNK_MESSAGES = 1024
CHUNK_BYTES = 1024 * 1024
NAME_MAX = 128

_MANIFEST = "manifest.json"
_DONE = "done.json"
_HEAD = 12

_encode = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.Decoder(list[Incoming]).decode


class NotStaged(Exception):
    """A batch names an attempt that there is not."""


class StagedWriter:
    """One file: messages of one attempt for one fragment, in chunks with checksums."""

    def __init__(self, path: Path) -> None:
        self._path = path
        # A piece may be sent again while its first sending is still worked on.
        self._new = path.with_name(f"{path.name}.{os.urandom(8).hex()}.new")
        self._file = self._new.open("wb")
        self._chunk: list[Incoming] = []
        self._size = 0
        self.count = 0

    def add(self, message: Incoming) -> None:
        """Stage one more."""
        self._chunk.append(message)
        self._size += len(message.bare) + len(message.kept)
        self.count += 1
        if len(self._chunk) >= CHUNK_MESSAGES or self._size >= CHUNK_BYTES:
            self._flush()

    def _flush(self) -> None:
        content = _encode(self._chunk)
        head = (len(content), len(self._chunk), zlib.crc32(content))
        self._file.write(b"".join(each.to_bytes(4, "big") for each in head) + content)
        self._chunk, self._size = [], 0

    def finish(self) -> None:
        """Make the file durable under its name."""
        if self._chunk:
            self._flush()
        self._file.flush()
        os.fsync(self._file.fileno())
        self._file.close()
        self._new.replace(self._path)

    def discard(self) -> None:
        """Leave nothing behind that is not finished."""
        self._file.close()
        self._new.unlink(missing_ok=True)


class StagedReader:
    """The chunks of one file, from a message on."""

    def __init__(self, path: Path, skip: int = 0) -> None:
        self._path = path
        self._skip = skip
        self._offset = 0

    def next(self) -> list[Incoming]:
        """The next messages; none: that was all. Chunks that are skipped are not read."""
        try:
            with self._path.open("rb") as file:
                while True:
                    file.seek(self._offset)
                    head = file.read(_HEAD)
                    if not head:
                        return []
                    size, count, checksum = (
                        int.from_bytes(head[at : at + 4], "big") for at in (0, 4, 8)
                    )
                    self._offset += _HEAD + size
                    if self._skip >= count:
                        self._skip -= count
                        continue
                    content = file.read(size)
                    break
        except OSError as error:
            raise StoreError(f"{self._path.name}: {error.strerror}") from error
        if len(content) != size or zlib.crc32(content) != checksum:
            raise StoreDamaged(f"{self._path.name} is damaged: a checksum is wrong")
        messages = _decode(content)[self._skip :]
        self._skip = 0
        return messages


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

    def attempt(self, place: Path, attempt: str) -> dict[int, Path]:
        """The files of an attempt by fragment."""
        check_name("attempt", attempt)
        found = place.glob(f"{attempt}.*.staged")
        return {int(path.name.split(".")[-2]): path for path in found}

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
            for _, file, _ in files_of(place, attempts):
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
        """An attempt failed or lost; where nothing was decided on, its files go."""
        if not (place / _MANIFEST).exists():
            for path in self.attempt(place, attempt).values():
                path.unlink(missing_ok=True)

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


def staged_name(attempt: str, fragment: int) -> str:
    """The name of a file: an attempt's messages for one fragment."""
    return f"{attempt}.{fragment}.staged"


def check_name(what: str, name: str) -> None:
    """Names become parts of paths: letters, digits and dashes only."""
    if not re.fullmatch(rf"[A-Za-z0-9_-]{{1,{NAME_MAX}}}", name):
        raise ValueError(f"an {what} is named by up to {NAME_MAX} letters, digits and dashes")


def files_of(place: Path, decided: dict[str, dict[str, int]]) -> Iterator[tuple[int, Path, int]]:
    """Fragment, file and count of everything decided on, in the order of the attempts."""
    for attempt, counts in decided.items():
        for fragment, count in counts.items():
            yield int(fragment), place / staged_name(attempt, int(fragment)), count


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
