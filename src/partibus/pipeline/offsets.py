"""How far a reader is: a position for each fragment, in order of arrival.

Spark compares offsets as JSON text, so the same offsets must always be the same text: fragments
stand in the order of their numbers. An offset also names the life of the entity it belongs to: a
queue that was deleted and made again starts anew. Nothing is asked of the broker here.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from partibus.pipeline.door import Range

# What the broker says of a reader for which it could not keep any more.
LOST = -1


class DataLoss(Exception):
    """Messages that should be readable are not, and the broker cannot say where they went."""


@dataclass(frozen=True, slots=True)
class Fragment:
    """What the broker says of one fragment."""

    number: int
    # The position of the first message that is there, and of the last that ever came.
    first: int
    last: int
    # The last position before the time that was asked about, where one was.
    before: int | None = None
    messages: int = 0
    bytes: int = 0
    # Up to where the named reader has read, where one was named; LOST: it lost its place.
    reader: int | None = None


@dataclass(frozen=True, slots=True)
class Standing:
    """Where an entity stands: its fragments, and those that do not answer."""

    entity: int
    incarnation: int
    fragments: tuple[Fragment, ...]
    unavailable: Mapping[int, str]

    @staticmethod
    def read(told: Mapping[str, Any]) -> Standing:
        """What the door told."""
        found = told["fragments"]
        return Standing(
            told["id"],
            told["incarnation"],
            tuple(
                Fragment(
                    each["fragment"], each["first"], each["last"], each.get("before"),
                    each.get("active", 0) + each.get("deferred", 0), each.get("bytes", 0),
                    each.get("reader"),
                )
                for each in found
                if "unavailable" not in each
            ),
            {each["fragment"]: each["unavailable"] for each in found if "unavailable" in each},
        )  # fmt: skip

    def offsets(self, positions: Mapping[int, int]) -> Offsets:
        """These positions, in this life of the entity."""
        return Offsets(self.entity, self.incarnation, dict(sorted(positions.items())))

    def begin(self) -> Offsets:
        """Before the first message that is there."""
        return self.offsets({each.number: each.first - 1 for each in self.fragments})

    def end(self) -> Offsets:
        """After the last message."""
        return self.offsets({each.number: each.last for each in self.fragments})

    @property
    def is_place_lost(self) -> bool:
        """Whether the named reader was too far behind for what the broker keeps."""
        return any(each.reader == LOST for each in self.fragments)

    def at_time(self) -> Offsets:
        """Before the first message of the time that was asked about."""
        found = {}
        for each in self.fragments:
            if each.before is None:
                raise ValueError(
                    "a dead letter keeps the time of its first arrival, so a dead-letter queue "
                    "cannot be read from or to a time; give offsets"
                )
            found[each.number] = each.before
        return self.offsets(found)


@dataclass(frozen=True, slots=True)
class Offsets:
    """Positions up to which everything was read, by fragment."""

    entity: int
    incarnation: int
    positions: dict[int, int]

    def plain(self) -> dict[str, Any]:
        """As Spark keeps it."""
        positions = {str(number): self.positions[number] for number in sorted(self.positions)}
        return {"entity": self.entity, "incarnation": self.incarnation, "positions": positions}

    @staticmethod
    def read(plain: Mapping[str, Any]) -> Offsets:
        """As Spark gives it back."""
        positions = {int(number): position for number, position in plain["positions"].items()}
        return Offsets(plain["entity"], plain["incarnation"], positions)

    def is_same_life(self, other: Offsets | Standing) -> bool:
        """Whether both belong to the same life of the same entity."""
        return (self.entity, self.incarnation) == (other.entity, other.incarnation)

    def until(self, end: Offsets) -> list[Range]:
        """What lies between; a fragment that was not known before is read from its beginning."""
        begin = self.positions if self.is_same_life(end) else {}
        ranges = [
            Range(number, begin.get(number, 0), upto) for number, upto in end.positions.items()
        ]
        return [each for each in ranges if each.upto > each.after]


def checked(start: Offsets, now: Standing, *, fail: bool) -> Offsets:
    """The start as far as it still means something; DataLoss where that is less than it should.

    Messages that were completed, expired or deleted since are accounted for by the broker and
    not lost. Positions that the broker never gave away, or another life of the entity, are.
    """
    if not start.is_same_life(now):
        if fail:
            raise DataLoss(
                "the entity was deleted and made again since this query last ran, so what it had "
                "not read is gone; start with a new checkpoint, or set failOnDataLoss=false"
            )
        return now.begin()
    positions = dict(start.positions)
    for each in now.fragments:
        known = positions.get(each.number, 0)
        if each.last < known:
            if fail:
                raise DataLoss(
                    f"fragment {each.number} ends at position {each.last}, but position {known} "
                    "was read before: the data directory is an older copy. Start with a new "
                    "checkpoint, or set failOnDataLoss=false"
                )
            positions[each.number] = each.last
        else:
            positions[each.number] = max(known, each.first - 1)
    return now.offsets(positions)


def limited(start: Offsets, end: Offsets, most: int) -> Offsets:
    """An end with at most so many positions more than the start, in proportion to the backlogs."""
    backlogs = {
        number: max(upto - start.positions.get(number, 0), 0)
        for number, upto in end.positions.items()
    }
    total = sum(backlogs.values())
    if total <= most:
        return end
    shares = {number: most * backlog // total for number, backlog in backlogs.items()}
    # What rounding left over goes to those who lost most by it.
    rest = most - sum(shares.values())
    by_loss = sorted(backlogs, key=lambda number: (-(most * backlogs[number] % total), number))
    for number in by_loss[:rest]:
        shares[number] += 1
    positions = {number: start.positions.get(number, 0) + share for number, share in shares.items()}
    return Offsets(end.entity, end.incarnation, dict(sorted(positions.items())))


def span(start: Offsets, end: Offsets) -> int:
    """How many positions lie between."""
    return sum(each.upto - each.after for each in start.until(end))
