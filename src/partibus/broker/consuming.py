"""What is reserved in a fragment for the one bulk reader that consumes it.

Messages are given to the reader in batches. Each has an ordinal: the first that was ever given is
1, and those of a batch stand in the order of their positions. A batch stays as it is until the
reader is done with it, so reading it again yields the same. Only what a reader was given in vain
too often is taken out of its batch, and leaves its ordinals empty. Kept with the fragment, in the
commits that reserve and complete; who reads and writes it is not known here.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import msgspec

from partibus.broker.errors import InvalidArgument, InvalidOperation

# Under this name it is kept with the fragment.
NOTE = "$consumer"
READER_NAME_MAX = 128
# How many messages a stream of reserved ones has, in the metadata of its schema.
MESSAGES = "messages"
# What a reader is done with that begins, with an epoch that nobody had.
BEGIN = -1


class Batch(msgspec.Struct, array_like=True):
    """Messages that were given together: how many, their bytes, and runs of their positions."""

    count: int
    size: int
    # First and last position of each unbroken run, ascending.
    runs: list[tuple[int, int]]
    # How often it was given in vain, and how often its messages were at most delivered before.
    tries: int = 0
    deliveries: int = 0
    # Runs of the positions that were taken out of it.
    gone: list[tuple[int, int]] = []

    def positions(self) -> list[int]:
        """Where its messages stand, in order."""
        every = _positions(self.runs)
        if not self.gone:
            return every
        gone = set(_positions(self.gone))
        return [each for each in every if each not in gone]

    @property
    def present(self) -> int:
        """How many messages are still in it."""
        return self.count - sum(last - first + 1 for first, last in self.gone)

    def add(self, positions: Iterable[int], size: int, deliveries: int = 0) -> None:
        """More messages of the same batch, that were delivered up to so often before."""
        merged = sorted([*_positions(self.runs), *positions])
        self.count = len(merged)
        self.size += size
        self.runs = _runs(merged)
        self.deliveries = max(self.deliveries, deliveries)

    def take_out(self, positions: Iterable[int], size: int) -> None:
        """These are not in it any more; the others keep their ordinals."""
        self.gone = _runs(sorted([*_positions(self.gone), *positions]))
        self.size -= size

    def part(self, after: int, upto: int) -> list[int]:
        """The positions of its messages behind the first so many, up to so many."""
        part = _positions(self.runs)[max(after, 0) : max(upto, 0)]
        if not self.gone:
            return part
        gone = set(_positions(self.gone))
        return [each for each in part if each not in gone]


class Consumer(msgspec.Struct, array_like=True):
    """The reader that consumes a fragment. A newer epoch takes over from an older one."""

    reader: str
    epoch: int
    # The ordinal up to which it is done, and the batches behind that.
    done: int = 0
    batches: list[Batch] = []
    # The epoch up to which it is counted how often batches were given in vain.
    counted: int = 0

    @property
    def last(self) -> int:
        """The ordinal of the last message that was given."""
        return self.done + sum(each.count for each in self.batches)

    @property
    def reserved(self) -> int:
        """How many messages it has been given and is not done with."""
        return sum(each.present for each in self.batches)

    def count_try(self) -> bool:
        """What it has not done since an earlier epoch was given in vain; True if that is news."""
        if self.counted == self.epoch:
            return False
        self.counted = self.epoch
        for batch in self.batches:
            batch.tries += 1
        return bool(self.batches)

    def spent(self, deliveries_max: int) -> Batch | None:
        """A batch with messages that may have been delivered in vain too often."""
        for batch in self.batches:
            if batch.tries and batch.present and batch.deliveries + batch.tries >= deliveries_max:
                return batch
        return None

    def check(self, reader: str, epoch: int, done: int) -> None:
        """Refuse another reader, and who was succeeded; a newer epoch takes over."""
        self.check_reader(reader)
        if epoch < self.epoch or (epoch == self.epoch and done == BEGIN):
            raise InvalidOperation(
                f"The reader '{reader}' was started anew elsewhere (epoch {self.epoch}); "
                f"this one (epoch {epoch}) may not go on."
            )
        self.epoch = epoch

    def check_reader(self, reader: str) -> None:
        """Refuse another reader."""
        if reader != self.reader:
            raise InvalidOperation(
                f"The reader '{self.reader}' consumes it, and only one can; remove that reader "
                "first, or use its name."
            )

    def finish(self, done: int) -> list[Batch]:
        """It is done up to an ordinal: the batches that are over. Refused within a batch."""
        finished: list[Batch] = []
        at = self.done
        for batch in self.batches:
            if at >= done:
                break
            finished.append(batch)
            at += batch.count
        if done > self.done and at != done:
            raise InvalidArgument(
                f"No batch of the reader '{self.reader}' ends at {done}: it is done with "
                f"{self.done} and was given up to {self.last}."
            )
        if finished:
            self.done = at
            self.batches = self.batches[len(finished) :]
        return finished

    def parts(self, after: int, upto: int) -> Iterator[list[int]]:
        """The positions of what has ordinals in after < ordinal <= upto, batch by batch."""
        if not self.done <= after <= upto <= self.last:
            raise InvalidArgument(
                f"The reader '{self.reader}' has what is behind {self.done} up to {self.last}, "
                f"not what is behind {after} up to {upto}."
            )
        at = self.done
        for batch in self.batches:
            part = batch.part(after - at, upto - at)
            if part:
                yield part
            at += batch.count


def write_consumer(consumer: Consumer) -> bytes:
    """As it is kept."""
    return msgspec.msgpack.encode(consumer)


def read_consumer(content: bytes) -> Consumer:
    """As it was kept."""
    return msgspec.msgpack.decode(content, type=Consumer)


def _positions(runs: list[tuple[int, int]]) -> list[int]:
    return [each for first, last in runs for each in range(first, last + 1)]


def _runs(positions: list[int]) -> list[tuple[int, int]]:
    runs: list[tuple[int, int]] = []
    for each in positions:
        if runs and each == runs[-1][1] + 1:
            runs[-1] = runs[-1][0], each
        else:
            runs.append((each, each))
    return runs
