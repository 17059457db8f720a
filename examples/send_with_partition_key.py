"""Send to a partitioned queue with a partition key.

All messages with the same key go to the same fragment, so they are received in the order they were
sent. If that fragment is unavailable the send fails; without a key another one takes the message.
"""

from __future__ import annotations

import sys

from partibus.client import Client, Message


def main(connection_string: str, queue: str = "orders") -> None:
    """Send three messages that stay together and one that may go anywhere; receive them."""
    with Client.from_connection_string(connection_string) as client:
        with client.sender(queue) as sender:
            for step in ("ordered", "paid", "shipped"):
                sender.send(Message(step, partition_key="myPartitionKey"))
            sender.send(Message("no key, any fragment"))
        with client.receiver(queue, max_wait=1) as receiver:
            for message in receiver:
                print(f"partition {message.partition_id}: {message.text}")
                receiver.complete(message)


if __name__ == "__main__":
    main(sys.argv[1])
