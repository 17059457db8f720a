"""T5: transactions against SIGKILL. Every token stands in one message, whatever is killed when.

Workers move tokens on: one transaction completes the message in which a token stands and sends
the next one. If a kill could part the two, a token would be lost, or stand twice.
"""

from __future__ import annotations

import os
import random
import threading
import time
from contextlib import suppress
from datetime import timedelta
from pathlib import Path

import pytest

from partibus.client import Client, Message, MessagingError, RetryPolicy
from partibus.testing.serve import LiveBroker

TOKENS = 8
WORKERS = 3
# The first kill is of all processes, the next of one node, and so on.
KILLS = 6 if os.environ.get("CHAOS_ROUNDS") else 2
LOCK_S = 5
BETWEEN_KILLS_S = (0.5, 1.5)
# How long the last messages may take to come on a busy machine.
PATIENCE_S = 60


class Tokens:
    """What is known of the tokens: the highest step that was committed for certain."""

    def __init__(self, connection_string: str, queue: str) -> None:
        self.connection_string = connection_string
        self.queue = queue
        self.committed = dict.fromkeys(map(str, range(TOKENS)), 0)
        self.moves: set[tuple[str, int]] = set()
        self.wrong: list[str] = []
        self.is_over = threading.Event()
        self._changing = threading.Lock()

    def put_in(self) -> None:
        with self.client() as client, client.sender(self.queue) as sender:
            sender.send([step(token, 0) for token in self.committed])

    def client(self) -> Client:
        return Client.from_connection_string(self.connection_string, retry=RetryPolicy(attempts=1))

    def work(self) -> None:
        while not self.is_over.is_set():
            with suppress(MessagingError, OSError), self.client() as client:
                self._move(client)

    def _move(self, client: Client) -> None:
        with client.receiver(self.queue) as receiver, client.sender(self.queue) as sender:
            while not self.is_over.is_set():
                for message in receiver.receive(1, timeout=0.5):
                    token, number = read(message.body)
                    with client.transaction():
                        sender.send(step(token, number + 1))
                        receiver.complete(message)
                    self._moved(token, number)

    def _moved(self, token: str, number: int) -> None:
        """The commit of a move was answered.

        Another worker's answer to a later move may have come before: what is committed can be
        received before everybody has read that it is. But no move is committed twice.
        """
        with self._changing:
            if (token, number) in self.moves:
                self.wrong.append(f"{token} was moved twice from {number}")
            self.moves.add((token, number))
            self.committed[token] = max(self.committed[token], number + 1)

    def check(self) -> None:
        """Every token stands in one message, and no commit that was answered is undone."""
        assert len(self.moves) > TOKENS
        assert not self.wrong
        found = self.found()
        assert [token for token, _ in found] == sorted(self.committed)
        for token, number in found:
            # The answer to the last commit may have been lost.
            assert number >= self.committed[token]

    def found(self) -> list[tuple[str, int]]:
        """All that is there: looked for until every token was seen and every lock has ended."""
        found: list[tuple[str, int]] = []
        began_s = time.monotonic()
        with self.client() as client, client.receiver(self.queue) as receiver:
            while (took_s := time.monotonic() - began_s) < PATIENCE_S:
                if len(found) >= TOKENS and took_s > LOCK_S + 1:
                    break
                for message in receiver.receive(TOKENS, timeout=1):
                    found.append(read(message.body))
                    receiver.complete(message)
        return sorted(found)


def step(token: str, number: int) -> Message:
    return Message(f"{token}:{number}".encode(), partition_key=token)


def read(body: object) -> tuple[str, int]:
    assert isinstance(body, bytes)
    token, number = body.decode().split(":")
    return token, int(number)


@pytest.mark.slow
def test_T5_no_kill_parts_what_a_transaction_joins(tmp_path: Path) -> None:
    chance = random.Random(7)
    with LiveBroker(tmp_path, nodes=2) as broker:
        every = [
            Tokens(
                broker.connection_string,
                broker.create_queue(
                    name, enable_partitioning=name == "partitioned",
                    lock_duration=timedelta(seconds=LOCK_S), max_delivery_count=1000,
                ),
            )
            for name in ("conventional", "partitioned")
        ]  # fmt: skip
        for tokens in every:
            tokens.put_in()
        workers = [
            threading.Thread(target=tokens.work, daemon=True)
            for tokens in every
            for _ in range(WORKERS)
        ]
        for worker in workers:
            worker.start()
        for kill in range(KILLS):
            time.sleep(chance.uniform(*BETWEEN_KILLS_S))
            if kill % 2:
                node = chance.randrange(broker.nodes)
                broker.wait_for_successor(node, broker.kill(node))
            else:
                broker.kill_all()
                broker.start()
        broker.wait_until_healthy()
        time.sleep(1)
        for tokens in every:
            tokens.is_over.set()
        for worker in workers:
            worker.join(PATIENCE_S)
        for tokens in every:
            tokens.check()
