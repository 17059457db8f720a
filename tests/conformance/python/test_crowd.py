"""Many senders and receivers at once, on several nodes: the checker knows every message."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from azure.servicebus import ServiceBusClient, ServiceBusMessage

from partibus.testing.checker import Record, Wrong

SENDERS = 6
RECEIVERS = 6
MESSAGES_EACH = 150
KEYS_EACH = 5
WAIT_S = 1.0
PREFETCH = 20


def send(client: ServiceBusClient, queue: str, record: Record, name: int) -> None:
    """Send with keys of one's own, so that their order is known; every third without a key."""
    with client.get_queue_sender(queue) as sender:
        for number in range(MESSAGES_EACH):
            message_id = f"{name}/{number}"
            key = None if number % 3 == 0 else f"{name}/{number % KEYS_EACH}"
            record.sending(message_id, key)
            sender.send_messages(
                ServiceBusMessage(b"x" * 100, message_id=message_id, partition_key=key)
            )
            record.accepted(message_id)


def receive(
    client: ServiceBusClient, queue: str, record: Record, name: str, is_over: threading.Event
) -> None:
    """Receive and complete until all that was sent has been received.

    With prefetch: without it the client gives back what comes while it is not asking, and what was
    given back may come to this receiver after a later message of its key.
    """
    with client.get_queue_receiver(queue, prefetch_count=PREFETCH) as receiver:
        while True:
            messages = receiver.receive_messages(50, max_wait_time=WAIT_S)
            for message in messages:
                message_id, number = message.message_id or "", message.sequence_number or 0
                delivery = record.received(name, message_id, number, message.delivery_count or 0)
                receiver.complete_message(message)
                record.completed(delivery)
            if not messages and is_over.is_set():
                return


def test_many_senders_and_receivers_lose_and_repeat_nothing(
    live_namespace: Any, queue: str
) -> None:
    record = Record()
    all_sent = threading.Event()
    text = live_namespace.connection_string
    with (
        ServiceBusClient.from_connection_string(text) as client,
        ThreadPoolExecutor(SENDERS + RECEIVERS) as pool,
    ):
        receivers = [
            pool.submit(receive, client, queue, record, f"r{n}", all_sent) for n in range(RECEIVERS)
        ]
        senders = [pool.submit(send, client, queue, record, n) for n in range(SENDERS)]
        for future in senders:
            future.result(120)
        all_sent.set()
        for future in receivers:
            future.result(120)
    assert len(record.lives) == SENDERS * MESSAGES_EACH
    # Order holds for one receiver of a key: what another gives back comes late (docs/ADVICE.md).
    assert [each for each in record.faults() if each.wrong is not Wrong.OUT_OF_ORDER] == []
