"""What bulk writers have staged and not published, for operators.

A writer's directory has a label with its name, because its own name is a digest. Nothing depends
on the label; without one the rest is told all the same.
"""

from __future__ import annotations

import json
import os
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

LABEL = "writer.json"
MANIFEST = "manifest.json"
# Batches that are told of.
LISTED_MAX = 1_000
MS_PER_S = 1000


class StagedBatch(NamedTuple):
    """One batch of one writer."""

    # The id of the entity, 0 and no name where the label is missing.
    entity: int
    writer: str
    batch: int
    attempts: int
    bytes: int
    # Whether it was decided which attempts count, so that the rest of it will be published.
    is_decided: bool
    since_ms: int


def label(place: Path, entity: int, writer: str) -> None:
    """Note once who stages in the directory above a batch's."""
    path = place.parent / LABEL
    if path.exists():
        return
    new = path.with_name(f"{os.urandom(8).hex()}.new")
    new.write_text(json.dumps({"entity": entity, "writer": writer}))
    new.replace(path)


def list_staged(directory: Path) -> list[StagedBatch]:
    """All batches that are not published, the oldest first."""
    found: list[StagedBatch] = []
    for place in directory.glob("*/*"):
        if place.name.isdigit():
            # Whoever publishes takes it away meanwhile.
            with suppress(FileNotFoundError, NotADirectoryError):
                found.append(_batch(place))
    return sorted(found, key=lambda each: each.since_ms)[:LISTED_MAX]


def _batch(place: Path) -> StagedBatch:
    entity, writer = _labelled(place.parent / LABEL)
    attempts = size = 0
    with os.scandir(place) as files:
        for file in files:
            if file.name.endswith(".staged"):
                attempts += 1
                size += file.stat().st_size
    return StagedBatch(
        entity, writer, int(place.name), attempts, size,
        (place / MANIFEST).exists(), int(place.stat().st_mtime * MS_PER_S),
    )  # fmt: skip


def _labelled(path: Path) -> tuple[int, str]:
    try:
        found = json.loads(path.read_bytes())
        return int(found["entity"]), str(found["writer"])
    except (FileNotFoundError, ValueError, KeyError):
        return 0, ""
