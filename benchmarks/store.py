"""What a store costs: CPU and wall time per message, beside a plain log with fdatasync.

    python benchmarks/store.py [--directory DIR] [--backlog 1000000] [--rounds 3] [--quick]

Every figure is the best of some rounds; a round runs all cases once, so that a busy machine hurts
them alike. The log is the yardstick of the same run: it appends each batch and syncs it, keeps
no index and gives nothing back. Figures are microseconds per message, of CPU (of wall time).
"""

from __future__ import annotations

import argparse
import os
import random
import shutil
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from pathlib import Path

from partibus.broker.records import Changes, Entry, FragmentKey
from partibus.store.sqlite import SqliteStore

BATCHES = (1, 16, 64, 512)
SIZES = (1_000, 100)
STORES = 16
PLENTY = 1 << 40
# Enough commits for the log to come round once, few enough to finish.
COMMITS_MIN, COMMITS_MAX, MESSAGES = 30, 1_500, 30_000

Figure = tuple[float, float]


class Timer:
    """CPU of this process and wall time, per message."""

    def __init__(self) -> None:
        self._cpu, self._wall = time.process_time(), time.perf_counter()

    def per(self, messages: int) -> Figure:
        """What has passed since the start, divided by a number of messages."""
        cpu, wall = time.process_time() - self._cpu, time.perf_counter() - self._wall
        return cpu / messages * 1e6, wall / messages * 1e6


class Writer:
    """One fragment of one store, with the positions it has."""

    def __init__(self, store: SqliteStore, size: int, number: int = 5) -> None:
        self.store = store
        self.number = number
        self.key = FragmentKey(number, 1, 1, 0)
        self.content = os.urandom(size)
        self.created = number not in {s.number for s in store.fragments()}
        self.next = 1
        self.first = 1

    def changes(self) -> Changes:
        """An empty set of changes for the next commit."""
        changes = Changes(self.number, self.key, self.created)
        self.created = False
        changes.counters.next_position = self.next
        return changes

    def insert(self, count: int) -> None:
        """Commit `count` new messages."""
        changes = self.changes()
        content, base = self.content, 1 << 48
        changes.added = [
            Entry(p, base | p, content, b"", 0, 1_700_000_000_000 + p)
            for p in range(self.next, self.next + count)
        ]
        self.next += count
        self.store.commit([changes])

    def delete(self, positions: list[int]) -> None:
        """Commit the end of these messages."""
        changes = self.changes()
        changes.removed = positions
        self.store.commit([changes])

    def delete_first(self, count: int) -> None:
        """Commit the end of the oldest messages."""
        self.delete(list(range(self.first, self.first + count)))
        self.first += count

    def scan(self, after: int, count: int) -> int:
        """Read messages; the last position read."""
        return self.store.scan(self.number, after, count, PLENTY)[-1].position


class Bench:
    """Best figures by name, over rounds."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.best: dict[str, Figure] = {}
        self._files = 0

    def path(self) -> Path:
        """A name not used before."""
        self._files += 1
        return self.directory / f"store-{self._files:02d}.sqlite"

    def note(self, name: str, figure: Figure) -> None:
        """Keep the figure if it is the best so far."""
        self.best[name] = min(figure, self.best.get(name, figure))

    def clear(self) -> None:
        """Delete the files of the last case."""
        for path in self.directory.iterdir():
            path.unlink()


def commits_for(batch: int, quick: bool) -> int:
    """How many commits measure a batch size."""
    commits = max(COMMITS_MIN, min(COMMITS_MAX, MESSAGES // batch))
    return max(10, commits // 5) if quick else commits


def one_store(bench: Bench, size: int, batch: int, quick: bool) -> None:
    """Insert, scan, delete in order, delete scattered, in a store that is otherwise empty."""
    commits = commits_for(batch, quick)
    store = SqliteStore(bench.path())
    writer = Writer(store, size)
    label = f"{size} B, batch {batch:3}"
    # Twice: the second time the log is as long as it gets, as it is in a broker that runs.
    for _ in range(2):
        first = writer.next
        timer = Timer()
        for _ in range(commits):
            writer.insert(batch)
        bench.note(f"{label}: insert", timer.per(commits * batch))
        timer, at = Timer(), first - 1
        for _ in range(commits):
            at = writer.scan(at, batch)
        bench.note(f"{label}: scan", timer.per(commits * batch))
        timer = Timer()
        for _ in range(commits):
            writer.delete_first(batch)
        bench.note(f"{label}: delete", timer.per(commits * batch))
    first = writer.next
    for _ in range(commits):
        writer.insert(batch)
    positions = list(range(first, writer.next))
    random.Random(1).shuffle(positions)
    timer = Timer()
    for start in range(0, len(positions), batch):
        writer.delete(positions[start : start + batch])
    bench.note(f"{label}: delete scattered", timer.per(commits * batch))
    store.close()
    bench.clear()


def log_yardstick(bench: Bench, size: int, batch: int, quick: bool) -> None:
    """Append a batch and sync, in plain Python."""
    commits = commits_for(batch, quick)
    content = os.urandom(size)
    file = os.open(bench.directory / "log", os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    timer = Timer()
    for _ in range(commits):
        os.write(file, b"".join([b"%08d" % len(content) + content for _ in range(batch)]))
        os.fdatasync(file)
    bench.note(f"{size} B, batch {batch:3}: log", timer.per(commits * batch))
    os.close(file)
    bench.clear()


def many_stores(bench: Bench, batch: int, quick: bool) -> None:
    """The same messages spread over sixteen stores, one commit each in turn."""
    share = max(1, batch // STORES)
    commits = max(5, commits_for(batch, quick) // 4)
    stores = [SqliteStore(bench.path()) for _ in range(STORES)]
    writers = [Writer(store, SIZES[0]) for store in stores]
    for name, work in (("insert", Writer.insert), ("delete", Writer.delete_first)):
        timer = Timer()
        for _ in range(commits):
            for writer in writers:
                work(writer, share)
        figure = timer.per(commits * share * STORES)
        bench.note(f"1000 B, {STORES} stores, {share:2} each: {name}", figure)
    for store in stores:
        store.close()
    bench.clear()


def backlog(bench: Bench, messages: int, quick: bool) -> None:
    """The same work with many messages waiting, at the head, at the tail and anywhere."""
    path = bench.path()
    store = SqliteStore(path)
    writer = Writer(store, SIZES[0])
    while writer.next <= messages:
        writer.insert(1_024)
    store.close()
    timer = Timer()
    store = SqliteStore(path)
    store.fragments()
    bench.note("backlog: open (in all)", timer.per(1))
    writer.store = store
    for batch in (64, 512):
        commits = commits_for(batch, quick)
        for name, work in (("insert", writer.insert), ("delete", writer.delete_first)):
            timer = Timer()
            for _ in range(commits):
                work(batch)
            bench.note(f"backlog, batch {batch:3}: {name}", timer.per(commits * batch))
        timer, at = Timer(), writer.first - 1
        for _ in range(commits):
            at = writer.scan(at, batch)
        bench.note(f"backlog, batch {batch:3}: scan", timer.per(commits * batch))
        chosen = random.Random(batch).sample(range(at, messages), commits * batch)
        timer = Timer()
        for start in range(0, len(chosen), batch):
            writer.delete(chosen[start : start + batch])
        bench.note(f"backlog, batch {batch:3}: delete scattered", timer.per(commits * batch))
    store.close()
    bench.clear()


def beside_a_busy_loop(bench: Bench, batch: int, quick: bool) -> None:
    """Wall time of whole calls in a thread while another thread computes all the time."""
    commits = commits_for(batch, quick) // 10
    store = SqliteStore(bench.path())
    writer = Writer(store, SIZES[0])
    writer.insert(batch)
    over = threading.Event()

    def burn() -> None:
        while not over.is_set():
            sum(range(50))

    thread = threading.Thread(target=burn)
    thread.start()
    calls: tuple[tuple[str, Callable[[], object]], ...] = (
        ("insert", lambda: writer.insert(batch)),
        ("scan", lambda: writer.scan(0, batch)),
        ("delete", lambda: writer.delete_first(batch)),
    )
    for name, call in calls:
        timer = Timer()
        for _ in range(commits):
            call()
        _, wall = timer.per(commits)
        bench.note(f"busy, batch {batch:3}: {name} (a call, wall)", (wall, wall))
    over.set()
    thread.join()
    store.close()
    bench.clear()


def main() -> None:
    """Run all cases and print a table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--directory", type=Path, default=None)
    parser.add_argument("--backlog", type=int, default=1_000_000)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--quick", action="store_true")
    options = parser.parse_args()
    directory = Path(tempfile.mkdtemp(prefix="store-bench-", dir=options.directory))
    bench = Bench(directory)
    try:
        for _ in range(options.rounds):
            for size in SIZES:
                for batch in BATCHES:
                    log_yardstick(bench, size, batch, options.quick)
                    one_store(bench, size, batch, options.quick)
            for batch in (16, 128, 1024):
                many_stores(bench, batch, options.quick)
            for batch in (1, 64, 512):
                beside_a_busy_loop(bench, batch, options.quick)
        if options.backlog:
            backlog(bench, options.backlog, options.quick)
    finally:
        shutil.rmtree(directory)
    for name, (cpu, wall) in bench.best.items():
        sys.stdout.write(f"{name:45} {cpu:10.2f} ({wall:.1f})\n")


if __name__ == "__main__":
    main()
