"""Entities are made, changed and deleted while nodes and the supervisor are killed (M1).

Every answer narrows down what an entity can be now, every lost one leaves two possibilities. When
all is over, each entity is one of its possibilities as a whole, on all fragments, or not there.
"""

from __future__ import annotations

import os
import random
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import pytest

from partibus.broker.partitioning import index_of
from partibus.client import Client, Message, MessagingError
from partibus.client.administration import Administration
from partibus.client.errors import EntityAlreadyExists, EntityNotFound
from partibus.testing.serve import LiveBroker

ROUNDS = int(os.environ.get("CHAOS_ROUNDS", "0")) or 3
FRAGMENTS = 16
WORKERS = 3
# How many changes are made between two kills, at least.
CHANGES = 12
PATIENCE_S = 60.0
# What it is when it is not there.
ABSENT = 0
# One key for each fragment.
KEYS = list({index_of(f"key {n}", FRAGMENTS): f"key {n}" for n in range(500)}.values())


def settings_of(kind: str, version: int) -> dict[str, str]:
    """Several properties that are changed together; each tells the version."""
    settings = {"UserMetadata": f"version {version}"}
    if kind != "Topic":
        settings["MaxDeliveryCount"] = str(version)
    settings["DefaultMessageTimeToLive"] = f"P{version}D"
    return settings


class Lives:
    """One entity: what it may be, by what was asked and answered."""

    def __init__(self, kind: str, path: str) -> None:
        self.kind = kind
        self.path = path
        self.possible = {ABSENT}
        self.version = 0

    def ask(self, change: Callable[[], object], after: int) -> None:
        before = set(self.possible)
        try:
            change()
        except EntityAlreadyExists:
            assert before != {ABSENT}, f"{self.path} was said to be there, and was never made"
            self.possible = before - {ABSENT}
        except EntityNotFound:
            assert ABSENT in before, f"{self.path} is lost; it was one of {before}"
            self.possible = {ABSENT}
        except MessagingError:
            self.possible = before | {after}
        else:
            self.possible = {after}

    def make(self, admin: Administration) -> None:
        self.version += 1
        settings = settings_of(self.kind, self.version)
        if self.kind != "Subscription":
            settings["EnablePartitioning"] = "true"
        self.ask(lambda: admin.create(self.kind, self.path, settings), self.version)

    def change(self, admin: Administration) -> None:
        self.version += 1
        settings = settings_of(self.kind, self.version)
        self.ask(lambda: admin.update(self.kind, self.path, settings), self.version)

    def delete(self, admin: Administration) -> None:
        self.ask(lambda: admin.delete(self.path), ABSENT)

    def found(self, admin: Administration) -> int:
        """What it is; a mixture of two versions is none."""
        try:
            description = admin.get(self.path)
        except EntityNotFound:
            return ABSENT
        assert description["EntityAvailabilityStatus"] == "Available"
        said = str(description["UserMetadata"])
        version = int(said.removeprefix("version "))
        shown = {name: description[name] for name in settings_of(self.kind, version)}
        assert shown == settings_of(self.kind, version)
        return version


class Worker:
    """Makes, changes, fills and deletes entities of its own until it is told to stop."""

    def __init__(self, number: int, stop: threading.Event) -> None:
        self.queue = Lives("Queue", f"queue-{number}")
        self.topic = Lives("Topic", f"topic-{number}")
        self.subscription = Lives("Subscription", f"topic-{number}/subscriptions/all")
        self.changes = 0
        self._chance = random.Random(number)
        self._stop = stop

    def run(self, connection_string: str) -> None:
        with Administration.from_connection_string(connection_string) as admin:
            while not self._stop.is_set():
                self._chance.choice((self._queue_lives, self._topic_lives))(admin)

    def _queue_lives(self, admin: Administration) -> None:
        for step in (self.queue.make, self.queue.change, self._fill, self.queue.delete):
            self._do(step, admin)

    def _topic_lives(self, admin: Administration) -> None:
        steps = (self.topic.make, self.subscription.make, self.topic.change)
        for step in (*steps, self.subscription.change, self._fill_topic, self._delete_topic):
            self._do(step, admin)

    def _do(self, step: Callable[[Administration], None], admin: Administration) -> None:
        if not self._stop.is_set():
            step(admin)
            self.changes += 1

    def _delete_topic(self, admin: Administration) -> None:
        self.topic.delete(admin)
        if self.topic.possible == {ABSENT}:
            self.subscription.possible = {ABSENT}
        elif ABSENT in self.topic.possible:
            self.subscription.possible |= {ABSENT}

    def _fill(self, admin: Administration) -> None:
        _post(admin, self.queue.path)

    def _fill_topic(self, admin: Administration) -> None:
        _post(admin, self.topic.path)


def _post(admin: Administration, path: str) -> None:
    try:
        admin._ask("POST", f"{path}/messages", "of an earlier life")
    except MessagingError:
        return


@pytest.mark.slow
def test_M1_what_is_made_changed_or_deleted_is_so_as_a_whole_or_not_at_all(
    broker: LiveBroker,
) -> None:
    stop = threading.Event()
    workers = [Worker(number, stop) for number in range(WORKERS)]
    text = broker.connection_string
    chance = random.Random(ROUNDS)
    with ThreadPoolExecutor(WORKERS) as pool:
        running = [pool.submit(worker.run, text) for worker in workers]
        try:
            for number in range(1, ROUNDS + 1):
                _wait_for_changes(broker, workers)
                if number % 3:
                    node = chance.randrange(broker.nodes)
                    broker.wait_for_successor(node, broker.kill(node))
                else:
                    broker.kill_all()
                    broker.start()
        finally:
            stop.set()
        for each in running:
            each.result(PATIENCE_S)
    with (
        Administration.from_connection_string(text) as admin,
        Client.from_connection_string(text) as client,
    ):
        for worker in workers:
            for lives in (worker.queue, worker.topic, worker.subscription):
                assert lives.found(admin) in lives.possible, lives.path
            _check_works(admin, client, worker)


def _wait_for_changes(broker: LiveBroker, workers: list[Worker]) -> None:
    aim = sum(worker.changes for worker in workers) + CHANGES
    broker._until(lambda: sum(worker.changes for worker in workers) >= aim, "nothing was changed")


def _check_works(admin: Administration, client: Client, worker: Worker) -> None:
    """Both entities take and give messages on every fragment; what is made anew is empty."""
    for lives in (worker.queue, worker.topic, worker.subscription):
        if not lives.found(admin):
            lives.make(admin)
            assert lives.possible == {lives.version}, lives.path
            assert _held(admin, lives.path) == [0] * FRAGMENTS
    for entrance, place in (
        (worker.queue.path, worker.queue.path),
        (worker.topic.path, worker.subscription.path),
    ):
        before = _held(admin, place)
        with client.sender(entrance) as sender:
            sender.send([Message(key, partition_key=key) for key in KEYS])
        assert [now - then for now, then in zip(_held(admin, place), before, strict=True)] == (
            [1] * FRAGMENTS
        )
        with client.receiver(place) as receiver:
            got: list[bytes] = []
            while len(got) < FRAGMENTS + sum(before):
                messages = receiver.receive(max_messages=100, timeout=10)
                assert messages, f"{place} did not give all it has"
                got += [each.body for each in messages if isinstance(each.body, bytes)]
                receiver.complete(messages)
        assert {each.decode() for each in got} - {"of an earlier life"} == set(KEYS)


def _held(admin: Administration, path: str) -> list[int]:
    fragments = admin.extension("GET", f"fragments/{path}")["fragments"]
    assert isinstance(fragments, list)
    assert [each["available"] for each in fragments] == [True] * FRAGMENTS
    return [each["active"] for each in fragments]
