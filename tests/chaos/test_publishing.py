"""Publishing against SIGKILL. A message is in all subscriptions that want it, or in none."""

from __future__ import annotations

import itertools
import threading
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor

from azure.servicebus import ServiceBusClient, ServiceBusMessage
from azure.servicebus.exceptions import ServiceBusError

from partibus.testing.serve import LiveBroker

PATIENCE_S = 60.0
POLL_S = 0.02
BATCH = 5
PEEKED = 250
PUBLISHERS = 3
REGIONS = ("north", "south")


class Publishing:
    """Publishers that never send a message twice, and what the broker has said to them."""

    def __init__(self, broker: LiveBroker, topic: str) -> None:
        self._text = broker.connection_string
        self._topic = topic
        self._numbers = itertools.count()
        self._over = threading.Event()
        self._pool = ThreadPoolExecutor(PUBLISHERS)
        self.tried: dict[str, str] = {}
        self.accepted: set[str] = set()
        self._workers = [self._pool.submit(self._publish, each) for each in range(PUBLISHERS)]

    def flow(self, messages: int) -> None:
        """Wait until so many more were accepted."""
        aim, end_s = len(self.accepted) + messages, time.monotonic() + PATIENCE_S
        while len(self.accepted) < aim:
            assert time.monotonic() < end_s, f"{len(self.accepted)} of {aim} were accepted"
            time.sleep(POLL_S)

    def stop(self) -> None:
        """End the publishers, each after the call it is in."""
        self._over.set()
        for worker in self._workers:
            worker.result(PATIENCE_S)
        self._pool.shutdown()

    def _publish(self, number: int) -> None:
        while not self._over.is_set():
            # Without retries: what was not answered is not sent again.
            client = ServiceBusClient.from_connection_string(self._text, retry_total=0)
            try:
                with client, client.get_topic_sender(self._topic) as sender:
                    while not self._over.is_set():
                        ids = [f"{number}-{next(self._numbers)}" for _ in range(BATCH)]
                        region = REGIONS[int(ids[0].split("-")[1]) % len(REGIONS)]
                        self.tried.update(dict.fromkeys(ids, region))
                        sender.send_messages(
                            [
                                ServiceBusMessage(
                                    each, message_id=each, application_properties={"region": region}
                                )
                                for each in ids
                            ]
                        )
                        self.accepted.update(ids)
            except (ServiceBusError, ValueError):
                # It is not known whether this batch was taken.
                continue


def copies(broker: LiveBroker, topic: str, subscription: str) -> Counter[str]:
    """How often each message is in a subscription."""
    found: Counter[str] = Counter()
    client = ServiceBusClient.from_connection_string(broker.connection_string)
    with client, client.get_subscription_receiver(topic, subscription) as receiver:
        sequence = 0
        while page := receiver.peek_messages(PEEKED, sequence_number=sequence):
            found.update(str(message.message_id) for message in page)
            sequence = (page[-1].sequence_number or 0) + 1
    return found


def test_no_kill_leaves_a_message_in_some_of_its_subscriptions(broker: LiveBroker) -> None:
    broker.create_topic("news", enable_partitioning=True)
    for name in ("all", "everything"):
        broker.create_subscription("news", name)
    broker.create_subscription("news", "north", rules={"by-region": "region = 'north'"})
    publishing = Publishing(broker, "news")
    for node in (0, 1, None):
        publishing.flow(150)
        if node is None:
            broker.kill_all()
            broker.start()
        else:
            broker.wait_for_successor(node, broker.kill(node))
    publishing.flow(150)
    publishing.stop()
    broker.wait_until_healthy()
    everything = copies(broker, "news", "all")
    assert copies(broker, "news", "everything") == everything
    assert set(everything) >= publishing.accepted
    assert set(everything) <= set(publishing.tried)
    assert set(everything.values()) == {1}
    wanted = {each for each in everything if publishing.tried[each] == "north"}
    assert copies(broker, "news", "north") == Counter(dict.fromkeys(wanted, 1))
